"""AVA from its published files (Gu et al., "AVA", CVPR 2018).

Where they lie is free: videos or folders of frames are found by their ids anywhere below the set's folder, and files by
the names that they are published under.

    ava_train_v2.2.csv                            video, second, left, top, right, bottom, action, person
    ava_val_excluded_timestamps_v2.2.csv          video, second
    ava_action_list_v2.2_for_activitynet_2019.pbtxt
    ava_val_predicted_boxes.csv                   video, second, left, top, right, bottom, action or nothing, score
    ava_detection_val_boxes_and_labels.csv        the same, as SlowFast publishes it
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from stillmotion.data.keyframes import NO_ACTION, TRUTH, BoxRows, Key, KeyFrames, with_persons
from stillmotion.data.paths import Unlabelled, walk
from stillmotion.data.video import VIDEO_SUFFIXES, Video, open_video
from stillmotion.errors import StillmotionError, VideoError

_CUT = 900.0  # the second at which the parts of films that are commonly cut out begin
_WHOLE = 1200.0  # seconds beyond which a video is a whole film


class AvaSet(Unlabelled):
    """The key frames of a part of AVA, as an `ActionSet`.

    root: holds videos or folders of frames. annotations: holds the files; None looks for them below root.
    train: annotated boxes together with predicted ones, as `with_persons` does by `overlap`; else predicted ones alone,
        or annotated ones where no file of predicted boxes is found.
    score: least score of a predicted box.
    start: the second at which videos begin; None is 0 for whole films, and 900 for shorter ones and folders of frames.
    """

    def __init__(
        self,
        root: str | Path,
        split: Literal["train", "val"],
        *,
        annotations: str | Path | None = None,
        train: bool = False,
        score: float = 0.9,
        overlap: float = 0.5,
        start: float | None = None,
    ) -> None:
        folder = _folder(Path(annotations) if annotations is not None else _notes(_folder(Path(root))))
        self.start = start
        self.actions = read_label_map(_file(folder, "ava_action_list*.pbtxt*"))
        truth = read_boxes(_file(folder, f"ava_{split}_v2*.csv"))
        excluded = _found(folder, f"ava_{split}_excluded_timestamps*.csv")
        unused = read_stamps(excluded) if excluded else set()
        listed = _found(folder, f"ava_detection_{split}_boxes*.csv", f"ava_{split}_predicted_boxes*.csv")
        persons = read_boxes(listed, scored=True) if listed else None
        named = {video for video, _ in truth.keys}
        self._paths = _find_videos(_folder(Path(root)), named)
        self.missing = sorted(named - self._paths.keys())
        self.truth = truth.without(unused, self.missing)
        if not self.truth.keys:
            first = f"the first is {self.missing[0]}" if self.missing else "all key frames are excluded"
            raise StillmotionError(f"{root}: none of the {len(named)} videos of {split} can be used; {first}")
        used, self.source = self.truth, TRUTH
        if persons is not None:
            persons = persons.without(unused)
            persons = persons.where((persons.scores >= score) & [key[0] in self._paths for key in persons.keys])
            used = with_persons(self.truth, persons, least=overlap) if train else persons
            self.source = f"predicted boxes with a score of {score:g} or more ({listed.name if listed else ''})"
            self.source = f"{TRUTH} and {self.source}" if train else self.source
        self.frames = KeyFrames(used, self.actions)
        self._closed: dict[str, str] = {}  # why videos cannot be opened: each is tried once, not once a key frame

    def __len__(self) -> int:
        return len(self.frames)

    def name(self, i: int) -> str:
        return self.frames.keys[i][0]

    def video(self, i: int) -> Video:
        name = self.name(i)
        if name in self._closed:
            raise VideoError(self._closed[name])
        try:
            return open_video(self._paths[name])
        except VideoError as error:
            self._closed[name] = str(error)
            raise

    def place(self, i: int, video: Video) -> int:
        name, second = self.frames.keys[i]
        lasts = len(video) / video.fps
        start = self.start if self.start is not None else 0.0 if lasts > _WHOLE else _CUT
        number = round((second - start) * video.fps)
        if not 0 <= number < len(video):
            raise VideoError(
                f"{name}: no frame at second {second}; it begins at {start:g} and lasts {lasts:.0f} s (--data.start)"
            )
        return number


def read_boxes(file: Path, *, scored: bool = False) -> BoxRows:
    """The rows of an AVA file; scored: the last column is a score, and not a person's number."""
    keys: list[Key] = []
    boxes: list[list[float]] = []
    actions: list[int] = []
    scores: list[float] = []
    for line, row in _rows(file):
        try:
            if len(row) not in ((8,) if scored else (7, 8)):
                raise ValueError(f"{len(row)} columns")
            keys.append((row[0], int(float(row[1]))))
            boxes.append([float(value) for value in row[2:6]])
            actions.append(int(row[6]) if row[6].strip() else NO_ACTION)
            scores.append(float(row[7]) if scored else 1.0)
        except ValueError as error:
            last = "score" if scored else "person"
            raise StillmotionError(
                f"{file}, line {line}: {error}; write video, second, left, top, right, bottom, action, {last}"
            ) from None
    return BoxRows(keys, np.array(boxes).reshape(-1, 4), np.array(actions, int), np.array(scores, float))


def write_boxes(file: Path, rows: BoxRows) -> None:
    """Rows as AVA wants them submitted: video, second, box, action, score."""
    with file.open("w") as out:
        for (video, second), box, action, score in zip(
            *(rows[0], *(array.tolist() for array in rows[1:])), strict=True
        ):
            corners = ",".join(f"{value:.6g}" for value in box)
            out.write(f"{video},{second:04d},{corners},{action},{score:.6g}\n")


def read_stamps(file: Path) -> set[Key]:
    """The key frames of an exclusion list."""
    found = set()
    for line, row in _rows(file):
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


def _rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with file.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as lines:
            yield from ((number, row) for number, row in enumerate(csv.reader(lines), 1) if row)
    except (OSError, csv.Error) as error:
        raise StillmotionError(f"{file}: cannot be read as a list of boxes ({error})") from None


def _find_videos(root: Path, wanted: set[str]) -> dict[str, Path]:
    """Video files and folders of frames by id; folders of frames are not walked through."""
    found: dict[str, Path] = {}
    for folder, folders, files in walk(root):
        videos = [name for name in files if Path(name).suffix.lower() in VIDEO_SUFFIXES and Path(name).stem in wanted]
        for name in sorted([*videos, *wanted.intersection(folders)]):
            found.setdefault(name if name in wanted else Path(name).stem, folder / name)
        folders[:] = [name for name in folders if name not in wanted]
    return found


def _notes(root: Path) -> Path:
    return root / "annotations" if (root / "annotations").is_dir() else root


def _found(folder: Path, *patterns: str) -> Path | None:
    """The file of one of these names in a folder or one below it, of the latest version."""
    for pattern in patterns:
        files = sorted([*folder.glob(pattern), *folder.glob(f"*/{pattern}")], key=lambda file: file.name)
        if files:
            return files[-1]
    return None


def _file(folder: Path, pattern: str) -> Path:
    file = _found(folder, pattern)
    if file is None:
        raise StillmotionError(f"{folder}: no {pattern} there; say where AVA's files lie (--annotations)")
    return file


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise StillmotionError(f"{path}: no such folder; give AVA's (--data)")
    return path
