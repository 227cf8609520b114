"""Synthetic videos with four labeled factors, two of which can be confounded (BOD-VCL, §5.5).

    color       background hue                   simple static
    shape       outline of the foreground        complex static
    brightness  change of the background light   simple dynamic
    trajectory  motion of the foreground         complex dynamic

Videos take the first values of `FACTOR_VALUES`; those of `EXTRA_FACTOR_VALUES` are available by name. Everything else
(exact hue, size, foreground color, start, speed, amplitude, noise) varies from video to video and is no label. Frames
are rendered when they are read.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.davis import write_mask
from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import StillmotionError

FACTOR_VALUES = {
    "color": ["red", "green", "blue", "violet"],
    "shape": ["circle", "triangle", "square", "star"],
    "brightness": ["brightening", "darkening", "pulsing", "flickering"],
    "trajectory": ["horizontal", "vertical", "circling", "zooming"],
}
FACTORS = tuple(FACTOR_VALUES)
# Further values of the paper: a pentagon; rotation about a point beside it; straight motion in any direction.
EXTRA_FACTOR_VALUES = {"shape": ["pentagon"], "trajectory": ["rotating", "linear"]}


@dataclass(frozen=True)
class SyntheticConfig:
    """Options of synthetic videos with labeled factors.

    Attributes:
        num_videos: Number of synthetic videos.
        num_frames: Number of frames in each video.
        image_size: Height and width of the frames, in pixels.
        values_per_factor: Number of values (2 to 4) of each factor, in the order color, shape, brightness, trajectory.
        confound: Confounded factors as leader=follower, e.g. color=trajectory: the follower copies the value of the
            leader.
        confound_strength: Probability (0 to 1) that a confounded factor copies its leader. Otherwise its value is
            random.
        shape_scale: Radius of the foreground shape, as a fraction of the frame size.
        noise_std: Standard deviation of the pixel noise, on the scale 0 to 255.
        value_names: Values that a factor takes, by name, e.g. shape=pentagon,circle. Replaces values-per-factor for
            that factor.
    """

    num_videos: int = 2048
    num_frames: int = 32
    image_size: int = 32
    values_per_factor: tuple[int, int, int, int] = (4, 4, 2, 4)
    confound: tuple[str, ...] = ()
    confound_strength: float = 0.95
    shape_scale: float = 0.27
    noise_std: float = 6.0
    value_names: tuple[str, ...] = ()


def factor_values(config: SyntheticConfig) -> dict[str, list[str]]:
    """Names of the values of each factor.

    Raises:
        StillmotionError: If the options are not valid.
    """
    for factor, count in zip(FACTORS, config.values_per_factor, strict=True):
        if not 2 <= count <= len(FACTOR_VALUES[factor]):
            raise StillmotionError(f"{factor} has {count} values; must be 2 to {len(FACTOR_VALUES[factor])}")
    values = {
        factor: FACTOR_VALUES[factor][:count] for factor, count in zip(FACTORS, config.values_per_factor, strict=True)
    }
    for text in config.value_names:
        factor, _, names = text.partition("=")
        if factor not in FACTORS:
            raise StillmotionError(
                f"value_names {text!r} is invalid; write factor=value,value with a factor of {', '.join(FACTORS)}"
            )
        known, chosen = [*FACTOR_VALUES[factor], *EXTRA_FACTOR_VALUES.get(factor, [])], names.split(",")
        if len(set(chosen)) < max(2, len(chosen)) or not set(chosen) <= set(known):
            raise StillmotionError(
                f"{factor}: unknown or too few values {names!r}; choose at least two of {', '.join(known)}"
            )
        values[factor] = chosen
    return values


class SyntheticDataset(VideoDataset):
    """Synthetic videos with labeled factors; the seed determines the videos.

    Args:
        config: Options.
        seed: Seed.
    """

    def __init__(self, config: SyntheticConfig, *, seed: int = 0) -> None:
        for name in ("num_videos", "num_frames", "image_size"):
            if getattr(config, name) < 1:
                raise StillmotionError(f"synthetic.{name} is {getattr(config, name)}; must be at least 1")
        if not 0 <= config.confound_strength <= 1:
            raise StillmotionError(
                f"synthetic.confound_strength is {config.confound_strength}; must be between 0 and 1"
            )
        self.config = config
        self.seed = seed
        self.classes = factor_values(config)
        rng = np.random.default_rng((seed, 1))
        self.labels = {f: rng.integers(len(c), size=config.num_videos) for f, c in self.classes.items()}
        for pair in config.confound:
            leader, _, follower = pair.partition("=")
            if leader not in FACTORS or follower not in FACTORS or leader == follower:
                raise StillmotionError(
                    f"Cannot confound {pair!r}; write leader=follower with two of {', '.join(FACTORS)}"
                )
            copies = rng.random(config.num_videos) < config.confound_strength
            leader_values = self.labels[leader] % len(self.classes[follower])
            self.labels[follower] = np.where(copies, leader_values, self.labels[follower])

    def __len__(self) -> int:
        return self.config.num_videos

    def name(self, i: int) -> str:
        return f"synthetic-{self.seed}-{i}"

    def open_video(self, i: int) -> "SyntheticVideo":
        values = {f: self.classes[f][self.labels[f][i]] for f in FACTORS}
        return SyntheticVideo(self.config, values, np.random.default_rng((self.seed, 2, i)))


class SyntheticVideo(VideoReader):
    """Reader of a synthetic video: renders its frames from the factors of its config.

    Args:
        config: Options.
        values: Name of the value of each factor.
        rng: Random generator for everything else.
    """

    fps = 8.0

    def __init__(self, config: SyntheticConfig, values: dict[str, str], rng: np.random.Generator) -> None:
        self._config, self._values = config, values
        hue = (FACTOR_VALUES["color"].index(values["color"]) * 0.25 + rng.uniform(-0.05, 0.05)) % 1.0
        self._background = _hsv_to_rgb(hue, rng.uniform(0.6, 0.9), 1.0)
        self._foreground = np.full(3, 225.0) + rng.uniform(-5, 5, 3)
        self._radius = config.image_size * config.shape_scale * rng.uniform(0.8, 1.2)
        self._rotation_matrix = _rotation(rng.uniform(-math.pi, math.pi))
        self._stretch = math.exp(rng.uniform(-0.35, 0.35))
        self._level, self._depth = rng.uniform(0.45, 0.6), rng.uniform(0.2, 0.3)
        self._light_phase, self._phase = rng.uniform(0, 2 * math.pi, 2)
        self._period = rng.uniform(7.0, 11.0)
        self._amplitude = config.image_size * rng.uniform(0.16, 0.24)
        self._center = config.image_size * (0.5 + rng.uniform(-0.12, 0.12, 2))
        self._direction = rng.choice([-1.0, 1.0])
        self._noise_index = int(rng.integers(_NUM_NOISE_FRAMES))
        self._heading = rng.uniform(0, 2 * math.pi)

    def __len__(self) -> int:
        return self._config.num_frames

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        times = np.asarray(indices)
        size = self._config.image_size
        light = np.array([self._brightness(t) for t in times], np.float32)
        canvas = np.empty((len(times), size, size, 3), np.float32)
        canvas[:] = light[:, None, None, None] * self._background
        for frame, t in zip(canvas, times, strict=True):
            self._draw_shape(frame, t, self._foreground.tolist())
        noise = sensor_noise(size, _NUM_NOISE_FRAMES)
        canvas += self._config.noise_std * noise[(self._noise_index + 7 * times) % len(noise)]
        return np.clip(canvas, 0, 255).astype(np.uint8)

    def get_masks(self, indices: Sequence[int]) -> np.ndarray:
        """Foreground masks of frames, uint8 (N, H, W), 1 for the foreground.

        Args:
            indices: Frame indices.
        """
        masks = np.zeros((len(indices), self._config.image_size, self._config.image_size), np.uint8)
        for mask, t in zip(masks, indices, strict=True):
            self._draw_shape(mask, t, 1)
        return masks

    def _draw_shape(self, picture: np.ndarray, t: int, value: Any) -> None:
        outline = np.round(self._outline(t) * 2**_SUBPIXEL).astype(np.int32)
        cv2.fillPoly(picture, [outline], value, cv2.LINE_8, _SUBPIXEL)

    def _brightness(self, t: int) -> float:
        """Brightness of the background at time t: a trend over the whole video, or periodic."""
        kind = self._values["brightness"]
        if kind in ("brightening", "darkening"):
            trend = 2 * t / max(self._config.num_frames - 1, 1) - 1
            return self._level + self._depth * (trend if kind == "brightening" else -trend)
        period = 12.0 if kind == "pulsing" else 4.0
        return self._level + self._depth * math.sin(2 * math.pi * t / period + self._light_phase)

    def _outline(self, t: int) -> np.ndarray:
        turn = 2 * math.pi * t / self._period * self._direction + self._phase
        offset, radius, rotation = np.zeros(2), self._radius, self._rotation_matrix
        kind = self._values["trajectory"]
        if kind == "horizontal":
            offset[0] = math.sin(turn)
        elif kind == "vertical":
            offset[1] = math.sin(turn)
        elif kind in ("circling", "rotating"):
            offset[:] = math.cos(turn), math.sin(turn)
            rotation = rotation @ _rotation(turn) if kind == "rotating" else rotation
        elif kind == "linear":
            # Back and forth, about as fast as the others, so that speed alone does not identify it.
            offset[:] = math.cos(self._heading), math.sin(self._heading)
            offset *= 1.25 * _triangle_wave(turn / (2 * math.pi))
        else:
            radius *= 1 + 0.45 * math.sin(turn)
        points = _SHAPES[self._values["shape"]] * [self._stretch, 1 / self._stretch]
        return radius * points @ rotation + self._center + offset * self._amplitude


def _rotation(angle: float) -> np.ndarray:
    sin, cos = math.sin(angle), math.cos(angle)
    return np.array([[cos, sin], [-sin, cos]])


def _triangle_wave(turns: float) -> float:
    """Triangle wave from -1 to 1 with period 1."""
    return 4 * abs(turns % 1 - 0.5) - 1


def _polygon(corners: int, *, inner: float = 1.0) -> np.ndarray:
    """Regular polygon of unit circumradius; with every second corner at radius `inner`, a star."""
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
_NUM_NOISE_FRAMES = 97
_SUBPIXEL = 4  # fractional bits of coordinates


@cache
def sensor_noise(size: int, count: int) -> np.ndarray:
    """Noise images that the frames of all videos share.

    Args:
        size: Height and width.
        count: Number of images.

    Returns:
        Standard normal float32 (count, size, size, 3).
    """
    return np.random.default_rng(0).standard_normal((count, size, size, 3), np.float32)


def _hsv_to_rgb(hue: float, saturation: float, value: float) -> np.ndarray:
    hsv = np.array([[[hue * 360, saturation, value]]], np.float32)
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)[0, 0] * 255


DAVIS_RESOLUTION = "480p"


def write_davis_layout(folder: str | Path, config: SyntheticConfig, *, seed: int = 0) -> Path:
    """Write synthetic videos with masks in the layout of DAVIS.

    Args:
        folder: Folder to write.
        config: Options.
        seed: Seed.

    Returns:
        The folder.
    """
    root = Path(folder)
    dataset = SyntheticDataset(config, seed=seed)
    for i in range(len(dataset)):
        video, indices = dataset.open_video(i), range(config.num_frames)
        image_dir, mask_dir = (root / kind / DAVIS_RESOLUTION / f"{i:03d}" for kind in ("JPEGImages", "Annotations"))
        image_dir.mkdir(parents=True, exist_ok=True)
        mask_dir.mkdir(parents=True, exist_ok=True)
        for t, frame, mask in zip(indices, video.get_frames(indices), video.get_masks(indices), strict=True):
            Image.fromarray(frame).save(image_dir / f"{t:05d}.png")
            write_mask(mask_dir / f"{t:05d}.png", mask)
    return root
