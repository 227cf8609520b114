"""Which blocks are trained; depth of each parameter for layer-wise learning-rate decay."""

from typing import Literal

from torch import nn

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.pretrained.transformers_backbone import TransformersBackbone

UnfreezeOption = int | Literal["all", "none"]

_NEVER_TRAINED = ("vit_mae", "position_embeddings")  # model type and name of a fixed table


def layer_depths(backbone: Backbone) -> dict[str, int]:
    """Depth of each parameter from the output, for layer-wise learning-rate decay.

    Blocks are the backbone's stages, or the blocks of a transformers model. The embeddings of such a model come before
    its blocks; its final norm and the projection of a transfer run come after them.

    Args:
        backbone: Backbone.

    Returns:
        Depth by parameter name: 0 after the last block, 1 in it, 2 in the one before.
    """
    names = [name for name, _ in backbone.named_parameters()]
    blocks = _transformer_blocks(backbone)
    if not blocks:
        return {name: len(backbone.stage_prefixes) - backbone.stage_index(name) for name in names}
    block_index = {name: _block_index(name, blocks) for name in names}
    first_block = next(i for i, name in enumerate(names) if block_index[name] is not None)
    depths = {}
    for i, name in enumerate(names):
        index = block_index[name]
        if index is None:
            index = -1 if i < first_block else len(blocks)
        depths[name] = len(blocks) - index
    return depths


def unfreeze(backbone: Backbone, trained_blocks: UnfreezeOption) -> None:
    """Set which parameters of a backbone are trained.

    Args:
        backbone: Backbone, which is changed in place.
        trained_blocks: "all", "none", or the number of last blocks to train, with everything after them.

    Raises:
        StillmotionError: If the backbone has fewer blocks.
    """
    depths = layer_depths(backbone)
    num_blocks = len(_transformer_blocks(backbone)) or len(backbone.stage_prefixes)
    if isinstance(trained_blocks, int) and not 0 <= trained_blocks <= num_blocks:
        raise StillmotionError(
            f"head.unfreeze is {trained_blocks}; this network has {num_blocks} blocks. "
            f"Choose 0 to {num_blocks}, all or none."
        )
    model_type, table = _NEVER_TRAINED
    has_fixed_table = isinstance(backbone, TransformersBackbone) and backbone.model_type == model_type
    for name, weight in backbone.named_parameters():
        is_trained = depths[name] <= trained_blocks if isinstance(trained_blocks, int) else trained_blocks == "all"
        weight.requires_grad_(is_trained and not (has_fixed_table and name.endswith(table)))


def eval_frozen_modules(module: nn.Module) -> None:
    """Set modules without trainable parameters to eval mode, so that batch-norm statistics stay fixed."""
    for child in module.modules():
        weights = list(child.parameters())
        if weights and not any(weight.requires_grad for weight in weights):
            child.train(False)


def _transformer_blocks(backbone: Backbone) -> list[str]:
    """Prefixes of the blocks of a transformers model, its outermost module list; empty for other backbones."""
    if not isinstance(backbone, TransformersBackbone):
        return []
    lists = ((name, child) for name, child in backbone.named_modules() if isinstance(child, nn.ModuleList))
    name, blocks = next(lists, ("", nn.ModuleList()))
    return [f"{name}.{index}." for index in range(len(blocks))]


def _block_index(name: str, blocks: list[str]) -> int | None:
    return next((index for index, prefix in enumerate(blocks) if name.startswith(prefix)), None)
