"""AVA (Gu et al., CVPR 2018): annotation files, box tables, keyframe index, `AVADataset`.

Videos or folders of frames are found by their ids anywhere below the folder of the data set, and annotation files by
their published names:

    ava_train_v2.2.csv                            video, second, left, top, right, bottom, action, person
    ava_val_excluded_timestamps_v2.2.csv          video, second
    ava_action_list_v2.2_for_activitynet_2019.pbtxt
    ava_val_predicted_boxes.csv                   video, second, left, top, right, bottom, action or nothing, score
    ava_detection_val_boxes_and_labels.csv        the same, as SlowFast publishes it
"""

import csv
import io
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch

from stillmotion.data.datasets.annotations import matching_files
from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.folder import walk_folders
from stillmotion.data.datasets.list_files import ListLine, check_exists, read_list_text
from stillmotion.data.video import VIDEO_SUFFIXES, open_video
from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.functional.boxes import box_iou

KeyframeId = tuple[str, int]  # a video and a second of it
NO_ACTION_ID = -1
ANNOTATED_BOXES = "annotated boxes"
_EXCERPT_START_SECONDS = 900.0  # where the usual 15-minute excerpts of the movies start
_MAX_NUMBER = 1e9  # in a file of boxes
_FULL_FILM_SECONDS = 1200.0  # a longer video is a whole movie


class BoxTable(NamedTuple):
    """Rows of a file of boxes, one for each action of a box.

    Attributes:
        keyframes: Keyframe of each row.
        boxes: left, top, right, bottom as fractions of the frame, (N, 4).
        actions: Action ids (N,), -1 where unknown.
        scores: Scores (N,).
    """

    keyframes: Sequence[KeyframeId]
    boxes: np.ndarray
    actions: np.ndarray
    scores: np.ndarray

    def select(self, rows: np.ndarray) -> "BoxTable":
        """Select rows.

        Args:
            rows: Indices, or a mask (N,).
        """
        indices = np.flatnonzero(rows) if rows.dtype == bool else rows
        keyframes = [self.keyframes[i] for i in indices.tolist()]
        return BoxTable(keyframes, self.boxes[indices], self.actions[indices], self.scores[indices])

    def drop(self, keyframes: Collection[KeyframeId] = (), videos: Collection[str] = ()) -> "BoxTable":
        """Drop the rows of some keyframes and videos.

        Args:
            keyframes: Keyframes to drop.
            videos: Videos to drop.
        """
        mask = [key not in keyframes and key[0] not in videos for key in self.keyframes]
        return self.select(np.array(mask, bool))


class KeyframeIndex:
    """The different boxes of each keyframe, in flat arrays that are cheap to pickle.

    Args:
        rows: Boxes, one row for each action of a box.
        classes: Ids of the actions. A box stays if it has none of them.
    """

    def __init__(self, rows: BoxTable, classes: Collection[int]) -> None:
        column = {action: i for i, action in enumerate(classes)}
        actions_by_box: dict[KeyframeId, dict[tuple[float, ...], set[int]]] = {}
        for key, box, action in zip(rows.keyframes, rows.boxes.tolist(), rows.actions.tolist(), strict=True):
            actions_by_box.setdefault(key, {}).setdefault(tuple(box), set()).add(action)
        self.keyframes = list(actions_by_box)
        self.offsets = np.cumsum([0, *(len(boxes) for boxes in actions_by_box.values())])
        self.boxes = np.array([box for boxes in actions_by_box.values() for box in boxes]).reshape(-1, 4)
        self.actions = np.zeros((len(self.boxes), len(column)), bool)
        for row, actions in enumerate(actions for boxes in actions_by_box.values() for actions in boxes.values()):
            self.actions[row, [column[action] for action in actions if action in column]] = True

    def __len__(self) -> int:
        return len(self.keyframes)

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Boxes (n, 4) of keyframe i, and a mask (n, C) of the actions of each."""
        part = slice(self.offsets[i], self.offsets[i + 1])
        return self.boxes[part], self.actions[part]


def add_detected_boxes(annotated_boxes: BoxTable, detected_boxes: BoxTable, *, min_iou: float) -> BoxTable:
    """Add the boxes of a person detector in the annotated keyframes.

    If the file of the detector has actions, they are used. Otherwise a box has those of the annotated box that it
    overlaps most, or none.

    Args:
        annotated_boxes: Annotated boxes.
        detected_boxes: Boxes of the detector.
        min_iou: Smallest overlap with an annotated box.
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
    rows: list[int] = []
    actions: list[int] = []
    for row, key in enumerate(detected_boxes.keyframes):
        candidates = annotated[key]
        iou = box_iou(
            torch.from_numpy(detected_boxes.boxes[row : row + 1]), torch.from_numpy(annotated_boxes.boxes[candidates])
        )[0].numpy()
        matched = [
            int(annotated_boxes.actions[i]) for i, x in zip(candidates, iou, strict=True) if x == iou.max() >= min_iou
        ] or [NO_ACTION_ID]
        actions += matched
        rows += [row] * len(matched)
    return detected_boxes.select(np.array(rows, int))._replace(actions=np.array(actions, int))


