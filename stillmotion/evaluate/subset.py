"""Some videos of a set, renumbered, and several sets as one."""

from collections.abc import Mapping, Sequence

import numpy as np

from stillmotion.data.paths import UNKNOWN, VideoSet
from stillmotion.data.video import Video


class Subset:
    """The videos of a set that have these numbers, with their labels.

    chosen: (n,) ints; video i of the subset is video chosen[i] of the set.
    """

    def __init__(self, videos: VideoSet, chosen: np.ndarray) -> None:
        self.videos = videos
        self.chosen = chosen
        labels: Mapping[str, np.ndarray] = getattr(videos, "labels", {})
        self.labels = {target: y[chosen] for target, y in labels.items()}
        self.classes: Mapping[str, Sequence[str]] = getattr(videos, "classes", {})

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
        for target in dict.fromkeys(target for videos in sets for target in getattr(videos, "labels", {})):
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


def _names(videos: VideoSet, target: str) -> list[str]:
    """The names of a target's values; a value without a name is called by its number."""
    labels: Mapping[str, np.ndarray] = getattr(videos, "labels", {})
    names: Sequence[str] = getattr(videos, "classes", {}).get(target, ())
    last = int(labels[target].max(initial=UNKNOWN)) if target in labels else UNKNOWN
    return [*names, *(str(value) for value in range(len(names), last + 1))]


def _renumbered(videos: VideoSet, target: str, numbers: list[int]) -> np.ndarray:
    labels: Mapping[str, np.ndarray] = getattr(videos, "labels", {})
    if target not in labels:
        return np.full(len(videos), UNKNOWN)
    return np.array([*numbers, UNKNOWN])[labels[target]]  # UNKNOWN is -1, the last
