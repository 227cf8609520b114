"""Breakfast as it is published, and 50 Salads and GTEA, which are laid out alike.

    groundTruth/P03_cam01_P03_cereals.txt   the action of each frame, one a line
    mapping.txt                             "0 SIL", a number and a name a line
    splits/train.split1.bundle              names of ground-truth files; test.split1.bundle likewise
    features/P03_cam01_P03_cereals.npy      ready-made features (D, T), where there are any
    videos/…                                <name>.<suffix>, or Breakfast's own P03/cam01/P03_cereals.avi

Breakfast's stereo videos are of channel 0: P03_stereo01_P03_milk is P03/stereo/P03_milk_ch0.avi.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from stillmotion.data.datasets.base import ActionSegmentationDataset
from stillmotion.data.datasets.folder import find_videos
from stillmotion.data.video import open_video
from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import StillmotionError, VideoError

_HEADER = "#bundle"
_TRUTH, _FEATURES, _SPLITS, _MAPPING = "groundTruth", "features", "splits", "mapping.txt"


class BreakfastDataset(ActionSegmentationDataset):
    """The training or test videos of a split, with the action of every frame.

    root: the folder of the layout above. split: 1 to 4 in Breakfast. train: False takes the test bundle.
    video_root: where the videos lie, if not below root.
    A listed video that is not there stays in the set and is an unreadable one.
    """

    def __init__(self, root: str | Path, *, train: bool, fold: int = 1, video_root: str | Path | None = None) -> None:
        self.root = Path(root)
        self._video_root = Path(video_root) if video_root is not None else self.root
        for folder in (self.root, self._video_root):
            if not folder.is_dir():
                raise StillmotionError(f"{folder}: no such folder; give the one that holds {_TRUTH} and {_SPLITS}")
        self.actions = read_action_mapping(self.root / _MAPPING)
        self._label_by_action = {name: label for label, name in enumerate(self.actions)}
        self.video_ids = read_bundle_ids(self._bundle_file("train" if train else "test", fold))

    def __len__(self) -> int:
        return len(self.video_ids)

    def name(self, i: int) -> str:
        return str(self._paths_by_id.get(self.video_ids[i], self.video_ids[i]))

    def open_video(self, i: int) -> VideoReader:
        place = self._paths_by_id.get(self.video_ids[i])
        if place is None:
            raise VideoError(f"{self.video_ids[i]}: no video of this name below {self._video_root}")
        return open_video(place)

    def frame_labels(self, i: int) -> np.ndarray:
        file = self.root / _TRUTH / f"{self.video_ids[i]}.txt"
        try:
            words = file.read_text().split()
        except (OSError, UnicodeDecodeError) as error:
            raise VideoError(f"{file}: cannot be read as frame labels ({error})") from None
        unknown = set(words) - self._label_by_action.keys()
        if unknown or not words:
            what = f"unknown action {min(unknown)!r}; {_MAPPING} has {len(self.actions)}" if unknown else "no labels"
            raise VideoError(f"{file}: {what}")
        return np.array([self._label_by_action[word] for word in words], np.int64)

    def load_features(self, i: int) -> np.ndarray:
        """The published features of video i, float32 (T, D)."""
        file = self.root / _FEATURES / f"{self.video_ids[i]}.npy"
        try:
            found = np.load(file, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise VideoError(f"{file}: cannot be read as features ({error})") from None
        if found.ndim != 2 or found.size == 0:
            raise VideoError(f"{file}: features of shape {found.shape}; they are (D, T)")
        return np.ascontiguousarray(found.T, np.float32)

    @cached_property
    def _paths_by_id(self) -> dict[str, Path]:
        """Every video below the folder by the name that the bundles call it."""
        return {_video_id(path.absolute()): path for path in find_videos(self._video_root)}

    def _bundle_file(self, part: str, split: int) -> Path:
        folder = self.root / _SPLITS
        file = folder / f"{part}.split{split}.bundle"
        if not file.is_file():
            there = sorted(found.name for found in folder.glob(f"{part}.split*.bundle"))
            raise StillmotionError(f"{file}: no such list; {folder} has {', '.join(there) or 'none'} (--fold)")
        return file


def read_action_mapping(file: Path) -> list[str]:
    """The names of actions by their numbers, from lines "0 SIL"."""
    rows = [line.split() for line in _read_lines(file)]
    if any(len(row) != 2 or not row[0].isdigit() for row in rows):
        raise StillmotionError(f"{file}: a line is not a number and a name, such as `0 SIL`")
    named = {int(number): name for number, name in rows}
    if sorted(named) != list(range(len(rows))) or len(set(named.values())) != len(rows):
        raise StillmotionError(f"{file}: {len(rows)} actions must be numbered 0 to {len(rows) - 1}, each once")
    return [named[number] for number in range(len(rows))]


def read_bundle_ids(file: Path) -> list[str]:
    """The videos of a split: names of ground-truth files, with or without their folder and a first line #bundle."""
    return [Path(line).stem for line in _read_lines(file) if line != _HEADER]


def _video_id(path: Path) -> str:
    """What the bundles call a video: P03/cam01/P03_milk.avi is P03_cam01_P03_milk; elsewhere its own name."""
    parts = path.parts
    if len(parts) >= 3 and path.stem.startswith(f"{parts[-3]}_"):
        person, camera, stem = parts[-3], parts[-2], path.stem
        if camera == "stereo" and stem.endswith("_ch0"):
            camera, stem = "stereo01", stem.removesuffix("_ch0")
        return f"{person}_{camera}_{stem}"
    return path.name if path.is_dir() else path.stem


def _read_lines(file: Path) -> Sequence[str]:
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except FileNotFoundError:
        raise StillmotionError(f"{file}: no such file; Breakfast's layout is in docs/datasets.md") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StillmotionError(f"{file}: cannot be read ({error})") from None
    if not lines:
        raise StillmotionError(f"{file}: empty")
    return lines
