"""Labels of a video's first frame carried through it: masks and joints, cell by cell, and back to pixels.

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

_HEATMAP_SIGMA = 0.5  # cells: the deviation of a joint's label around its place, which ends at three times that
_PEAK_CELLS = 3  # cells that a joint's place is read from


@dataclass(frozen=True)
class PropagationPreset:
    """A protocol.

    num_matches: matches that a cell takes its label from. context: frames before it, besides the first.
    radius: in cells, how far a match may lie; anywhere in the first frame if `unrestricted_first_frame`. disk: see `nearest_cells`.
    image_size: height and width of landscape frames, or their shorter side; None is their own.
    upscale: smaller frames are brought to that size too; else they are shown at their own.
    min_max_normalize: each label's map is stretched to [0, 1] at the network's size, and labels are then enlarged by nearest.
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
                f"k {self.num_matches}, context {self.num_context_frames}, radius {self.radius}, temperature {self.temperature}: k, context "
                "and radius must be at least 1, and the temperature above 0"
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
# What image-to-video transfer does otherwise elsewhere than on DAVIS.
_POINT_OVERRIDES = {"image_size": (320, 320), "upscale": True}
_DATASET_OVERRIDES: dict[str, dict[str, Any]] = {
    "vip": {"num_matches": 10},
    "jhmdb": _POINT_OVERRIDES,
    "points": _POINT_OVERRIDES,
}


class CompressedMasks(Sequence[np.ndarray]):
    """Masks uint8 (H, W) of a sequence of any length, each compressed until it is asked for."""

    def __init__(self) -> None:
        self._compressed: list[tuple[bytes, tuple[int, ...]]] = []

    def append(self, mask: np.ndarray) -> None:
        self._compressed.append((zlib.compress(mask.astype(np.uint8).tobytes(), 1), mask.shape))

    def __len__(self) -> int:
        return len(self._compressed)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        packed, shape = self._compressed[number]
        return np.frombuffer(zlib.decompress(packed), np.uint8).reshape(shape)


class MaskTrack(NamedTuple):
    """A sequence and the masks (H, W) that were found for its frames; the first is the given one."""

    sequence: MaskSequence
    masks: Sequence[np.ndarray] | np.ndarray


class PointTrack(NamedTuple):
    """A sequence and the joints (T, J, 2) that were found for it, in pixels; NaN is lost, and the first are given."""

    sequence: KeypointSequence
    points: np.ndarray


Track = MaskTrack | PointTrack


def get_preset(name: str, layout: str) -> PropagationPreset:
    """The preset of this name, as it is for this set."""
    if name not in PROPAGATION_PRESETS:
        raise StillmotionError(f"there is no preset {name!r}; choose one of {', '.join(PROPAGATION_PRESETS)}")
    return replace(
        PROPAGATION_PRESETS[name], **(_DATASET_OVERRIDES.get(layout, {}) if name == "image-to-video" else {})
    )


def propagate_sequence(
    feature_maps: Iterable[Tensor], first_labels: Callable[[int, int], Tensor], preset: PropagationPreset
) -> Iterator[Tensor]:
    """The labels (h, w, L) of each frame, from its map (h, w, D) and the labels of the first frame and the last ones.

    first_labels: the first frame's labels, for so many rows and columns of cells.
    """
    context = labels = torch.empty(0)
    for number, cells in enumerate(feature_maps):
        unit = F.normalize(cells, dim=-1)
        if number == 0:
            slot, found = 0, first_labels(*unit.shape[:2]).to(unit)
            context, labels = (x.new_empty(1 + preset.num_context_frames, *x.shape) for x in (unit, found))
        else:
            known = min(number, 1 + preset.num_context_frames)
            found = propagate_labels(
                labels[:known], _matches(unit, context[:known], preset), temperature=preset.temperature
            )
            # The first frame stays; of the others the oldest gives its place to the newest.
            slot = 1 + (number - 1) % preset.num_context_frames
        context[slot], labels[slot] = unit, found
        yield found


