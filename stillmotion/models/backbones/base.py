"""What every backbone offers: one feature per frame, and a seam before the last stage.

Shapes: B clips, T frames, H×W pixels, T' ≤ T time steps, D = `width` channels.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from stillmotion.errors import StillmotionError


class Backbone(nn.Module, ABC):
    """A network from clips (B, 3, T, H, W) to per-frame features (B, T', D), pooled over space only.

    out_features: D. map_width: channels of a feature map, which are D as well unless a frame's features are of several places.
    stage_prefixes: prefixes of parameter names, a tuple for each stage from stem to last; they cover all parameters.
    min_size, min_frames: the smallest height or width, and clip length, that the network takes.
    size_divisor, frames_divisor: what height and width, and clip length, must be multiples of.
    memory_format: of clips in memory, in which the first layer has them.
    is_framewise: frames are seen one by one. patch_grid: and as one grid of patches of `size_divisor` pixels, of any size.

    A subclass sets these and writes `_trunk` and `_last_stage`.
    """

    out_features: int
    map_channels: int | None = None
    stage_prefixes: tuple[tuple[str, ...], ...]
    min_size: int
    min_frames: int = 1
    size_divisor: int = 1
    frames_divisor: int = 1
    memory_format: torch.memory_format = torch.contiguous_format
    is_framewise: bool = False
    has_patch_grid: bool = False

    @abstractmethod
    def _trunk(self, clips: Tensor) -> Tensor:
        """All stages but the last."""

    @abstractmethod
    def _last_stage(self, h: Tensor) -> Tensor:
        """The last stage: what `_trunk` returns -> (B, D, T', H', W'). Does not write into `h`."""

    def forward_trunk(self, clips: Tensor) -> Tensor:
        """What the last stage is given for `clips` (B, 3, T, H, W); `forward_last_stage` finishes it, as often as wanted."""
        self._check_input(clips)
        if self.memory_format != torch.contiguous_format:
            clips = clips.contiguous(memory_format=self.memory_format)
        return self._trunk(clips)

    def forward_last_stage(self, h: Tensor) -> Tensor:
        """Features (B, T', D) from what `forward_trunk` returned: `late(early(clip))` is `forward(clip)`."""
        return self.pool(self._last_stage(h))

    def feature_map(self, clips: Tensor) -> Tensor:
        """Features before pooling, (B, D, T', H', W')."""
        return self._last_stage(self.forward_trunk(clips))

    def forward_features(self, clips: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, T', D) and the map (B, D, T', H', W') that they were pooled from, by one pass."""
        found = self.feature_map(clips)
        return self.pool(found), found

    def pool(self, feature_map: Tensor) -> Tensor:
        """Features (B, T', D) of a map (B, D, T', H', W')."""
        return feature_map.mean((3, 4)).transpose(1, 2)

    def forward(self, clips: Tensor) -> Tensor:
        """One feature per time step, (B, T', D)."""
        return self.forward_last_stage(self.forward_trunk(clips))

    def stage_index(self, name: str) -> int:
        """The index in `stage_prefixes` of the parameter called `name`."""
        for index, prefixes in enumerate(self.stage_prefixes):
            if any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes):
                return index
        raise KeyError(name)

    def _check_input(self, clips: Tensor) -> None:
        shape = tuple(clips.shape)
        if clips.ndim != 5 or shape[1] != 3:
            raise StillmotionError(
                f"clips have shape {shape}; a backbone needs (batch, 3, frames, height, width): "
                "stack frames along dimension 2 and keep three colour channels"
            )
        if not clips.is_floating_point():
            raise StillmotionError(
                f"clips are {clips.dtype}; a backbone needs normalised floats: divide by 255 and normalise"
            )
        _, _, frames, height, width = shape
        if frames < self.min_frames or frames % self.frames_divisor:
            raise StillmotionError(
                f"clips have {_plural(frames, 'frame')}; {type(self).__name__} needs at least "
                f"{self.min_frames}{_divisor_text(self.frames_divisor)}: "
                "change the number of frames per clip (--data.num-frames)"
            )
        if min(height, width) < self.min_size or height % self.size_divisor or width % self.size_divisor:
            raise StillmotionError(
                f"frames are {height}×{width} pixels; {type(self).__name__} needs at least "
                f"{self.min_size}×{self.min_size}{_divisor_text(self.size_divisor)}: "
                "change the frame size (--data.image-size)"
            )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _divisor_text(divisor: int) -> str:
    return f", a multiple of {divisor}" if divisor > 1 else ""
