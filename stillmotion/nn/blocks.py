"""How deep a weight lies below a backbone's end: what fine-tuning trains of it, and at which share of the rate."""

from typing import Literal

from torch import nn

from stillmotion.errors import StillmotionError
from stillmotion.nn.backbones.base import Backbone
from stillmotion.nn.foreign import TransformersBackbone
from stillmotion.nn.images import TokensBackbone

Unfreeze = int | Literal["all", "none"]

_FIXED = ("vit_mae", "position_embeddings")  # a table that its authors computed and never trained


def depths(backbone: Backbone) -> dict[str, int]:
    """For each weight by name, 1 in the last block, 2 in the one before it, and so on; 0 behind all blocks.

    Blocks are a backbone's stages; those of a transformer from elsewhere are its own, before which its embeddings lie
    and behind which its last norm, and the projection of a transfer run.
    """
    names = [name for name, _ in backbone.named_parameters()]
    blocks = _transformer_blocks(backbone)
    if not blocks:
        return {name: len(backbone.stages) - backbone.stage_of(name) for name in names}
    of = {name: _index(name, blocks) for name in names}
    inside = [place for place, name in enumerate(names) if of[name] is not None]
    found = {}
    for place, name in enumerate(names):
        index = of[name]
        if index is None:
            index = -1 if place < inside[0] else len(blocks)
        found[name] = len(blocks) - index
    return found


def unfreeze(backbone: Backbone, how: Unfreeze) -> None:
    """Let part of a backbone be trained, and the rest stay as it is.

    how: all of it, none, or its last so many blocks and what lies behind them.
    """
    deep = depths(backbone)
    blocks = len(_transformer_blocks(backbone)) or len(backbone.stages)
    if isinstance(how, int) and not 0 <= how <= blocks:
        raise StillmotionError(
            f"head.unfreeze is {how}; this network has {blocks} blocks: choose 0 to {blocks}, or all"
        )
    kind, table = _FIXED
    fixed = getattr(_model(backbone), "config", None)
    for name, weight in backbone.named_parameters():
        wanted = deep[name] <= how if isinstance(how, int) else how == "all"
        if fixed is not None and fixed.model_type == kind and name.endswith(table):
            wanted = False
        weight.requires_grad_(wanted)


def rest(module: nn.Module) -> None:
    """Put what has weights and learns none of them in evaluation mode, or its batch norms would move."""
    for part in module.modules():
        weights = list(part.parameters())
        if weights and not any(weight.requires_grad for weight in weights):
            part.train(False)


def _model(backbone: Backbone) -> nn.Module | None:
    """The transformers model within a backbone."""
    if isinstance(backbone, TokensBackbone):
        return backbone.images.model
    return backbone.model if isinstance(backbone, TransformersBackbone) else None


def _transformer_blocks(backbone: Backbone) -> list[str]:
    """The prefixes of a transformers model's blocks: the outermost list of modules that it has; empty of others."""
    if _model(backbone) is None:
        return []
    lists = ((name, part) for name, part in backbone.named_modules() if isinstance(part, nn.ModuleList))
    name, part = next(lists, ("", nn.ModuleList()))
    return [f"{name}.{index}." for index in range(len(part))]


def _index(name: str, blocks: list[str]) -> int | None:
    return next((index for index, prefix in enumerate(blocks) if name.startswith(prefix)), None)
