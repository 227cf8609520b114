"""Checkpoints of MoCo v3, iBOT and DINO under their authors' names, as a ViT of transformers."""

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stillmotion.errors import StillmotionError
from stillmotion.nn.weights import read_tensors

# What stands before the network's own names: the one to take first. MoCo's trained encoder, the others' teacher.
_PREFIXES = {
    "mocov3": ("module.base_encoder.", "base_encoder.", "module.", ""),
    "ibot": ("teacher.module.backbone.", "teacher.backbone.", "module.backbone.", "backbone.", "module.", ""),
    "dino": ("teacher.module.backbone.", "teacher.backbone.", "module.backbone.", "backbone.", "module.", ""),
}
FAMILIES = tuple(_PREFIXES)
_FIRST = "patch_embed.proj.weight"
_PLAIN = {
    "cls_token": "embeddings.cls_token",
    "pos_embed": "embeddings.position_embeddings",
    "patch_embed.proj.weight": "embeddings.patch_embeddings.projection.weight",
    "patch_embed.proj.bias": "embeddings.patch_embeddings.projection.bias",
    "norm.weight": "layernorm.weight",
    "norm.bias": "layernorm.bias",
}
_BLOCK = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attn.proj": "attention.o_proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}
_NAME = re.compile(r"blocks\.(\d+)\.(norm1|norm2|attn\.qkv|attn\.proj|mlp\.fc1|mlp\.fc2)\.(\w+)")
_HEAD = 64  # channels of an attention head in DINO's and iBOT's networks
_MOCO_HEADS = 12  # in MoCo v3's S and B alike


def import_transformers() -> Any:
    """The library; an error that says how to get it where it is missing."""
    try:
        import transformers
    except ImportError:
        raise StillmotionError(
            "image transformers come from transformers, which is not installed: pip install 'stillmotion[models]'"
        ) from None
    return transformers


def load_original(path: str | Path, family: str) -> nn.Module:
    """A ViTModel with the weights of an original checkpoint.

    family: mocov3, ibot or dino; it says which of the networks in the file is meant, and how many heads it has.
    """
    found = read_tensors(path)
    prefix = next((p for p in _PREFIXES[family] if p + _FIRST in found), None)
    if prefix is None:
        some = ", ".join(sorted(found)[:3])
        raise StillmotionError(
            f"{path} has no {_FIRST} of a {family} network (it has {some}, …); check --images.family"
        )
    own = {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}
    try:
        renamed = rename_vit(own)
        model = _vit(renamed, heads=_MOCO_HEADS if family == "mocov3" else None)
        missing, extra = model.load_state_dict(renamed, strict=False)
    except (KeyError, ValueError, RuntimeError, ZeroDivisionError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise StillmotionError(f"{path} does not fit a ViT ({reason}); check --images.family") from None
    if missing or extra:
        raise StillmotionError(f"{path} does not fit a ViT: {', '.join([*missing, *extra][:3])}; check --images.family")
    return model


def rename_vit(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a ViT under transformers' names; queries, keys and values part, and heads are left behind."""
    renamed: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if name in _PLAIN:
            renamed[_PLAIN[name]] = value
        elif block := _NAME.fullmatch(name):
            index, part, field = block.groups()
            if part == "attn.qkv":
                for letter, piece in zip("qkv", value.chunk(3), strict=True):
                    renamed[f"layers.{index}.attention.{letter}_proj.{field}"] = piece
            else:
                renamed[f"layers.{index}.{_BLOCK[part]}.{field}"] = value
    return renamed


def _vit(tensors: dict[str, Tensor], *, heads: int | None) -> Any:
    """An untrained ViT of the sizes that the weights have."""
    transformers = import_transformers()
    width, _, patch, _ = tensors[_PLAIN[_FIRST]].shape
    cells = tensors[_PLAIN["pos_embed"]].shape[1] - 1
    blocks = 1 + max((int(name.split(".")[1]) for name in tensors if name.startswith("layers.")), default=-1)
    config = transformers.ViTConfig(
        hidden_size=width,
        num_hidden_layers=blocks,
        num_attention_heads=heads or max(1, width // _HEAD),
        intermediate_size=len(tensors.get("layers.0.mlp.fc1.weight", torch.empty(width))),
        patch_size=patch,
        image_size=patch * round(cells**0.5),
        qkv_bias="layers.0.attention.q_proj.bias" in tensors,
        layer_norm_eps=1e-6,
    )
    return transformers.ViTModel(config, add_pooling_layer=False)
