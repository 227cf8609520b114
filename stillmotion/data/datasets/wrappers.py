"""Videos of a few evenly spaced frames, played forward and backward."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stillmotion.data.datasets.base import UNKNOWN_LABEL, VideoDataset
from stillmotion.data.transforms.sampling import symmetric_frame_indices
from stillmotion.data.video.reader import FrameSubset, VideoReader, to_frame_indices
from stillmotion.errors import StillmotionError


class ReversedDataset(VideoDataset):
    """Every video of a set as `num_frames` evenly spaced frames.

    with_reversed: after each video comes its reverse, the same frames in the opposite order: video i is 2·i, its reverse
        2·i + 1. A video of fewer frames shows some of them again.
    """

    def __init__(self, dataset: VideoDataset, *, num_frames: int, with_reversed: bool = False) -> None:
        if num_frames < 2:
            raise StillmotionError(f"{num_frames} frames have no order; take at least 2 (--num-frames)")
        self.dataset, self.num_frames, self.with_reversed = dataset, num_frames, with_reversed

    def __len__(self) -> int:
        return len(self.dataset) * (1 + self.with_reversed)

    def open_video(self, i: int) -> VideoReader:
        number, backward = divmod(i, 2) if self.with_reversed else (i, 0)
        video = self.dataset.open_video(number)
        places = to_frame_indices(video, symmetric_frame_indices(len(video), self.num_frames))
        return FrameSubset(video, places[::-1] if backward else places)

    def name(self, i: int) -> str:
        number, backward = divmod(i, 2) if self.with_reversed else (i, 0)
        return self.dataset.name(number) + (" reversed" if backward else "")


class Subset(VideoDataset):
    """The videos of a set that have these numbers, with their labels.

    indices: (n,) ints; video i of the subset is video chosen[i] of the set.
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


class ConcatDataset(VideoDataset):
    """The videos of several sets, one set after the other; one that several of them hold is taken once.

    Labels are matched by their names: sets that number their classes differently agree here.
    """

    def __init__(self, datasets: Sequence[VideoDataset]) -> None:
        self.datasets = datasets
        places: dict[str, tuple[int, int]] = {}
        for number, videos in enumerate(datasets):
            for i in range(len(videos)):
                places.setdefault(videos.name(i), (number, i))
        self._names, self._locations = list(places), list(places.values())
        self._index_by_name = {name: i for i, name in enumerate(self._names)}
        self.labels: dict[str, np.ndarray] = {}
        self.classes: dict[str, list[str]] = {}
        for target in dict.fromkeys(target for videos in datasets for target in videos.labels):
            names = [_value_names(videos, target) for videos in datasets]
            every = {name: i for i, name in enumerate(dict.fromkeys(name for some in names for name in some))}
            labels = [
                _renumber_labels(v, target, [every[n] for n in some]) for v, some in zip(datasets, names, strict=True)
            ]
            self.labels[target] = np.array([labels[number][i] for number, i in self._locations], np.int64)
            self.classes[target] = list(every)

    def __len__(self) -> int:
        return len(self._names)

    def open_video(self, i: int) -> VideoReader:
        number, place = self._locations[i]
        return self.datasets[number].open_video(place)

    def name(self, i: int) -> str:
        return self._names[i]

    def indices_of(self, dataset: VideoDataset) -> np.ndarray:
        """Where the videos of one of the sets are, in that set's order."""
        return np.array([self._index_by_name[dataset.name(i)] for i in range(len(dataset))], np.int64)


class FrozenFrameDataset(VideoDataset):
    """The videos of a set, of each of which only the middle frame is seen, as often as frames are asked for."""

    def __init__(self, dataset: VideoDataset) -> None:
        self.dataset = dataset
        self.labels, self.classes = dataset.labels, dataset.classes
        self.config = "middle frame"  # tells cached features of these from those of the videos themselves

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
    """How the sets among these that are drawn or changed are made: the names of their videos do not tell."""
    if isinstance(dataset, Subset | ReversedDataset):
        return generation_settings(dataset.dataset)
    if isinstance(dataset, ConcatDataset):
        return [drawn for some in dataset.datasets for drawn in generation_settings(some)]
    return [] if dataset.config is None else [dataset.config]


def _value_names(dataset: VideoDataset, target: str) -> list[str]:
    """The names of a target's values; a value without a name is called by its number."""
    names = dataset.classes.get(target, ())
    last = int(dataset.labels[target].max(initial=UNKNOWN_LABEL)) if target in dataset.labels else UNKNOWN_LABEL
    return [*names, *(str(value) for value in range(len(names), last + 1))]


def _renumber_labels(dataset: VideoDataset, target: str, new_labels: list[int]) -> np.ndarray:
    if target not in dataset.labels:
        return np.full(len(dataset), UNKNOWN_LABEL)
    return np.array([*new_labels, UNKNOWN_LABEL])[dataset.labels[target]]  # UNKNOWN is -1, the last
