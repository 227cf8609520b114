"""Static and dynamic versions of a data set: what a video shows without motion, and how it moves without appearance.

BOD-VCL, §3.2. Static: one frame, repeated. Dynamic (after Ilic et al., "Is Appearance Free Action Recognition
Possible?", ECCV 2022): uniform noise moved by the video's own optical flow. Two conventions exist:

- `accumulate`, the paper's text: each frame is the one before it, moved by the flow between the two.
- `first-frame`, the public generator: each frame is the first noise frame, moved by the one flow that leads to it.

What differs from both: noise is moved and never interpolated or repeated (`functional/warp.py`), and places that
nothing moves to, at disocclusions and borders, get noise that stands nowhere else in the frame: in `accumulate` drawn
anew, in `first-frame` from a second noise frame, the same for the whole video. So each frame by itself is independent
uniform noise, whatever the video shows.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path, PurePath
from typing import Any, ClassVar, Literal, get_args

import cv2
import numpy as np

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.transcode.manifest import ManifestEntry
from stillmotion.data.transcode.transcode_job import TranscodeResult, transcode_dataset
from stillmotion.data.transforms.sampling import read_clips
from stillmotion.data.video.optical_flow import FlowName, OpticalFlow, load_flow
from stillmotion.data.video.reader import VideoReader
from stillmotion.data.video.writer import check_codec_available, resize_frames, write_mp4
from stillmotion.distributed import process_group
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.functional.forward_warp import forward_warp
from stillmotion.utils.images import short_side_size
from stillmotion.utils.option_types import DeviceName

Variant = Literal["static", "dynamic"]
WarpMode = Literal["accumulate", "first-frame"]
# A repeated frame costs next to nothing, to store and to decode; a frame of moved noise does not.
_STATIC_GOP, _DYNAMIC_GOP = 250, 8


@dataclass(frozen=True)
class StaticDynamicSetConfig:
    """How a controlled version of videos is made.

    Attributes:
        variant: static is one frame repeated; dynamic is noise moved by the video's optical flow.
        warp: accumulate moves each frame on to the next; first-frame moves the first frame by each flow.
        flow: how motion is estimated; None is RAFT (large), as in the paper, where its weights are given, and DIS else.
        flow_weights: RAFT's checkpoint, with torchvision's parameter names.
        static_position: where in the video the static frame lies, from 0 to 1.
        short_side: shorter edge in pixels, before anything else; videos are never enlarged.
        noise_seed: of the noise, which follows from it and the copy's path alone.
        device: RAFT's: cpu, cuda or another torch device.
    """

    variant: Variant
    warp: WarpMode = "accumulate"
    flow: FlowName | None = None
    flow_weights: str | None = None
    static_position: float = 0.5
    short_side: int | None = None
    noise_seed: int = 0
    device: DeviceName = "cpu"

    def __post_init__(self) -> None:
        if self.variant not in get_args(Variant):
            raise StillmotionError(f"version is {self.variant!r}; choose static or dynamic")
        if self.warp not in get_args(WarpMode):
            raise StillmotionError(f"warp is {self.warp!r}; choose accumulate or first-frame")
        if not 0 <= self.static_position <= 1:
            raise StillmotionError(
                f"at is {self.static_position}; it must lie between 0, the first frame, and 1, the last"
            )
        if self.short_side is not None and self.short_side < 1:
            raise StillmotionError(f"short_side is {self.short_side}; it must be at least 1")

    @property
    def resolved_flow(self) -> FlowName:
        """The flow that is taken."""
        return self.flow or ("dis-medium" if self.flow_weights is None else "raft-large")


def make_static_dynamic_set(
    dataset: VideoDataset,
    output_dir: str | Path,
    config: StaticDynamicSetConfig,
    *,
    num_processes: int = 1,
    strict: bool = False,
    progress: Callable[[ManifestEntry, int, int], None] | None = None,
) -> list[ManifestEntry]:
    """Writes the static or the dynamic version of `dataset` into the folder `output_dir`, without loss; returns the manifest.

    Every copy has its original's number of frames, rate, class and splits.

    num_processes, strict, progress: as for `copy_set`; a video that is too short is as bad as an unreadable one.
    What an earlier call finished is kept; asking for other settings in the same folder is an error.
    """
    copier = process_group.run_on_all(lambda: _build_transcoder(config))
    return transcode_dataset(
        dataset, Path(output_dir), copier, num_processes=num_processes, strict=strict, progress=progress
    )


def warp_noise(
    flow_fields: Iterator[np.ndarray], size: tuple[int, int], rng: np.random.Generator, *, warp: WarpMode = "accumulate"
) -> Iterator[tuple[np.ndarray, float]]:
    """Frames of noise that move by the fields of a flow, and the share of each that nothing moved to.

    size: height and width. The first frame moves by nothing: there is one frame more than fields.
    """

    def noise() -> np.ndarray:
        # With a fourth channel: a pixel of four bytes is carried as one number.
        return cv2.cvtColor(rng.integers(0, 256, (*size, 3), dtype=np.uint8), cv2.COLOR_RGB2RGBA).view(np.uint32)

    def seen(pixels: np.ndarray) -> np.ndarray:
        return cv2.cvtColor(pixels.view(np.uint8), cv2.COLOR_RGBA2RGB)

    first, second = noise(), noise()
    pixels, offset = first, None
    yield seen(pixels), 0.0
    for field in flow_fields:
        if warp == "first-frame":
            pixels, _, fresh = forward_warp(first, field, fill=second)
        else:
            pixels, offset, fresh = forward_warp(pixels, field, fill=noise(), offset=offset)
        yield seen(pixels), np.count_nonzero(fresh) / fresh.size


@dataclass(frozen=True)
class _VariantTranscoder:
    config: StaticDynamicSetConfig

    settings_file: ClassVar[str] = "static_dynamic.json"
    suffix: ClassVar[str] = ".mp4"


@dataclass(frozen=True)
class _StaticTranscoder(_VariantTranscoder):
    @property
    def settings(self) -> dict[str, Any]:
        return {
            "variant": "static",
            "static_position": self.config.static_position,
            "short_side": self.config.short_side,
        }

    def write(self, video: VideoReader, name: str, output: Path) -> TranscodeResult:
        number = round(self.config.static_position * (len(video) - 1))
        # With the first and the last: a video that is damaged at its ends is as bad here as in the dynamic version.
        frame = read_clips(video, np.array([[0, number, len(video) - 1]]))[0, 1]
        size = short_side_size(*frame.shape[:2], self.config.short_side, enlarge=False)
        frame = next(resize_frames(iter([frame]), *size))
        write_mp4(output, repeat(frame, len(video)), size=size, fps=video.fps, gop_size=_STATIC_GOP)
        return TranscodeResult(*size, {"static_frame": number})


@dataclass(frozen=True)
class _DynamicTranscoder(_VariantTranscoder):
    flow_weights_hash: str | None

    @property
    def settings(self) -> dict[str, Any]:
        """How the copies are made; weights go by their content, so that a moved file is the same file."""
        how = self.config
        return {
            "variant": "dynamic",
            "warp": how.warp,
            "flow": how.resolved_flow,
            "flow_weights_hash": self.flow_weights_hash,
            "seed": how.noise_seed,
            "short_side": how.short_side,
        }

    def write(self, video: VideoReader, name: str, output: Path) -> TranscodeResult:
        if len(video) < 2:
            raise VideoError(f"{name}: too short, {len(video)} frame; motion needs at least 2")
        images = video.iter_constant_rate()
        first = next(images)
        size = short_side_size(*first.shape[:2], self.config.short_side, enlarge=False)
        flow = _load_flow(self.config)
        speeds: list[float] = []
        fresh: list[float] = []

        def fields() -> Iterator[np.ndarray]:
            for field in flow(resize_frames(chain([first], images), *size)):
                speeds.append(cv2.mean(cv2.magnitude(*cv2.split(field)))[0])
                yield field

        def frames() -> Iterator[np.ndarray]:
            for frame, share in warp_noise(
                fields(), size, _noise_generator(self.config.noise_seed, name), warp=self.config.warp
            ):
                fresh.append(share)
                yield frame

        write_mp4(output, frames(), size=size, fps=video.fps, gop_size=_DYNAMIC_GOP)
        told = {
            "mean_flow_pixels": round(float(np.mean(speeds)), 4),
            "filled_fraction": round(float(np.mean(fresh[1:])), 4),
        }
        return TranscodeResult(*size, told)


def _build_transcoder(config: StaticDynamicSetConfig) -> _StaticTranscoder | _DynamicTranscoder:
    """What makes the copies; where it cannot, that is an error at once."""
    check_codec_available(lossless=True)
    if config.variant == "static":
        return _StaticTranscoder(config)
    _load_flow(config)
    return _DynamicTranscoder(config, _file_hash(config.flow_weights))


def _load_flow(config: StaticDynamicSetConfig) -> OpticalFlow:
    return load_flow(config.resolved_flow, weights=config.flow_weights, device=config.device)


def _noise_generator(seed: int, name: str) -> np.random.Generator:
    """Noise that depends on the seed and the file's name, and not on who makes it when."""
    digest = hashlib.sha256(str(PurePath(name).with_suffix("")).encode("utf-8", "surrogateescape")).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])


def _file_hash(file: str | None) -> str | None:
    return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
