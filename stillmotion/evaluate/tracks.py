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

from stillmotion.data.dense import MaskSequence, PointSequence
from stillmotion.data.video import Video
from stillmotion.errors import StillmotionError
from stillmotion.functional.propagate import Matches, carried, joined, nearest_cells
from stillmotion.nn.dense import DenseEncoder

_SPREAD = 0.5  # cells: the deviation of a joint's label around its place, which ends at three times that
_BEST = 3  # cells that a joint's place is read from


@dataclass(frozen=True)
class Preset:
    """A protocol.

    k: matches that a cell takes its label from. context: frames before it, besides the first.
    radius: in cells, how far a match may lie; anywhere in the first frame if `free_first`. disk: see `nearest_cells`.
    size: height and width of landscape frames, or their shorter side; None is their own.
    enlarge: smaller frames are brought to that size too; else they are shown at their own.
    min_max: each label's map is stretched to [0, 1] at the network's size, and labels are then enlarged by nearest.
    """

    k: int
    context: int
    radius: int
    temperature: float
    size: tuple[int, int] | int | None
    enlarge: bool = False
    disk: bool = False
    free_first: bool = False
    min_max: bool = False

    def __post_init__(self) -> None:
        if min(self.k, self.context, self.radius) < 1 or self.temperature <= 0:
            raise StillmotionError(
                f"k {self.k}, context {self.context}, radius {self.radius}, temperature {self.temperature}: k, context "
                "and radius must be at least 1, and the temperature above 0"
            )


PRESETS = {
    "image-to-video": Preset(k=7, context=20, radius=20, temperature=0.7, size=(480, 880)),
    "dino": Preset(k=5, context=7, radius=12, temperature=0.1, size=480, min_max=True),
    "videowalk": Preset(k=10, context=20, radius=12, temperature=0.05, size=None, disk=True, free_first=True),
}
# What image-to-video transfer does otherwise elsewhere than on DAVIS.
_POINTS = {"size": (320, 320), "enlarge": True}
_CHANGES: dict[str, dict[str, Any]] = {"vip": {"k": 10}, "jhmdb": _POINTS, "points": _POINTS}


class PackedMasks(Sequence[np.ndarray]):
    """Masks uint8 (H, W) of a sequence of any length, each compressed until it is asked for."""

    def __init__(self) -> None:
        self._packed: list[tuple[bytes, tuple[int, ...]]] = []

    def append(self, mask: np.ndarray) -> None:
        self._packed.append((zlib.compress(mask.astype(np.uint8).tobytes(), 1), mask.shape))

    def __len__(self) -> int:
        return len(self._packed)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        packed, shape = self._packed[number]
        return np.frombuffer(zlib.decompress(packed), np.uint8).reshape(shape)


class MaskTrack(NamedTuple):
    """A sequence and the masks (H, W) that were found for its frames; the first is the given one."""

    sequence: MaskSequence
    masks: Sequence[np.ndarray] | np.ndarray


class PointTrack(NamedTuple):
    """A sequence and the joints (T, J, 2) that were found for it, in pixels; NaN is lost, and the first are given."""

    sequence: PointSequence
    points: np.ndarray


Track = MaskTrack | PointTrack


def preset_for(name: str, kind: str) -> Preset:
    """The preset of this name, as it is for this set."""
    if name not in PRESETS:
        raise StillmotionError(f"there is no preset {name!r}; choose one of {', '.join(PRESETS)}")
    return replace(PRESETS[name], **(_CHANGES.get(kind, {}) if name == "image-to-video" else {}))


def carry(maps: Iterable[Tensor], first: Callable[[int, int], Tensor], rule: Preset) -> Iterator[Tensor]:
    """The labels (h, w, L) of each frame, from its map (h, w, D) and the labels of the first frame and the last ones.

    first: the first frame's labels, for so many rows and columns of cells.
    """
    context = labels = torch.empty(0)
    for number, cells in enumerate(maps):
        unit = F.normalize(cells, dim=-1)
        if number == 0:
            slot, found = 0, first(*unit.shape[:2]).to(unit)
            context, labels = (x.new_empty(1 + rule.context, *x.shape) for x in (unit, found))
        else:
            known = min(number, 1 + rule.context)
            found = carried(labels[:known], _matches(unit, context[:known], rule), temperature=rule.temperature)
            # The first frame stays; of the others the oldest gives its place to the newest.
            slot = 1 + (number - 1) % rule.context
        context[slot], labels[slot] = unit, found
        yield found


def track_masks(
    encoder: DenseEncoder,
    sequence: MaskSequence,
    rule: Preset,
    *,
    frames: int,
    size: tuple[int, int] | None = None,
    count: Callable[[], None] | None = None,
) -> MaskTrack:
    """The masks of a sequence's first `frames` frames.

    size: height and width that the network is shown, in place of the preset's. count: called after each frame.
    """
    truth = sequence.mask(0)
    assert truth is not None  # or the sequence could not have been opened
    ids = np.unique(np.append(truth, 0))
    each = torch.from_numpy((truth == ids[:, None, None]).astype(np.float32))
    shown = input_size(encoder, truth.shape, rule) if size is None else encoder.fitting(*size)
    masks = PackedMasks()

    def first(h: int, w: int) -> Tensor:
        return F.interpolate(each[None], (h, w), mode="nearest-exact")[0].movedim(0, -1)

    for number, labels in enumerate(carry(_maps(encoder, sequence.video, frames, shown), first, rule)):
        masks.append(truth if number == 0 else ids[_pixels(labels, truth.shape, shown, rule)])
        if count is not None:
            count()
    return MaskTrack(sequence, masks)


