"""Video transformers with joint attention over space and time.

Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021 (arXiv:2010.11929), on tubelets as in Tong et
al., "VideoMAE", NeurIPS 2022 (arXiv:2203.12602), whose parameter names these are. What differs: there is no
classifier; the final norm acts on tokens, as in VideoMAE's pre-training (fine-tuned models norm the mean
token); the sin-cos positions are generated for any frame size by sampling between those of the reference
size, which are VideoMAE's, and for any number of frames; with the border "replicate" time is not among them but a
lean of the attention, so that a clip of equal frames has equal features. One feature per tubelet, so T' = T / tubelet
whatever `keep_time` says.

Shapes: B clips, T' tubelets of H'×W' = S patches, D channels; tokens travel as (B, T', H', W', D).
"""

import math
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from stillmotion.errors import StillmotionError
from stillmotion.nn.backbones.base import Backbone
from stillmotion.nn.backbones.layers import Border


class VideoTransformer(Backbone):
    """A plain pre-norm transformer on tubelets.

    width, depth, heads: D, number of blocks, attention heads per block.
    patch, tubelet: a token's side in pixels and length in frames.
    reference_size: frame size in pixels whose positions are whole numbers.
    """

    border: Border = "zeros"

    def __init__(self, *, width: int, depth: int, heads: int, patch: int, tubelet: int, reference_size: int) -> None:
        super().__init__()
        self.width = width
        self.stages = (
            ("patch_embed",),
            *((f"blocks.{index}",) for index in range(depth - 1)),
            (f"blocks.{depth - 1}", "norm"),
        )
        self.least_size = self.size_step = patch
        self.least_frames = self.frames_step = tubelet
        self.reference_side = reference_size // patch
        self.patch_embed = PatchEmbed(width, patch=patch, tubelet=tubelet)
        self.blocks = nn.ModuleList(Block(width, heads=heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                nn.init.trunc_normal_(part.weight, std=0.02)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)

    def _early(self, clip: Tensor) -> Tensor:
        h = self.patch_embed(clip)
        # Alike in all frames where attention is told of time: the first frame's.
        grid = (h.shape[1] if self.border == "zeros" else 1, *h.shape[2:4])
        h = h + positions(grid, self.width, side=self.reference_side, device=h.device).to(h.dtype)
        for block in self.blocks[:-1]:
            h = block(h)
        return h

    def _last(self, h: Tensor) -> Tensor:
        return self.norm(self.blocks[-1](h)).movedim(-1, 1)


class PatchEmbed(nn.Module):
    """Tokens (B, T', H', W', D), each a linear map of one tubelet."""

    def __init__(self, width: int, *, patch: int, tubelet: int) -> None:
        super().__init__()
        size = (tubelet, patch, patch)
        self.proj = nn.Conv3d(3, width, size, stride=size)

    def forward(self, clip: Tensor) -> Tensor:
        return self.proj(clip).movedim(1, -1)


class Attention(nn.Module):
    """Multi-head self-attention over all tokens of a clip; when strict, over those of the same tubelet time.

    With the border "replicate" each head leans in time (`lean`). With `second_order` the attention is computed by plain
    operations, which can be differentiated twice.
    """

    strict: bool = False
    second_order: bool = False
    border: Border = "zeros"

    def __init__(self, width: int, *, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        # A bias of the keys would cancel in the softmax: VideoMAE has none.
        self.q_bias = nn.Parameter(torch.zeros(width))
        self.v_bias = nn.Parameter(torch.zeros(width))
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        # Strict attention is attention over a batch of B·T' sets of S tokens.
        tokens = x.flatten(2, 3).flatten(0, 1) if self.strict else x.flatten(1, 3)
        bias = torch.cat((self.q_bias, torch.zeros_like(self.q_bias), self.v_bias))
        qkv = F.linear(tokens, self.qkv.weight, bias)
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        time, space = x.shape[1], x.shape[2] * x.shape[3]
        leaning = None
        if self.border == "replicate" and not self.strict:
            leaning = lean(time, self.heads, device=x.device).to(q.dtype)
            leaning = leaning.repeat_interleave(space, 1).repeat_interleave(space, 2)[None]
        with sdpa_kernel(SDPBackend.MATH) if self.second_order else nullcontext():
            attended = F.scaled_dot_product_attention(q, k, v, attn_mask=leaning)
        return self.proj(attended.transpose(1, 2).reshape(x.shape))


class Mlp(nn.Module):
    """Two linear maps with a GELU between, four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    """Attention and MLP, each normed before and added to its input."""

    def __init__(self, width: int, *, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads=heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def positions(grid: tuple[int, ...], width: int, *, side: int, device: torch.device | None = None) -> Tensor:
    """VideoMAE's sin-cos positions of the tokens of `grid` = (T', H', W'), shape (T', H', W', width).

    side: rows and columns of the reference grid. Tokens are numbered in it, time first and columns last;
    those of a coarser or finer grid have the fractional numbers of their centres.
    """
    time, rows, columns = (torch.arange(n, dtype=torch.float32, device=device) for n in grid)
    rows = (rows + 0.5) * side / grid[1] - 0.5
    columns = (columns + 0.5) * side / grid[2] - 0.5
    number = (time * side * side)[:, None, None] + (rows * side)[:, None] + columns
    channel = torch.arange(0, width, 2, dtype=torch.float32, device=device)
    frequency = torch.exp(channel * (-math.log(10000.0) / width))
    angle = number[..., None] * frequency
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)


def lean(time: int, heads: int, *, device: torch.device | None = None) -> Tensor:
    """What each head adds to its logits between tubelet times, (heads, T', T') from query to key; 0 for the same time.

    It falls with the distance, by slopes of 1 to 1/256 from head to head; heads in turn fall four times as fast towards
    the past and towards the future, so that time has a direction. The sum over key times of a head's weights on a place
    is then the same for every query time of a clip of equal frames: its features are equal, which they would not be
    with rotary positions, whose logits at other times depend on the place.
    """
    ahead = torch.arange(time, device=device) - torch.arange(time, device=device)[:, None]
    head = torch.arange(heads, device=device)
    slope = 2.0 ** (-8 * head / max(heads - 1, 1))
    steep = torch.where(head % 2 == 0, -1, 1)[:, None, None] * ahead > 0
    return -slope[:, None, None] * ahead.abs() * torch.where(steep, 4.0, 1.0)


def vit_b(*, keep_time: bool = True) -> Backbone:
    """ViT-B on tubelets of 2×16×16; its reference size is 224."""
    return VideoTransformer(width=768, depth=12, heads=12, patch=16, tubelet=2, reference_size=224)


def small_vit(
    *,
    keep_time: bool = True,
    width: int = 96,
    depth: int = 4,
    heads: int = 4,
    patch: int = 8,
    tubelet: int = 2,
    reference_size: int = 32,
) -> Backbone:
    """A transformer for CPUs and clips of about 32×32 pixels; arguments as in `VideoTransformer`."""
    if min(width, depth, heads, patch, tubelet) < 1 or reference_size < patch:
        raise StillmotionError(
            f"width {width}, depth {depth}, heads {heads}, patch {patch}, tubelet {tubelet}: each must be at "
            f"least 1, and reference_size ({reference_size}) at least patch"
        )
    if width % 2 or width % heads:
        raise StillmotionError(f"width is {width}; small_vit needs an even one, divisible by heads ({heads})")
    return VideoTransformer(
        width=width, depth=depth, heads=heads, patch=patch, tubelet=tubelet, reference_size=reference_size
    )
