"""Key frames, the boxes in them, and clips round them.

Boxes are (left, top, right, bottom); in files and sets as shares of the frame, in clips in pixels.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import cv2
import numpy as np
import torch
from torch import Tensor

from stillmotion.data.augment import Augment, normalise
from stillmotion.data.clips import at_rate, read_clips
from stillmotion.data.draws import Draw, shrunk
from stillmotion.data.loader import Batch, ClipDataset, EvalDataset
from stillmotion.data.paths import VideoSet
from stillmotion.data.video import Video
from stillmotion.functional.boxes import crop_boxes, flip_boxes, overlap, scale_boxes

Key = tuple[str, int]  # a video and a second of it
NO_ACTION = -1
TRUTH = "annotated boxes"


class BoxRows(NamedTuple):
    """Rows of a file of boxes: key frames, boxes (N, 4), an action's number or -1 for each (N,), and scores (N,)."""

    keys: Sequence[Key]
    boxes: np.ndarray
    actions: np.ndarray
    scores: np.ndarray

    def where(self, kept: np.ndarray) -> "BoxRows":
        """The rows of these numbers, or that a mask (N,) keeps."""
        numbers = np.flatnonzero(kept) if kept.dtype == bool else kept
        keys = [self.keys[i] for i in numbers.tolist()]
        return BoxRows(keys, self.boxes[numbers], self.actions[numbers], self.scores[numbers])

    def without(self, keys: Collection[Key] = (), videos: Collection[str] = ()) -> "BoxRows":
        """The rows of all other key frames and videos."""
        kept = [key not in keys and key[0] not in videos for key in self.keys]
        return self.where(np.array(kept, bool))