def propagate_masks(
    encoder: FrameFeatureExtractor,
    sequence: MaskSequence,
    preset: PropagationPreset,
    *,
    num_frames: int,
    image_size: tuple[int, int] | None = None,
    on_frame: Callable[[], None] | None = None,
) -> MaskTrack:
    """The masks of a sequence's first `num_frames` frames.

    image_size: height and width that the network is shown, in place of the preset's. count: called after each frame.
    """
    truth = sequence.read_mask(0)
    assert truth is not None  # or the sequence could not have been opened
    ids = np.unique(np.append(truth, 0))
    each = torch.from_numpy((truth == ids[:, None, None]).astype(np.float32))
    shown = (
        network_input_size(encoder, truth.shape, preset)
        if image_size is None
        else encoder.nearest_valid_size(*image_size)
    )
    masks = CompressedMasks()

    def first(h: int, w: int) -> Tensor:
        return F.interpolate(each[None], (h, w), mode="nearest-exact")[0].movedim(0, -1)

    for number, labels in enumerate(
        propagate_sequence(_feature_maps(encoder, sequence.video, num_frames, shown), first, preset)
    ):
        masks.append(truth if number == 0 else ids[_labels_to_pixels(labels, truth.shape, shown, preset)])
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
    """The joints of a sequence's first `num_frames` frames; arguments as in `track_masks`."""
    given, pixels = sequence.keypoints[0], sequence.video.get_frames([0]).shape[1:3]
    shown = (
        network_input_size(encoder, pixels, preset) if image_size is None else encoder.nearest_valid_size(*image_size)
    )
    points = np.empty((num_frames, *given.shape))

    def first(h: int, w: int) -> Tensor:
        return torch.from_numpy(keypoints_to_heatmaps(given, pixels, (h, w)))

    for number, labels in enumerate(
        propagate_sequence(_feature_maps(encoder, sequence.video, num_frames, shown), first, preset)
    ):
        points[number] = given if number == 0 else heatmaps_to_keypoints(labels, pixels)
        if on_frame is not None:
            on_frame()
    return PointTrack(sequence, points)


def keypoints_to_heatmaps(points: np.ndarray, image_size: tuple[int, int], grid_size: tuple[int, int]) -> np.ndarray:
    """A bell around each joint (J, 2), (h, w, J), nothing where it is missing or outside a frame of this size."""
    inside = ((points >= -0.5) & (points <= np.array(image_size[::-1]) - 0.5)).all(-1)
    x, y = (np.nan_to_num((points[:, i] + 0.5) * grid_size[1 - i] / image_size[1 - i] - 0.5) for i in (0, 1))
    squared = (np.arange(grid_size[0])[:, None, None] - y) ** 2 + (np.arange(grid_size[1])[:, None] - x) ** 2
    bell = np.exp(-squared / (2 * _HEATMAP_SIGMA**2)) * (squared <= (3 * _HEATMAP_SIGMA) ** 2)
    return (bell * inside).astype(np.float32)


def heatmaps_to_keypoints(heatmaps: Tensor, image_size: tuple[int, int]) -> np.ndarray:
    """The places (J, 2) of labels (h, w, J) in a frame of this size: the mean of the best cells; NaN without any."""
    h, w, _ = heatmaps.shape
    value, cell = heatmaps.flatten(0, 1).topk(min(_PEAK_CELLS, h * w), 0)
    cells = torch.stack([cell % w, cell // w], -1).to(value)
    share = value / value.sum(0)
    place = (share[..., None] * cells).sum(0).double().cpu().numpy()
    return (place + 0.5) * [image_size[1] / w, image_size[0] / h] - 0.5


def network_input_size(
    encoder: FrameFeatureExtractor, frame_size: tuple[int, ...], preset: PropagationPreset
) -> tuple[int, int]:
    """Height and width at which the network is shown frames of so many pixels."""
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
    def read(numbers: list[int]) -> np.ndarray:
        pixels = video.get_frames(numbers)
        how = cv2.INTER_AREA if pixels.shape[1] > image_size[0] else cv2.INTER_LINEAR
        return np.stack([cv2.resize(picture, image_size[::-1], interpolation=how) for picture in pixels])

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
    """The best label of each pixel of a frame of this shape."""
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
