"""Synthetic stand-in for AVA: moving actors with boxes and actions.

    path of the actor     sway, bounce, circle, stand
    pose of the actor     spin, pulse, blink

Every video has two or three actors of random color and shape on a plain background; their actions can only be seen by
how they change. Detected boxes are the true ones with jitter, some of low score, and false ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
from stillmotion.data.synthetic.factors import sensor_noise
from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import StillmotionError

PATH_ACTIONS = ("sway", "bounce", "circle", "stand")
POSE_ACTIONS = ("spin", "pulse", "blink")
SYNTHETIC_ACTIONS = dict(enumerate((*PATH_ACTIONS, *POSE_ACTIONS), 1))
_FPS = 8
_START_POSITIONS = np.array([[0.27, 0.27], [0.73, 0.27], [0.27, 0.73], [0.73, 0.73]])  # fractions of the frame
_MISS_RATE = 0.05  # fraction of the actors that are detected with a low score
_NUM_NOISE_FRAMES = 31
_BOX_JITTER = 0.05  # standard deviation of the detected edges, as a fraction of the box
_SUBPIXEL = 4  # fractional bits of coordinates


@dataclass(frozen=True)
class SyntheticAVAConfig:
    """Options of the synthetic stand-in for AVA.

    Attributes:
        num_train: Number of training videos.
        num_test: Number of test videos.
        seconds: Length of each video in seconds. Every second except the first and the last is a keyframe.
        image_size: Height and width of the frames, in pixels.
        noise_std: Standard deviation of the pixel noise, on the scale 0 to 255.
    """

    num_train: int = 160
    num_test: int = 64
    seconds: int = 5
    image_size: int = 48
    noise_std: float = 6.0

    def __post_init__(self) -> None:
        for name, minimum in (("num_train", 1), ("num_test", 1), ("seconds", 3), ("image_size", 16)):
            if getattr(self, name) < minimum:
                raise StillmotionError(f"synthetic.{name} is {getattr(self, name)}; must be at least {minimum}")


class SyntheticAVADataset(ActionDetectionDataset):
    """Keyframes of synthetic videos with boxes and actions; the seed determines the videos.

    Args:
        config: Options.
        seed: Seed.
        train: Training videos with annotated and detected boxes, or test videos with detected boxes.
        min_score: Minimum score of a detected box.
        min_iou: Minimum overlap of a detected box with an annotated one to take over its actions.
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
        annotated: list[tuple[KeyframeId, np.ndarray, int, float]] = []
        detected: list[tuple[KeyframeId, np.ndarray, int, float]] = []
        for name, i in self._names.items():
            video, rng = self._build_video(i), np.random.default_rng((*self._seed, 2, i))
            for second in range(1, config.seconds - 1):
                key = (name, second)
                for actor in video.actors:
                    box = actor.box(second * _FPS, config.image_size)
                    annotated += [(key, box, action, 1.0) for action in actor.actions]
                    jittered = np.clip(box + _BOX_JITTER * np.tile(box[2:] - box[:2], 2) * rng.standard_normal(4), 0, 1)
                    score = rng.uniform(0.2, 0.85) if rng.random() < _MISS_RATE else rng.uniform(0.9, 1)
                    detected.append((key, jittered, NO_ACTION_ID, score))
                corner, sides = rng.uniform(0, 0.7, 2), rng.uniform(0.15, 0.3, 2)
                detected.append((key, np.concatenate([corner, corner + sides]), NO_ACTION_ID, rng.uniform(0.5, 1)))
        self.annotated_boxes, boxes = _build_box_table(annotated), _build_box_table(detected)
        boxes = boxes.select(boxes.scores >= min_score)
        if train:
            boxes = add_detected_boxes(self.annotated_boxes, boxes, min_iou=min_iou)
        self.keyframes = KeyframeIndex(boxes, SYNTHETIC_ACTIONS)
        self.box_source = f"predicted boxes with a score of {min_score:g} or more"
        self.box_source = f"{ANNOTATED_BOXES} and {self.box_source}" if train else self.box_source

    def open_video(self, i: int) -> "SyntheticAVAVideo":
        return self._build_video(self._names[self.name(i)])

    def keyframe_index(self, i: int, video: VideoReader) -> int:
        return self.keyframes.keyframes[i][1] * _FPS

    def _build_video(self, i: int) -> "SyntheticAVAVideo":
        return SyntheticAVAVideo(self.config, np.random.default_rng((*self._seed, 1, i)))


