"""Synthetic videos with four known factors, two of which can be confounded (BOD-VCL, §5.5).

    color       background hue                 simple static
    shape       outline of the foreground      complex static
    brightness  how the background's light changes   simple dynamic
    trajectory  how the foreground moves       complex dynamic

`CLASSES` holds what videos take by default, the first of each; `MORE` what can be asked for by name.
Everything else (exact hue, size, foreground colour, start, speed, amplitude, noise) varies from video to video and is
no label. Videos are drawn when they are asked for, and only the frames that are asked for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import cv2
import numpy as np

from stillmotion.errors import StillmotionError

CLASSES = {
    "color": ["red", "green", "blue", "violet"],
    "shape": ["circle", "triangle", "square", "star"],
    "brightness": ["brightening", "darkening", "pulsing", "flickering"],
    "trajectory": ["horizontal", "vertical", "circling", "zooming"],
}
FACTORS = tuple(CLASSES)
# The paper's other values: a pentagon; turning about a point beside it; going straight on, in any direction.
MORE = {"shape": ["pentagon"], "trajectory": ["rotating", "linear"]}


@dataclass(frozen=True)
class SyntheticConfig:
    """What a synthetic set holds.

    Attributes:
        videos: how many.
        length: frames of a video.
        size: pixels a side.
        values: how many values each factor takes, 2 to 4: color, shape, brightness, trajectory.
        named: the values of a factor by name, in place of its first ones, such as shape=pentagon,circle.
        confound: pairs leader=follower; the follower takes the leader's value (modulo its own number of values).
        strength: how often it does so, 0 to 1; else it is drawn freely.
        shape_scale: the foreground's radius as a share of the frame's side.
        noise: standard deviation of the sensor noise, of 255.
    """

    videos: int = 2048
    length: int = 32
    size: int = 32
    values: tuple[int, int, int, int] = (4, 4, 2, 4)
    confound: tuple[str, ...] = ()
    strength: float = 0.95
    shape_scale: float = 0.27
    noise: float = 6.0
    named: tuple[str, ...] = ()


def classes_of(config: SyntheticConfig) -> dict[str, list[str]]:
    """The values that each factor takes."""
    for factor, count in zip(FACTORS, config.values, strict=True):
        if not 2 <= count <= len(CLASSES[factor]):
            raise StillmotionError(f"{factor} has {count} values; choose 2 to {len(CLASSES[factor])}")
    found = {factor: CLASSES[factor][:count] for factor, count in zip(FACTORS, config.values, strict=True)}
    for text in config.named:
        factor, _, names = text.partition("=")
        if factor not in FACTORS:
            raise StillmotionError(f"cannot name values by {text!r}; write one of {', '.join(FACTORS)}, = and names")
        known, asked = [*CLASSES[factor], *MORE.get(factor, [])], names.split(",")
        if len(set(asked)) < max(2, len(asked)) or not set(asked) <= set(known):
            raise StillmotionError(f"{factor} cannot be {names!r}; name two or more of {', '.join(known)}")
        found[factor] = asked
    return found


class SyntheticSet:
    """A data set of drawn videos; the same seed gives the same videos, whatever is asked for first."""

    def __init__(self, config: SyntheticConfig, *, seed: int = 0) -> None:
        for name in ("videos", "length", "size"):
            if getattr(config, name) < 1:
                raise StillmotionError(f"synthetic {name} is {getattr(config, name)}; it must be at least 1")
        if not 0 <= config.strength <= 1:
            raise StillmotionError(f"confounding strength is {config.strength}; it lies between 0 and 1")
        self.config = config
        self.seed = seed
        self.classes = classes_of(config)
        rng = np.random.default_rng((seed, 1))
        self.labels = {f: rng.integers(len(c), size=config.videos) for f, c in self.classes.items()}
        for pair in config.confound:
            leader, _, follower = pair.partition("=")
            if leader not in FACTORS or follower not in FACTORS or leader == follower:
                raise StillmotionError(f"cannot confound {pair!r}; write two of {', '.join(FACTORS)} as a=b")
            tied = rng.random(config.videos) < config.strength
            copied = self.labels[leader] % len(self.classes[follower])
            self.labels[follower] = np.where(tied, copied, self.labels[follower])

    def __len__(self) -> int:
        return self.config.videos

    def name(self, i: int) -> str:
        return f"synthetic-{self.seed}-{i}"

    def video(self, i: int) -> "SyntheticVideo":
        values = {f: self.classes[f][self.labels[f][i]] for f in FACTORS}
        return SyntheticVideo(self.config, values, np.random.default_rng((self.seed, 2, i)))


class SyntheticVideo:
    """One drawn video: its factors' values are given by name, the rest is drawn from `rng` once."""

    fps = 8.0

    def __init__(self, config: SyntheticConfig, values: dict[str, str], rng: np.random.Generator) -> None:
        self._config, self._values = config, values
        hue = (CLASSES["color"].index(values["color"]) * 0.25 + rng.uniform(-0.05, 0.05)) % 1.0
        self._background = _rgb(hue, rng.uniform(0.6, 0.9), 1.0)
        self._foreground = np.full(3, 225.0) + rng.uniform(-5, 5, 3)
        self._radius = config.size * config.shape_scale * rng.uniform(0.8, 1.2)
        self._turned = _rotation(rng.uniform(-math.pi, math.pi))
        self._stretch = math.exp(rng.uniform(-0.35, 0.35))
        self._level, self._depth = rng.uniform(0.45, 0.6), rng.uniform(0.2, 0.3)
        self._light_phase, self._phase = rng.uniform(0, 2 * math.pi, 2)
        self._period = rng.uniform(7.0, 11.0)
        self._reach = config.size * rng.uniform(0.16, 0.24)
        self._centre = config.size * (0.5 + rng.uniform(-0.12, 0.12, 2))
        self._sense = rng.choice([-1.0, 1.0])
        self._grain = int(rng.integers(_GRAINS))
        self._course = rng.uniform(0, 2 * math.pi)

    def __len__(self) -> int:
        return self._config.length

    def frames(self, indices: Sequence[int]) -> np.ndarray:
        """The frames with these numbers, uint8 RGB (n, size, size, 3)."""
        times = np.asarray(indices)
        size = self._config.size
        light = np.array([self._light(t) for t in times], np.float32)
        canvas = np.empty((len(times), size, size, 3), np.float32)
        canvas[:] = light[:, None, None, None] * self._background
        for frame, t in zip(canvas, times, strict=True):
            self._fill(frame, t, self._foreground.tolist())
        grain = _grain(size)
        canvas += self._config.noise * grain[(self._grain + 7 * times) % len(grain)]
        return np.clip(canvas, 0, 255).astype(np.uint8)

    def masks(self, indices: Sequence[int]) -> np.ndarray:
        """Where the foreground is in the frames with these numbers: uint8 (n, size, size), 1 is foreground."""
        found = np.zeros((len(indices), self._config.size, self._config.size), np.uint8)
        for mask, t in zip(found, indices, strict=True):
            self._fill(mask, t, 1)
        return found

    def _fill(self, picture: np.ndarray, t: int, value: Any) -> None:
        outline = np.round(self._outline(t) * 2**_SUBPIXEL).astype(np.int32)
        cv2.fillPoly(picture, [outline], value, cv2.LINE_8, _SUBPIXEL)

    def _light(self, t: int) -> float:
        """The background's light at time t: a trend over the whole video, or a rhythm."""
        kind = self._values["brightness"]
        if kind in ("brightening", "darkening"):
            course = 2 * t / max(self._config.length - 1, 1) - 1
            return self._level + self._depth * (course if kind == "brightening" else -course)
        period = 12.0 if kind == "pulsing" else 4.0
        return self._level + self._depth * math.sin(2 * math.pi * t / period + self._light_phase)

    def _outline(self, t: int) -> np.ndarray:
        turn = 2 * math.pi * t / self._period * self._sense + self._phase
        offset, radius, turned = np.zeros(2), self._radius, self._turned
        kind = self._values["trajectory"]
        if kind == "horizontal":
            offset[0] = math.sin(turn)
        elif kind == "vertical":
            offset[1] = math.sin(turn)
        elif kind in ("circling", "rotating"):
            offset[:] = math.cos(turn), math.sin(turn)
            turned = turned @ _rotation(turn) if kind == "rotating" else turned
        elif kind == "linear":
            # To and fro, about as fast as the others go round: speed alone does not tell them apart.
            offset[:] = math.cos(self._course), math.sin(self._course)
            offset *= 1.25 * _zigzag(turn / (2 * math.pi))
        else:
            radius *= 1 + 0.45 * math.sin(turn)
        points = _SHAPES[self._values["shape"]] * [self._stretch, 1 / self._stretch]
        return radius * points @ turned + self._centre + offset * self._reach


