"""`stillmotion static-dynamic make`: one repeated frame, or noise moved by optical flow (BOD-VCL, §3.2).

The static version of a video repeats one frame: appearance without motion. The dynamic version (after Ilic et al., "Is
Appearance Free Action Recognition Possible?", ECCV 2022) is uniform noise moved by the optical flow of the video:
motion without appearance. Two conventions exist:

- `accumulate`, the text of the paper: each frame is the previous one, warped by the flow between the two.
- `first-frame`, the public generator: each frame is the first noise frame, warped by the one flow that leads to it.

Differences from both: noise is moved and never interpolated or repeated (`functional/forward_warp.py`), and pixels that
nothing moves to, at disocclusions and borders, get noise that is nowhere else in the frame: in `accumulate` new noise,
in `first-frame` that of a second noise frame, the same for the whole video. So each single frame is independent uniform
noise, whatever the video shows.
"""

import hashlib
from collections.abc import Iterator
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
from stillmotion.data.video.frame_size import short_side_size
from stillmotion.data.video.optical_flow import FlowName, OpticalFlow, load_flow
from stillmotion.data.video.reader import VideoReader
from stillmotion.data.video.writer import check_codec_available, resize_frames, write_mp4
from stillmotion.distributed import process_group
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.functional.forward_warp import forward_warp
from stillmotion.utils.hashing import hash_bytes
from stillmotion.utils.option_types import DeviceName

Variant = Literal["static", "dynamic"]
WarpMode = Literal["accumulate", "first-frame"]
# A repeated frame is cheap to store and to decode; a frame of moved noise is not.
_STATIC_GOP, _DYNAMIC_GOP = 250, 8


