"""Propagation of the first frame's masks or keypoints through a video.

Shapes: T frames of H×W pixels, h×w cells, D channels, L labels, J joints.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.data.datasets.davis import MaskSequence
from stillmotion.data.datasets.jhmdb import KeypointSequence
from stillmotion.data.video.reader import VideoReader
from stillmotion.evaluation.propagation.protocols import PropagationProtocol, network_input_size
from stillmotion.functional.label_propagation import CellMatches, find_nearest_cells, merge_matches, propagate_labels
from stillmotion.models.feature_maps import FrameFeatureExtractor

_HEATMAP_SIGMA = 0.5  # cells; a joint's heatmap ends at three times that
_SCRIPT_HEATMAP_CELLS = 4  # side of the square in which the scripts draw a joint, whose center is its third cell


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
    """A sequence and the propagated masks of its frames.

    Attributes:
        sequence: The sequence.
        masks: Masks (H, W) of its frames; the first is the given one.
        first_mask_from_cells: The first mask as its cells give it back, (H, W), where the protocol scores it.
    """

    sequence: MaskSequence
    masks: Sequence[np.ndarray] | np.ndarray
    first_mask_from_cells: np.ndarray | None = None


class PointTrack(NamedTuple):
    """A sequence and its propagated joints (T, J, 2) in pixels; NaN is lost, and the first are given."""

    sequence: KeypointSequence
    points: np.ndarray


Track = MaskTrack | PointTrack


def propagate_sequence(
    feature_maps: Iterable[Tensor], first_labels: Callable[[int, int], Tensor], protocol: PropagationProtocol
) -> Iterator[Tensor]:
    """Propagate the labels of the first frame through a video.

    Args:
        feature_maps: Feature map of each frame, (h, w, D).
        first_labels: Returns the labels of the first frame, (h, w, L), for h rows and w columns of cells.
        protocol: Protocol.

    Yields:
        Labels of each frame, (h, w, L).
    """
    context = labels = torch.empty(0)
    for number, cells in enumerate(feature_maps):
        unit = F.normalize(cells, dim=-1)
        if number == 0:
            slot, current = 0, first_labels(*unit.shape[:2]).to(unit)
            context, labels = (x.new_empty(1 + protocol.num_context_frames, *x.shape) for x in (unit, current))
        else:
            known = min(number, 1 + protocol.num_context_frames)
            copies = max(0, 1 + protocol.num_context_frames - number) if protocol.pad_context else 0
            matches = match_cells(unit, context[:known], protocol, num_copies=copies)
            current = propagate_labels(labels[:known], matches, temperature=protocol.temperature)
            # The first frame stays; of the others the newest replaces the oldest.
            slot = 1 + (number - 1) % protocol.num_context_frames
        context[slot], labels[slot] = unit, current
        yield current


def propagate_masks(
    encoder: FrameFeatureExtractor,
    sequence: MaskSequence,
    protocol: PropagationProtocol,
    *,
    num_frames: int,
    image_size: tuple[int, int] | None = None,
    on_frame: Callable[[], None] | None = None,
) -> MaskTrack:
    """Propagate the masks of a sequence.

    Args:
        encoder: Feature maps of frames.
        sequence: Sequence whose first frame has a mask.
        protocol: Protocol.
        num_frames: Number of frames to propagate to.
        image_size: Height and width of the network's input; overrides the protocol.
        on_frame: Called after each frame.

    Returns:
        The masks.
    """
    first_mask = sequence.read_mask(0)
    assert first_mask is not None  # a sequence without it cannot be opened
    object_ids = np.unique(np.append(first_mask, 0))
    input_size = network_input_size(encoder, first_mask.shape, protocol, image_size=image_size)
    masks, first_mask_from_cells = CompressedMasks(), None

    def first(h: int, w: int) -> Tensor:
        mask = first_mask
        if protocol.script_resizing:
            mask = cv2.resize(first_mask, input_size[::-1], interpolation=cv2.INTER_NEAREST)
        one_hot = torch.from_numpy((mask == object_ids[:, None, None]).astype(np.float32))[None]
        if protocol.script_resizing:
            return F.interpolate(one_hot, (h, w), mode="bilinear")[0].movedim(0, -1)
        return F.interpolate(one_hot, (h, w), mode="nearest-exact")[0].movedim(0, -1)

    maps = _feature_maps(encoder, sequence.video, num_frames, input_size, protocol)
    for number, labels in enumerate(propagate_sequence(maps, first, protocol)):
        mask = first_mask
        if number or protocol.script_resizing:
            mask = object_ids[_labels_to_pixels(labels, first_mask.shape, input_size, protocol)]
        if number == 0 and protocol.script_resizing:
            mask, first_mask_from_cells = first_mask, mask
        masks.append(mask)
        if on_frame is not None:
            on_frame()
    return MaskTrack(sequence, masks, first_mask_from_cells)


def propagate_keypoints(
    encoder: FrameFeatureExtractor,
    sequence: KeypointSequence,
    protocol: PropagationProtocol,
    *,
    num_frames: int,
    image_size: tuple[int, int] | None = None,
    on_frame: Callable[[], None] | None = None,
) -> PointTrack:
    """Propagate the keypoints of a sequence.

    Args:
        encoder: Feature maps of frames.
        sequence: Sequence with the joints of its first frame.
        protocol: Protocol.
        num_frames: Number of frames to propagate to.
        image_size: Height and width of the network's input; overrides the protocol.
        on_frame: Called after each frame.

    Returns:
        The joints.
    """
    given, frame_size = sequence.keypoints[0], sequence.video.get_frames([0]).shape[1:3]
    input_size = network_input_size(encoder, frame_size, protocol, image_size=image_size)
    points = np.empty((num_frames, *given.shape))

    rounded = protocol.script_resizing

    def first(h: int, w: int) -> Tensor:
        return torch.from_numpy(keypoints_to_heatmaps(given, frame_size, (h, w), rounded=rounded))

    maps = _feature_maps(encoder, sequence.video, num_frames, input_size, protocol)
    for number, labels in enumerate(propagate_sequence(maps, first, protocol)):
        points[number] = given
        if number:
            points[number] = heatmaps_to_keypoints(
                labels, frame_size, num_peak_cells=protocol.num_peak_cells, rounded=rounded
            )
        if on_frame is not None:
            on_frame()
    return PointTrack(sequence, points)


def keypoints_to_heatmaps(
    points: np.ndarray, image_size: tuple[int, int], grid_size: tuple[int, int], *, rounded: bool = False
) -> np.ndarray:
    """Draw a Gaussian around each joint; nothing for a joint that is missing or outside the frame.

    Args:
        points: Joints in pixels, (J, 2).
        image_size: Height and width of the frame.
        grid_size: Rows and columns of cells (h, w).
        rounded: Draw as CropMAE's script does, around the nearest cell, in 4×4 cells, as far as they are in the frame.

    Returns:
        Heatmaps, float32 (h, w, J).
    """
    if rounded:
        return _rounded_heatmaps(points, image_size, grid_size)
    inside = ((points >= -0.5) & (points <= np.array(image_size[::-1]) - 0.5)).all(-1)
    x, y = (np.nan_to_num((points[:, i] + 0.5) * grid_size[1 - i] / image_size[1 - i] - 0.5) for i in (0, 1))
    squared = (np.arange(grid_size[0])[:, None, None] - y) ** 2 + (np.arange(grid_size[1])[:, None] - x) ** 2
    gaussian = np.exp(-squared / (2 * _HEATMAP_SIGMA**2)) * (squared <= (3 * _HEATMAP_SIGMA) ** 2)
    return (gaussian * inside).astype(np.float32)


def _rounded_heatmaps(points: np.ndarray, image_size: tuple[int, int], grid_size: tuple[int, int]) -> np.ndarray:
    heatmaps = np.zeros((*grid_size, len(points)), np.float32)
    offset = np.arange(_SCRIPT_HEATMAP_CELLS) - _SCRIPT_HEATMAP_CELLS // 2
    profile = np.exp(-(offset**2) / (2 * _HEATMAP_SIGMA**2))
    reach = 3 * _HEATMAP_SIGMA
    for joint in np.flatnonzero(~np.isnan(points).any(-1)):
        cells = []
        for axis, size in enumerate(grid_size):
            position = points[joint, 1 - axis] * size / image_size[axis]
            start, stop = int(position - reach), min(int(position + reach + 1), size)  # int rounds towards zero
            cells.append((slice(max(0, start), max(0, stop)), profile[max(0, -start) : max(0, stop - start)]))
        (rows, y), (columns, x) = cells
        if len(y) and len(x):
            heatmaps[rows, columns, joint] = np.outer(y, x)
    return heatmaps


def heatmaps_to_keypoints(
    heatmaps: Tensor, image_size: tuple[int, int], *, num_peak_cells: int = 3, rounded: bool = False
) -> np.ndarray:
    """Read joints from heatmaps, each the weighted mean of its highest cells.

    Args:
        heatmaps: Heatmaps, (h, w, J).
        image_size: Height and width of the frame.
        num_peak_cells: Number of highest cells.
        rounded: Map cells to pixels as CropMAE's script does, without the offset of half a cell.

    Returns:
        Joints in pixels, (J, 2); NaN for an empty heatmap.
    """
    h, w, _ = heatmaps.shape
    value, cell = heatmaps.flatten(0, 1).topk(min(num_peak_cells, h * w), 0)
    cells = torch.stack([cell % w, cell // w], -1).to(value)
    weights = value / value.sum(0)
    position = (weights[..., None] * cells).sum(0).double().cpu().numpy()
    cell_size = [image_size[1] / w, image_size[0] / h]
    return position * cell_size if rounded else (position + 0.5) * cell_size - 0.5


def _feature_maps(
    encoder: FrameFeatureExtractor,
    video: VideoReader,
    num_frames: int,
    image_size: tuple[int, int],
    protocol: PropagationProtocol,
) -> Iterator[Tensor]:
    def read(indices: list[int]) -> np.ndarray:
        pixels = video.get_frames(indices)
        if protocol.script_resizing:
            return np.stack([cv2.resize(frame.astype(np.float32), image_size[::-1]) for frame in pixels])
        interpolation = cv2.INTER_AREA if pixels.shape[1] > image_size[0] else cv2.INTER_LINEAR
        return np.stack([cv2.resize(frame, image_size[::-1], interpolation=interpolation) for frame in pixels])

    return encoder.iter_maps(num_frames, read)


def match_cells(query: Tensor, context: Tensor, protocol: PropagationProtocol, *, num_copies: int = 0) -> CellMatches:
    """Match the cells of a frame with those of its context.

    Args:
        query: Features of the frame, L2-normalized, (h, w, D).
        context: Features of the first frame and the previous ones, (C, h, w, D).
        protocol: Protocol.
        num_copies: Number of copies of the first frame that are searched besides.

    Returns:
        The matches.
    """
    h, w, _ = query.shape
    k = min(protocol.num_matches, h * w)
    num_near_first = num_copies + (not protocol.unrestricted_first_frame)  # how often it is searched within the radius
    near_context = context if num_near_first else context[1:]
    if not len(near_context):
        return find_nearest_cells(query, context, k=k)
    near = find_nearest_cells(query, near_context, k=k, radius=protocol.radius, circular=protocol.circular_window)
    if num_near_first > 1:
        # The k best of all copies are among the k best of one, each as often as there are copies.
        repeats = min(num_near_first, k) - 1
        again = near.similarity.masked_fill(near.indices >= h * w, -torch.inf)
        values, order = torch.cat([near.similarity, again.repeat(1, 1, repeats)], -1).topk(k, -1)
        near = CellMatches(values, near.indices.gather(-1, order % k))
    if not protocol.unrestricted_first_frame:
        return near
    anywhere = find_nearest_cells(query, context[:1], k=k)
    return merge_matches(anywhere, near, offset=0 if num_near_first else h * w)


def _labels_to_pixels(
    labels: Tensor, shape: tuple[int, ...], image_size: tuple[int, int], protocol: PropagationProtocol
) -> np.ndarray:
    """Return the best label of each pixel of a frame of this shape."""
    maps = labels.movedim(-1, 0)[None]
    at_image_size = protocol.min_max_normalize or protocol.script_resizing
    smooth = F.interpolate(maps, image_size if at_image_size else shape, mode="bilinear", align_corners=False)[0]
    if protocol.min_max_normalize:
        smooth = smooth - smooth.amin((1, 2), keepdim=True)
        smooth = smooth / smooth.amax((1, 2), keepdim=True).clamp_min(1e-12)
    best = smooth.argmax(0)
    if at_image_size:
        best = F.interpolate(best[None, None].float(), shape, mode="nearest-exact")[0, 0].long()
    return best.cpu().numpy()
