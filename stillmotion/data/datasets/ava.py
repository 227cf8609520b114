"""AVA from its published files (Gu et al., "AVA", CVPR 2018).

Where they lie is free: videos or folders of frames are found by their ids anywhere below the set's folder, and files by
the names that they are published under.

    ava_train_v2.2.csv                            video, second, left, top, right, bottom, action, person
    ava_val_excluded_timestamps_v2.2.csv          video, second
    ava_action_list_v2.2_for_activitynet_2019.pbtxt
    ava_val_predicted_boxes.csv                   video, second, left, top, right, bottom, action or nothing, score
    ava_detection_val_boxes_and_labels.csv        the same, as SlowFast publishes it"""

import csv
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.folder import walk_folders
from stillmotion.data.video import VIDEO_SUFFIXES, open_video
from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.functional.boxes import box_iou

KeyframeId = tuple[str, int]  # a video and a second of it
NO_ACTION_ID = -1
ANNOTATED_BOXES = "annotated boxes"


class BoxTable(NamedTuple):
    """Rows of a file of boxes: key frames, boxes (N, 4), an action's number or -1 for each (N,), and scores (N,)."""

    keyframes: Sequence[KeyframeId]
    boxes: np.ndarray
    actions: np.ndarray
    scores: np.ndarray

    def select(self, rows: np.ndarray) -> "BoxTable":
        """The rows of these numbers, or that a mask (N,) keeps."""
        numbers = np.flatnonzero(rows) if rows.dtype == bool else rows
        keys = [self.keyframes[i] for i in numbers.tolist()]
        return BoxTable(keys, self.boxes[numbers], self.actions[numbers], self.scores[numbers])

    def drop(self, keyframes: Collection[KeyframeId] = (), videos: Collection[str] = ()) -> "BoxTable":
        """The rows of all other key frames and videos."""
        kept = [key not in keyframes and key[0] not in videos for key in self.keyframes]
        return self.select(np.array(kept, bool))