@dataclass(frozen=True)
class StaticDynamicSetConfig:
    """Settings of the static or dynamic version of a data set.

    Attributes:
        variant: Variant to write: static repeats one frame; dynamic moves noise along the optical flow of the video.
        warp: How noise is warped: accumulate warps each noise frame into the next; first-frame warps the first noise
            frame into every other.
        flow: Optical-flow method. Default: raft-large if --flow-weights is given (as in the paper), otherwise
            dis-medium.
        flow_weights: Path of a RAFT checkpoint with torchvision's parameter names.
        static_position: Position of the repeated frame in the video, from 0 (first frame) to 1 (last frame). Only for
            --variant static.
        short_side: Resize videos to this length of the shorter side, in pixels, before anything else. Videos are never
            enlarged.
        noise_seed: Seed of the noise. The noise of a video depends only on this seed and on its path in the output
            folder.
        device: Torch device on which RAFT runs, e.g. cpu or cuda.
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
            raise StillmotionError(f"variant is {self.variant!r}; must be static or dynamic.")
        if self.warp not in get_args(WarpMode):
            raise StillmotionError(f"warp is {self.warp!r}; must be accumulate or first-frame.")
        if not 0 <= self.static_position <= 1:
            raise StillmotionError(
                f"static_position is {self.static_position}; must be between 0 (first frame) and 1 (last frame)."
            )
        if self.short_side is not None and self.short_side < 1:
            raise StillmotionError(f"short_side is {self.short_side}; must be at least 1.")

    @property
    def resolved_flow(self) -> FlowName:
        """The optical-flow method that is used."""
        return self.flow or ("dis-medium" if self.flow_weights is None else "raft-large")


def make_static_dynamic_set(
    dataset: VideoDataset,
    output_dir: str | Path,
    config: StaticDynamicSetConfig,
    *,
    num_processes: int = 1,
    strict: bool = False,
) -> list[ManifestEntry]:
    """Write the static or dynamic version of a data set, losslessly, with labels.csv and manifest.jsonl.

    Every copy keeps the number of frames, frame rate, class and splits. The same call continues after an interruption;
    other settings in the same folder are an error.

    Args:
        dataset: Videos to copy.
        output_dir: Output folder; must not overlap the videos.
        config: Settings of the copies.
        num_processes: Number of worker processes of each rank.
        strict: Raise at the first video that is unreadable or too short. Otherwise it is recorded in the manifest and
            left out.

    Returns:
        The manifest in the order of the data set; empty on all ranks but the first.
    """
    transcoder = process_group.run_on_all(lambda: _build_transcoder(config))
    return transcode_dataset(dataset, Path(output_dir), transcoder, num_processes=num_processes, strict=strict)


def warp_noise(
    flow_fields: Iterator[np.ndarray], size: tuple[int, int], rng: np.random.Generator, *, warp: WarpMode = "accumulate"
) -> Iterator[tuple[np.ndarray, float]]:
    """Yield noise frames warped along flow fields, each with the fraction of newly filled pixels.

    Args:
        flow_fields: Flow from each frame to the next, (H, W, 2) in pixels.
        size: Height and width.
        rng: Random generator of the noise.
        warp: How noise is warped, as in `StaticDynamicSetConfig`.

    Yields:
        Noise uint8 (H, W, 3) and a fraction; one more than there are fields, since the first frame is not warped.
    """

    def noise() -> np.ndarray:
        # With a fourth channel, a pixel of four bytes is moved as one number.
        return cv2.cvtColor(rng.integers(0, 256, (*size, 3), dtype=np.uint8), cv2.COLOR_RGB2RGBA).view(np.uint32)

    def to_rgb(pixels: np.ndarray) -> np.ndarray:
        return cv2.cvtColor(pixels.view(np.uint8), cv2.COLOR_RGBA2RGB)

    first, second = noise(), noise()
    pixels, offset = first, None
    yield to_rgb(pixels), 0.0
    for field in flow_fields:
        if warp == "first-frame":
            pixels, _, fresh = forward_warp(first, field, fill=second)
        else:
            pixels, offset, fresh = forward_warp(pixels, field, fill=noise(), offset=offset)
        yield to_rgb(pixels), np.count_nonzero(fresh) / fresh.size


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
        index = round(self.config.static_position * (len(video) - 1))
        # The first and last frame are read too, so that a damaged video fails here as in the dynamic version.
        frame = read_clips(video, np.array([[0, index, len(video) - 1]]))[0, 1]
        size = short_side_size(frame.shape[:2], self.config.short_side, enlarge=False)
        frame = next(resize_frames(iter([frame]), *size))
        write_mp4(output, repeat(frame, len(video)), size=size, fps=video.fps, gop_size=_STATIC_GOP)
        return TranscodeResult(*size, {"static_frame": index})


@dataclass(frozen=True)
class _DynamicTranscoder(_VariantTranscoder):
    flow_weights_hash: str | None

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the copies; the weights are identified by their content, not by their path."""
        config = self.config
        return {
            "variant": "dynamic",
            "warp": config.warp,
            "flow": config.resolved_flow,
            "flow_weights_hash": self.flow_weights_hash,
            "seed": config.noise_seed,
            "short_side": config.short_side,
        }

    def write(self, video: VideoReader, name: str, output: Path) -> TranscodeResult:
        if len(video) < 2:
            raise VideoError(f"{name}: too short, {len(video)} frame; motion needs at least 2.")
        images = video.iter_constant_rate()
        first = next(images)
        size = short_side_size(first.shape[:2], self.config.short_side, enlarge=False)
        flow = _load_flow(self.config)
        speeds: list[float] = []
        filled: list[float] = []

        def fields() -> Iterator[np.ndarray]:
            for field in flow(resize_frames(chain([first], images), *size)):
                speeds.append(cv2.mean(cv2.magnitude(*cv2.split(field)))[0])
                yield field

        def frames() -> Iterator[np.ndarray]:
            for frame, fraction in warp_noise(
                fields(), size, _noise_generator(self.config.noise_seed, name), warp=self.config.warp
            ):
                filled.append(fraction)
                yield frame

        write_mp4(output, frames(), size=size, fps=video.fps, gop_size=_DYNAMIC_GOP)
        metadata = {
            "mean_flow_pixels": round(float(np.mean(speeds)), 4),
            "filled_fraction": round(float(np.mean(filled[1:])), 4),
        }
        return TranscodeResult(*size, metadata)


def _build_transcoder(config: StaticDynamicSetConfig) -> _StaticTranscoder | _DynamicTranscoder:
    """Build the transcoder; a missing codec or flow network is an error before any video is read."""
    check_codec_available(lossless=True)
    if config.variant == "static":
        return _StaticTranscoder(config)
    _load_flow(config)
    return _DynamicTranscoder(config, _file_hash(config.flow_weights))


def _load_flow(config: StaticDynamicSetConfig) -> OpticalFlow:
    return load_flow(config.resolved_flow, weights=config.flow_weights, device=config.device)


def _noise_generator(seed: int, name: str) -> np.random.Generator:
    """Generator that depends only on the seed and the path of the copy, not on processes or their order."""
    digest = hashlib.sha256(str(PurePath(name).with_suffix("")).encode("utf-8", "surrogateescape")).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])


def _file_hash(file: str | None) -> str | None:
    return None if file is None else hash_bytes(Path(file).read_bytes(), digest_size=8)
