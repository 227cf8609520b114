"""Video transformers with joint attention over space and time.

Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021 (arXiv:2010.11929), on tubelets as in Tong et
al., "VideoMAE", NeurIPS 2022 (arXiv:2203.12602), whose parameter names these are. What differs: there is no
classifier; the final norm acts on tokens, as in VideoMAE's pre-training (fine-tuned models norm the mean
token); the sin-cos positions are generated for any frame size by sampling between those of the reference
size, which are VideoMAE's, and for any number of frames; with the border "replicate" time is not among them but a
lean of the attention, so that a clip of equal frames has equal features. One feature per tubelet, so T' = T / tubelet
whatever `per_frame_features` says.

Shapes: B clips, T' tubelets of H'×W' = S patches, D channels; tokens travel as (B, T', H', W', D).
"""

import math
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.backbones.layers import TemporalPadding


class VideoTransformer(Backbone):
    """A plain pre-norm transformer on tubelets.

    embed_dim, depth, num_heads: D, number of blocks, attention heads per block.
    patch_size, tubelet_size: a token's side in pixels and length in frames.
    reference_size: frame size in pixels whose positions are whole numbers.
    """

    temporal_padding: TemporalPadding = "zeros"

    def __init__(
        self, *, embed_dim: int, depth: int, num_heads: int, patch_size: int, tubelet_size: int, reference_size: int
    ) -> None:
        super().__init__()
        self.out_features = embed_dim
        self.stage_prefixes = (
            ("patch_embed",),
            *((f"blocks.{index}",) for index in range(depth - 1)),
            (f"blocks.{depth - 1}", "norm"),
        )
        self.min_size = self.size_divisor = patch_size
        self.min_frames = self.frames_divisor = tubelet_size
        self.reference_side = reference_size // patch_size
        self.patch_embed = PatchEmbed(embed_dim, patch_size=patch_size, tubelet_size=tubelet_size)
        self.blocks = nn.ModuleList(TransformerBlock(embed_dim, num_heads=num_heads) for _ in range(depth))
        self.norm = nn.LayerNorm(embed_dim, eps=1e-6)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.trunc_normal_(part.weight, std=0.02)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)

    def _trunk(self, clips: Tensor) -> Tensor:
        h = self.patch_embed(clips)
        # Alike in all frames where attention is told of time: the first frame's.
        grid = (h.shape[1] if self.temporal_padding == "zeros" else 1, *h.shape[2:4])
        h = h + sincos_positions(grid, self.out_features, reference_side=self.reference_side, device=h.device).to(
            h.dtype
        )
        for block in self.blocks[:-1]:
            h = block(h)
        return h

    def _last_stage(self, h: Tensor) -> Tensor:
        return self.norm(self.blocks[-1](h)).movedim(-1, 1)


class PatchEmbed(nn.Module):
    """Tokens (B, T', H', W', D), each a linear map of one tubelet."""

    def __init__(self, embed_dim: int, *, patch_size: int, tubelet_size: int) -> None:
        super().__init__()
        size = (tubelet_size, patch_size, patch_size)
        self.proj = nn.Conv3d(3, embed_dim, size, stride=size)

    def forward(self, clips: Tensor) -> Tensor:
        return self.proj(clips).movedim(1, -1)


class Attention(nn.Module):
    """Multi-head self-attention over all tokens of a clip; when strict, over those of the same tubelet time.

    With the border "replicate" each head leans in time (`lean`). With `double_backward` the attention is computed by plain
    operations, which can be differentiated twice.
    """

    framewise: bool = False
    double_backward: bool = False
    temporal_padding: TemporalPadding = "zeros"

    def __init__(self, embed_dim: int, *, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False)
        # A bias of the keys would cancel in the softmax: VideoMAE has none.
        self.q_bias = nn.Parameter(torch.zeros(embed_dim))
        self.v_bias = nn.Parameter(torch.zeros(embed_dim))
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        # Strict attention is attention over a batch of B·T' sets of S tokens.
        tokens = x.flatten(2, 3).flatten(0, 1) if self.framewise else x.flatten(1, 3)
        bias = torch.cat((self.q_bias, torch.zeros_like(self.q_bias), self.v_bias))
        qkv = F.linear(tokens, self.qkv.weight, bias)
        q, k, v = qkv.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        time, space = x.shape[1], x.shape[2] * x.shape[3]
        leaning = None
        if self.temporal_padding == "replicate" and not self.framewise:
            leaning = temporal_attention_bias(time, self.num_heads, device=x.device).to(q.dtype)
            leaning = leaning.repeat_interleave(space, 1).repeat_interleave(space, 2)[None]
        with sdpa_kernel(SDPBackend.MATH) if self.double_backward else nullcontext():
            attended = F.scaled_dot_product_attention(q, k, v, attn_mask=leaning)
        return self.proj(attended.transpose(1, 2).reshape(x.shape))