class KeyframeIndex:
    """Different boxes by key frame, in flat arrays that are cheap to send to workers.

    rows: one for each action of a box. classes: numbers of the actions; others are left out, and the box stays.
    """

    def __init__(self, rows: BoxTable, classes: Collection[int]) -> None:
        place = {number: i for i, number in enumerate(classes)}
        found: dict[KeyframeId, dict[tuple[float, ...], set[int]]] = {}
        for key, box, action in zip(rows.keyframes, rows.boxes.tolist(), rows.actions.tolist(), strict=True):
            found.setdefault(key, {}).setdefault(tuple(box), set()).add(action)
        self.keyframes = list(found)
        self.offsets = np.cumsum([0, *(len(boxes) for boxes in found.values())])
        self.boxes = np.array([box for boxes in found.values() for box in boxes]).reshape(-1, 4)
        self.actions = np.zeros((len(self.boxes), len(place)), bool)
        for row, actions in enumerate(actions for boxes in found.values() for actions in boxes.values()):
            self.actions[row, [place[action] for action in actions if action in place]] = True

    def __len__(self) -> int:
        return len(self.keyframes)

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Boxes (n, 4) of key frame i, and which actions (n, C) each does."""
        part = slice(self.offsets[i], self.offsets[i + 1])
        return self.boxes[part], self.actions[part]


def add_detected_boxes(annotated_boxes: BoxTable, detected_boxes: BoxTable, *, min_iou: float) -> BoxTable:
    """Annotated boxes and, in the same key frames, a person detector's.

    Where the detector's file names actions, they stand. Else a box has those of the annotated box that it overlaps
    most, if by `min_iou` or more, and otherwise none.
    """
    annotated: dict[KeyframeId, list[int]] = {}
    for row, key in enumerate(annotated_boxes.keyframes):
        annotated.setdefault(key, []).append(row)
    detected_boxes = detected_boxes.select(np.array([key in annotated for key in detected_boxes.keyframes], bool))
    if (detected_boxes.actions == NO_ACTION_ID).all():
        detected_boxes = _assign_actions(annotated_boxes, detected_boxes, annotated, min_iou)
    arrays = (np.concatenate([a, b]) for a, b in zip(annotated_boxes[1:], detected_boxes[1:], strict=True))
    return BoxTable([*annotated_boxes.keyframes, *detected_boxes.keyframes], *arrays)


def _assign_actions(
    annotated_boxes: BoxTable, detected_boxes: BoxTable, annotated: Mapping[KeyframeId, list[int]], min_iou: float
) -> BoxTable:
    taken: list[int] = []
    actions: list[int] = []
    for row, key in enumerate(detected_boxes.keyframes):
        near = annotated[key]
        share = box_iou(
            torch.from_numpy(detected_boxes.boxes[row : row + 1]), torch.from_numpy(annotated_boxes.boxes[near])
        )[0].numpy()
        own = [int(annotated_boxes.actions[i]) for i, s in zip(near, share, strict=True) if s == share.max() >= min_iou]
        actions += own or [NO_ACTION_ID]
        taken += [row] * len(own or [NO_ACTION_ID])
    return detected_boxes.select(np.array(taken, int))._replace(actions=np.array(actions, int))


class ActionDetectionDataset(VideoDataset):
    """Key frames as numbered videos: number i is the video round key frame i.

    actions: their names by their numbers. frames: with the boxes that are looked into.
    annotated_boxes: the annotated boxes of all videos that are there, one row for each action, for the evaluation.
    box_source: where the boxes come from, in words. missing: videos that the annotations name but that are not there.
    """

    actions: dict[int, str]
    keyframes: KeyframeIndex
    annotated_boxes: BoxTable
    box_source: str

    @abstractmethod
    def keyframe_index(self, i: int, video: VideoReader) -> int:
        """Frame index of keyframe i in its video."""


_EXCERPT_START_SECONDS = 900.0  # the second at which the parts of films that are commonly cut out begin
_FULL_FILM_SECONDS = 1200.0  # seconds beyond which a video is a whole film


class AVADataset(ActionDetectionDataset):
    """The key frames of a part of AVA, as an `ActionSet`.

    root: holds videos or folders of frames. annotations: holds the files; None looks for them below root.
    train: annotated boxes together with predicted ones, as `with_persons` does by `min_iou`; else predicted ones alone,
        or annotated ones where no file of predicted boxes is found.
    min_score: least score of a predicted box.
    start_seconds: the second at which videos begin; None is 0 for whole films, and 900 for shorter ones and folders of frames.
    """

    def __init__(
        self,
        root: str | Path,
        split: Literal["train", "val"],
        *,
        annotations: str | Path | None = None,
        train: bool = False,
        min_score: float = 0.9,
        min_iou: float = 0.5,
        start_seconds: float | None = None,
    ) -> None:
        folder = _check_folder(
            Path(annotations) if annotations is not None else _annotation_folder(_check_folder(Path(root)))
        )
        self.start_seconds = start_seconds
        self.actions = read_label_map(_require_file(folder, "ava_action_list*.pbtxt*"))
        truth = read_box_csv(_require_file(folder, f"ava_{split}_v2*.csv"))
        excluded = _latest_file(folder, f"ava_{split}_excluded_timestamps*.csv")
        unused = read_excluded_keyframes(excluded) if excluded else set()
        listed = _latest_file(folder, f"ava_detection_{split}_boxes*.csv", f"ava_{split}_predicted_boxes*.csv")
        persons = read_box_csv(listed, has_scores=True) if listed else None
        named = {video for video, _ in truth.keyframes}
        self._paths = _find_videos(_check_folder(Path(root)), named)
        self.missing_videos = sorted(named - self._paths.keys())
        self.annotated_boxes = truth.drop(unused, self.missing_videos)
        if not self.annotated_boxes.keyframes:
            first = f"the first is {self.missing_videos[0]}" if self.missing_videos else "all key frames are excluded"
            raise StillmotionError(f"{root}: none of the {len(named)} videos of {split} can be used; {first}")
        used, self.box_source = self.annotated_boxes, ANNOTATED_BOXES
        if persons is not None:
            persons = persons.drop(unused)
            persons = persons.select(
                (persons.scores >= min_score) & [key[0] in self._paths for key in persons.keyframes]
            )
            used = add_detected_boxes(self.annotated_boxes, persons, min_iou=min_iou) if train else persons
            self.box_source = f"predicted boxes with a score of {min_score:g} or more ({listed.name if listed else ''})"
            self.box_source = f"{ANNOTATED_BOXES} and {self.box_source}" if train else self.box_source
        self.keyframes = KeyframeIndex(used, self.actions)
        self._open_errors: dict[str, str] = {}  # why videos cannot be opened: each is tried once, not once a key frame

    def __len__(self) -> int:
        return len(self.keyframes)

    def name(self, i: int) -> str:
        return self.keyframes.keyframes[i][0]

    def open_video(self, i: int) -> VideoReader:
        name = self.name(i)
        if name in self._open_errors:
            raise VideoError(self._open_errors[name])
        try:
            return open_video(self._paths[name])
        except VideoError as error:
            self._open_errors[name] = str(error)
            raise

    def keyframe_index(self, i: int, video: VideoReader) -> int:
        name, second = self.keyframes.keyframes[i]
        lasts = len(video) / video.fps
        start = (
            self.start_seconds
            if self.start_seconds is not None
            else 0.0
            if lasts > _FULL_FILM_SECONDS
            else _EXCERPT_START_SECONDS
        )
        number = round((second - start) * video.fps)
        if not 0 <= number < len(video):
            raise VideoError(
                f"{name}: no frame at second {second}; it begins at {start:g} and lasts {lasts:.0f} s (--data.start-second)"
            )
        return number


def read_box_csv(file: Path, *, has_scores: bool = False) -> BoxTable:
    """The rows of an AVA file; scored: the last column is a score, and not a person's number."""
    keys: list[KeyframeId] = []
    boxes: list[list[float]] = []
    actions: list[int] = []
    scores: list[float] = []
    for line, row in _iter_csv_rows(file):
        try:
            if len(row) not in ((8,) if has_scores else (7, 8)):
                raise ValueError(f"{len(row)} columns")
            keys.append((row[0], int(float(row[1]))))
            boxes.append([float(value) for value in row[2:6]])
            actions.append(int(row[6]) if row[6].strip() else NO_ACTION_ID)
            scores.append(float(row[7]) if has_scores else 1.0)
        except ValueError as error:
            last = "score" if has_scores else "person"
            raise StillmotionError(
                f"{file}, line {line}: {error}; write video, second, left, top, right, bottom, action, {last}"
            ) from None
    return BoxTable(keys, np.array(boxes).reshape(-1, 4), np.array(actions, int), np.array(scores, float))


