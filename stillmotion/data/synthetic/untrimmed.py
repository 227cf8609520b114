"""Untrimmed videos: what every set of them offers, and drawn ones that show one motion after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stillmotion.data.datasets.base import ActionSegmentationDataset
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticVideo, factor_values
from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import StillmotionError

_ACTION_FACTOR = "trajectory"
_LABEL_STREAM, _APPEARANCE_STREAM = 3, 4  # what a generator is for, beside seed and video


@dataclass(frozen=True)
class SyntheticUntrimmedConfig:
    """What a set of drawn untrimmed videos holds.

    Attributes:
        num_train: how many to train on.
        num_test: how many to test on.
        actions_per_video: fewest and most actions of a video.
        frames_per_action: fewest and most frames of an action.
        appearance: size, noise and factors of the drawings; its videos and length are not used.
    """

    num_train: int = 40
    num_test: int = 20
    actions_per_video: tuple[int, int] = (4, 7)
    frames_per_action: tuple[int, int] = (12, 36)
    appearance: SyntheticConfig = field(default_factory=SyntheticConfig)

    def __post_init__(self) -> None:
        for name in ("num_train", "num_test"):
            if getattr(self, name) < 1:
                raise StillmotionError(f"untrimmed {name} is {getattr(self, name)}; it must be at least 1")
        for name in ("actions_per_video", "frames_per_action"):
            least, most = getattr(self, name)
            if not 1 <= least <= most:
                raise StillmotionError(f"untrimmed {name} is {least} to {most}; write two rising numbers from 1 on")


class SyntheticUntrimmedDataset(ActionSegmentationDataset):
    """Drawn videos in which a shape moves in one way after another; nothing but the motion changes at a seam.

    Training and test videos of a seed are different ones. The same seed draws the same videos.
    """

    def __init__(self, config: SyntheticUntrimmedConfig, *, train: bool, seed: int = 0) -> None:
        self.config, self.seed, self.train = config, seed, train
        self._values = factor_values(config.appearance)
        self.actions = self._values[_ACTION_FACTOR]
        half, count = ("train", config.num_train) if train else ("test", config.num_test)
        self.video_ids = [f"untrimmed-{seed}-{half}-{i}" for i in range(count)]

    def __len__(self) -> int:
        return len(self.video_ids)

    def name(self, i: int) -> str:
        return self.video_ids[i]

    def frame_labels(self, i: int) -> np.ndarray:
        rng = self._rng(i, _LABEL_STREAM)
        count = int(rng.integers(self.config.actions_per_video[0], self.config.actions_per_video[1], endpoint=True))
        lengths = rng.integers(*self.config.frames_per_action, size=count, endpoint=True)
        # An action never follows itself: each is one to n - 1 further on than the one before.
        steps = rng.integers(1, len(self.actions), size=count)
        actions = (rng.integers(len(self.actions)) + np.cumsum(steps)) % len(self.actions)
        return np.repeat(actions, lengths)

    def open_video(self, i: int) -> "SyntheticUntrimmedVideo":
        rng = self._rng(i, _APPEARANCE_STREAM)
        values = {factor: names[rng.integers(len(names))] for factor, names in self._values.items()}
        actions = np.array(self.actions)[self.frame_labels(i)]
        return SyntheticUntrimmedVideo(self.config.appearance, values, actions, seed=int(rng.integers(2**32)))

    def _rng(self, i: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, purpose, int(self.train), i))


class SyntheticUntrimmedVideo(VideoReader):
    """A drawn video of motions by name, of one colour, shape, place and rhythm, which `seed` and `values` fix."""

    fps = SyntheticVideo.fps

    def __init__(self, appearance: SyntheticConfig, values: dict[str, str], actions: np.ndarray, *, seed: int) -> None:
        long = SyntheticConfig(**{**vars(appearance), "num_frames": len(actions)})
        self._actions = actions
        self._readers = {
            action: SyntheticVideo(long, values | {_ACTION_FACTOR: action}, np.random.default_rng(seed))
            for action in np.unique(actions).tolist()
        }

    def __len__(self) -> int:
        return len(self._actions)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        """The frames with these numbers, uint8 RGB (n, size, size, 3)."""
        numbers = np.asarray(indices)
        size = next(iter(self._readers.values()))._config.image_size
        shown = np.empty((len(numbers), size, size, 3), np.uint8)
        for action, video in self._readers.items():
            of_it = np.flatnonzero(self._actions[numbers] == action)
            if len(of_it):
                shown[of_it] = video.get_frames(numbers[of_it].tolist())
        return shown