class ActionDetectionDataset(VideoDataset):
    """Base class of action-detection data sets: item i is the video around keyframe i.

    Attributes:
        actions: Names of the actions by id.
        keyframes: Keyframes with the boxes to classify.
        annotated_boxes: Annotated boxes of all existing videos, for the evaluation.
        box_source: Where the boxes come from, in words.
    """

    actions: dict[int, str]
    keyframes: KeyframeIndex
    annotated_boxes: BoxTable
    box_source: str

    def __len__(self) -> int:
        return len(self.keyframes)

    def name(self, i: int) -> str:
        return self.keyframes.keyframes[i][0]

    @abstractmethod
    def keyframe_index(self, i: int, video: VideoReader) -> int:
        """Frame index of keyframe i in its video."""


class AVADataset(ActionDetectionDataset):
    """The keyframes of a split of AVA.

    Args:
        root: Folder with videos or folders of frames.
        split: Split to read.
        annotations: Folder of the annotation files; None searches below `root`.
        train: Use annotated and predicted boxes. Otherwise predicted boxes only, or annotated ones if there is no file
            of predicted boxes.
        min_score: Smallest score of a predicted box.
        min_iou: Smallest overlap from which a predicted box takes the actions of an annotated one.
        start_seconds: Second at which the videos start; None is 0 for whole movies, and 900 for shorter videos and
            folders of frames.
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
        root = check_exists(Path(root), "Give the AVA folder with --data.", is_dir=True)
        default_folder = root / "annotations" if (root / "annotations").is_dir() else root
        folder = check_exists(Path(annotations) if annotations is not None else default_folder, is_dir=True)
        self.start_seconds = start_seconds
        self.actions = read_label_map(matching_files(folder, "ava_action_list*.pbtxt*", subfolders=True)[-1])
        annotated = read_box_csv(find_annotation_files(folder, split)[-1])
        patterns = (f"ava_detection_{split}_boxes*.csv", f"ava_{split}_predicted_boxes*.csv")
        exclusion_lists, box_files = (
            matching_files(folder, *names, subfolders=True, required=False)
            for names in ((f"ava_{split}_excluded_timestamps*.csv",), patterns)
        )
        excluded = read_excluded_keyframes(exclusion_lists[-1]) if exclusion_lists else set()
        video_ids = {video for video, _ in annotated.keyframes}
        self._paths = _find_videos(root, video_ids)
        self.missing_videos = sorted(video_ids - self._paths.keys())
        self.annotated_boxes = annotated.drop(excluded, self.missing_videos)
        if not self.annotated_boxes.keyframes:
            missing = self.missing_videos
            reason = f"the first missing one is {missing[0]}" if missing else "all keyframes are excluded"
            raise StillmotionError(
                f"{root}: none of the {len(video_ids)} videos of the {split} split was found; {reason}."
            )
        boxes, self.box_source = self.annotated_boxes, ANNOTATED_BOXES
        if box_files:
            predicted = read_box_csv(box_files[-1], has_scores=True).drop(excluded)
            predicted = predicted.select(
                (predicted.scores >= min_score) & [key[0] in self._paths for key in predicted.keyframes]
            )
            boxes = add_detected_boxes(self.annotated_boxes, predicted, min_iou=min_iou) if train else predicted
            self.box_source = f"predicted boxes with a score of {min_score:g} or more ({box_files[-1].name})"
            self.box_source = f"{ANNOTATED_BOXES} and {self.box_source}" if train else self.box_source
        self.keyframes = KeyframeIndex(boxes, self.actions)
        self._open_errors: dict[str, str] = {}  # by video: each is tried once, not once per keyframe

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
        duration = len(video) / video.fps
        start = self.start_seconds
        if start is None:
            start = 0.0 if duration > _FULL_FILM_SECONDS else _EXCERPT_START_SECONDS
        index = round((second - start) * video.fps)
        if not 0 <= index < len(video):
            raise VideoError(
                f"{name}: second {second} is outside the video, which starts at {start:g} s and is {duration:.0f} s "
                "long. Set --data.start-second."
            )
        return index


def find_annotation_files(folder: Path, split: str, *, required: bool = True) -> list[Path]:
    """Find the annotation CSV of a split, in a folder or the folders in it.

    Args:
        folder: Folder of the annotation files.
        split: train or val.
        required: Raise an error if there is none.

    Returns:
        All versions, the newest one last.
    """
    return matching_files(folder, f"ava_{split}_v2*.csv", subfolders=True, required=required)


def read_box_csv(file: Path, *, has_scores: bool = False) -> BoxTable:
    """Read a CSV file of boxes.

    Args:
        file: CSV with video, second, left, top, right, bottom, action, and a person id or score.
        has_scores: The last column is a score, not a person id.

    Raises:
        StillmotionError: A row is invalid.
    """
    keyframes: list[KeyframeId] = []
    boxes: list[list[float]] = []
    actions: list[int] = []
    scores: list[float] = []
    for line, row in _iter_csv_rows(file):
        try:
            if len(row) not in ((8,) if has_scores else (7, 8)):
                raise ValueError(f"{len(row)} columns")
            keyframes.append((row[0], int(_parse_number(row[1]))))
            boxes.append([_parse_number(value) for value in row[2:6]])
            actions.append(int(_parse_number(row[6])) if row[6].strip() else NO_ACTION_ID)
            scores.append(_parse_number(row[7]) if has_scores else 1.0)
        except ValueError:
            last = "score" if has_scores else "person"
            expected = f"video, second, left, top, right, bottom, action, {last}"
            raise ListLine(f"{file}, line {line}", ",".join(row)).error(expected) from None
    return BoxTable(keyframes, np.array(boxes).reshape(-1, 4), np.array(actions, int), np.array(scores, float))


def write_box_csv(file: Path, boxes: BoxTable) -> None:
    """Write boxes in the submission format of AVA: video, second, box, action, score.

    Args:
        file: File to write.
        boxes: The boxes.
    """
    with file.open("w") as out:
        for (video, second), box, action, score in zip(
            *(boxes[0], *(array.tolist() for array in boxes[1:])), strict=True
        ):
            corners = ",".join(f"{value:.6g}" for value in box)
            out.write(f"{video},{second:04d},{corners},{action},{score:.6g}\n")


def read_excluded_keyframes(file: Path) -> set[KeyframeId]:
    """Read the keyframes of an exclusion list.

    Args:
        file: CSV with video and second.
    """
    keyframes = set()
    for line, row in _iter_csv_rows(file):
        try:
            video, second = row
            keyframes.add((video, int(_parse_number(second))))
        except ValueError:
            raise ListLine(f"{file}, line {line}", ",".join(row)).error("video, second") from None
    return keyframes


def read_label_map(file: Path) -> dict[int, str]:
    """Read the actions that are evaluated.

    Args:
        file: Label map (.pbtxt).

    Returns:
        Names by id, in ascending order.
    """
    actions = {}
    for item in re.findall(r"\{(.*?)\}", read_list_text(file), re.DOTALL):
        name, action_id = re.search(r'name:\s*"([^"]*)"', item), re.search(r"\b(?:label_)?id:\s*(\d{1,9})\b", item)
        if name and action_id:
            actions[int(action_id[1])] = name[1]
    if not actions:
        raise StillmotionError(f'{file}: no action found; expected item {{ name: "sit" id: 11 }}.')
    return dict(sorted(actions.items()))


def _iter_csv_rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    rows = csv.reader(io.StringIO(read_list_text(file), newline=""))
    try:
        yield from ((rows.line_num, row) for row in rows if row)
    except csv.Error as error:
        raise StillmotionError(f"{file}, line {rows.line_num}: cannot be read as a list of boxes ({error}).") from None


def _parse_number(text: str) -> float:
    value = float(text)
    if not abs(value) < _MAX_NUMBER:
        raise ValueError(text)
    return value


def _find_videos(root: Path, ids: set[str]) -> dict[str, Path]:
    """Video files and folders of frames by id; folders of frames are not searched."""
    paths: dict[str, Path] = {}
    for folder, folders, files in walk_folders(root):
        videos = [name for name in files if Path(name).suffix.lower() in VIDEO_SUFFIXES and Path(name).stem in ids]
        for name in sorted([*videos, *ids.intersection(folders)]):
            paths.setdefault(name if name in ids else Path(name).stem, folder / name)
        folders[:] = [name for name in folders if name not in ids]
    return paths
