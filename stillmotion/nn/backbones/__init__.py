"""Backbones by name: `create_backbone("slow_r50")`. Each gives one feature per frame (docs/backbones.md)."""

import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from stillmotion.errors import StillmotionError
from stillmotion.nn.backbones.base import Backbone
from stillmotion.nn.backbones.c3d import c3d
from stillmotion.nn.backbones.i3d import i3d
from stillmotion.nn.backbones.layers import Border, second_order, set_border, strict_time
from stillmotion.nn.backbones.resnet3d import mc3_18, r2plus1d_18, r3d_18, small_resnet3d
from stillmotion.nn.backbones.s3d import s3d, s3d_g
from stillmotion.nn.backbones.slow import slow_r50
from stillmotion.nn.backbones.tokens import tokens_cnn
from stillmotion.nn.backbones.vit import small_vit, vit_b

__all__ = ["Backbone", "Border", "backbone_names", "create_backbone", "second_order", "strict_time"]

_BUILDERS: dict[str, Callable[..., Backbone]] = {
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


def backbone_names() -> tuple[str, ...]:
    """The names that `create_backbone` takes."""
    return tuple(_BUILDERS)


def create_backbone(name: str, *, keep_time: bool = True, border: Border = "replicate", **options: Any) -> Backbone:
    """A backbone with fresh weights.

    name: one of `backbone_names()`.
    keep_time: one feature per frame; False restores the network's original temporal strides.
    border: what stands before the first frame and after the last. "replicate" repeats them, so that equal frames have
        equal features; "zeros" is what public weights were trained with.
    options: what the named network takes besides, such as `channels` for "small_resnet3d".
    """
    if name not in _BUILDERS:
        raise StillmotionError(
            f"there is no backbone {name!r}{_suggestion(name, _BUILDERS)}; choose one of {', '.join(_BUILDERS)}"
        )
    builder = _BUILDERS[name]
    known = [option for option in inspect.signature(builder).parameters if option != "keep_time"]
    for option in options:
        if option not in known:
            raise StillmotionError(
                f"{name} has no option {option!r}{_suggestion(option, known)}; "
                f"it takes {', '.join(['keep_time', 'border', *known])}"
            )
    backbone = builder(keep_time=keep_time, **options)
    set_border(backbone, border)
    return backbone


def _suggestion(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
