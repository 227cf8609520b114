"""Drawn actors who each do two things at a time: a stand-in for AVA that needs no download.

    where the actor goes     sway, bounce, circle, stand
    what the actor does      spin, pulse, blink

Every video has two or three actors of random colour and shape on a plain background; what they do can only be seen by
how they change. A person detector is played by the true boxes, a little displaced and sometimes missed, and false ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np

from stillmotion.data.datasets.ava import (
    ANNOTATED_BOXES,
    NO_ACTION_ID,
    ActionDetectionDataset,
    BoxTable,
    KeyframeId,
    KeyframeIndex,
    add_detected_boxes,
)
from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import StillmotionError

PATH_ACTIONS = ("sway", "bounce", "circle", "stand")
POSE_ACTIONS = ("spin", "pulse", "blink")
SYNTHETIC_ACTIONS = dict(enumerate((*PATH_ACTIONS, *POSE_ACTIONS), 1))
_FPS = 8
_START_POSITIONS = np.array(
    [[0.27, 0.27], [0.73, 0.27], [0.27, 0.73], [0.73, 0.73]]
)  # where actors stand, of the frame
_MISS_RATE = 0.05  # of the actors by the detector
_NUM_NOISE_FRAMES = 31
_BOX_JITTER = 0.05  # the detector's edges, of a box's sides


@dataclass(frozen=True)
class SyntheticAVAConfig:
    """What a drawn set holds.

    Attributes:
        num_train: to train on.
        num_test: videos to test on.
        seconds: of a video; every second but the first and the last is a key frame.
        image_size: pixels a side.
        noise_std: standard deviation of the sensor noise, of 255.
    """

    num_train: int = 160
    num_test: int = 64
    seconds: int = 5
    image_size: int = 48
    noise_std: float = 6.0

    def __post_init__(self) -> None:
        for name, least in (("num_train", 1), ("num_test", 1), ("seconds", 3), ("image_size", 16)):
            if getattr(self, name) < least:
                raise StillmotionError(f"acting.{name} is {getattr(self, name)}; it must be at least {least}")


class SyntheticAVADataset(ActionDetectionDataset):
    """Drawn key frames, as an `ActionSet`; the same seed gives the same videos.

    train: the videos to train on, with annotated and detected boxes; else those to test on, with detected ones.
    min_score, min_iou: as in `AvaSet`.
    """

    def __init__(
        self,
        config: SyntheticAVAConfig,
        *,
        seed: int = 0,
        train: bool = False,
        min_score: float = 0.9,
        min_iou: float = 0.5,
    ) -> None:
        self.config, self.actions = config, SYNTHETIC_ACTIONS
        self._seed = (seed, int(train))
        count = config.num_train if train else config.num_test
        self._names = {f"{'train' if train else 'test'}-{i}": i for i in range(count)}
        truth: list[tuple[KeyframeId, np.ndarray, int, float]] = []
        persons: list[tuple[KeyframeId, np.ndarray, int, float]] = []
        for name, i in self._names.items():
            video, rng = self._build_video(i), np.random.default_rng((*self._seed, 2, i))
            for second in range(1, config.seconds - 1):
                key = (name, second)
                for actor in video.actors:
                    box = actor.box(second * _FPS, config.image_size)
                    truth += [(key, box, action, 1.0) for action in actor.actions]
                    moved = np.clip(box + _BOX_JITTER * np.tile(box[2:] - box[:2], 2) * rng.standard_normal(4), 0, 1)
                    sure = rng.uniform(0.2, 0.85) if rng.random() < _MISS_RATE else rng.uniform(0.9, 1)
                    persons.append((key, moved, NO_ACTION_ID, sure))
                corner, sides = rng.uniform(0, 0.7, 2), rng.uniform(0.15, 0.3, 2)
                persons.append((key, np.concatenate([corner, corner + sides]), NO_ACTION_ID, rng.uniform(0.5, 1)))
        self.annotated_boxes, found = _build_box_table(truth), _build_box_table(persons)
        found = found.select(found.scores >= min_score)
        self.keyframes = KeyframeIndex(
            add_detected_boxes(self.annotated_boxes, found, min_iou=min_iou) if train else found, SYNTHETIC_ACTIONS
        )
        self.box_source = f"predicted boxes with a score of {min_score:g} or more"
        self.box_source = f"{ANNOTATED_BOXES} and {self.box_source}" if train else self.box_source

    def __len__(self) -> int:
        return len(self.keyframes)

    def name(self, i: int) -> str:
        return self.keyframes.keyframes[i][0]

    def open_video(self, i: int) -> "SyntheticAVAVideo":
        return self._build_video(self._names[self.name(i)])

    def keyframe_index(self, i: int, video: VideoReader) -> int:
        return self.keyframes.keyframes[i][1] * _FPS

    def _build_video(self, i: int) -> "SyntheticAVAVideo":
        return SyntheticAVAVideo(self.config, np.random.default_rng((*self._seed, 1, i)))


class SyntheticAVAVideo(VideoReader):
    """One drawn video; `actors` are what is in it."""

    fps = float(_FPS)

    def __init__(self, config: SyntheticAVAConfig, rng: np.random.Generator) -> None:
        self.config = config
        self._background = rng.uniform(40, 110, 3)
        self._noise_index = int(rng.integers(_NUM_NOISE_FRAMES))
        places = rng.permutation(len(_START_POSITIONS))[: rng.integers(2, 4)]
        self.actors = [SyntheticActor(_START_POSITIONS[place], rng) for place in places]

    def __len__(self) -> int:
        return self.config.seconds * _FPS

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        size, subpixel = self.config.image_size, 4
        shown = np.empty((len(indices), size, size, 3), np.uint8)
        for target, t in zip(shown, indices, strict=True):
            canvas = np.empty((size, size, 3), np.float32)
            canvas[:] = self._background
            for actor in self.actors:
                outline = np.round(actor.outline(t) * size * 2**subpixel).astype(np.int32)
                cv2.fillPoly(canvas, [outline], actor.color(t).tolist(), cv2.LINE_8, subpixel)
            grain = _sensor_noise(size)[(self._noise_index + 7 * t) % _NUM_NOISE_FRAMES]
            target[:] = np.clip(canvas + self.config.noise_std * grain, 0, 255)
        return shown


class SyntheticActor:
    """A coloured outline at a place (x, y), in shares of the frame; time is in frames."""

    def __init__(self, position: np.ndarray, rng: np.random.Generator) -> None:
        self._path_action, self._pose_action = rng.choice(PATH_ACTIONS), rng.choice(POSE_ACTIONS)
        corners = int(rng.integers(3, 7))
        angles = 2 * math.pi * np.arange(corners) / corners
        self._shape = np.stack([np.cos(angles), 0.6 * np.sin(angles)], 1) * rng.uniform(0.1, 0.14)
        self._position = position + rng.uniform(-0.04, 0.04, 2)
        self._color = rng.uniform(130, 255, 3)
        self._angle, self._phase, self._pose_phase = rng.uniform(0, 2 * math.pi, 3)
        self._path_speed, self._pose_speed = 2 * math.pi / rng.uniform(7, 10, 2)
        self._direction = rng.choice([-1, 1])

    @property
    def actions(self) -> tuple[int, int]:
        """The numbers of what it does."""
        names = list(SYNTHETIC_ACTIONS.values())
        return 1 + names.index(self._path_action), 1 + names.index(self._pose_action)

    def outline(self, t: int) -> np.ndarray:
        """Its corners (n, 2) at a time."""
        way, beat = self._path_speed * t * self._direction + self._phase, self._pose_speed * t + self._pose_phase
        step = 0.09 * np.array([math.cos(way), math.sin(way)])
        step *= {"sway": (1, 0), "bounce": (0, 1), "circle": (1, 1), "stand": (0, 0)}[self._path_action]
        angle = self._angle + (0.5 * self._direction * beat if self._pose_action == "spin" else 0)
        turned = self._shape @ np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        return self._position + step + turned * (1 + 0.4 * math.sin(beat) if self._pose_action == "pulse" else 1)

    def color(self, t: int) -> np.ndarray:
        """Its colour (3,) at a time."""
        return self._color * (
            0.75 + 0.25 * math.sin(self._pose_speed * t + self._pose_phase) if self._pose_action == "blink" else 1
        )

    def box(self, t: int, image_size: int) -> np.ndarray:
        """The pixels that it covers at a time in a frame of this size, as shares of it."""
        outline = np.round(self.outline(t) * image_size)  # numbers of pixels
        return np.clip(np.concatenate([outline.min(0), outline.max(0) + 1]) / image_size, 0, 1)


@cache
def _sensor_noise(size: int) -> np.ndarray:
    """Sensor noise, drawn once: a frame takes one of these pictures."""
    return np.random.default_rng(0).standard_normal((_NUM_NOISE_FRAMES, size, size, 3), np.float32)


def _build_box_table(rows: Sequence[tuple[KeyframeId, np.ndarray, int, float]]) -> BoxTable:
    keys, boxes, actions, scores = zip(*rows, strict=True)
    return BoxTable(list(keys), np.stack(boxes), np.array(actions), np.array(scores))
