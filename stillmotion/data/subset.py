"""Some videos of a set, renumbered; several sets as one; and a set of which one frame of each video is seen."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stillmotion.data.paths import UNKNOWN, VideoSet
from stillmotion.data.played import Played
from stillmotion.data.video import Video


class Subset:
    """The videos of a set that have these numbers, with their labels.

    chosen: (n,) ints; video i of the subset is video chosen[i] of the set.
    """

    def __init__(self, videos: VideoSet, chosen: np.ndarray) -> None:
        self.videos = videos
        self.chosen = chosen
        self.labels = {target: y[chosen] for target, y in videos.labels.items()}
        self.classes = videos.classes

    def __len__(self) -> int:
        return len(self.chosen)

    def video(self, i: int) -> Video:
        return self.videos.video(int(self.chosen[i]))

    def name(self, i: int) -> str:
        return self.videos.name(int(self.chosen[i]))


class Joined:
    """The videos of several sets, one set after the other; one that several of them hold is taken once.

    Labels are matched by their names: sets that number their classes differently agree here.
    """

    def __init__(self, sets: Sequence[VideoSet]) -> None:
        self.sets = sets
        places: dict[str, tuple[int, int]] = {}
        for number, videos in enumerate(sets):
            for i in range(len(videos)):
                places.setdefault(videos.name(i), (number, i))
        self._names, self._places = list(places), list(places.values())
        self._numbers = {name: i for i, name in enumerate(self._names)}
        self.labels: dict[str, np.ndarray] = {}
        self.classes: dict[str, list[str]] = {}
        for target in dict.fromkeys(target for videos in sets for target in videos.labels):
            names = [_names(videos, target) for videos in sets]
            every = {name: i for i, name in enumerate(dict.fromkeys(name for some in names for name in some))}
            labels = [_renumbered(v, target, [every[n] for n in some]) for v, some in zip(sets, names, strict=True)]
            self.labels[target] = np.array([labels[number][i] for number, i in self._places], np.int64)
            self.classes[target] = list(every)

    def __len__(self) -> int:
        return len(self._names)

    def video(self, i: int) -> Video:
        number, place = self._places[i]
        return self.sets[number].video(place)

    def name(self, i: int) -> str:
        return self._names[i]

    def numbers(self, videos: VideoSet) -> np.ndarray:
        """Where the videos of one of the sets are, in that set's order."""
        return np.array([self._numbers[videos.name(i)] for i in range(len(videos))], np.int64)


class Stilled:
    """The videos of a set, of each of which only the middle frame is seen, as often as frames are asked for."""

    def __init__(self, videos: VideoSet) -> None:
        self.videos = videos
        self.labels, self.classes = videos.labels, videos.classes
        self.config = "middle frame"  # tells cached features of these from those of the videos themselves

    def __len__(self) -> int:
        return len(self.videos)

    def video(self, i: int) -> Video:
        return _OneFrame(self.videos.video(i))

    def name(self, i: int) -> str:
        return self.videos.name(i)


class _OneFrame:
    def __init__(self, video: Video) -> None:
        self.video, self.fps = video, video.fps

    def __len__(self) -> int:
        return len(self.video)

    def frames(self, indices: Sequence[int]) -> np.ndarray:
        return np.repeat(self.video.frames([len(self.video) // 2]), len(indices), axis=0)


def drawings(videos: VideoSet) -> list[Any]:
    """How the sets among these that are drawn or changed are made: the names of their videos do not tell."""
    if isinstance(videos, Subset | Played):
        return drawings(videos.videos)
    if isinstance(videos, Joined):
        return [drawn for some in videos.sets for drawn in drawings(some)]
    return [videos.config] if hasattr(videos, "config") else []


def _names(videos: VideoSet, target: str) -> list[str]:
    """The names of a target's values; a value without a name is called by its number."""
    names = videos.classes.get(target, ())
    last = int(videos.labels[target].max(initial=UNKNOWN)) if target in videos.labels else UNKNOWN
    return [*names, *(str(value) for value in range(len(names), last + 1))]


def _renumbered(videos: VideoSet, target: str, numbers: list[int]) -> np.ndarray:
    if target not in videos.labels:
        return np.full(len(videos), UNKNOWN)
    return np.array([*numbers, UNKNOWN])[videos.labels[target]]  # UNKNOWN is -1, the last
