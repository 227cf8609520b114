"""What every data set is made of: the protocol, a set of paths, and the search and the lists they come from."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from stillmotion.data.video import open_video
from stillmotion.data.video.reader import VideoReader

UNKNOWN_LABEL = -1
DEFAULT_TARGET = "class"
FailedVideos = list[tuple[str, str]]  # name and reason of each video that could not be read


class VideoDataset(Protocol):
    """Numbered videos, with labels where they are known. Ordinary videos have the one target "class"."""

    @property
    def labels(self) -> Mapping[str, np.ndarray]:
        """From a target's name to one int per video, -1 where unknown; empty where nothing is known."""
        ...

    @property
    def classes(self) -> Mapping[str, Sequence[str]]:
        """From a target's name to the names of its values."""
        ...

    def __len__(self) -> int: ...

    def open_video(self, i: int) -> VideoReader:
        """Opens video i; raises VideoError if it cannot be read."""
        ...

    def name(self, i: int) -> str:
        """A path or an id, by which messages and tables call video i."""
        ...


class UnlabeledDataset:
    """A set whose videos have no label as a whole."""

    labels: Mapping[str, np.ndarray] = {}
    classes: Mapping[str, Sequence[str]] = {}


class PathDataset:
    """Videos at given paths.

    labels: one per path, -1 where unknown; None for no labels at all. classes: their names.
    root: what the paths are taken relative to when the set is copied.
    missing_videos: names of videos that the split lists but that are not there.
    csv_rows: all columns of the list that the paths came from, one dict per path.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        labels: Sequence[int] | None = None,
        classes: Sequence[str] | None = None,
        root: Path | None = None,
        missing_videos: Sequence[str] = (),
        csv_rows: Sequence[dict[str, str]] = (),
    ) -> None:
        self.paths = list(paths)
        self.root = root
        self.missing_videos = list(missing_videos)
        self.csv_rows = list(csv_rows)
        self.labels: dict[str, np.ndarray] = {}
        self.classes: dict[str, list[str]] = {}
        if labels is not None:
            self.labels[DEFAULT_TARGET] = np.asarray(labels, dtype=np.int64)
            self.classes[DEFAULT_TARGET] = list(classes or [])

    def __len__(self) -> int:
        return len(self.paths)

    def open_video(self, i: int) -> VideoReader:
        return open_video(self.paths[i])

    def name(self, i: int) -> str:
        return str(self.paths[i])


class ActionSegmentationDataset(VideoDataset, Protocol):
    """A `VideoSet` whose videos show several actions, with the action of every frame.

    actions: their names, by label. names: of the videos, each once and without a folder.
    """

    actions: list[str]
    video_ids: list[str]

    def frame_labels(self, i: int) -> np.ndarray:
        """One label per frame of video i, ints (T,)."""
        ...
