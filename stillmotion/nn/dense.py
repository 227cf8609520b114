"""One feature map per frame from any network, for what is asked of every place of a video.

Shapes: T frames of H×W pixels, h×w cells, D channels.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stillmotion.errors import StillmotionError
from stillmotion.nn.backbones.base import Backbone
from stillmotion.nn.backbones.vit import VideoTransformer

Maps = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class DenseEncoder:
    """Frames uint8 (T, H, W, 3) to features (T, h, w, D), by any callable that maps the frames of a clip.

    maps: normalised frames (T, 3, H, W) to (T, h, w, D).
    mean, std: of the normalisation, for values in [0, 1].
    frames: how many the network is given at a time.
    step: what H and W must be multiples of. least: the smallest of either.
    device: where the network is.
    """

    maps: Maps
    mean: Sequence[float]
    std: Sequence[float]
    frames: int = 8
    step: int = 1
    least: int = 1
    device: torch.device | str = "cpu"

    def __call__(self, frames: np.ndarray) -> Tensor:
        pixels = torch.from_numpy(np.ascontiguousarray(frames)).to(self.device).movedim(-1, 1)
        mean, std = (torch.tensor(values, device=self.device)[:, None, None] for values in (self.mean, self.std))
        with torch.inference_mode():
            found = self.maps((pixels / 255 - mean) / std)
        if found.ndim != 4 or len(found) != len(frames):
            raise StillmotionError(
                f"the maps of {len(frames)} frames have shape {tuple(found.shape)}; a dense encoder gives (T, h, w, D)"
            )
        return found.float()

    def fitting(self, height: float, width: float) -> tuple[int, int]:
        """The height and width nearest to these that the network takes."""
        least = -(-self.least // self.step)
        return max(least, round(height / self.step)) * self.step, max(least, round(width / self.step)) * self.step

    def stream(self, length: int, read: Callable[[list[int]], np.ndarray]) -> Iterator[Tensor]:
        """The map (h, w, D) of each frame of a video of this length, whose frames `read` gives by their numbers.

        Every clip has as many frames: the last begins earlier, and a shorter video repeats its last frame.
        """
        for start in range(0, length, self.frames):
            first = max(0, min(start, length - self.frames))
            numbers = [min(first + i, length - 1) for i in range(self.frames)]
            yield from self(read(numbers))[start - first : min(self.frames, length - first)]


def frame_maps(maps: Maps) -> Maps:
    """From clips (1, 3, T, H, W) to (1, T', h, w, D): the map at each of T frames (T, 3, H, W), (T, h, w, D).

    A time step that stands for several frames is repeated.
    """

    def of_frames(frames: Tensor) -> Tensor:
        found = maps(frames.transpose(0, 1)[None])[0]
        return found[torch.arange(len(frames), device=found.device) * len(found) // len(frames)]

    return of_frames


def check_layer(backbone: Backbone, layer: int | None) -> None:
    """Raises where a backbone has no such stage."""
    stages = len(backbone.stages)
    if layer is not None and not 1 <= layer <= stages:
        raise StillmotionError(f"layer is {layer}; this network has {stages} stages: choose 1 to {stages}")


def stage_map(backbone: Backbone, clips: Tensor, layer: int | None = None) -> Tensor:
    """A backbone's feature map of clips (b, 3, T, H, W), as (b, T', h, w, D).

    layer: the number of stages after which the map is taken, from 1; None is all.
    """
    check_layer(backbone, layer)
    if layer is None or layer == len(backbone.stages):
        return backbone.feature_map(clips).movedim(1, -1)
    kept: list[Tensor] = []
    part = backbone.get_submodule(backbone.stages[layer - 1][-1])
    handle = part.register_forward_hook(lambda part, given, found: kept.append(found))
    try:
        backbone.feature_map(clips)
    finally:
        handle.remove()
    return kept[0] if isinstance(backbone, VideoTransformer) else kept[0].movedim(1, -1)
