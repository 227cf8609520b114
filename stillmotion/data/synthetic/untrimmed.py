"""Synthetic videos of several actions in a row."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stillmotion.data.datasets.base import ActionSegmentationDataset
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticVideo, factor_values
from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import StillmotionError

_ACTION_FACTOR = "trajectory"
_LABEL_STREAM, _APPEARANCE_STREAM = 3, 4  # random streams of a video


@dataclass(frozen=True)
class SyntheticUntrimmedConfig:
    """Options of synthetic untrimmed videos.

    Attributes:
        num_train: Number of training videos.
        num_test: Number of test videos.
        actions_per_video: Minimum and maximum number of actions in a video.
        frames_per_action: Minimum and maximum number of frames of an action.
        appearance: Appearance of the videos: frame size, noise and factors. Its numbers of videos and frames are
            ignored.
    """

    num_train: int = 40
    num_test: int = 20
    actions_per_video: tuple[int, int] = (4, 7)
    frames_per_action: tuple[int, int] = (12, 36)
    appearance: SyntheticConfig = field(default_factory=SyntheticConfig)

    def __post_init__(self) -> None:
        for name in ("num_train", "num_test"):
            if getattr(self, name) < 1:
                raise StillmotionError(f"synthetic.{name} is {getattr(self, name)}; must be at least 1")
        for name in ("actions_per_video", "frames_per_action"):
            minimum, maximum = getattr(self, name)
            if not 1 <= minimum <= maximum:
                raise StillmotionError(
                    f"synthetic.{name} is {minimum} to {maximum}; must be a range that starts at 1 or more"
                )


class SyntheticUntrimmedDataset(ActionSegmentationDataset):
    """Synthetic videos of a shape whose motion changes; nothing else changes between actions.

    Args:
        config: Options.
        train: Training or test videos, which differ.
        seed: Seed, which determines the videos.
    """

    def __init__(self, config: SyntheticUntrimmedConfig, *, train: bool, seed: int = 0) -> None:
        self.config, self.seed, self.train = config, seed, train
        self._values = factor_values(config.appearance)
        self.actions = self._values[_ACTION_FACTOR]
        split, count = ("train", config.num_train) if train else ("test", config.num_test)
        self.video_ids = [f"untrimmed-{seed}-{split}-{i}" for i in range(count)]

    def name(self, i: int) -> str:
        return self.video_ids[i]

    def frame_labels(self, i: int) -> np.ndarray:
        rng = self._rng(i, _LABEL_STREAM)
        (min_actions, max_actions), (shortest, longest) = self.config.actions_per_video, self.config.frames_per_action
        count = int(rng.integers(min_actions, max_actions, endpoint=True))
        lengths = rng.integers(shortest, longest, size=count, endpoint=True)
        # An action never follows itself: each is 1 to n - 1 steps after the previous one.
        steps = rng.integers(1, len(self.actions), size=count)
        actions = (rng.integers(len(self.actions)) + np.cumsum(steps)) % len(self.actions)
        return np.repeat(actions, lengths)

    def open_video(self, i: int) -> "SyntheticUntrimmedVideo":
        rng = self._rng(i, _APPEARANCE_STREAM)
        values = {factor: names[rng.integers(len(names))] for factor, names in self._values.items()}
        actions = np.array(self.actions)[self.frame_labels(i)]
        return SyntheticUntrimmedVideo(self.config.appearance, values, actions, seed=int(rng.integers(2**32)))

    def _rng(self, i: int, stream: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, stream, int(self.train), i))


class SyntheticUntrimmedVideo(VideoReader):
    """A synthetic video of several motions, with one color, shape, position and rhythm.

    Args:
        appearance: Frame size, noise and factors.
        values: Name of the value of each factor.
        actions: Name of the motion of each frame, (T,).
        seed: Seed of everything else.
    """

    fps = SyntheticVideo.fps

    def __init__(self, appearance: SyntheticConfig, values: dict[str, str], actions: np.ndarray, *, seed: int) -> None:
        config = replace(appearance, num_frames=len(actions))
        self._actions, self._image_size = actions, config.image_size
        self._readers = {
            action: SyntheticVideo(config, values | {_ACTION_FACTOR: action}, np.random.default_rng(seed))
            for action in np.unique(actions).tolist()
        }

    def __len__(self) -> int:
        return len(self._actions)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        times = np.asarray(indices)
        frames = np.empty((len(times), self._image_size, self._image_size, 3), np.uint8)
        for action, video in self._readers.items():
            selected = np.flatnonzero(self._actions[times] == action)
            if len(selected):
                frames[selected] = video.get_frames(times[selected].tolist())
        return frames
