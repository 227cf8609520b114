"""Video transformers with joint space-time attention on tubelets (VideoMAE).

Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021 (arXiv:2010.11929), on tubelets as in Tong et al.,
"VideoMAE", NeurIPS 2022 (arXiv:2203.12602), with its parameter names. Differences: there is no classifier; the final
norm acts on tokens, as in VideoMAE's pretraining (fine-tuned models norm the mean token); the sin-cos positions, which
are VideoMAE's at the reference size, are interpolated for any frame size and extended to any number of frames; with
temporal padding "replicate", time is not in the positions but a bias of the attention, so that a clip of equal frames
has equal features. One feature per tubelet: T' = T / tubelet_size, whatever `per_frame_features` is.

Shapes: B clips, T' tubelets of H'×W' = S patches, D channels; tokens are (B, T', H', W', D).
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
    """Pre-norm transformer on tubelets.

    Args:
        embed_dim: Channels D.
        depth: Number of blocks.
        num_heads: Attention heads per block.
        patch_size: Side of a token, in pixels.
        tubelet_size: Length of a token, in frames.
        reference_size: Frame size whose positions are integers, in pixels.
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
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def _trunk(self, clips: Tensor) -> Tensor:
        h = self.patch_embed(clips)
        # If the attention has a temporal bias, all frames have the positions of the first.
        grid = (h.shape[1] if self.temporal_padding == "zeros" else 1, *h.shape[2:4])
        positions = sincos_positions(grid, self.out_features, reference_side=self.reference_side, device=h.device)
        h = h + positions.to(h.dtype)
        for block in self.blocks[:-1]:
            h = block(h)
        return h

    def _last_stage(self, h: Tensor) -> Tensor:
        return self.norm(self.blocks[-1](h)).movedim(-1, 1)


class PatchEmbed(nn.Module):
    """Linear embedding of tubelets: clips (B, 3, T, H, W) to tokens (B, T', H', W', D)."""

    def __init__(self, embed_dim: int, *, patch_size: int, tubelet_size: int) -> None:
        super().__init__()
        size = (tubelet_size, patch_size, patch_size)
        self.proj = nn.Conv3d(3, embed_dim, size, stride=size)

    def forward(self, clips: Tensor) -> Tensor:
        return self.proj(clips).movedim(1, -1)


class Attention(nn.Module):
    """Multi-head self-attention over all tokens of a clip; in framewise mode, over those of the same time.

    With temporal padding "replicate" each head has a temporal bias (`temporal_attention_bias`). In double-backward mode
    it uses plain operations, which can be differentiated twice.
    """

    framewise: bool = False
    double_backward: bool = False
    temporal_padding: TemporalPadding = "zeros"

    def __init__(self, embed_dim: int, *, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False)
        # A bias of the keys would cancel in the softmax; VideoMAE has none.
        self.q_bias = nn.Parameter(torch.zeros(embed_dim))
        self.v_bias = nn.Parameter(torch.zeros(embed_dim))
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        # Framewise attention is attention over a batch of B·T' sets of S tokens.
        tokens = x.flatten(2, 3).flatten(0, 1) if self.framewise else x.flatten(1, 3)
        bias = torch.cat((self.q_bias, torch.zeros_like(self.q_bias), self.v_bias))
        qkv = F.linear(tokens, self.qkv.weight, bias)
        q, k, v = qkv.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        time, space = x.shape[1], x.shape[2] * x.shape[3]
        time_bias = None
        if self.temporal_padding == "replicate" and not self.framewise:
            time_bias = temporal_attention_bias(time, self.num_heads, device=x.device).to(q.dtype)
            time_bias = time_bias.repeat_interleave(space, 1).repeat_interleave(space, 2)[None]
        with sdpa_kernel(SDPBackend.MATH) if self.double_backward else nullcontext():
            attended = F.scaled_dot_product_attention(q, k, v, attn_mask=time_bias)
        return self.proj(attended.transpose(1, 2).reshape(x.shape))


