"""Frames by number out of video files, folders of images and arrays.

A frame's number is its place in the order of display. In containers whose time stamps say so, reading jumps to the
last key frame before the next wanted frame and leaves undecoded what nothing refers to; elsewhere (AVI with B-frames,
missing or repeated stamps) frames are counted from the start. A video that says how it is to be turned is turned.
"""

import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import av
import cv2
import numpy as np
from av.stream import Disposition
from av.video.reformatter import VideoReformatter

from stillmotion.data.address import Source
from stillmotion.errors import VideoError

# What a folder is searched for.
VIDEO_SUFFIXES = [".mp4", ".avi", ".webm", ".mkv", ".mov", ".m4v", ".mpg", ".mpeg", ".wmv", ".flv", ".ts", ".gif"]
FRAME_SUFFIXES = [".jpg", ".jpeg", ".png"]
FOLDER_FPS = 30.0

# Their packets carry true presentation times, B-frames or not.
_TIMED_CONTAINERS = ("mov,mp4", "matroska,webm")
# A packet of these may show no frame, so that packets cannot be counted instead of frames.
_HIDDEN_FRAMES = ("vp8",)
# Frames that a whole video may lack of what its container promises, by rounding or by delay: so many, and a share.
_FEW, _SHARE = 2, 0.05
_RATES = (1e-3, 1e5)  # frames a second


class Video(Protocol):
    """A sequence of RGB frames that can be asked for by number.

    It may have `paced`: for each of as many even steps in time as there are frames, the number of the frame nearest to
    it. None, or nothing of the kind, is a constant rate: every step is a frame.
    It may have `promised`: how many frames there should be, where fewer can be read; else 0.
    """

    fps: float

    def __len__(self) -> int: ...

    def frames(self, indices: Sequence[int]) -> np.ndarray:
        """The frames as uint8 (len(indices), H, W, 3), in the order asked for; numbers may repeat."""
        ...


def open_video(path: str | Path) -> Video:
    """Opens a video file or a folder of jpg/png frames; whatever is wrong with it is a VideoError."""
    path = Path(path)
    if os.path.isdir(path):
        return FrameFolder(path)
    return FileVideo(path)


def partly_read(video: Video) -> str:
    """What is missing of a video that can be read in part, in words; empty of a whole one."""
    promised = getattr(video, "promised", 0)
    return f"{len(video)} of {promised} frames can be read; truncated or damaged" if promised else ""


class ArrayVideo:
    """A video that is already in memory.

    array: uint8 (T, H, W, 3), RGB.
    """

    def __init__(self, array: np.ndarray, fps: float = FOLDER_FPS) -> None:
        if array.ndim != 4 or array.shape[-1] != 3 or array.dtype != np.uint8 or len(array) == 0:
            raise VideoError(f"array {array.dtype}{array.shape} is no video; give uint8 (T ≥ 1, H, W, 3)")
        self.array, self.fps = array, fps

    def __len__(self) -> int:
        return len(self.array)

    def frames(self, indices: Sequence[int]) -> np.ndarray:
        return self.array[_checked("array", indices, len(self))]


