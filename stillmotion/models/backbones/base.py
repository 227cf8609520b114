"""`Backbone`: clips to one feature per time step, with a seam before the last stage.

Shapes: B clips, T frames, H×W pixels, T' ≤ T time steps, D = `out_features` channels.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from stillmotion.errors import StillmotionError


class Backbone(nn.Module, ABC):
    """A network from clips (B, 3, T, H, W) to per-frame features (B, T', D), pooled over space only.

    A subclass sets the attributes and implements `_trunk` and `_last_stage`.

    Attributes:
        out_features: D.
        map_channels: Channels of a feature map; None if they are D.
        stage_prefixes: Prefixes of parameter names, a tuple for each stage, first to last; they cover all parameters.
        min_size: Smallest height and width.
        min_frames: Smallest clip length.
        size_divisor: Divisor of height and width.
        frames_divisor: Divisor of the clip length.
        memory_format: Memory layout of clips that the first layer expects.
        is_framewise: Each frame is processed alone.
        has_patch_grid: Each frame is one grid of patches of `size_divisor` pixels, at any frame size.
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
        """Run all stages but the last."""

    @abstractmethod
    def _last_stage(self, h: Tensor) -> Tensor:
        """Run the last stage on the output of `_trunk`, to (B, D, T', H', W'); must not write into `h`."""

    def forward_trunk(self, clips: Tensor) -> Tensor:
        """Run all stages but the last. `forward_last_stage` completes the pass and may be called repeatedly."""
        self._check_input(clips)
        if self.memory_format != torch.contiguous_format:
            clips = clips.contiguous(memory_format=self.memory_format)
        return self._trunk(clips)

    def forward_last_stage(self, h: Tensor) -> Tensor:
        """Compute features (B, T', D) from the output of `forward_trunk`."""
        return self.pool(self._last_stage(h))

    def feature_map(self, clips: Tensor) -> Tensor:
        """Compute features before pooling, (B, D, T', H', W')."""
        return self._last_stage(self.forward_trunk(clips))

    def forward_features(self, clips: Tensor) -> tuple[Tensor, Tensor]:
        """Compute features (B, T', D) and the map (B, D, T', H', W') that they are pooled from, in one pass."""
        feature_map = self.feature_map(clips)
        return self.pool(feature_map), feature_map

    def pool(self, feature_map: Tensor) -> Tensor:
        """Pool a feature map (B, D, T', H', W') over space, to (B, T', D)."""
        return feature_map.mean((3, 4)).transpose(1, 2)

    def forward(self, clips: Tensor) -> Tensor:
        """Compute one feature per time step, (B, T', D), from clips (B, 3, T, H, W)."""
        return self.forward_last_stage(self.forward_trunk(clips))

    def stage_index(self, name: str) -> int:
        """Return the index in `stage_prefixes` of a parameter; raise KeyError if there is none."""
        for index, prefixes in enumerate(self.stage_prefixes):
            if any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes):
                return index
        raise KeyError(name)

    def _check_input(self, clips: Tensor) -> None:
        shape = tuple(clips.shape)
        if clips.ndim != 5 or shape[1] != 3:
            raise StillmotionError(
                f"Clips have shape {shape}; expected (batch, 3, frames, height, width), with three color channels."
            )
        if not clips.is_floating_point():
            raise StillmotionError(
                f"Clips are {clips.dtype}; expected normalized floats. Divide by 255 and normalize them."
            )
        _, _, frames, height, width = shape
        if frames < self.min_frames or frames % self.frames_divisor:
            raise StillmotionError(
                f"Clips have {frames} frames; {type(self).__name__} needs at least "
                f"{self.min_frames}{_divisor_text(self.frames_divisor)}. Change --data.num-frames."
            )
        if min(height, width) < self.min_size or height % self.size_divisor or width % self.size_divisor:
            raise StillmotionError(
                f"Frames are {height}×{width} pixels; {type(self).__name__} needs at least "
                f"{self.min_size}×{self.min_size}{_divisor_text(self.size_divisor)}. Change --data.image-size."
            )


def _divisor_text(divisor: int) -> str:
    return f", in multiples of {divisor}" if divisor > 1 else ""
