"""Feature map of every frame from any backbone or stage.

Shapes: T frames of H×W pixels, h×w cells, D channels.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.backbones.video_vit import VideoTransformer

FeatureMapFunction = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class FrameFeatureExtractor:
    """Frames uint8 (T, H, W, 3) to feature maps (T, h, w, D), by any function of the frames of a clip.

    Args:
        compute_maps: Function from normalized frames (T, 3, H, W) to maps (T, h, w, D).
        mean: Mean of the normalization, for values in [0, 1].
        std: Standard deviation of the normalization.
        clip_length: Frames per clip.
        size_divisor: Divisor of H and W.
        min_size: Smallest H and W.
        device: Device of the network.
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
            maps = self.compute_maps((pixels / 255 - mean) / std)
        if maps.ndim != 4 or len(maps) != len(frames):
            raise StillmotionError(
                f"The maps of {len(frames)} frames have shape {tuple(maps.shape)}; "
                "expected (frames, rows, columns, channels)."
            )
        return maps.float()

    def nearest_valid_size(self, height: float, width: float) -> tuple[int, int]:
        """Return the valid height and width nearest to the given ones."""
        minimum = -(-self.min_size // self.size_divisor)
        rows, columns = (max(minimum, round(side / self.size_divisor)) for side in (height, width))
        return rows * self.size_divisor, columns * self.size_divisor

    def iter_maps(self, video_length: int, read_frames: Callable[[list[int]], np.ndarray]) -> Iterator[Tensor]:
        """Yield the feature map of every frame. The last clip is shifted back; short videos repeat their last frame.

        Args:
            video_length: Number of frames of the video.
            read_frames: Function that reads frames by index.

        Yields:
            Map of each frame, (h, w, D).
        """
        for start in range(0, video_length, self.clip_length):
            first = max(0, min(start, video_length - self.clip_length))
            indices = [min(first + i, video_length - 1) for i in range(self.clip_length)]
            yield from self(read_frames(indices))[start - first : min(self.clip_length, video_length - first)]


def maps_per_frame(compute_maps: FeatureMapFunction) -> FeatureMapFunction:
    """Turn a function of clips, (1, 3, T, H, W) to (1, T', h, w, D), into one of frames, (T, 3, H, W) to (T, h, w, D).

    A time step that represents several frames is repeated.
    """

    def compute_frame_maps(frames: Tensor) -> Tensor:
        maps = compute_maps(frames.transpose(0, 1)[None])[0]
        return maps[torch.arange(len(frames), device=maps.device) * len(maps) // len(frames)]

    return compute_frame_maps


def check_stage(backbone: Backbone, layer: int | None) -> None:
    """Check that a backbone has a stage.

    Args:
        backbone: Backbone.
        layer: Number of the stage, from 1; None is the last.

    Raises:
        StillmotionError: If there is no such stage.
    """
    if layer is None:
        return
    num_stages = len(backbone.stage_prefixes)
    if not 1 <= layer <= num_stages:
        raise StillmotionError(f"layer is {layer}; must be between 1 and the number of stages, {num_stages}.")


def feature_map_at(backbone: Backbone, clips: Tensor, layer: int | None = None) -> Tensor:
    """Compute the feature map of clips after a stage of a backbone.

    Args:
        backbone: Backbone.
        clips: Normalized clips, (b, 3, T, H, W).
        layer: Number of the stage, from 1; None is the last.

    Returns:
        Feature map, (b, T', h, w, D).
    """
    check_stage(backbone, layer)
    if layer is None or layer == len(backbone.stage_prefixes):
        return backbone.feature_map(clips).movedim(1, -1)
    outputs: list[Tensor] = []
    stage = backbone.get_submodule(backbone.stage_prefixes[layer - 1][-1])
    handle = stage.register_forward_hook(lambda module, args, output: outputs.append(output))
    try:
        backbone.feature_map(clips)
    finally:
        handle.remove()
    return outputs[0] if isinstance(backbone, VideoTransformer) else outputs[0].movedim(1, -1)
