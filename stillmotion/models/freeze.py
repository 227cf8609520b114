"""How deep a weight lies below a backbone's end: what fine-tuning trains of it, and at which share of the rate."""

from typing import Literal

from torch import nn

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.pretrained.transformers_backbone import TransformersBackbone

UnfreezeOption = int | Literal["all", "none"]

_NEVER_TRAINED = ("vit_mae", "position_embeddings")  # a table that its authors computed and never trained


def layer_depths(backbone: Backbone) -> dict[str, int]:
    """For each weight by name, 1 in the last block, 2 in the one before it, and so on; 0 behind all blocks.

    Blocks are a backbone's stages; those of a transformer from elsewhere are its own, before which its embeddings lie
    and behind which its last norm, and the projection of a transfer run.
    """
    names = [name for name, _ in backbone.named_parameters()]
    blocks = _transformer_blocks(backbone)
    if not blocks:
        return {name: len(backbone.stage_prefixes) - backbone.stage_index(name) for name in names}
    of = {name: _block_index(name, blocks) for name in names}
    inside = [place for place, name in enumerate(names) if of[name] is not None]
    found = {}
    for place, name in enumerate(names):
        index = of[name]
        if index is None:
            index = -1 if place < inside[0] else len(blocks)
        found[name] = len(blocks) - index
    return found


def unfreeze(backbone: Backbone, trained_blocks: UnfreezeOption) -> None:
    """Let part of a backbone be trained, and the rest stay as it is.

    trained_blocks: all of it, none, or its last so many blocks and what lies behind them.
    """
    deep = layer_depths(backbone)
    blocks = len(_transformer_blocks(backbone)) or len(backbone.stage_prefixes)
    if isinstance(trained_blocks, int) and not 0 <= trained_blocks <= blocks:
        raise StillmotionError(
            f"head.unfreeze is {trained_blocks}; this network has {blocks} blocks: choose 0 to {blocks}, or all"
        )
    kind, table = _NEVER_TRAINED
    fixed = getattr(_transformers_model(backbone), "config", None)
    for name, weight in backbone.named_parameters():
        wanted = deep[name] <= trained_blocks if isinstance(trained_blocks, int) else trained_blocks == "all"
        if fixed is not None and fixed.model_type == kind and name.endswith(table):
            wanted = False
        weight.requires_grad_(wanted)


def eval_frozen_modules(module: nn.Module) -> None:
    """Put what has weights and learns none of them in evaluation mode, or its batch norms would move."""
    for part in module.modules():
        weights = list(part.parameters())
        if weights and not any(weight.requires_grad for weight in weights):
            part.train(False)


def _transformers_model(backbone: Backbone) -> nn.Module | None:
    """The transformers model within a backbone."""
    return backbone.model if isinstance(backbone, TransformersBackbone) else None


def _transformer_blocks(backbone: Backbone) -> list[str]:
    """The prefixes of a transformers model's blocks: the outermost list of modules that it has; empty of others."""
    if _transformers_model(backbone) is None:
        return []
    lists = ((name, part) for name, part in backbone.named_modules() if isinstance(part, nn.ModuleList))
    name, part = next(lists, ("", nn.ModuleList()))
    return [f"{name}.{index}." for index in range(len(part))]


def _block_index(name: str, blocks: list[str]) -> int | None:
    return next((index for index, prefix in enumerate(blocks) if name.startswith(prefix)), None)
