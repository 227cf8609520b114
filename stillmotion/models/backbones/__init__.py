"""Backbones by name: `create_backbone("slow_r50")`. Each gives one feature per frame (docs/backbones.md)."""

import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.backbones.c3d import c3d
from stillmotion.models.backbones.i3d import i3d
from stillmotion.models.backbones.layers import (
    TemporalPadding,
    double_backward_mode,
    set_temporal_padding,
    framewise_mode,
)
from stillmotion.models.backbones.resnet3d import mc3_18, r2plus1d_18, r3d_18, small_resnet3d
from stillmotion.models.backbones.s3d import s3d, s3d_g
from stillmotion.models.backbones.slow_r50 import slow_r50
from stillmotion.models.backbones.tokens_cnn import tokens_cnn
from stillmotion.models.backbones.vit import small_vit, vit_b

__all__ = ["Backbone", "TemporalPadding", "list_backbones", "create_backbone", "double_backward_mode", "framewise_mode"]

BACKBONES: dict[str, Callable[..., Backbone]] = {
    builder.__name__: builder
    for builder in (
        slow_r50,
        r3d_18,
        r2plus1d_18,
        mc3_18,
        s3d,
        s3d_g,
        i3d,
        c3d,
        vit_b,
        small_resnet3d,
        small_vit,
        tokens_cnn,
    )
}


def list_backbones() -> tuple[str, ...]:
    """The names that `create_backbone` takes."""
    return tuple(BACKBONES)


def create_backbone(
    name: str, *, per_frame_features: bool = True, temporal_padding: TemporalPadding = "replicate", **options: Any
) -> Backbone:
    """A backbone with fresh weights.

    name: one of `backbone_names()`.
    per_frame_features: one feature per frame; False restores the network's original temporal strides.
    temporal_padding: what stands before the first frame and after the last. "replicate" repeats them, so that equal frames have
        equal features; "zeros" is what public weights were trained with.
    options: what the named network takes besides, such as `channels` for "small_resnet3d".
    """
    if name not in BACKBONES:
        raise StillmotionError(
            f"there is no backbone {name!r}{_did_you_mean(name, BACKBONES)}; choose one of {', '.join(BACKBONES)}"
        )
    builder = BACKBONES[name]
    known = [option for option in inspect.signature(builder).parameters if option != "per_frame_features"]
    for option in options:
        if option not in known:
            raise StillmotionError(
                f"{name} has no option {option!r}{_did_you_mean(option, known)}; "
                f"it takes {', '.join(['per_frame_features', 'temporal_padding', *known])}"
            )
    backbone = builder(per_frame_features=per_frame_features, **options)
    set_temporal_padding(backbone, temporal_padding)
    return backbone


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
