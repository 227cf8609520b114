"""What the packets of a video file tell without decoding: how many frames it has, when each is shown, the key frames.

In containers whose time stamps say so, packets are believed; elsewhere (AVI with B-frames, missing or repeated stamps)
frames are counted by decoding them all.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition

from stillmotion.data.address import Source
from stillmotion.data.pictures import FOLDER_FPS
from stillmotion.errors import VideoError

# Their packets carry true presentation times, B-frames or not.
_TIMED_CONTAINERS = ("mov,mp4", "matroska,webm")
# A packet of these may show no frame, so that packets cannot be counted instead of frames.
_HIDDEN_FRAMES = ("vp8",)
# Frames that a whole video may lack of what its container promises, by rounding or by delay: so many, and a share.
_FEW, _SHARE = 2, 0.05


@dataclass(frozen=True, slots=True)
class Index:
    length: int
    fps: float
    times: Sequence[int] | None  # presentation time of each frame; None: only counting tells frames apart
    keys: np.ndarray  # numbers of the frames that decoding can start at
    paced: np.ndarray | None  # as in `Video`
    promised: int
    stream: int  # its number among all streams of the container
    unit: Fraction  # seconds that times count
    kind: tuple[str, str, str]  # container, codec, pixel format


@lru_cache(maxsize=1 << 16)
def index(path: str | Source, modified: int, size: int) -> Index:
    """Counts and times the frames from the packets, without decoding where the container can be believed."""
    with opened(path) as (container, stream):
        timed = container.format.name.startswith(_TIMED_CONTAINERS)
        rate = stream.average_rate or stream.guessed_rate
        packets = [(p.pts, p.is_keyframe, p.is_discard, p.is_corrupt) for p in container.demux(stream) if p.size]
        if any(corrupt for *_, corrupt in packets) or (timed and len(packets) < stream.frames):
            whole = sum(not corrupt for *_, corrupt in packets)
            raise VideoError(f"{path}: truncated; {whole} of {stream.frames or 'its'} frames are there")
        shown = [(time, key) for time, key, discard, _ in packets if not discard]
        context = stream.codec_context
        believable = (timed or not context.has_b_frames) and context.name not in _HIDDEN_FRAMES
        fps, unit = float(rate) if rate else FOLDER_FPS, stream.time_base
        kind = (container.format.name, context.codec.canonical_name, context.pix_fmt or "")
        place = (stream.index, unit, kind)
        times = np.array(sorted(time for time, _ in shown if time is not None), dtype=np.int64)
        promised = _promised(container, stream, fps, int(times[0]) if len(times) else 0, len(shown))
    if believable and len(times) == len(shown) > 0 and (np.diff(times) > 0).all():
        # The first frame is one, though a cut may have hidden the key frame that it needs: decoding begins before it.
        keys = np.union1d(0, np.searchsorted(times, [time for time, key in shown if key])).astype(np.int32)
        paced = _paced(times) if timed else None
        if paced is not None:  # the rate of its even steps, which a container's own may be far from
            fps = float((len(times) - 1) / (int(times[-1] - times[0]) * unit))
        return Index(len(times), fps, _compact(times), keys, paced, _missed(promised, len(times)), *place)
    with opened(path) as (container, stream):
        length = sum(1 for _ in container.decode(stream))
    if length == 0:
        raise VideoError(f"{path}: no frame in its video stream")
    return Index(length, fps, None, np.zeros(1, np.int32), None, _missed(promised, length), *place)


def _promised(container: Any, stream: Any, fps: float, first: int, packets: int) -> int:
    """How many frames a container says that it has, where that can be believed; else 0.

    An AVI's header often errs, and its index does not. Matroska knows how long a stream lasts, or all of them.
    """
    if container.format.name == "avi":
        return max(packets, sum(1 for entry in stream.index_entries if entry.size))
    if not container.format.name.startswith("matroska,webm"):
        return 0
    lasts = _seconds(stream.metadata.get("DURATION", ""))
    if not lasts and len(container.streams) == 1 and container.duration:
        lasts = container.duration / av.time_base
    return max(0, round((lasts - float(first * stream.time_base)) * fps))


def _seconds(text: str) -> float:
    """Of a duration as Matroska's tags have it, 00:00:02.833000000; 0 where it is none."""
    found = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d*)?)", text.strip())
    return 3600 * int(found[1]) + 60 * int(found[2]) + float(found[3]) if found else 0.0


def _missed(promised: int, length: int) -> int:
    """The promised number where it is not kept, and else 0."""
    return promised if length + _FEW + _SHARE * promised < promised else 0


def _paced(times: np.ndarray) -> np.ndarray | None:
    """`Video.paced` of frames at these times; None where each lies within half a step of its place."""
    if len(times) < 3:
        return None
    even = np.linspace(times[0], times[-1], len(times))
    after = np.clip(np.searchsorted(times, even), 1, len(times) - 1)
    nearest = after - (even - times[after - 1] <= times[after] - even)
    return None if (nearest == np.arange(len(times))).all() else nearest.astype(np.int32)


def _compact(times: np.ndarray) -> Sequence[int]:
    """Evenly spaced times as a range: the index of a large data set then stays small."""
    steps = np.diff(times)
    if len(steps) and (steps == steps[0]).all():
        return range(int(times[0]), int(times[-1]) + 1, int(steps[0]))
    return times  # type: ignore[return-value]


def runs(wanted: list[int], keys: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    """Splits the wanted numbers where a key frame lies between two of them; each part comes with its key frame."""
    run: list[int] = []
    begin = 0
    for number, start in zip(wanted, keys[np.searchsorted(keys, wanted, side="right") - 1].tolist(), strict=True):
        if run and start > run[-1]:
            yield begin, run
            run = []
        if not run:
            begin = start
        run.append(number)
    yield begin, run


@contextmanager
def opened(path: str | Path | Source) -> Iterator[tuple[Any, Any]]:
    """The container and its first video stream, decoding on one thread; FFmpeg's errors become VideoError."""
    try:
        # The protocol is said, so that no name is taken for an address, such as http:….
        file: Any = path.open() if isinstance(path, Source) else f"file:{path}"
        with av.open(file, metadata_errors="ignore") as container:
            shown = (s for s in container.streams.video if not s.disposition & Disposition.attached_pic)
            streams = [s for s in shown if s.codec_context is not None]  # None: of a codec that no one knows
            # FFmpeg draws text files as video.
            if not streams or container.format.name == "tty":
                raise VideoError(f"{path}: no video stream")
            # Workers run in parallel already; more threads would decode frames past the last one wanted.
            streams[0].codec_context.thread_count = 1
            yield container, streams[0]
    except (av.FFmpegError, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise VideoError(f"{path}: cannot be decoded ({reason})") from None