class Mlp(nn.Module):
    """Two linear layers with GELU between them and four times as many channels inside."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dim, 4 * embed_dim)
        self.fc2 = nn.Linear(4 * embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class TransformerBlock(nn.Module):
    """Attention and MLP, each with a norm before and a residual connection."""

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
    """VideoMAE's sin-cos positions of a grid of tokens.

    Tokens are numbered in the reference grid, time first and columns last; those of a coarser or finer grid have the
    fractional numbers of their centers.

    Args:
        grid: Number of tokens (T', H', W').
        embed_dim: Channels D.
        reference_side: Rows and columns of the reference grid.
        device: Device of the result.

    Returns:
        Positions, (T', H', W', D).
    """
    time, rows, columns = (torch.arange(n, dtype=torch.float32, device=device) for n in grid)
    rows = (rows + 0.5) * reference_side / grid[1] - 0.5
    columns = (columns + 0.5) * reference_side / grid[2] - 0.5
    index = (time * reference_side * reference_side)[:, None, None] + (rows * reference_side)[:, None] + columns
    channel = torch.arange(0, embed_dim, 2, dtype=torch.float32, device=device)
    frequency = torch.exp(channel * (-math.log(10000.0) / embed_dim))
    angle = index[..., None] * frequency
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)


def temporal_attention_bias(num_steps: int, num_heads: int, *, device: torch.device | None = None) -> Tensor:
    """Relative temporal attention bias (ALiBi-like, asymmetric in time).

    It falls with the temporal distance, with slopes of 1 to 1/256 from head to head, and alternately four times as
    steeply toward the past or the future, so that time has a direction. In a clip of equal frames, the sum over key
    times of a head's weights on a position is then the same for every query time, so its features are equal. With
    rotary positions they would not be, since logits at other times depend on the position.

    Args:
        num_steps: Number of tubelet times T'.
        num_heads: Number of attention heads.
        device: Device of the result.

    Returns:
        Bias from query to key time, (num_heads, T', T'); 0 for the same time.
    """
    ahead = torch.arange(num_steps, device=device) - torch.arange(num_steps, device=device)[:, None]
    head = torch.arange(num_heads, device=device)
    slope = 2.0 ** (-8 * head / max(num_heads - 1, 1))
    steep = torch.where(head % 2 == 0, -1, 1)[:, None, None] * ahead > 0
    return -slope[:, None, None] * ahead.abs() * torch.where(steep, 4.0, 1.0)


def vit_b(*, per_frame_features: bool = True) -> Backbone:
    """ViT-B on tubelets of 2×16×16, with reference size 224."""
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
    """Small video transformer for CPUs and clips of about 32×32 pixels.

    Args:
        per_frame_features: Has no effect; there is one feature per tubelet.
        embed_dim: As in `VideoTransformer`.
        depth: As in `VideoTransformer`.
        num_heads: As in `VideoTransformer`.
        patch_size: As in `VideoTransformer`.
        tubelet_size: As in `VideoTransformer`.
        reference_size: As in `VideoTransformer`.

    Raises:
        StillmotionError: If an option is out of range.
    """
    if min(embed_dim, depth, num_heads, patch_size, tubelet_size) < 1 or reference_size < patch_size:
        raise StillmotionError(
            f"embed_dim {embed_dim}, depth {depth}, num_heads {num_heads}, patch_size {patch_size} and tubelet_size "
            f"{tubelet_size} must be at least 1, and reference_size {reference_size} at least patch_size."
        )
    if embed_dim % 2 or embed_dim % num_heads:
        raise StillmotionError(f"embed_dim is {embed_dim}; must be even and divisible by num_heads, {num_heads}.")
    return VideoTransformer(
        embed_dim=embed_dim,
        depth=depth,
        num_heads=num_heads,
        patch_size=patch_size,
        tubelet_size=tubelet_size,
        reference_size=reference_size,
    )
