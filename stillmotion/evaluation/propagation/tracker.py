"""Propagation of the first frame's masks or keypoints through a video, and its presets.

Shapes: T frames of H×W pixels, h×w cells, D channels, L labels, J joints.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.data.datasets.davis import MaskSequence
from stillmotion.data.datasets.jhmdb import KeypointSequence
from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import StillmotionError
from stillmotion.functional.label_propagation import CellMatches, find_nearest_cells, merge_matches, propagate_labels
from stillmotion.models.feature_maps import FrameFeatureExtractor

_HEATMAP_SIGMA = 0.5  # cells; a joint's heatmap ends at three times that
_PEAK_CELLS = 3  # highest cells of which a joint is the mean


@dataclass(frozen=True)
class PropagationPreset:
    """A protocol of label propagation.

    Args:
        num_matches: Matching cells from which a cell takes its label.
        num_context_frames: Previous frames to match, besides the first.
        radius: Largest distance of a match, in cells.
        temperature: Softmax temperature of the similarities.
        image_size: Height and width of landscape frames, or their short side; None keeps their own.
        upscale: Enlarge smaller frames to that size.
        circular_window: Matches lie in a disk, not in a square.
        unrestricted_first_frame: Matches in the first frame may lie anywhere.
        min_max_normalize: Stretch the map of each label to [0, 1] at the network's size, then enlarge labels by the
            nearest cell.
    """

    num_matches: int
    num_context_frames: int
    radius: int
    temperature: float
    image_size: tuple[int, int] | int | None
    upscale: bool = False
    circular_window: bool = False
    unrestricted_first_frame: bool = False
    min_max_normalize: bool = False

    def __post_init__(self) -> None:
        if min(self.num_matches, self.num_context_frames, self.radius) < 1 or self.temperature <= 0:
            raise StillmotionError(
                "num_matches, num_context_frames and radius must be at least 1 and temperature above 0, got "
                f"{self.num_matches}, {self.num_context_frames}, {self.radius} and {self.temperature}."
            )


PROPAGATION_PRESETS = {
    "image-to-video": PropagationPreset(
        num_matches=7, num_context_frames=20, radius=20, temperature=0.7, image_size=(480, 880)
    ),
    "dino": PropagationPreset(
        num_matches=5, num_context_frames=7, radius=12, temperature=0.1, image_size=480, min_max_normalize=True
    ),
    "videowalk": PropagationPreset(
        num_matches=10,
        num_context_frames=20,
        radius=12,
        temperature=0.05,
        image_size=None,
        circular_window=True,
        unrestricted_first_frame=True,
    ),
}
# Settings of image-to-video on other data sets than DAVIS.
_POINT_OVERRIDES = {"image_size": (320, 320), "upscale": True}
_DATASET_OVERRIDES: dict[str, dict[str, Any]] = {
    "vip": {"num_matches": 10},
    "jhmdb": _POINT_OVERRIDES,
    "points": _POINT_OVERRIDES,
}


class CompressedMasks(Sequence[np.ndarray]):
    """Masks uint8 (H, W) of a sequence, each compressed until it is read."""

    def __init__(self) -> None:
        self._compressed: list[tuple[bytes, tuple[int, ...]]] = []

    def append(self, mask: np.ndarray) -> None:
        """Add a mask."""
        self._compressed.append((zlib.compress(mask.astype(np.uint8).tobytes(), 1), mask.shape))

    def __len__(self) -> int:
        return len(self._compressed)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        packed, shape = self._compressed[number]
        return np.frombuffer(zlib.decompress(packed), np.uint8).reshape(shape)


class MaskTrack(NamedTuple):
    """A sequence and the propagated masks (H, W) of its frames; the first is the given one."""

    sequence: MaskSequence
    masks: Sequence[np.ndarray] | np.ndarray


class PointTrack(NamedTuple):
    """A sequence and its propagated joints (T, J, 2) in pixels; NaN is lost, and the first are given."""

    sequence: KeypointSequence
    points: np.ndarray


Track = MaskTrack | PointTrack


def get_propagation_preset(name: str, layout: str) -> PropagationPreset:
    """Return a preset with its settings for a data set.

    Args:
        name: Key of `PROPAGATION_PRESETS`.
        layout: Data set: davis, vip, jhmdb or points.

    Returns:
        The preset.

    Raises:
        StillmotionError: If there is no such preset.
    """
    if name not in PROPAGATION_PRESETS:
        raise StillmotionError(f"Unknown preset {name!r}; choose one of {', '.join(PROPAGATION_PRESETS)}.")
    return replace(
        PROPAGATION_PRESETS[name], **(_DATASET_OVERRIDES.get(layout, {}) if name == "image-to-video" else {})
    )


def propagate_sequence(
    feature_maps: Iterable[Tensor], first_labels: Callable[[int, int], Tensor], preset: PropagationPreset
) -> Iterator[Tensor]:
    """Propagate the labels of the first frame through a video.

    Args:
        feature_maps: Feature map of each frame, (h, w, D).
        first_labels: Returns the labels of the first frame, (h, w, L), for h rows and w columns of cells.
        preset: Protocol.

    Yields:
        Labels of each frame, (h, w, L).
    """
    context = labels = torch.empty(0)
    for number, cells in enumerate(feature_maps):
        unit = F.normalize(cells, dim=-1)
        if number == 0:
            slot, current = 0, first_labels(*unit.shape[:2]).to(unit)
            context, labels = (x.new_empty(1 + preset.num_context_frames, *x.shape) for x in (unit, current))
        else:
            known = min(number, 1 + preset.num_context_frames)
            current = propagate_labels(
                labels[:known], _matches(unit, context[:known], preset), temperature=preset.temperature
            )
            # The first frame stays; of the others the newest replaces the oldest.
            slot = 1 + (number - 1) % preset.num_context_frames
        context[slot], labels[slot] = unit, current
        yield current


def propagate_masks(
    encoder: FrameFeatureExtractor,
    sequence: MaskSequence,
    preset: PropagationPreset,
    *,
    num_frames: int,
    image_size: tuple[int, int] | None = None,
    on_frame: Callable[[], None] | None = None,
) -> MaskTrack:
    """Propagate the masks of a sequence.

    Args:
        encoder: Feature maps of frames.
        sequence: Sequence whose first frame has a mask.
        preset: Protocol.
        num_frames: Number of frames to propagate to.
        image_size: Height and width of the network's input; overrides the preset.
        on_frame: Called after each frame.

    Returns:
        The masks.
    """
    first_mask = sequence.read_mask(0)
    assert first_mask is not None  # a sequence without it cannot be opened
    object_ids = np.unique(np.append(first_mask, 0))
    one_hot = torch.from_numpy((first_mask == object_ids[:, None, None]).astype(np.float32))
    input_size = network_input_size(encoder, first_mask.shape, preset, image_size=image_size)
    masks = CompressedMasks()

    def first(h: int, w: int) -> Tensor:
        return F.interpolate(one_hot[None], (h, w), mode="nearest-exact")[0].movedim(0, -1)

    for number, labels in enumerate(
        propagate_sequence(_feature_maps(encoder, sequence.video, num_frames, input_size), first, preset)
    ):
        pixels = _labels_to_pixels(labels, first_mask.shape, input_size, preset) if number else None
        masks.append(first_mask if pixels is None else object_ids[pixels])
        if on_frame is not None:
            on_frame()
    return MaskTrack(sequence, masks)


def propagate_keypoints(
    encoder: FrameFeatureExtractor,
    sequence: KeypointSequence,
    preset: PropagationPreset,
    *,
    num_frames: int,
    image_size: tuple[int, int] | None = None,
    on_frame: Callable[[], None] | None = None,
) -> PointTrack:
    """Propagate the keypoints of a sequence.

    Args:
        encoder: Feature maps of frames.
        sequence: Sequence with the joints of its first frame.
        preset: Protocol.
        num_frames: Number of frames to propagate to.
        image_size: Height and width of the network's input; overrides the preset.
        on_frame: Called after each frame.

    Returns:
        The joints.
    """
    given, frame_size = sequence.keypoints[0], sequence.video.get_frames([0]).shape[1:3]
    input_size = network_input_size(encoder, frame_size, preset, image_size=image_size)
    points = np.empty((num_frames, *given.shape))

    def first(h: int, w: int) -> Tensor:
        return torch.from_numpy(keypoints_to_heatmaps(given, frame_size, (h, w)))

    for number, labels in enumerate(
        propagate_sequence(_feature_maps(encoder, sequence.video, num_frames, input_size), first, preset)
    ):
        points[number] = given if number == 0 else heatmaps_to_keypoints(labels, frame_size)
        if on_frame is not None:
            on_frame()
    return PointTrack(sequence, points)


def keypoints_to_heatmaps(points: np.ndarray, image_size: tuple[int, int], grid_size: tuple[int, int]) -> np.ndarray:
    """Draw a Gaussian around each joint; nothing for a joint that is missing or outside the frame.

    Args:
        points: Joints in pixels, (J, 2).
        image_size: Height and width of the frame.
        grid_size: Rows and columns of cells (h, w).

    Returns:
        Heatmaps, float32 (h, w, J).
    """
    inside = ((points >= -0.5) & (points <= np.array(image_size[::-1]) - 0.5)).all(-1)
    x, y = (np.nan_to_num((points[:, i] + 0.5) * grid_size[1 - i] / image_size[1 - i] - 0.5) for i in (0, 1))
    squared = (np.arange(grid_size[0])[:, None, None] - y) ** 2 + (np.arange(grid_size[1])[:, None] - x) ** 2
    gaussian = np.exp(-squared / (2 * _HEATMAP_SIGMA**2)) * (squared <= (3 * _HEATMAP_SIGMA) ** 2)
    return (gaussian * inside).astype(np.float32)


def heatmaps_to_keypoints(heatmaps: Tensor, image_size: tuple[int, int]) -> np.ndarray:
    """Read joints from heatmaps, each the weighted mean of its highest cells.

    Args:
        heatmaps: Heatmaps, (h, w, J).
        image_size: Height and width of the frame.

    Returns:
        Joints in pixels, (J, 2); NaN for an empty heatmap.
    """
    h, w, _ = heatmaps.shape
    value, cell = heatmaps.flatten(0, 1).topk(min(_PEAK_CELLS, h * w), 0)
    cells = torch.stack([cell % w, cell // w], -1).to(value)
    weights = value / value.sum(0)
    position = (weights[..., None] * cells).sum(0).double().cpu().numpy()
    return (position + 0.5) * [image_size[1] / w, image_size[0] / h] - 0.5


def network_input_size(
    encoder: FrameFeatureExtractor,
    frame_size: tuple[int, ...],
    preset: PropagationPreset,
    *,
    image_size: tuple[int, int] | None = None,
) -> tuple[int, int]:
    """Return height and width of the network's input.

    Args:
        encoder: Feature maps of frames, which need a size divisible by their patch or stride.
        frame_size: Height and width of the frames.
        preset: Protocol.
        image_size: Height and width that override the preset.

    Returns:
        Height and width.
    """
    if image_size is not None:
        return encoder.nearest_valid_size(*image_size)
    height, width = frame_size
    short = min(height, width)
    if preset.image_size is None:
        return encoder.nearest_valid_size(height, width)
    if isinstance(preset.image_size, int):
        scale = preset.image_size / short if preset.upscale else min(1.0, preset.image_size / short)
        return encoder.nearest_valid_size(scale * height, scale * width)
    scale = 1.0 if preset.upscale else min(1.0, short / min(preset.image_size))
    tall, wide = preset.image_size if height <= width else preset.image_size[::-1]
    return encoder.nearest_valid_size(scale * tall, scale * wide)


def _feature_maps(
    encoder: FrameFeatureExtractor, video: VideoReader, num_frames: int, image_size: tuple[int, int]
) -> Iterator[Tensor]:
    def read(indices: list[int]) -> np.ndarray:
        pixels = video.get_frames(indices)
        interpolation = cv2.INTER_AREA if pixels.shape[1] > image_size[0] else cv2.INTER_LINEAR
        return np.stack([cv2.resize(frame, image_size[::-1], interpolation=interpolation) for frame in pixels])

    return encoder.iter_maps(num_frames, read)


def _matches(query: Tensor, context: Tensor, preset: PropagationPreset) -> CellMatches:
    h, w, _ = query.shape
    k = min(preset.num_matches, h * w)
    if not preset.unrestricted_first_frame:
        return find_nearest_cells(query, context, k=k, radius=preset.radius, circular=preset.circular_window)
    anywhere = find_nearest_cells(query, context[:1], k=k)
    if len(context) == 1:
        return anywhere
    return merge_matches(
        anywhere,
        find_nearest_cells(query, context[1:], k=k, radius=preset.radius, circular=preset.circular_window),
        offset=h * w,
    )


def _labels_to_pixels(
    labels: Tensor, shape: tuple[int, ...], image_size: tuple[int, int], preset: PropagationPreset
) -> np.ndarray:
    """Return the best label of each pixel of a frame of this shape."""
    maps = labels.movedim(-1, 0)[None]
    smooth = F.interpolate(
        maps, image_size if preset.min_max_normalize else shape, mode="bilinear", align_corners=False
    )[0]
    if preset.min_max_normalize:
        smooth = smooth - smooth.amin((1, 2), keepdim=True)
        smooth = smooth / smooth.amax((1, 2), keepdim=True).clamp_min(1e-12)
    best = smooth.argmax(0)
    if preset.min_max_normalize:
        best = F.interpolate(best[None, None].float(), shape, mode="nearest-exact")[0, 0].long()
    return best.cpu().numpy()
