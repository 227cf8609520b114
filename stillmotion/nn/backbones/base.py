"""What every backbone offers: one feature per frame, and a seam before the last stage.

Shapes: B clips, T frames, H×W pixels, T' ≤ T time steps, D = `width` channels.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from stillmotion.errors import StillmotionError


class Backbone(nn.Module, ABC):
    """A network from clips (B, 3, T, H, W) to per-frame features (B, T', D), pooled over space only.

    width: D. map_width: channels of a feature map, which are D as well unless a frame's features are of several places.
    stages: prefixes of parameter names, a tuple for each stage from stem to last; they cover all parameters.
    least_size, least_frames: the smallest height or width, and clip length, that the network takes.
    size_step, frames_step: what height and width, and clip length, must be multiples of.
    layout: of clips in memory, in which the first layer has them.
    of_images: frames are seen one by one. patch_grid: and as one grid of patches of `size_step` pixels, of any size.

    A subclass sets these and writes `_early` and `_last`.
    """

    width: int
    map_width: int | None = None
    stages: tuple[tuple[str, ...], ...]
    least_size: int
    least_frames: int = 1
    size_step: int = 1
    frames_step: int = 1
    layout: torch.memory_format = torch.contiguous_format
    of_images: bool = False
    patch_grid: bool = False

    @abstractmethod
    def _early(self, clip: Tensor) -> Tensor:
        """All stages but the last."""

    @abstractmethod
    def _last(self, h: Tensor) -> Tensor:
        """The last stage: what `_early` returns -> (B, D, T', H', W'). Does not write into `h`."""

    def early(self, clip: Tensor) -> Tensor:
        """What the last stage is given for `clip` (B, 3, T, H, W); `late` finishes it, as often as wanted."""
        self._check(clip)
        if self.layout != torch.contiguous_format:
            clip = clip.contiguous(memory_format=self.layout)
        return self._early(clip)

    def late(self, h: Tensor) -> Tensor:
        """Features (B, T', D) from what `early` returned: `late(early(clip))` is `forward(clip)`."""
        return self.pooled(self._last(h))

    def feature_map(self, clip: Tensor) -> Tensor:
        """Features before pooling, (B, D, T', H', W')."""
        return self._last(self.early(clip))

    def seen(self, clip: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, T', D) and the map (B, D, T', H', W') that they were pooled from, by one pass."""
        found = self.feature_map(clip)
        return self.pooled(found), found

    def pooled(self, found: Tensor) -> Tensor:
        """Features (B, T', D) of a map (B, D, T', H', W')."""
        return found.mean((3, 4)).transpose(1, 2)

    def forward(self, clip: Tensor) -> Tensor:
        """One feature per time step, (B, T', D)."""
        return self.late(self.early(clip))

    def stage_of(self, name: str) -> int:
        """The index in `stages` of the parameter called `name`."""
        for index, prefixes in enumerate(self.stages):
            if any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes):
                return index
        raise KeyError(name)

    def _check(self, clip: Tensor) -> None:
        shape = tuple(clip.shape)
        if clip.ndim != 5 or shape[1] != 3:
            raise StillmotionError(
                f"clips have shape {shape}; a backbone needs (batch, 3, frames, height, width): "
                "stack frames along dimension 2 and keep three colour channels"
            )
        if not clip.is_floating_point():
            raise StillmotionError(
                f"clips are {clip.dtype}; a backbone needs normalised floats: divide by 255 and normalise"
            )
        _, _, frames, height, width = shape
        if frames < self.least_frames or frames % self.frames_step:
            raise StillmotionError(
                f"clips have {_count(frames, 'frame')}; {type(self).__name__} needs at least "
                f"{self.least_frames}{_multiple(self.frames_step)}: "
                "change the number of frames per clip (--data.frames)"
            )
        if min(height, width) < self.least_size or height % self.size_step or width % self.size_step:
            raise StillmotionError(
                f"frames are {height}×{width} pixels; {type(self).__name__} needs at least "
                f"{self.least_size}×{self.least_size}{_multiple(self.size_step)}: "
                "change the frame size (--data.size)"
            )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _multiple(step: int) -> str:
    return f", a multiple of {step}" if step > 1 else ""