def _rotation(angle: float) -> np.ndarray:
    sin, cos = math.sin(angle), math.cos(angle)
    return np.array([[cos, sin], [-sin, cos]])


def _zigzag(turns: float) -> float:
    """From -1 to 1 and back in a turn, each way at one speed."""
    return 4 * abs(turns % 1 - 0.5) - 1


def _polygon(corners: int, *, inner: float = 1.0) -> np.ndarray:
    """A regular polygon of unit circumradius; every second corner at `inner` makes a star."""
    angles = 2 * math.pi * np.arange(corners) / corners - math.pi / 2
    radii = np.where(np.arange(corners) % 2, inner, 1.0)
    return np.stack([np.cos(angles), np.sin(angles)], 1) * radii[:, None]


_SHAPES = {
    "circle": _polygon(24) * 0.9,
    "triangle": _polygon(3) * 1.25,
    "square": _polygon(4) * 1.15,
    "star": _polygon(8, inner=0.4) * 1.3,
    "pentagon": _polygon(5) * 1.1,
}


_GRAINS = 97
_SUBPIXEL = 4  # binary digits of a corner's place behind the point


@cache
def _grain(size: int) -> np.ndarray:
    """Sensor noise, drawn once: a frame takes one of these pictures."""
    return np.random.default_rng(0).standard_normal((_GRAINS, size, size, 3), np.float32)


def _rgb(hue: float, saturation: float, value: float) -> np.ndarray:
    hsv = np.array([[[hue * 360, saturation, value]]], np.float32)
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)[0, 0] * 255