class SyntheticAVAVideo(VideoReader):
    """A synthetic video.

    Args:
        config: Options.
        rng: Random generator.

    Attributes:
        actors: The actors of the video.
    """

    fps = float(_FPS)

    def __init__(self, config: SyntheticAVAConfig, rng: np.random.Generator) -> None:
        self.config = config
        self._background = rng.uniform(40, 110, 3)
        self._noise_index = int(rng.integers(_NUM_NOISE_FRAMES))
        starts = rng.permutation(len(_START_POSITIONS))[: rng.integers(2, 4)]
        self.actors = [SyntheticActor(_START_POSITIONS[start], rng) for start in starts]

    def __len__(self) -> int:
        return self.config.seconds * _FPS

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        size = self.config.image_size
        noise = sensor_noise(size, _NUM_NOISE_FRAMES)
        frames = np.empty((len(indices), size, size, 3), np.uint8)
        for frame, t in zip(frames, indices, strict=True):
            canvas = np.empty((size, size, 3), np.float32)
            canvas[:] = self._background
            for actor in self.actors:
                outline = np.round(actor.outline(t) * size * 2**_SUBPIXEL).astype(np.int32)
                cv2.fillPoly(canvas, [outline], actor.color(t).tolist(), cv2.LINE_8, _SUBPIXEL)
            frame_noise = noise[(self._noise_index + 7 * t) % _NUM_NOISE_FRAMES]
            frame[:] = np.clip(canvas + self.config.noise_std * frame_noise, 0, 255)
        return frames


class SyntheticActor:
    """A colored polygon that moves; positions are fractions of the frame, time is in frames.

    Args:
        position: Start (x, y).
        rng: Random generator.
    """

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
        """Ids of its path and pose actions."""
        names = list(SYNTHETIC_ACTIONS.values())
        return 1 + names.index(self._path_action), 1 + names.index(self._pose_action)

    def outline(self, t: int) -> np.ndarray:
        """Corners (n, 2) at time t."""
        path_angle, pose_angle = (
            self._path_speed * t * self._direction + self._phase,
            self._pose_speed * t + self._pose_phase,
        )
        step = 0.09 * np.array([math.cos(path_angle), math.sin(path_angle)])
        step *= {"sway": (1, 0), "bounce": (0, 1), "circle": (1, 1), "stand": (0, 0)}[self._path_action]
        angle = self._angle + (0.5 * self._direction * pose_angle if self._pose_action == "spin" else 0)
        rotated = self._shape @ np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        return self._position + step + rotated * (1 + 0.4 * math.sin(pose_angle) if self._pose_action == "pulse" else 1)

    def color(self, t: int) -> np.ndarray:
        """Color (3,) at time t."""
        blinks = self._pose_action == "blink"
        return self._color * (0.75 + 0.25 * math.sin(self._pose_speed * t + self._pose_phase) if blinks else 1)

    def box(self, t: int, image_size: int) -> np.ndarray:
        """Bounding box of its pixels, as fractions of the frame.

        Args:
            t: Time.
            image_size: Height and width of the frame, in pixels.
        """
        outline = np.round(self.outline(t) * image_size)
        return np.clip(np.concatenate([outline.min(0), outline.max(0) + 1]) / image_size, 0, 1)


def _build_box_table(rows: Sequence[tuple[KeyframeId, np.ndarray, int, float]]) -> BoxTable:
    keys, boxes, actions, scores = zip(*rows, strict=True)
    return BoxTable(list(keys), np.stack(boxes), np.array(actions), np.array(scores))
