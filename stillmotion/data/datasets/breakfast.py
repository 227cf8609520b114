"""Breakfast, 50 Salads and GTEA: frame labels, bundles, precomputed features.

The layout of the folder:

    groundTruth/P03_cam01_P03_cereals.txt   action of each frame, one per line
    mapping.txt                             lines "0 SIL", number and name of an action
    splits/train.split1.bundle              names of ground-truth files; test.split1.bundle likewise
    features/P03_cam01_P03_cereals.npy      precomputed features (channels, frames), if there are any
    videos/…                                <name>.<suffix>, or Breakfast's own P03/cam01/P03_cereals.avi

Of Breakfast's stereo videos, channel 0 is used: P03_stereo01_P03_milk is P03/stereo/P03_milk_ch0.avi.
"""

from functools import cached_property
from pathlib import Path

import numpy as np

from stillmotion.data.datasets.base import ActionSegmentationDataset
from stillmotion.data.datasets.folder import find_videos
from stillmotion.data.datasets.list_files import ListLine, check_exists, read_list_lines
from stillmotion.data.video import open_video
from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import StillmotionError, VideoError

_HEADER = "#bundle"
GROUND_TRUTH_DIR, FEATURES_DIR, SPLITS_DIR, _MAPPING_FILE = "groundTruth", "features", "splits", "mapping.txt"


class BreakfastDataset(ActionSegmentationDataset):
    """The training or test videos of a fold, with the action of every frame.

    A listed video that does not exist stays in the data set as an unreadable video.

    Args:
        root: Folder with the layout above.
        train: Read the training bundle, not the test bundle.
        fold: Fold, 1 to 4 in Breakfast.
        video_root: Folder of the videos, if not below `root`.
    """

    def __init__(self, root: str | Path, *, train: bool, fold: int = 1, video_root: str | Path | None = None) -> None:
        self.root: Path = Path(root)
        self._video_root = Path(video_root) if video_root is not None else self.root
        for folder in (self.root, self._video_root):
            check_exists(folder, f"Give the folder that holds {GROUND_TRUTH_DIR} and {SPLITS_DIR}.", is_dir=True)
        self.actions = read_action_mapping(self.root / _MAPPING_FILE)
        self._label_by_action = {name: label for label, name in enumerate(self.actions)}
        self.video_ids = read_bundle_ids(self._bundle_file("train" if train else "test", fold))

    def name(self, i: int) -> str:
        return str(self._paths_by_id.get(self.video_ids[i], self.video_ids[i]))

    def open_video(self, i: int) -> VideoReader:
        path = self._paths_by_id.get(self.video_ids[i])
        if path is None:
            raise VideoError(f"{self.video_ids[i]}: no video of this name below {self._video_root}.")
        return open_video(path)

    def frame_labels(self, i: int) -> np.ndarray:
        file = self.root / GROUND_TRUTH_DIR / f"{self.video_ids[i]}.txt"
        try:
            words = file.read_text().split()
        except (OSError, ValueError) as error:  # also text that is not UTF-8, and a name with a null byte
            raise VideoError(f"{file}: cannot be read as frame labels ({error}).") from None
        unknown = set(words) - self._label_by_action.keys()
        if unknown or not words:
            known = f"{_MAPPING_FILE} has {len(self.actions)} actions"
            reason = f"unknown action {min(unknown)!r}; {known}" if unknown else "no frame labels"
            raise VideoError(f"{file}: {reason}.")
        return np.array([self._label_by_action[word] for word in words], np.int64)

    def load_features(self, i: int) -> np.ndarray:
        """Load the precomputed features of video i, float32 (frames, channels)."""
        file = self.root / FEATURES_DIR / f"{self.video_ids[i]}.npy"
        try:
            features = np.load(file, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise VideoError(f"{file}: cannot be read as features ({error}).") from None
        if features.ndim != 2 or features.size == 0:
            raise VideoError(f"{file}: features have shape {features.shape}; expected (channels, frames).")
        return np.ascontiguousarray(features.T, np.float32)

    @cached_property
    def _paths_by_id(self) -> dict[str, Path]:
        return find_videos_by_id(self._video_root)

    def _bundle_file(self, split: str, fold: int) -> Path:
        folder = self.root / SPLITS_DIR
        file = folder / f"{split}.split{fold}.bundle"
        if not file.is_file():
            names = sorted(existing.name for existing in folder.glob(f"{split}.split*.bundle"))
            raise StillmotionError(
                f"{file}: no such split file; {folder} has {', '.join(names) or 'none'}. Choose another --fold."
            )
        return file


def read_action_mapping(file: Path) -> list[str]:
    """Read the names of actions by number.

    Args:
        file: File with lines "0 SIL".
    """
    expected = "a number and a name, such as `0 SIL`"
    lines, named = _read_lines(file), {}
    for line in lines:
        number, name = line.fields(2, expected)
        named[line.class_id(number, expected)] = name
    if sorted(named) != list(range(len(lines))) or len(set(named.values())) != len(lines):
        raise StillmotionError(f"{file}: {len(lines)} actions must be numbered 0 to {len(lines) - 1}, each once.")
    return [named[number] for number in range(len(lines))]


def read_bundle_ids(file: Path) -> list[str]:
    """Read the ids of the videos of a bundle.

    Args:
        file: Names of ground-truth files, with or without their folder and a first line #bundle.
    """
    return [Path(line.content).stem for line in _read_lines(file) if line.content != _HEADER]


def find_videos_by_id(root: Path) -> dict[str, Path]:
    """Find the videos below a folder by the ids that the bundles use.

    Args:
        root: The folder.
    """
    return {_video_id(path.absolute()): path for path in find_videos(root)}


def _video_id(path: Path) -> str:
    """Id of a video in the bundles: P03/cam01/P03_milk.avi is P03_cam01_P03_milk; elsewhere its own name."""
    parts = path.parts
    if len(parts) >= 3 and path.stem.startswith(f"{parts[-3]}_"):
        person, camera, stem = parts[-3], parts[-2], path.stem
        if camera == "stereo" and stem.endswith("_ch0"):
            camera, stem = "stereo01", stem.removesuffix("_ch0")
        return f"{person}_{camera}_{stem}"
    return path.name if path.is_dir() else path.stem


def _read_lines(file: Path) -> list[ListLine]:
    lines = read_list_lines(file, "docs/guides/datasets.md describes the layout of Breakfast.")
    if not lines:
        raise StillmotionError(f"{file}: empty file.")
    return lines
