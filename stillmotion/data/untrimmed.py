"""Untrimmed videos: what every set of them offers, and drawn ones that show one motion after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from stillmotion.data.paths import Unlabelled, VideoSet
from stillmotion.data.synthetic import SyntheticConfig, SyntheticVideo, classes_of
from stillmotion.errors import StillmotionError

_MOTION = "trajectory"
_LABELS, _LOOK = 3, 4  # what a generator is for, beside seed and video


class UntrimmedSet(VideoSet, Protocol):
    """A `VideoSet` whose videos show several actions, with the action of every frame.

    actions: their names, by label. names: of the videos, each once and without a folder.
    """

    actions: list[str]
    names: list[str]

    def frame_labels(self, i: int) -> np.ndarray:
        """One label per frame of video i, ints (T,)."""
        ...


@dataclass(frozen=True)
class UntrimmedConfig:
    """What a set of drawn untrimmed videos holds.

    Attributes:
        videos: how many to train on.
        test: how many to test on.
        segments: fewest and most actions of a video.
        length: fewest and most frames of an action.
        look: size, noise and factors of the drawings; its videos and length are not used.
    """

    videos: int = 40
    test: int = 20
    segments: tuple[int, int] = (4, 7)
    length: tuple[int, int] = (12, 36)
    look: SyntheticConfig = field(default_factory=SyntheticConfig)

    def __post_init__(self) -> None:
        for name in ("videos", "test"):
            if getattr(self, name) < 1:
                raise StillmotionError(f"untrimmed {name} is {getattr(self, name)}; it must be at least 1")
        for name in ("segments", "length"):
            least, most = getattr(self, name)
            if not 1 <= least <= most:
                raise StillmotionError(f"untrimmed {name} is {least} to {most}; write two rising numbers from 1 on")


class DrawnUntrimmed(Unlabelled):
    """Drawn videos in which a shape moves in one way after another; nothing but the motion changes at a seam.

    Training and test videos of a seed are different ones. The same seed draws the same videos.
    """

    def __init__(self, config: UntrimmedConfig, *, train: bool, seed: int = 0) -> None:
        self.config, self.seed, self.train = config, seed, train
        self._values = classes_of(config.look)
        self.actions = self._values[_MOTION]
        half, count = ("train", config.videos) if train else ("test", config.test)
        self.names = [f"untrimmed-{seed}-{half}-{i}" for i in range(count)]

    def __len__(self) -> int:
        return len(self.names)

    def name(self, i: int) -> str:
        return self.names[i]

    def frame_labels(self, i: int) -> np.ndarray:
        rng = self._rng(i, _LABELS)
        count = int(rng.integers(self.config.segments[0], self.config.segments[1], endpoint=True))
        lengths = rng.integers(*self.config.length, size=count, endpoint=True)
        # An action never follows itself: each is one to n - 1 further on than the one before.
        steps = rng.integers(1, len(self.actions), size=count)
        actions = (rng.integers(len(self.actions)) + np.cumsum(steps)) % len(self.actions)
        return np.repeat(actions, lengths)

    def video(self, i: int) -> "DrawnVideo":
        rng = self._rng(i, _LOOK)
        values = {factor: names[rng.integers(len(names))] for factor, names in self._values.items()}
        actions = np.array(self.actions)[self.frame_labels(i)]
        return DrawnVideo(self.config.look, values, actions, seed=int(rng.integers(2**32)))

    def _rng(self, i: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, purpose, int(self.train), i))


class DrawnVideo:
    """A drawn video of motions by name, of one colour, shape, place and rhythm, which `seed` and `values` fix."""

    fps = SyntheticVideo.fps

    def __init__(self, look: SyntheticConfig, values: dict[str, str], actions: np.ndarray, *, seed: int) -> None:
        long = SyntheticConfig(**{**vars(look), "length": len(actions)})
        self._actions = actions
        self._drawn = {
            action: SyntheticVideo(long, values | {_MOTION: action}, np.random.default_rng(seed))
            for action in np.unique(actions).tolist()
        }

    def __len__(self) -> int:
        return len(self._actions)

    def frames(self, indices: Sequence[int]) -> np.ndarray:
        """The frames with these numbers, uint8 RGB (n, size, size, 3)."""
        numbers = np.asarray(indices)
        size = next(iter(self._drawn.values()))._config.size
        shown = np.empty((len(numbers), size, size, 3), np.uint8)
        for action, video in self._drawn.items():
            of_it = np.flatnonzero(self._actions[numbers] == action)
            if len(of_it):
                shown[of_it] = video.frames(numbers[of_it].tolist())
        return shown
