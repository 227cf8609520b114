"""One feature map per frame from any network, for what is asked of every place of a video.

Shapes: T frames of H×W pixels, h×w cells, D channels.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.backbones.vit import VideoTransformer

FeatureMapFunction = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class FrameFeatureExtractor:
    """Frames uint8 (T, H, W, 3) to features (T, h, w, D), by any callable that maps the frames of a clip.

    compute_maps: normalised frames (T, 3, H, W) to (T, h, w, D).
    mean, std: of the normalisation, for values in [0, 1].
    clip_length: how many the network is given at a time.
    size_divisor: what H and W must be multiples of. least: the smallest of either.
    device: where the network is.
    """

    compute_maps: FeatureMapFunction
    mean: Sequence[float]
    std: Sequence[float]
    clip_length: int = 8
    size_divisor: int = 1
    min_size: int = 1
    device: torch.device | str = "cpu"

    def __call__(self, frames: np.ndarray) -> Tensor:
        pixels = torch.from_numpy(np.ascontiguousarray(frames)).to(self.device).movedim(-1, 1)
        mean, std = (torch.tensor(values, device=self.device)[:, None, None] for values in (self.mean, self.std))
        with torch.inference_mode():
            found = self.compute_maps((pixels / 255 - mean) / std)
        if found.ndim != 4 or len(found) != len(frames):
            raise StillmotionError(
                f"the maps of {len(frames)} frames have shape {tuple(found.shape)}; a dense encoder gives (T, h, w, D)"
            )
        return found.float()

    def nearest_valid_size(self, height: float, width: float) -> tuple[int, int]:
        """The height and width nearest to these that the network takes."""
        least = -(-self.min_size // self.size_divisor)
        return max(least, round(height / self.size_divisor)) * self.size_divisor, max(
            least, round(width / self.size_divisor)
        ) * self.size_divisor

    def iter_maps(self, video_length: int, read_frames: Callable[[list[int]], np.ndarray]) -> Iterator[Tensor]:
        """The map (h, w, D) of each frame of a video of this length, whose frames `read_frames` gives by their numbers.

        Every clip has as many clip_length: the last begins earlier, and a shorter video repeats its last frame.
        """
        for start in range(0, video_length, self.clip_length):
            first = max(0, min(start, video_length - self.clip_length))
            numbers = [min(first + i, video_length - 1) for i in range(self.clip_length)]
            yield from self(read_frames(numbers))[start - first : min(self.clip_length, video_length - first)]


def maps_per_frame(compute_maps: FeatureMapFunction) -> FeatureMapFunction:
    """From clips (1, 3, T, H, W) to (1, T', h, w, D): the map at each of T frames (T, 3, H, W), (T, h, w, D).

    A time step that stands for several frames is repeated.
    """

    def of_frames(frames: Tensor) -> Tensor:
        found = compute_maps(frames.transpose(0, 1)[None])[0]
        return found[torch.arange(len(frames), device=found.device) * len(found) // len(frames)]

    return of_frames


def check_stage(backbone: Backbone, layer: int | None) -> None:
    """Raises where a backbone has no such stage."""
    if layer is None:
        return
    stages = len(backbone.stage_prefixes)
    if not 1 <= layer <= stages:
        raise StillmotionError(f"layer is {layer}; this network has {stages} stages: choose 1 to {stages}")


def feature_map_at(backbone: Backbone, clips: Tensor, layer: int | None = None) -> Tensor:
    """A backbone's feature map of clips (b, 3, T, H, W), as (b, T', h, w, D).

    layer: the number of stages after which the map is taken, from 1; None is all.
    """
    check_stage(backbone, layer)
    if layer is None or layer == len(backbone.stage_prefixes):
        return backbone.feature_map(clips).movedim(1, -1)
    kept: list[Tensor] = []
    part = backbone.get_submodule(backbone.stage_prefixes[layer - 1][-1])
    handle = part.register_forward_hook(lambda part, given, found: kept.append(found))
    try:
        backbone.feature_map(clips)
    finally:
        handle.remove()
    return kept[0] if isinstance(backbone, VideoTransformer) else kept[0].movedim(1, -1)
