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

from stillmotion.data.keyframes import NO_ACTION, TRUTH, BoxRows, Key, KeyFrames, with_persons
from stillmotion.data.paths import Unlabelled
from stillmotion.data.video import Video
from stillmotion.errors import StillmotionError

GOES = ("sway", "bounce", "circle", "stand")
DOES = ("spin", "pulse", "blink")
CLASSES = dict(enumerate((*GOES, *DOES), 1))
_FPS = 8
_CELLS = np.array([[0.27, 0.27], [0.73, 0.27], [0.27, 0.73], [0.73, 0.73]])  # where actors stand, of the frame
_MISSED = 0.05  # of the actors by the detector
_GRAINS = 31
_DISPLACED = 0.05  # the detector's edges, of a box's sides


@dataclass(frozen=True)
class ActingConfig:
    """What a drawn set holds.

    Attributes:
        videos: to train on.
        tests: videos to test on.
        seconds: of a video; every second but the first and the last is a key frame.
        size: pixels a side.
        noise: standard deviation of the sensor noise, of 255.
    """

    videos: int = 160
    tests: int = 64
    seconds: int = 5
    size: int = 48
    noise: float = 6.0

    def __post_init__(self) -> None:
        for name, least in (("videos", 1), ("tests", 1), ("seconds", 3), ("size", 16)):
            if getattr(self, name) < least:
                raise StillmotionError(f"acting.{name} is {getattr(self, name)}; it must be at least {least}")


class ActingSet(Unlabelled):
    """Drawn key frames, as an `ActionSet`; the same seed gives the same videos.

    train: the videos to train on, with annotated and detected boxes; else those to test on, with detected ones.
    score, overlap: as in `AvaSet`.
    """

    def __init__(
        self, config: ActingConfig, *, seed: int = 0, train: bool = False, score: float = 0.9, overlap: float = 0.5
    ) -> None:
        self.config, self.actions = config, CLASSES
        self.missing: list[str] = []
        self._seed = (seed, int(train))
        count = config.videos if train else config.tests
        self._names = {f"{'train' if train else 'test'}-{i}": i for i in range(count)}
        truth: list[tuple[Key, np.ndarray, int, float]] = []
        persons: list[tuple[Key, np.ndarray, int, float]] = []
        for name, i in self._names.items():
            video, rng = self._video(i), np.random.default_rng((*self._seed, 2, i))
            for second in range(1, config.seconds - 1):
                key = (name, second)
                for actor in video.actors:
                    box = actor.box(second * _FPS, config.size)
                    truth += [(key, box, action, 1.0) for action in actor.actions]
                    moved = np.clip(box + _DISPLACED * np.tile(box[2:] - box[:2], 2) * rng.standard_normal(4), 0, 1)
                    sure = rng.uniform(0.2, 0.85) if rng.random() < _MISSED else rng.uniform(0.9, 1)
                    persons.append((key, moved, NO_ACTION, sure))
                corner, sides = rng.uniform(0, 0.7, 2), rng.uniform(0.15, 0.3, 2)
                persons.append((key, np.concatenate([corner, corner + sides]), NO_ACTION, rng.uniform(0.5, 1)))
        self.truth, found = _rows(truth), _rows(persons)
        found = found.where(found.scores >= score)
        self.frames = KeyFrames(with_persons(self.truth, found, least=overlap) if train else found, CLASSES)
        self.source = f"predicted boxes with a score of {score:g} or more"
        self.source = f"{TRUTH} and {self.source}" if train else self.source

    def __len__(self) -> int:
        return len(self.frames)

    def name(self, i: int) -> str:
        return self.frames.keys[i][0]

    def video(self, i: int) -> "ActingVideo":
        return self._video(self._names[self.name(i)])

    def place(self, i: int, video: Video) -> int:
        return self.frames.keys[i][1] * _FPS

    def _video(self, i: int) -> "ActingVideo":
        return ActingVideo(self.config, np.random.default_rng((*self._seed, 1, i)))


