"""Base classes of data sets: indexed videos, videos at given paths, videos with a label for every frame."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from stillmotion.data.video import open_video
from stillmotion.data.video.reader import VideoReader

UNKNOWN_LABEL = -1
DEFAULT_TARGET = "class"
FailedVideos = list[tuple[str, str]]  # name and reason of each video that could not be read


class VideoDataset(ABC):
    """Base class of data sets: indexed videos, with labels where they are known.

    Attributes:
        labels: One int per video by target, -1 where unknown. Ordinary videos have the one target "class".
        classes: Names of the label values by target.
        root: Folder to which the names of videos are relative when the data set is copied.
        missing_videos: Names of videos that the annotations list but that do not exist.
        csv_rows: All columns of the list that the videos come from, one dict per video; empty if there is none.
        indices_by_shard: For videos in shards, the indices of the videos of each shard, in the order of their bytes.
        config: Settings of synthetic or modified videos, which their names do not identify; None otherwise.
    """

    labels: Mapping[str, np.ndarray] = {}
    classes: Mapping[str, Sequence[str]] = {}
    root: PurePath | None = None
    missing_videos: Sequence[str] = ()
    csv_rows: Sequence[Mapping[str, str]] = ()
    indices_by_shard: Sequence[np.ndarray] | None = None
    config: Any = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def open_video(self, i: int) -> VideoReader:
        """Open video i; raise VideoError if it cannot be read."""

    @abstractmethod
    def name(self, i: int) -> str:
        """Path or id of video i, for messages and tables."""


class PathDataset(VideoDataset):
    """Videos at given paths.

    Args:
        paths: Video files or frame folders.
        labels: One class per path, -1 where unknown; None for no labels at all.
        classes: Names of the classes.
        root: Folder to which the paths are relative when the data set is copied.
        missing_videos: Names of videos that the annotations list but that do not exist.
        csv_rows: All columns of the list that the paths come from, one dict per path.
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
        self.root: Path | None = root
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

    def class_names(self) -> list[str | None]:
        """Class name of each video; None where unknown."""
        labels = self.labels.get(DEFAULT_TARGET, [UNKNOWN_LABEL] * len(self))
        names = self.classes.get(DEFAULT_TARGET, [])
        return [None if label == UNKNOWN_LABEL else names[label] for label in labels]


class ActionSegmentationDataset(VideoDataset):
    """Base class of data sets whose videos show several actions, with the action of every frame.

    Attributes:
        actions: Names of the actions by label.
        video_ids: Unique names of the videos, without a folder.
    """

    actions: list[str]
    video_ids: list[str]

    def __len__(self) -> int:
        return len(self.video_ids)

    @abstractmethod
    def frame_labels(self, i: int) -> np.ndarray:
        """Label of each frame of video i, ints (T,)."""
