"""Tiny networks with the parameter names of the original code, and checkpoint files as the original programs save them.

They are independent of the loader: loaded encoders are compared with the outputs of these networks.
"""

import argparse
import math
from collections import OrderedDict
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PATCH_SIZE, IMAGE_SIZE = 8, 32


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, angles: Tensor | None) -> Tensor:
        b, n, d = x.shape
        bias = self.qkv.bias
        if hasattr(self.qkv, "bias_mask"):
            bias = bias * self.qkv.bias_mask
        q, k, v = (
            F.linear(x, self.qkv.weight, bias).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        )
        if angles is not None:
            q, k = (torch.cat([t[:, :, : -len(angles)], _rotate(t[:, :, -len(angles) :], angles)], 2) for t in (q, k))
        weights = (q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, d))


def _rotate(x: Tensor, angles: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()


class _LayerScale(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, eps: float, scaled: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.attn = _Attention(width, heads)
        self.mlp = nn.Sequential(
            OrderedDict(fc1=nn.Linear(width, 2 * width), act=nn.GELU(), fc2=nn.Linear(2 * width, width))
        )
        self.ls1, self.ls2 = (_LayerScale(width), _LayerScale(width)) if scaled else (nn.Identity(), nn.Identity())

    def forward(self, x: Tensor, angles: Tensor | None) -> Tensor:
        x = x + self.ls1(self.attn(self.norm1(x), angles))
        return x + self.ls2(self.mlp(self.norm2(x)))


class ViT(nn.Module):
    """The network of MAE, I-JEPA, BLIP, MoCo v3, DINO, iBOT, DINOv2 and DINOv3: frames to patch tokens (B, N, D)."""

    def __init__(
        self,
        width: int = 128,
        heads: int = 2,
        *,
        eps: float = 1e-6,
        token: bool = True,
        registers: str = "",
        scaled: bool = False,
        rotary: bool = False,
    ) -> None:
        super().__init__()
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(3, width, PATCH_SIZE, PATCH_SIZE)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if token else None
        cells = (IMAGE_SIZE // PATCH_SIZE) ** 2
        self.pos_embed = None if rotary else nn.Parameter(torch.zeros(1, cells + token, width))
        self.registers, self.rotary = registers, rotary
        if registers:
            self.register_parameter(registers, nn.Parameter(torch.zeros(1, 4, width)))
        self.blocks = nn.ModuleList(_Block(width, heads, eps, scaled) for _ in range(2))
        self.norm = nn.LayerNorm(width, eps)
        if scaled:
            self.mask_token = nn.Parameter(torch.zeros(1, width))
        if rotary:
            quarter = width // heads // 4
            self.rope_embed = nn.Module()
            self.rope_embed.register_buffer("periods", (100.0 ** (torch.arange(quarter) / quarter)).bfloat16())
            for block in self.blocks:
                mask = torch.ones(3 * width)
                mask[width : 2 * width] = 0
                block.attn.qkv.register_buffer("bias_mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patch_embed.proj(x)
        rows, columns = h.shape[2:]
        h, angles = h.flatten(2).transpose(1, 2), None
        token = self.cls_token is not None
        if self.pos_embed is not None:
            h = h + _resize_positions(self.pos_embed[0, int(token) :], rows, columns)
        first = [] if not token else [self.cls_token + (0 if self.pos_embed is None else self.pos_embed[:, :1])]
        first += [getattr(self, self.registers)] if self.registers else []
        h = torch.cat([*(one.expand(len(x), -1, -1) for one in first), h], 1)
        if self.rotary:
            angles = self._angles(rows, columns)
        for block in self.blocks:
            h = block(h, angles)
        return self.norm(h)[:, -rows * columns :]

    def _angles(self, rows: int, columns: int) -> Tensor:
        positions = [
            [2 * (i + 0.5) / rows - 1, 2 * (j + 0.5) / columns - 1] for i in range(rows) for j in range(columns)
        ]
        angles = 2 * math.pi * torch.tensor(positions)[:, :, None] / self.rope_embed.periods.float()
        return angles.flatten(1).repeat(1, 2)


class _Residual(nn.Module):
    def __init__(self, width: int, heads: int, act: nn.Module) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads)
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            OrderedDict(c_fc=nn.Linear(width, 2 * width), gelu=act, c_proj=nn.Linear(2 * width, width))
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class QuickGELU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class CLIPVision(nn.Module):
    """The vision transformer of CLIP: frames to patch tokens (B, N, D) after the last norm."""

    def __init__(self, width: int = 128, heads: int = 2, act: type[nn.Module] = QuickGELU) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, PATCH_SIZE, PATCH_SIZE, bias=False)
        self.class_embedding = nn.Parameter(torch.zeros(width))
        self.positional_embedding = nn.Parameter(torch.zeros((IMAGE_SIZE // PATCH_SIZE) ** 2 + 1, width))
        self.ln_pre, self.ln_post = nn.LayerNorm(width), nn.LayerNorm(width)
        self.transformer = nn.Module()
        self.transformer.resblocks = nn.ModuleList(_Residual(width, heads, act()) for _ in range(2))
        self.proj = nn.Parameter(torch.zeros(width, 16))

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(x)
        rows, columns = h.shape[2:]
        h = h.flatten(2).transpose(1, 2) + _resize_positions(self.positional_embedding[1:], rows, columns)
        first = (self.class_embedding + self.positional_embedding[0]).expand(len(x), 1, -1)
        h = self.ln_pre(torch.cat([first, h], 1)).transpose(0, 1)
        for block in self.transformer.resblocks:
            h = block(h)
        return self.ln_post(h.transpose(0, 1))[:, 1:]


def _resize_positions(table: Tensor, rows: int, columns: int) -> Tensor:
    side = math.isqrt(len(table))
    if (rows, columns) == (side, side):
        return table
    square = table.T.reshape(1, -1, side, side)
    return F.interpolate(square, (rows, columns), mode="bicubic", align_corners=False)[0].flatten(1).T


def build_network(family: str, seed: int = 0) -> nn.Module:
    """Build a family's network with random, distinct weights; "dinov2-registers" counts as a family of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network: nn.Module
        if family in ("clip", "openclip"):
            network = CLIPVision(act=QuickGELU if family == "clip" else nn.GELU)
        elif family.startswith("mocov3"):
            network = ViT(48, 12)
        elif family == "dinov3":
            network = ViT(eps=1e-5, registers="storage_tokens", scaled=True, rotary=True)
        elif family.startswith("dinov2"):
            network = ViT(registers="register_tokens" if family == "dinov2-registers" else "", scaled=True)
        else:
            network = ViT(token=not family.startswith("ijepa"))
        for name, weight in network.named_parameters():
            is_embedding = name.endswith(("pos_embed", "positional_embedding", "token", "tokens", "class_embedding"))
            weight.data += torch.randn_like(weight) * (0.5 if is_embedding else 0.1)
    return network.half().float().eval() if family == "clip" else network.eval()  # OpenAI's files are in half precision


def save_checkpoint(family: str, file: Path, *, seed: int = 0) -> nn.Module:
    """Write a checkpoint as the authors' program saves it; returns the network that the loader must read from it."""
    network, other_network = build_network(family, seed), build_network(family, seed + 1)
    torch.save(_FILES[family](_prefixed_weights(network), _prefixed_weights(other_network)), file)
    return network


def _prefixed_weights(network: nn.Module, prefix: str = "") -> dict[str, Tensor]:
    return {prefix + name: value for name, value in network.state_dict().items()}


def _add_prefix(prefix: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: value for name, value in weights.items()}


def _placeholder_weights(*names: str) -> dict[str, Tensor]:
    return {name: torch.zeros(2) for name in names}


_OPTIMIZER_STATE = {"optimizer": {"state": {0: {"exp_avg": torch.zeros(2)}}, "param_groups": []}, "epoch": 3}
TEXT_WEIGHTS = _placeholder_weights(
    "positional_embedding", "text_projection", "logit_scale", "token_embedding.weight", "ln_final.weight"
)
TEXT_WEIGHTS |= _placeholder_weights("transformer.resblocks.0.attn.in_proj_weight")
_QUEUES = _placeholder_weights(
    "text_encoder.embeddings.LayerNorm.weight", "text_decoder.bert.x", "vision_proj.weight", "itm_head.bias"
)
_QUEUES |= _placeholder_weights(
    "temp", "image_queue", "text_queue", "queue_ptr", "text_encoder_m.x", "vision_proj_m.weight"
)


def _teacher_student(
    loss: str, weights_to_load: dict[str, Tensor], other_weights: dict[str, Tensor]
) -> dict[str, object]:
    """Checkpoint of DINO and iBOT: a wrapped student and its teacher."""
    return {
        "student": _add_prefix("module.backbone.", other_weights | _placeholder_weights("masked_embed"))
        | _placeholder_weights("module.head.mlp.0.weight"),
        "teacher": _add_prefix("backbone.", weights_to_load)
        | _placeholder_weights("head.mlp.0.weight", "head.last_layer.weight_g"),
        "args": argparse.Namespace(arch="vit_small"),
        loss: _placeholder_weights("center"),
        **_OPTIMIZER_STATE,
    }


_FILES = {
    "mae": lambda weights_to_load, other_weights: {
        "model": weights_to_load
        | _placeholder_weights(
            "mask_token", "decoder_pos_embed", "decoder_embed.weight", "decoder_blocks.0.norm1.bias"
        ),
        **_OPTIMIZER_STATE,
    },
    "ijepa": lambda weights_to_load, other_weights: {
        "encoder": _add_prefix("module.", other_weights),
        "predictor": _placeholder_weights("module.predictor_embed.weight", "module.mask_token"),
        "target_encoder": _add_prefix("module.", weights_to_load),
        "opt": {"state": {0: {"exp_avg": torch.zeros(2)}}},
        "epoch": 3,
    },
    "clip": lambda weights_to_load, other_weights: (
        {k: v.half() for k, v in (_add_prefix("visual.", weights_to_load) | TEXT_WEIGHTS).items()}
        | _placeholder_weights("input_resolution", "context_length", "vocab_size")
    ),
    "openclip": lambda weights_to_load, other_weights: {
        "state_dict": _add_prefix("module.", _add_prefix("visual.", weights_to_load) | TEXT_WEIGHTS),
        **_OPTIMIZER_STATE,
    },
    "blip": lambda weights_to_load, other_weights: {
        "model": _add_prefix("visual_encoder.", weights_to_load)
        | _add_prefix("visual_encoder_m.", other_weights)
        | _QUEUES,
        **_OPTIMIZER_STATE,
    },
    "ijepa-encoder": lambda weights_to_load, other_weights: {
        "encoder": _add_prefix("module.", weights_to_load),
        "target_encoder": _add_prefix("module.", other_weights),
    },
    "mocov3": lambda weights_to_load, other_weights: {
        "state_dict": _add_prefix("module.momentum_encoder.", weights_to_load | _placeholder_weights("head.0.weight"))
        | _add_prefix("module.base_encoder.", other_weights | _placeholder_weights("head.0.weight"))
        | _placeholder_weights("module.predictor.0.weight"),
        **_OPTIMIZER_STATE,
    },
    "mocov3-base": lambda weights_to_load, other_weights: {
        "state_dict": _add_prefix("module.momentum_encoder.", other_weights)
        | _add_prefix("module.base_encoder.", weights_to_load)
    },
    "dino": lambda weights_to_load, other_weights: _teacher_student("dino_loss", weights_to_load, other_weights),
    "ibot": lambda weights_to_load, other_weights: _teacher_student("ibot_loss", weights_to_load, other_weights),
    "dinov2": lambda weights_to_load, other_weights: weights_to_load,
    "dinov2-registers": lambda weights_to_load, other_weights: {
        "teacher": _add_prefix("backbone.", {k.replace("blocks.", "blocks.0."): v for k, v in weights_to_load.items()})
        | _placeholder_weights("dino_head.mlp.0.weight", "ibot_head.mlp.0.weight")
    },
    "dinov3": lambda weights_to_load, other_weights: weights_to_load,
}
CHECKPOINT_KINDS = tuple(_FILES)