def track_points(
    encoder: DenseEncoder,
    sequence: PointSequence,
    rule: Preset,
    *,
    frames: int,
    size: tuple[int, int] | None = None,
    count: Callable[[], None] | None = None,
) -> PointTrack:
    """The joints of a sequence's first `frames` frames; arguments as in `track_masks`."""
    given, pixels = sequence.points[0], sequence.video.frames([0]).shape[1:3]
    shown = input_size(encoder, pixels, rule) if size is None else encoder.fitting(*size)
    points = np.empty((frames, *given.shape))

    def first(h: int, w: int) -> Tensor:
        return torch.from_numpy(joint_labels(given, pixels, (h, w)))

    for number, labels in enumerate(carry(_maps(encoder, sequence.video, frames, shown), first, rule)):
        points[number] = given if number == 0 else joint_places(labels, pixels)
        if count is not None:
            count()
    return PointTrack(sequence, points)


def joint_labels(points: np.ndarray, size: tuple[int, int], grid: tuple[int, int]) -> np.ndarray:
    """A bell around each joint (J, 2), (h, w, J), nothing where it is missing or outside a frame of this size."""
    inside = ((points >= -0.5) & (points <= np.array(size[::-1]) - 0.5)).all(-1)
    x, y = (np.nan_to_num((points[:, i] + 0.5) * grid[1 - i] / size[1 - i] - 0.5) for i in (0, 1))
    squared = (np.arange(grid[0])[:, None, None] - y) ** 2 + (np.arange(grid[1])[:, None] - x) ** 2
    bell = np.exp(-squared / (2 * _SPREAD**2)) * (squared <= (3 * _SPREAD) ** 2)
    return (bell * inside).astype(np.float32)


def joint_places(labels: Tensor, size: tuple[int, int]) -> np.ndarray:
    """The places (J, 2) of labels (h, w, J) in a frame of this size: the mean of the best cells; NaN without any."""
    h, w, _ = labels.shape
    value, cell = labels.flatten(0, 1).topk(min(_BEST, h * w), 0)
    cells = torch.stack([cell % w, cell // w], -1).to(value)
    share = value / value.sum(0)
    place = (share[..., None] * cells).sum(0).double().cpu().numpy()
    return (place + 0.5) * [size[1] / w, size[0] / h] - 0.5


def input_size(encoder: DenseEncoder, pixels: tuple[int, ...], rule: Preset) -> tuple[int, int]:
    """Height and width at which the network is shown frames of so many pixels."""
    height, width = pixels
    short = min(height, width)
    if rule.size is None:
        return encoder.fitting(height, width)
    if isinstance(rule.size, int):
        scale = rule.size / short if rule.enlarge else min(1.0, rule.size / short)
        return encoder.fitting(scale * height, scale * width)
    scale = 1.0 if rule.enlarge else min(1.0, short / min(rule.size))
    tall, wide = rule.size if height <= width else rule.size[::-1]
    return encoder.fitting(scale * tall, scale * wide)


def _maps(encoder: DenseEncoder, video: Video, length: int, size: tuple[int, int]) -> Iterator[Tensor]:
    def read(numbers: list[int]) -> np.ndarray:
        pixels = video.frames(numbers)
        how = cv2.INTER_AREA if pixels.shape[1] > size[0] else cv2.INTER_LINEAR
        return np.stack([cv2.resize(picture, size[::-1], interpolation=how) for picture in pixels])

    return encoder.stream(length, read)


def _matches(query: Tensor, context: Tensor, rule: Preset) -> Matches:
    h, w, _ = query.shape
    k = min(rule.k, h * w)
    if not rule.free_first:
        return nearest_cells(query, context, k=k, radius=rule.radius, disk=rule.disk)
    anywhere = nearest_cells(query, context[:1], k=k)
    if len(context) == 1:
        return anywhere
    return joined(anywhere, nearest_cells(query, context[1:], k=k, radius=rule.radius, disk=rule.disk), offset=h * w)


def _pixels(labels: Tensor, shape: tuple[int, ...], size: tuple[int, int], rule: Preset) -> np.ndarray:
    """The best label of each pixel of a frame of this shape."""
    maps = labels.movedim(-1, 0)[None]
    smooth = F.interpolate(maps, size if rule.min_max else shape, mode="bilinear", align_corners=False)[0]
    if rule.min_max:
        smooth = smooth - smooth.amin((1, 2), keepdim=True)
        smooth = smooth / smooth.amax((1, 2), keepdim=True).clamp_min(1e-12)
    best = smooth.argmax(0)
    if rule.min_max:
        best = F.interpolate(best[None, None].float(), shape, mode="nearest-exact")[0, 0].long()
    return best.cpu().numpy()