class ActingVideo:
    """One drawn video; `actors` are what is in it."""

    fps = float(_FPS)

    def __init__(self, config: ActingConfig, rng: np.random.Generator) -> None:
        self.config = config
        self._ground = rng.uniform(40, 110, 3)
        self._grain = int(rng.integers(_GRAINS))
        places = rng.permutation(len(_CELLS))[: rng.integers(2, 4)]
        self.actors = [Actor(_CELLS[place], rng) for place in places]

    def __len__(self) -> int:
        return self.config.seconds * _FPS

    def frames(self, indices: Sequence[int]) -> np.ndarray:
        size, subpixel = self.config.size, 4
        shown = np.empty((len(indices), size, size, 3), np.uint8)
        for target, t in zip(shown, indices, strict=True):
            canvas = np.empty((size, size, 3), np.float32)
            canvas[:] = self._ground
            for actor in self.actors:
                outline = np.round(actor.outline(t) * size * 2**subpixel).astype(np.int32)
                cv2.fillPoly(canvas, [outline], actor.colour(t).tolist(), cv2.LINE_8, subpixel)
            grain = _grain(size)[(self._grain + 7 * t) % _GRAINS]
            target[:] = np.clip(canvas + self.config.noise * grain, 0, 255)
        return shown


class Actor:
    """A coloured outline at a place (x, y), in shares of the frame; time is in frames."""

    def __init__(self, place: np.ndarray, rng: np.random.Generator) -> None:
        self._goes, self._does = rng.choice(GOES), rng.choice(DOES)
        corners = int(rng.integers(3, 7))
        angles = 2 * math.pi * np.arange(corners) / corners
        self._shape = np.stack([np.cos(angles), 0.6 * np.sin(angles)], 1) * rng.uniform(0.1, 0.14)
        self._place = place + rng.uniform(-0.04, 0.04, 2)
        self._colour = rng.uniform(130, 255, 3)
        self._angle, self._phase, self._beat = rng.uniform(0, 2 * math.pi, 3)
        self._pace, self._tempo = 2 * math.pi / rng.uniform(7, 10, 2)
        self._sense = rng.choice([-1, 1])

    @property
    def actions(self) -> tuple[int, int]:
        """The numbers of what it does."""
        names = list(CLASSES.values())
        return 1 + names.index(self._goes), 1 + names.index(self._does)

    def outline(self, t: int) -> np.ndarray:
        """Its corners (n, 2) at a time."""
        way, beat = self._pace * t * self._sense + self._phase, self._tempo * t + self._beat
        step = 0.09 * np.array([math.cos(way), math.sin(way)])
        step *= {"sway": (1, 0), "bounce": (0, 1), "circle": (1, 1), "stand": (0, 0)}[self._goes]
        angle = self._angle + (0.5 * self._sense * beat if self._does == "spin" else 0)
        turned = self._shape @ np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        return self._place + step + turned * (1 + 0.4 * math.sin(beat) if self._does == "pulse" else 1)

    def colour(self, t: int) -> np.ndarray:
        """Its colour (3,) at a time."""
        return self._colour * (0.75 + 0.25 * math.sin(self._tempo * t + self._beat) if self._does == "blink" else 1)

    def box(self, t: int, size: int) -> np.ndarray:
        """The pixels that it covers at a time in a frame of this size, as shares of it."""
        outline = np.round(self.outline(t) * size)  # numbers of pixels
        return np.clip(np.concatenate([outline.min(0), outline.max(0) + 1]) / size, 0, 1)


@cache
def _grain(size: int) -> np.ndarray:
    """Sensor noise, drawn once: a frame takes one of these pictures."""
    return np.random.default_rng(0).standard_normal((_GRAINS, size, size, 3), np.float32)


def _rows(rows: Sequence[tuple[Key, np.ndarray, int, float]]) -> BoxRows:
    keys, boxes, actions, scores = zip(*rows, strict=True)
    return BoxRows(list(keys), np.stack(boxes), np.array(actions), np.array(scores))
