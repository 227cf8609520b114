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

from stillmotion.data import ranks
from stillmotion.data.clips import read_clips
from stillmotion.data.copies import Copied, Written, copy_set
from stillmotion.data.encode import check_encoder, each_frame, resized, write_mp4
from stillmotion.data.flow import Flow, FlowName, open_flow
from stillmotion.data.paths import VideoSet
from stillmotion.data.video import Video
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.functional.warp import move
from stillmotion.options import Device

Version = Literal["static", "dynamic"]
Warp = Literal["accumulate", "first-frame"]
# A repeated frame costs next to nothing, to store and to decode; a frame of moved noise does not.
_STATIC_GOP, _DYNAMIC_GOP = 250, 8


@dataclass(frozen=True)
class Controlled:
    """How a controlled version of videos is made.

    Attributes:
        version: static is one frame repeated; dynamic is noise moved by the video's optical flow.
        warp: accumulate moves each frame on to the next; first-frame moves the first frame by each flow.
        flow: how motion is estimated; None is RAFT (large), as in the paper, where its weights are given, and DIS else.
        flow_weights: RAFT's checkpoint, with torchvision's parameter names.
        at: where in the video the static frame lies, from 0 to 1.
        short_side: shorter edge in pixels, before anything else; videos are never enlarged.
        seed: of the noise, which follows from it and the copy's path alone.
        device: RAFT's: cpu, cuda or another torch device.
    """

    version: Version
    warp: Warp = "accumulate"
    flow: FlowName | None = None
    flow_weights: str | None = None
    at: float = 0.5
    short_side: int | None = None
    seed: int = 0
    device: Device = "cpu"

    def __post_init__(self) -> None:
        if self.version not in get_args(Version):
            raise StillmotionError(f"version is {self.version!r}; choose static or dynamic")
        if self.warp not in get_args(Warp):
            raise StillmotionError(f"warp is {self.warp!r}; choose accumulate or first-frame")
        if not 0 <= self.at <= 1:
            raise StillmotionError(f"at is {self.at}; it must lie between 0, the first frame, and 1, the last")
        if self.short_side is not None and self.short_side < 1:
            raise StillmotionError(f"short_side is {self.short_side}; it must be at least 1")

    @property
    def flow_name(self) -> FlowName:
        """The flow that is taken."""
        return self.flow or ("dis-medium" if self.flow_weights is None else "raft-large")


def make_controlled(
    data: VideoSet,
    out: str | Path,
    settings: Controlled,
    *,
    processes: int = 1,
    strict: bool = False,
    progress: Callable[[Copied, int, int], None] | None = None,
) -> list[Copied]:
    """Writes the static or the dynamic version of `data` into the folder `out`, without loss; returns the manifest.

    Every copy has its original's number of frames, rate, class and splits.

    processes, strict, progress: as for `copy_set`; a video that is too short is as bad as an unreadable one.
    What an earlier call finished is kept; asking for other settings in the same folder is an error.
    """
    copier = ranks.everywhere(lambda: _copier(settings))
    return copy_set(data, Path(out), copier, processes=processes, strict=strict, progress=progress)


def moved_noise(
    fields: Iterator[np.ndarray], size: tuple[int, int], rng: np.random.Generator, *, warp: Warp = "accumulate"
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
    for field in fields:
        if warp == "first-frame":
            pixels, _, fresh = move(first, field, fill=second)
        else:
            pixels, offset, fresh = move(pixels, field, fill=noise(), offset=offset)
        yield seen(pixels), np.count_nonzero(fresh) / fresh.size


@dataclass(frozen=True)
class _Copier:
    how: Controlled

    record: ClassVar[str] = "controlled.json"
    suffix: ClassVar[str] = ".mp4"


@dataclass(frozen=True)
class _Static(_Copier):
    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "static", "at": self.how.at, "short_side": self.how.short_side}

    def write(self, video: Video, name: str, partial: Path) -> Written:
        number = round(self.how.at * (len(video) - 1))
        # With the first and the last: a video that is damaged at its ends is as bad here as in the dynamic version.
        frame = read_clips(video, np.array([[0, number, len(video) - 1]]))[0, 1]
        size = _size(frame, self.how.short_side)
        frame = next(resized(iter([frame]), *size))
        write_mp4(partial, repeat(frame, len(video)), size=size, fps=video.fps, gop=_STATIC_GOP)
        return Written(*size, {"frame": number})


@dataclass(frozen=True)
class _Dynamic(_Copier):
    digest: str | None

    @property
    def settings(self) -> dict[str, Any]:
        """How the copies are made; weights go by their content, so that a moved file is the same file."""
        how = self.how
        return {
            "kind": "dynamic",
            "warp": how.warp,
            "flow": how.flow_name,
            "digest": self.digest,
            "seed": how.seed,
            "short_side": how.short_side,
        }

    def write(self, video: Video, name: str, partial: Path) -> Written:
        if len(video) < 2:
            raise VideoError(f"{name}: too short, {len(video)} frame; motion needs at least 2")
        images = each_frame(video)
        first = next(images)
        size = _size(first, self.how.short_side)
        flow = _open_flow(self.how)
        speeds: list[float] = []
        fresh: list[float] = []

        def fields() -> Iterator[np.ndarray]:
            for field in flow(resized(chain([first], images), *size)):
                speeds.append(cv2.mean(cv2.magnitude(*cv2.split(field)))[0])
                yield field

        def frames() -> Iterator[np.ndarray]:
            for frame, share in moved_noise(fields(), size, _random(self.how.seed, name), warp=self.how.warp):
                fresh.append(share)
                yield frame

        write_mp4(partial, frames(), size=size, fps=video.fps, gop=_DYNAMIC_GOP)
        told = {"pixels_per_frame": round(float(np.mean(speeds)), 4), "fresh": round(float(np.mean(fresh[1:])), 4)}
        return Written(*size, told)


def _copier(settings: Controlled) -> _Static | _Dynamic:
    """What makes the copies; where it cannot, that is an error at once."""
    check_encoder(lossless=True)
    if settings.version == "static":
        return _Static(settings)
    _open_flow(settings)
    return _Dynamic(settings, _digest(settings.flow_weights))


def _open_flow(settings: Controlled) -> Flow:
    return open_flow(settings.flow_name, weights=settings.flow_weights, device=settings.device)


def _random(seed: int, name: str) -> np.random.Generator:
    """Noise that depends on the seed and the file's name, and not on who makes it when."""
    digest = hashlib.sha256(str(PurePath(name).with_suffix("")).encode("utf-8", "surrogateescape")).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])


def _size(frame: np.ndarray, short_side: int | None) -> tuple[int, int]:
    height, width = frame.shape[:2]
    scale = 1.0 if short_side is None else min(1.0, short_side / min(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))


def _digest(file: str | None) -> str | None:
    return None if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