class FrameFolder:
    """A folder of images in natural order (frame2 before frame10).

    Its rate is the number in `fps.txt` where the folder has one, and 30 otherwise.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with os.scandir(self.path) as entries:  # what is no file, such as a pipe of this name, is passed over
                names = {entry.name for entry in entries if entry.is_file()}
        except OSError as error:
            raise VideoError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from None
        frames = (self.path / name for name in names)
        self.files = sorted((file for file in frames if file.suffix.lower() in FRAME_SUFFIXES), key=_natural)
        if not self.files:
            raise VideoError(f"{path}: no frames in this folder (looked for {', '.join(FRAME_SUFFIXES)})")
        self.fps = _rate(self.path / "fps.txt") if "fps.txt" in names else FOLDER_FPS

    def __len__(self) -> int:
        return len(self.files)

    def frames(self, indices: Sequence[int]) -> np.ndarray:
        wanted = _checked(self.path, indices, len(self))
        images: dict[int, np.ndarray] = {}
        for number in sorted(set(wanted.tolist())):
            images[number] = _image(self.files[number])
        sizes = {image.shape[1::-1] for image in images.values()}
        if len(sizes) > 1:
            listed = " and ".join(f"{w}×{h}" for w, h in sorted(sizes)[:2])
            raise VideoError(f"{self.path}: frames differ in size ({listed}); a video has one size")
        return np.stack([images[number] for number in wanted.tolist()])


class FileVideo:
    """A video file, read by PyAV. Opening it walks once over its packets; nothing is kept open."""

    def __init__(self, path: str | Path | Source) -> None:
        self.path = path if isinstance(path, Source) else Path(path)
        self._index = _index(path, 0, 0) if isinstance(path, Source) else self._index_of(Path(path))
        self.fps, self.paced, self.promised = self._index.fps, self._index.paced, self._index.promised

    @staticmethod
    def _index_of(path: Path) -> "_Index":
        try:
            found = path.stat()
        except (OSError, ValueError) as error:
            raise VideoError(f"{path}: {(getattr(error, 'strerror', None) or 'cannot be read').lower()}") from None
        if not stat.S_ISREG(found.st_mode):
            raise VideoError(f"{path}: no file, but a pipe, a socket or a device")  # to open one may wait for ever
        if found.st_size == 0:
            raise VideoError(f"{path}: empty file (0 bytes)")
        return _index(str(path), found.st_mtime_ns, found.st_size)

    def __len__(self) -> int:
        return self._index.length

    def frames(self, indices: Sequence[int]) -> np.ndarray:
        order = _checked(self.path, indices, len(self)).tolist()
        wanted = sorted(set(order))
        images = None
        if self._index.times is not None:
            try:
                images = dict(self._by_time(wanted, self._index.times))
            except _Disordered:
                images = None
        if images is None:
            images = dict(self._by_count(wanted))
        self._check_all(len(images), len(wanted))
        return np.stack([images[number] for number in order])

    def each(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        """The frames of ascending numbers by one walk over the file, one in memory at a time."""
        wanted = _checked(self.path, numbers, len(self)).tolist()
        done = 0
        if self._index.times is not None:
            try:
                for _, image in self._by_time(wanted, self._index.times):
                    done += 1
                    yield image
            except _Disordered:
                pass  # the rest is counted
            else:
                self._check_all(done, len(wanted))
        if done < len(wanted):
            for _, image in self._by_count(wanted[done:]):
                done += 1
                yield image
        self._check_all(done, len(wanted))

    def _check_all(self, decoded: int, wanted: int) -> None:
        if decoded < wanted:
            raise VideoError(f"{self.path}: decoded {decoded} of the {wanted} frames wanted; truncated or damaged")

    def _by_time(self, wanted: list[int], times: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        """The wanted frames by their presentation times; _Disordered where decoded times do not ascend."""
        convert = VideoReformatter()
        with _opened(self.path) as (container, stream):
            context = stream.codec_context
            for key, run in _runs(wanted, self._index.keys):
                if key > 0:
                    container.seek(int(times[key]), stream=stream)
                missing = {int(times[number]): number for number in run}
                last = None
                for packet in container.demux(stream):
                    # What is neither wanted nor referred to is not decoded at all.
                    context.skip_frame = "DEFAULT" if packet.pts in missing or packet.pts is None else "NONREF"
                    for frame in packet.decode():
                        if frame.pts is None or (last is not None and frame.pts <= last):
                            raise _Disordered
                        last = frame.pts
                        number = missing.pop(last, None)
                        if number is not None:
                            yield number, _rgb(convert, frame, context)
                    if not missing:
                        break

    def _by_count(self, wanted: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        convert, keep = VideoReformatter(), set(wanted)
        with _opened(self.path) as (container, stream):
            for number, frame in enumerate(container.decode(stream)):
                if number in keep:
                    yield number, _rgb(convert, frame, stream.codec_context)
                if number >= wanted[-1]:
                    break

    def __iter__(self) -> Iterator[np.ndarray]:
        """All frames in order, one in memory at a time."""
        convert, number = VideoReformatter(), 0
        with _opened(self.path) as (container, stream):
            for frame in container.decode(stream):
                number += 1
                yield _rgb(convert, frame, stream.codec_context)
        if number != len(self):
            raise VideoError(f"{self.path}: decoded {number} of {len(self)} frames; truncated or damaged")


class _Disordered(Exception):
    """Decoded times do not ascend, whatever the packets said."""


@dataclass(frozen=True, slots=True)
class _Index:
    length: int
    fps: float
    times: Sequence[int] | None  # presentation time of each frame; None: only counting tells frames apart
    keys: np.ndarray  # numbers of the frames that decoding can start at
    paced: np.ndarray | None  # as in `Video`
    promised: int


@lru_cache(maxsize=1 << 16)
def _index(path: str | Source, modified: int, size: int) -> _Index:
    """Counts and times the frames from the packets, without decoding where the container can be believed."""
    with _opened(path) as (container, stream):
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
        times = np.array(sorted(time for time, _ in shown if time is not None), dtype=np.int64)
        promised = _promised(container, stream, fps, int(times[0]) if len(times) else 0, len(shown))
    if believable and len(times) == len(shown) > 0 and (np.diff(times) > 0).all():
        keys = np.searchsorted(times, sorted(time for time, key in shown if key)).astype(np.int32)
        paced = _paced(times) if timed else None
        if paced is not None:  # the rate of its even steps, which a container's own may be far from
            fps = float((len(times) - 1) / (int(times[-1] - times[0]) * unit))
        return _Index(len(times), fps, _compact(times), keys, paced, _missed(promised, len(times)))
    with _opened(path) as (container, stream):
        length = sum(1 for _ in container.decode(stream))
    if length == 0:
        raise VideoError(f"{path}: no frame in its video stream")
    return _Index(length, fps, None, np.zeros(1, np.int32), None, _missed(promised, length))


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


def _runs(wanted: list[int], keys: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    """Splits the wanted numbers where a key frame lies between two of them; each part comes with its key frame."""
    starts = keys[np.maximum(np.searchsorted(keys, wanted, side="right") - 1, 0)] if len(keys) else [0] * len(wanted)
    run: list[int] = []
    begin = 0
    for number, start in zip(wanted, starts, strict=True):
        if run and start > run[-1]:
            yield begin, run
            run = []
        if not run:
            begin = int(start) if start <= number else 0
        run.append(number)
    yield begin, run


@contextmanager
def _opened(path: str | Path | Source) -> Iterator[tuple[Any, Any]]:
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


def _rgb(convert: VideoReformatter, frame: Any, context: Any) -> np.ndarray:
    # The stream's size: a frame of another size (the stream may change midway) is scaled to it.
    size = {"width": context.width, "height": context.height}
    image = convert.reformat(frame, format="rgb24", threads=1, **size).to_ndarray()
    turns = round(frame.rotation / 90) % 4  # by its metadata, anticlockwise
    return np.ascontiguousarray(np.rot90(image, turns)) if turns else image


def _image(file: Path) -> np.ndarray:
    """A picture in RGB. OpenCV is given bytes, since it refuses names that are not UTF-8."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise VideoError(f"{file}: {(error.strerror or 'cannot be read').lower()}") from None
    image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR_RGB) if content else None
    if image is None:
        raise VideoError(f"{file}: cannot be read as an image")
    return image


def _rate(file: Path) -> float:
    try:
        rate = float(file.read_text(errors="replace"))
    except (OSError, ValueError) as error:
        raise VideoError(f"{file}: {error}; write the frame rate as one number") from None
    if not (math.isfinite(rate) and _RATES[0] <= rate <= _RATES[1]):
        raise VideoError(
            f"{file}: a rate of {rate} frames a second; write a number from {_RATES[0]:g} to {_RATES[1]:g}"
        )
    return rate


def _checked(name: object, indices: Sequence[int], length: int) -> np.ndarray:
    wanted = np.asarray(indices, dtype=np.int64)
    if wanted.size == 0:
        raise VideoError(f"{name}: no frames asked for")
    if wanted.min() < 0 or wanted.max() >= length:
        outside = int(wanted.min() if wanted.min() < 0 else wanted.max())
        raise VideoError(f"{name}: frame {outside} asked for; it has frames 0 to {length - 1}")
    return wanted


def _natural(path: Path) -> list[tuple[bool, int, str]]:
    parts = re.split(r"(\d+)", path.name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]