class Mlp(nn.Module):
    """Two linear maps with a GELU between, four times as wide inside."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, 4 * embed_dim)
        self.fc2 = nn.Linear(4 * embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class TransformerBlock(nn.Module):
    """Attention and MLP, each normed before and added to its input."""

    def __init__(self, embed_dim: int, *, num_heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dim, eps=1e-6)
        self.attn = Attention(embed_dim, num_heads=num_heads)
        self.norm2 = nn.LayerNorm(embed_dim, eps=1e-6)
        self.mlp = Mlp(embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def sincos_positions(
    grid: tuple[int, ...], embed_dim: int, *, reference_side: int, device: torch.device | None = None
) -> Tensor:
    """VideoMAE's sin-cos positions of the tokens of `grid` = (T', H', W'), shape (T', H', W', width).

    reference_side: rows and columns of the reference grid. Tokens are numbered in it, time first and columns last;
    those of a coarser or finer grid have the fractional numbers of their centres.
    """
    time, rows, columns = (torch.arange(n, dtype=torch.float32, device=device) for n in grid)
    rows = (rows + 0.5) * reference_side / grid[1] - 0.5
    columns = (columns + 0.5) * reference_side / grid[2] - 0.5
    number = (time * reference_side * reference_side)[:, None, None] + (rows * reference_side)[:, None] + columns
    channel = torch.arange(0, embed_dim, 2, dtype=torch.float32, device=device)
    frequency = torch.exp(channel * (-math.log(10000.0) / embed_dim))
    angle = number[..., None] * frequency
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)


def temporal_attention_bias(num_steps: int, num_heads: int, *, device: torch.device | None = None) -> Tensor:
    """What each head adds to its logits between tubelet times, (heads, T', T') from query to key; 0 for the same time.

    It falls with the distance, by slopes of 1 to 1/256 from head to head; heads in turn fall four times as fast towards
    the past and towards the future, so that time has a direction. The sum over key times of a head's weights on a place
    is then the same for every query num_steps of a clip of equal frames: its features are equal, which they would not be
    with rotary positions, whose logits at other times depend on the place.
    """
    ahead = torch.arange(num_steps, device=device) - torch.arange(num_steps, device=device)[:, None]
    head = torch.arange(num_heads, device=device)
    slope = 2.0 ** (-8 * head / max(num_heads - 1, 1))
    steep = torch.where(head % 2 == 0, -1, 1)[:, None, None] * ahead > 0
    return -slope[:, None, None] * ahead.abs() * torch.where(steep, 4.0, 1.0)


def vit_b(*, per_frame_features: bool = True) -> Backbone:
    """ViT-B on tubelets of 2×16×16; its reference size is 224."""
    return VideoTransformer(embed_dim=768, depth=12, num_heads=12, patch_size=16, tubelet_size=2, reference_size=224)


def small_vit(
    *,
    per_frame_features: bool = True,
    embed_dim: int = 96,
    depth: int = 4,
    num_heads: int = 4,
    patch_size: int = 8,
    tubelet_size: int = 2,
    reference_size: int = 32,
) -> Backbone:
    """A transformer for CPUs and clips of about 32×32 pixels; arguments as in `VideoTransformer`."""
    if min(embed_dim, depth, num_heads, patch_size, tubelet_size) < 1 or reference_size < patch_size:
        raise StillmotionError(
            f"width {embed_dim}, depth {depth}, heads {num_heads}, patch {patch_size}, tubelet {tubelet_size}: each must be at "
            f"least 1, and reference_size ({reference_size}) at least patch"
        )
    if embed_dim % 2 or embed_dim % num_heads:
        raise StillmotionError(f"width is {embed_dim}; small_vit needs an even one, divisible by heads ({num_heads})")
    return VideoTransformer(
        embed_dim=embed_dim,
        depth=depth,
        num_heads=num_heads,
        patch_size=patch_size,
        tubelet_size=tubelet_size,
        reference_size=reference_size,
    )