def write_box_csv(file: Path, boxes: BoxTable) -> None:
    """Rows as AVA wants them submitted: video, second, box, action, score."""
    with file.open("w") as out:
        for (video, second), box, action, score in zip(
            *(boxes[0], *(array.tolist() for array in boxes[1:])), strict=True
        ):
            corners = ",".join(f"{value:.6g}" for value in box)
            out.write(f"{video},{second:04d},{corners},{action},{score:.6g}\n")


def read_excluded_keyframes(file: Path) -> set[KeyframeId]:
    """The key frames of an exclusion list."""
    found = set()
    for line, row in _iter_csv_rows(file):
        try:
            video, second = row
            found.add((video, int(float(second))))
        except ValueError:
            raise StillmotionError(f"{file}, line {line}: {','.join(row)!r}; write video, second") from None
    return found


def read_label_map(file: Path) -> dict[int, str]:
    """The actions that are evaluated: names by number, ascending."""
    found = {}
    for item in re.findall(r"\{(.*?)\}", file.read_text(encoding="utf-8", errors="replace"), re.DOTALL):
        name, number = re.search(r'name:\s*"([^"]*)"', item), re.search(r"\bid:\s*(\d+)|label_id:\s*(\d+)", item)
        if name and number:
            found[int(number[1] or number[2])] = name[1]
    if not found:
        raise StillmotionError(f'{file}: no action found; write item {{ name: "sit" id: 11 }}')
    return dict(sorted(found.items()))


def _iter_csv_rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with file.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as lines:
            yield from ((number, row) for number, row in enumerate(csv.reader(lines), 1) if row)
    except (OSError, csv.Error) as error:
        raise StillmotionError(f"{file}: cannot be read as a list of boxes ({error})") from None


def _find_videos(root: Path, wanted: set[str]) -> dict[str, Path]:
    """Video files and folders of frames by id; folders of frames are not walked through."""
    found: dict[str, Path] = {}
    for folder, folders, files in walk_folders(root):
        videos = [name for name in files if Path(name).suffix.lower() in VIDEO_SUFFIXES and Path(name).stem in wanted]
        for name in sorted([*videos, *wanted.intersection(folders)]):
            found.setdefault(name if name in wanted else Path(name).stem, folder / name)
        folders[:] = [name for name in folders if name not in wanted]
    return found


def _annotation_folder(root: Path) -> Path:
    return root / "annotations" if (root / "annotations").is_dir() else root


def _latest_file(folder: Path, *patterns: str) -> Path | None:
    """The file of one of these names in a folder or one below it, of the latest version."""
    for pattern in patterns:
        files = sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")], key=lambda file: file.name)
        if files:
            return files[-1]
    return None


def _require_file(folder: Path, pattern: str) -> Path:
    file = _latest_file(folder, pattern)
    if file is None:
        raise StillmotionError(f"{folder}: no {pattern} there; say where AVA's files lie (--annotations)")
    return file


def _check_folder(path: Path) -> Path:
    if not path.is_dir():
        raise StillmotionError(f"{path}: no such folder; give AVA's (--data)")
    return path