class KeyFrames:
    """Different boxes by key frame, in flat arrays that are cheap to send to workers.

    rows: one for each action of a box. classes: numbers of the actions; others are left out, and the box stays.
    """

    def __init__(self, rows: BoxRows, classes: Collection[int]) -> None:
        place = {number: i for i, number in enumerate(classes)}
        found: dict[Key, dict[tuple[float, ...], set[int]]] = {}
        for key, box, action in zip(rows.keys, rows.boxes.tolist(), rows.actions.tolist(), strict=True):
            found.setdefault(key, {}).setdefault(tuple(box), set()).add(action)
        self.keys = list(found)
        self.start = np.cumsum([0, *(len(boxes) for boxes in found.values())])
        self.boxes = np.array([box for boxes in found.values() for box in boxes]).reshape(-1, 4)
        self.actions = np.zeros((len(self.boxes), len(place)), bool)
        for row, actions in enumerate(actions for boxes in found.values() for actions in boxes.values()):
            self.actions[row, [place[action] for action in actions if action in place]] = True

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Boxes (n, 4) of key frame i, and which actions (n, C) each does."""
        part = slice(self.start[i], self.start[i + 1])
        return self.boxes[part], self.actions[part]


def with_persons(truth: BoxRows, persons: BoxRows, *, least: float) -> BoxRows:
    """Annotated boxes and, in the same key frames, a person detector's.

    Where the detector's file names actions, they stand. Else a box has those of the annotated box that it overlaps
    most, if by `least` or more, and otherwise none.
    """
    annotated: dict[Key, list[int]] = {}
    for row, key in enumerate(truth.keys):
        annotated.setdefault(key, []).append(row)
    persons = persons.where(np.array([key in annotated for key in persons.keys], bool))
    if (persons.actions == NO_ACTION).all():
        persons = _labelled(truth, persons, annotated, least)
    arrays = (np.concatenate([a, b]) for a, b in zip(truth[1:], persons[1:], strict=True))
    return BoxRows([*truth.keys, *persons.keys], *arrays)


def _labelled(truth: BoxRows, persons: BoxRows, annotated: Mapping[Key, list[int]], least: float) -> BoxRows:
    taken: list[int] = []
    actions: list[int] = []
    for row, key in enumerate(persons.keys):
        near = annotated[key]
        share = overlap(torch.from_numpy(persons.boxes[row : row + 1]), torch.from_numpy(truth.boxes[near]))[0].numpy()
        own = [int(truth.actions[i]) for i, s in zip(near, share, strict=True) if s == share.max() >= least]
        actions += own or [NO_ACTION]
        taken += [row] * len(own or [NO_ACTION])
    return persons.where(np.array(taken, int))._replace(actions=np.array(actions, int))


class ActionSet(VideoSet, Protocol):
    """Key frames as numbered videos: number i is the video round key frame i.

    actions: their names by their numbers. frames: with the boxes that are looked into.
    truth: the annotated boxes of all videos that are there, one row for each action, for the evaluation.
    source: where the boxes come from, in words. missing: videos that the annotations name but that are not there.
    """

    actions: dict[int, str]
    frames: KeyFrames
    truth: BoxRows
    source: str
    missing: list[str]

    def place(self, i: int, video: Video) -> int:
        """The number of key frame i in its video."""
        ...


def centred(place: int, length: int, *, frames: int, stride: int) -> np.ndarray:
    """Numbers (1, frames) of a clip whose middle is the key frame at `place`; beyond an end its frame is repeated."""
    numbers = place + max(stride, 1) * (np.arange(frames) - frames // 2)  # 0 is of whole videos
    return np.clip(numbers, 0, length - 1)[None]


def draw_square(rng: np.random.Generator, height: int, width: int, *, side: int, flip: float) -> Draw:
    """A square of this side anywhere in a frame, mirrored as often as `flip` says, its colours as they are."""
    top, left = rng.integers(0, height - side + 1), rng.integers(0, width - side + 1)
    still = np.zeros(1)
    return Draw(np.array([[top, left, side, side]]), rng.random(1) < flip, np.eye(3)[None], still, still)


@dataclass(frozen=True)
class KeyFrameClips(ClipDataset):
    """A random square of the clip round each key frame, and what of its boxes lies inside.

    Items have also boxes (n, 4) in pixels of the square, and actions (n, C) as 0 and 1.
    short_side: least and largest shorter edge that frames are resized to before the square is cut.
    """

    videos: ActionSet
    augment: Augment
    short_side: tuple[int, int] = (256, 320)

    def item(self, index: int, rng: np.random.Generator) -> Batch:
        clip = _clip(self, index)
        height, width = clip.shape[1:3]
        size = self.augment.size
        side = min(height, width) * size / rng.uniform(*self.short_side)
        draw = draw_square(rng, height, width, side=max(1, round(side)), flip=self.augment.flip)
        boxes, actions = (torch.from_numpy(array) for array in self.videos.frames[index])
        top, left, tall, wide = draw.box[0].tolist()
        boxes, seen = crop_boxes(scale_boxes(boxes, height, width), top=top, left=left, height=tall, width=wide)
        boxes = scale_boxes(boxes[seen], size / tall, size / wide)
        if draw.flip[0]:
            boxes = flip_boxes(boxes, width=size)
        return {
            "clips": self.augment.apply(clip, draw)[None],
            "boxes": boxes.float(),
            "actions": actions[seen].float(),
        }


@dataclass(frozen=True)
class KeyFrameTests(EvalDataset):
    """The clip round each key frame in whole frames, and its boxes (n, 4) in their pixels.

    crop: only its short side and normalisation are used. step: what height and width must be multiples of.
    """

    videos: ActionSet
    step: int = 1

    def item(self, index: int) -> Batch:
        clip = _clip(self, index)
        sides = shrunk(clip.shape[1], clip.shape[2], self.crop.short_side)
        height, width = (max(1, round(side / self.step)) * self.step for side in sides)
        how = cv2.INTER_AREA if clip.shape[1] >= 2 * height else cv2.INTER_LINEAR
        frames = np.stack([cv2.resize(frame, (width, height), interpolation=how) for frame in clip])
        boxes = scale_boxes(torch.from_numpy(self.videos.frames[index][0]), height, width)
        return {"clips": normalise(frames, self.crop.mean, self.crop.std)[None], "boxes": boxes.float()}


def _clip(dataset: KeyFrameClips | KeyFrameTests, index: int) -> np.ndarray:
    video = dataset.videos.video(index)
    timed = at_rate(video, dataset.fps)
    place = round(dataset.videos.place(index, video) * timed.fps / video.fps)
    return read_clips(timed, centred(place, len(timed), frames=dataset.frames, stride=dataset.stride))[0]


def stacked(batch: Batch, device: torch.device) -> tuple[Tensor, list[Tensor]]:
    """The clips (B, 3, T, H, W) and boxes of a batch, on a device."""
    clips = batch["clips"][:, 0].to(device, non_blocking=True)
    return clips, [boxes.to(device, non_blocking=True) for boxes in batch["boxes"]]
