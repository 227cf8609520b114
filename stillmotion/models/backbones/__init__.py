"""Backbones by name: `create_backbone("slow_r50")`. Each gives one feature per frame (docs/reference/backbones.md)."""

import inspect
from collections.abc import Callable
from typing import Any

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.backbones.c3d import c3d
from stillmotion.models.backbones.i3d import i3d
from stillmotion.models.backbones.layers import (
    TemporalPadding,
    double_backward_mode,
    framewise_mode,
    set_temporal_padding,
)
from stillmotion.models.backbones.resnet3d import mc3_18, r2plus1d_18, r3d_18, small_cnn3d
from stillmotion.models.backbones.s3d import s3d, s3d_g
from stillmotion.models.backbones.slow_r50 import slow_r50
from stillmotion.models.backbones.tokens_cnn import tokens_cnn
from stillmotion.models.backbones.video_vit import small_vit, vit_b
from stillmotion.utils.registry import Registry, did_you_mean

__all__ = ["Backbone", "TemporalPadding", "create_backbone", "double_backward_mode", "framewise_mode", "list_backbones"]

_BUILDERS = (
    *(slow_r50, r3d_18, r2plus1d_18, mc3_18, s3d, s3d_g, i3d, c3d, vit_b),
    *(small_cnn3d, small_vit, tokens_cnn),
)
BACKBONES: Registry[Callable[..., Backbone]] = Registry(
    "backbone", "backbones", {builder.__name__: builder for builder in _BUILDERS}
)


def list_backbones() -> tuple[str, ...]:
    """Return the names that `create_backbone` takes."""
    return tuple(BACKBONES)


def create_backbone(
    name: str, *, per_frame_features: bool = True, temporal_padding: TemporalPadding = "replicate", **options: Any
) -> Backbone:
    """Create a backbone with random weights.

    Args:
        name: One of `list_backbones()`.
        per_frame_features: Give one feature per frame; False restores the network's original temporal strides.
        temporal_padding: Padding before the first and after the last frame. "replicate" repeats them, so that equal
            frames have equal features; "zeros" is the padding public weights were trained with.
        options: Further options of the network, such as `channels` of "small_cnn3d".

    Returns:
        The backbone.

    Raises:
        StillmotionError: If the name or an option is unknown, or an option is out of range.
    """
    builder = BACKBONES.lookup(name)
    known = [option for option in inspect.signature(builder).parameters if option != "per_frame_features"]
    for option in options:
        if option not in known:
            suggestion = did_you_mean(option, ["per_frame_features", "temporal_padding", *known])
            raise StillmotionError(f"{name} has no option {option!r}{suggestion}")
    backbone = builder(per_frame_features=per_frame_features, **options)
    set_temporal_padding(backbone, temporal_padding)
    return backbone
