"""Data sets made of others: reversed clips, subset, concatenation, one frozen frame."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from stillmotion.data.datasets.base import UNKNOWN_LABEL, VideoDataset
from stillmotion.data.transforms.sampling import symmetric_frame_indices
from stillmotion.data.video.reader import FrameSubset, VideoReader, to_frame_indices
from stillmotion.errors import StillmotionError


class ForwardReversedDataset(VideoDataset):
    """Each video as a few evenly spaced frames, forward and reversed.

    Args:
        dataset: The videos.
        num_frames: Number of frames; a video with fewer repeats some.
        with_reversed: After each video comes its reverse: video i is item 2·i, its reverse item 2·i + 1.
    """

    def __init__(self, dataset: VideoDataset, *, num_frames: int, with_reversed: bool = False) -> None:
        if num_frames < 2:
            raise StillmotionError(f"num_frames is {num_frames}; temporal order needs at least 2 (--num-frames).")
        self.dataset, self.num_frames, self.with_reversed = dataset, num_frames, with_reversed

    def __len__(self) -> int:
        return len(self.dataset) * (1 + self.with_reversed)

    def open_video(self, i: int) -> VideoReader:
        index, is_reversed = divmod(i, 2) if self.with_reversed else (i, 0)
        video = self.dataset.open_video(index)
        frames = to_frame_indices(video, symmetric_frame_indices(len(video), self.num_frames))
        return FrameSubset(video, frames[::-1] if is_reversed else frames)

    def name(self, i: int) -> str:
        index, is_reversed = divmod(i, 2) if self.with_reversed else (i, 0)
        return self.dataset.name(index) + (" reversed" if is_reversed else "")


class Subset(VideoDataset):
    """Some videos of a data set, with their labels.

    Args:
        dataset: All videos.
        indices: Indices of the videos to take, ints (n,).
    """

    def __init__(self, dataset: VideoDataset, indices: np.ndarray) -> None:
        self.dataset = dataset
        self.indices = indices
        self.labels = {target: y[indices] for target, y in dataset.labels.items()}
        self.classes = dataset.classes

    def __len__(self) -> int:
        return len(self.indices)

    def open_video(self, i: int) -> VideoReader:
        return self.dataset.open_video(int(self.indices[i]))

    def name(self, i: int) -> str:
        return self.dataset.name(int(self.indices[i]))

    def select(self, rows: np.ndarray) -> "Subset":
        """Take a subset of the subset.

        Args:
            rows: Indices or a mask.
        """
        return Subset(self.dataset, self.indices[rows])


class ConcatDataset(VideoDataset):
    """Concatenate data sets. Videos with the same name are taken once; labels are matched by class name.

    Args:
        datasets: The data sets.
    """

    def __init__(self, datasets: Sequence[VideoDataset]) -> None:
        self.datasets = datasets
        locations: dict[str, tuple[int, int]] = {}
        for index, dataset in enumerate(datasets):
            for i in range(len(dataset)):
                locations.setdefault(dataset.name(i), (index, i))
        self._names, self._locations = list(locations), list(locations.values())
        self._index_by_name = {name: i for i, name in enumerate(self._names)}
        self.labels: dict[str, np.ndarray] = {}
        self.classes: dict[str, list[str]] = {}
        for target in dict.fromkeys(target for dataset in datasets for target in dataset.labels):
            class_lists = [_value_names(dataset, target) for dataset in datasets]
            new_labels = {name: i for i, name in enumerate(dict.fromkeys(chain.from_iterable(class_lists)))}
            labels = [
                _renumber_labels(dataset, target, [new_labels[name] for name in names])
                for dataset, names in zip(datasets, class_lists, strict=True)
            ]
            self.labels[target] = np.array([labels[index][i] for index, i in self._locations], np.int64)
            self.classes[target] = list(new_labels)

    def __len__(self) -> int:
        return len(self._names)

    def open_video(self, i: int) -> VideoReader:
        index, position = self._locations[i]
        return self.datasets[index].open_video(position)

    def name(self, i: int) -> str:
        return self._names[i]

    def indices_of(self, dataset: VideoDataset) -> np.ndarray:
        """Indices of the videos of one of the data sets, in its order.

        Args:
            dataset: One of the concatenated data sets.
        """
        return np.array([self._index_by_name[dataset.name(i)] for i in range(len(dataset))], np.int64)


class FrozenFrameDataset(VideoDataset):
    """Replace every frame of a video by its middle frame.

    Args:
        dataset: The videos.
    """

    def __init__(self, dataset: VideoDataset) -> None:
        self.dataset = dataset
        self.labels, self.classes = dataset.labels, dataset.classes
        self.config = "middle frame"  # distinguishes cached features from those of the videos themselves

    def __len__(self) -> int:
        return len(self.dataset)

    def open_video(self, i: int) -> VideoReader:
        return _FrozenFrameReader(self.dataset.open_video(i))

    def name(self, i: int) -> str:
        return self.dataset.name(i)


class _FrozenFrameReader(VideoReader):
    def __init__(self, video: VideoReader) -> None:
        self.video, self.fps = video, video.fps

    def __len__(self) -> int:
        return len(self.video)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        return np.repeat(self.video.get_frames([len(self.video) // 2]), len(indices), axis=0)


def generation_settings(dataset: VideoDataset) -> list[Any]:
    """Settings of synthetic or modified data sets, which file names alone do not identify.

    They are part of feature-cache keys.

    Args:
        dataset: A data set, possibly made of others.
    """
    if isinstance(dataset, Subset | ForwardReversedDataset):
        return generation_settings(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        return [settings for part in dataset.datasets for settings in generation_settings(part)]
    return [] if dataset.config is None else [dataset.config]


def _value_names(dataset: VideoDataset, target: str) -> list[str]:
    """Names of the values of a target; a value without a name is named by its number."""
    names = dataset.classes.get(target, ())
    last = int(dataset.labels[target].max(initial=UNKNOWN_LABEL)) if target in dataset.labels else UNKNOWN_LABEL
    return [*names, *(str(value) for value in range(len(names), last + 1))]


def _renumber_labels(dataset: VideoDataset, target: str, new_labels: list[int]) -> np.ndarray:
    if target not in dataset.labels:
        return np.full(len(dataset), UNKNOWN_LABEL)
    return np.array([*new_labels, UNKNOWN_LABEL])[dataset.labels[target]]  # -1 is unknown, and the last
