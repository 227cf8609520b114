"""Temporal derivatives of clips by forward differences (ViDiDi, §2.2)."""

import torch
from torch import Tensor

from stillmotion.errors import StillmotionError


def derivative(clips: Tensor, order: int, *, frames: int) -> Tensor:
    """The forward difference of this order in time: frame t is Σ_i (-1)^(order-i) C(order, i) clips[t + i].

    clips: (…, C, T, H, W). frames: how many are kept, the first ones; T must be at least frames + order.
    """
    there = clips.shape[-3]
    if order < 0 or frames < 1 or there < frames + order:
        raise StillmotionError(
            f"{frames} frames of the derivative of order {order} need a clip of {frames + order}; it has {there} "
            "(raise --data.frames)"
        )
    return torch.diff(clips.narrow(-3, 0, frames + order), n=order, dim=-3)
