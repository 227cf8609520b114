"""What the packets of a video file tell without decoding: how many frames it has, when each is shown, the key frames.

In containers whose time stamps say so, packets are believed; elsewhere (AVI with B-frames, missing or repeated stamps)
frames are counted by decoding them all."""

import re
import stat
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
from av.video.reformatter import VideoReformatter

from stillmotion.data.video.reader import DEFAULT_FPS, check_frame_indices
from stillmotion.data.video.remote import ByteSource
from stillmotion.errors import VideoError

# Their packets carry true presentation times, B-frames or not.
_TIMED_CONTAINERS = ("mov,mp4", "matroska,webm")
# A packet of these may show no frame, so that packets cannot be counted instead of frames.
_CODECS_WITH_HIDDEN_FRAMES = ("vp8",)
# Frames that a whole video may lack of what its container promises, by rounding or by delay: so many, and a share.
_MISSING_FRAMES_ALLOWED, _MISSING_FRACTION_ALLOWED = 2, 0.05


@dataclass(frozen=True, slots=True)
class PacketIndex:
    num_frames: int
    fps: float
    pts: Sequence[int] | None  # presentation time of each frame; None: only counting tells frames apart
    seek_points: np.ndarray  # numbers of the frames that decoding can start at
    constant_rate_indices: np.ndarray | None  # as in `Video`
    expected_frames: int
    stream_index: int  # its number among all streams of the container
    time_base: Fraction  # seconds that times count
    format: tuple[str, str, str]  # container, codec, pixel format


@lru_cache(maxsize=1 << 16)
def build_packet_index(path: str | ByteSource, mtime_ns: int, num_bytes: int) -> PacketIndex:
    """Counts and times the frames from the packets, without decoding where the container can be believed."""
    with open_container(path) as (container, stream):
        timed = container.format.name.startswith(_TIMED_CONTAINERS)
        rate = stream.average_rate or stream.guessed_rate
        packets = [(p.pts, p.is_keyframe, p.is_discard, p.is_corrupt) for p in container.demux(stream) if p.size]
        if any(corrupt for *_, corrupt in packets) or (timed and len(packets) < stream.frames):
            whole = sum(not corrupt for *_, corrupt in packets)
            raise VideoError(f"{path}: truncated; {whole} of {stream.frames or 'its'} frames are there")
        shown = [(time, key) for time, key, discard, _ in packets if not discard]
        context = stream.codec_context
        believable = (timed or not context.has_b_frames) and context.name not in _CODECS_WITH_HIDDEN_FRAMES
        fps, unit = float(rate) if rate else DEFAULT_FPS, stream.time_base
        kind = (container.format.name, context.codec.canonical_name, context.pix_fmt or "")
        place = (stream.index, unit, kind)
        times = np.array(sorted(time for time, _ in shown if time is not None), dtype=np.int64)
        promised = _expected_frames(container, stream, fps, int(times[0]) if len(times) else 0, len(shown))
    if believable and len(times) == len(shown) > 0 and (np.diff(times) > 0).all():
        # The first frame is one, though a cut may have hidden the key frame that it needs: decoding begins before it.
        keys = np.union1d(0, np.searchsorted(times, [time for time, key in shown if key])).astype(np.int32)
        paced = _constant_rate_indices(times) if timed else None
        if paced is not None:  # the rate of its even steps, which a container's own may be far from
            fps = float((len(times) - 1) / (int(times[-1] - times[0]) * unit))
        return PacketIndex(
            len(times), fps, _compress_pts(times), keys, paced, _missing_frames(promised, len(times)), *place
        )
    with open_container(path) as (container, stream):
        length = sum(1 for _ in container.decode(stream))
    if length == 0:
        raise VideoError(f"{path}: no frame in its video stream")
    return PacketIndex(length, fps, None, np.zeros(1, np.int32), None, _missing_frames(promised, length), *place)


def _expected_frames(container: Any, stream: Any, fps: float, first: int, packets: int) -> int:
    """How many frames a container says that it has, where that can be believed; else 0.

    An AVI's header often errs, and its index does not. Matroska knows how long a stream lasts, or all of them.
    """
    if container.format.name == "avi":
        return max(packets, sum(1 for entry in stream.index_entries if entry.size))
    if not container.format.name.startswith("matroska,webm"):
        return 0
    lasts = _parse_duration(stream.metadata.get("DURATION", ""))
    if not lasts and len(container.streams) == 1 and container.duration:
        lasts = container.duration / av.time_base
    return max(0, round((lasts - float(first * stream.time_base)) * fps))


def _parse_duration(text: str) -> float:
    """Of a duration as Matroska's tags have it, 00:00:02.833000000; 0 where it is none."""
    found = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d*)?)", text.strip())
    return 3600 * int(found[1]) + 60 * int(found[2]) + float(found[3]) if found else 0.0


def _missing_frames(promised: int, length: int) -> int:
    """The promised number where it is not kept, and else 0."""
    return promised if length + _MISSING_FRAMES_ALLOWED + _MISSING_FRACTION_ALLOWED * promised < promised else 0


def _constant_rate_indices(times: np.ndarray) -> np.ndarray | None:
    """`Video.paced` of frames at these times; None where each lies within half a step of its place."""
    if len(times) < 3:
        return None
    even = np.linspace(times[0], times[-1], len(times))
    after = np.clip(np.searchsorted(times, even), 1, len(times) - 1)
    nearest = after - (even - times[after - 1] <= times[after] - even)
    return None if (nearest == np.arange(len(times))).all() else nearest.astype(np.int32)


def _compress_pts(times: np.ndarray) -> Sequence[int]:
    """Evenly spaced times as a range: the index of a large data set then stays small."""
    steps = np.diff(times)
    if len(steps) and (steps == steps[0]).all():
        return range(int(times[0]), int(times[-1]) + 1, int(steps[0]))
    return times  # type: ignore[return-value]


def group_by_seek_point(indices: list[int], seek_points: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    """Splits the wanted numbers where a key frame lies between two of them; each part comes with its key frame."""
    run: list[int] = []
    begin = 0
    for number, start in zip(
        indices, seek_points[np.searchsorted(seek_points, indices, side="right") - 1].tolist(), strict=True
    ):
        if run and start > run[-1]:
            yield begin, run
            run = []
        if not run:
            begin = start
        run.append(number)
    yield begin, run


@contextmanager
def open_container(path: str | Path | ByteSource) -> Iterator[tuple[Any, Any]]:
    """The container and its first video stream, decoding on one thread; FFmpeg's errors become VideoError."""
    try:
        # The protocol is said, so that no name is taken for an address, such as http:….
        file: Any = path.open() if isinstance(path, ByteSource) else f"file:{path}"
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


# What they are told to skip at their first packet holds for all.
_DECODERS_WITH_FIXED_SKIP = ("libdav1d",)


class PyAVReader:
    """A video file, read by PyAV. Opening it walks once over its packets; nothing is kept open."""

    def __init__(self, path: str | Path | ByteSource) -> None:
        self.path = path if isinstance(path, ByteSource) else Path(path)
        self._index = (
            build_packet_index(path, 0, 0) if isinstance(path, ByteSource) else self._read_packet_index(Path(path))
        )
        self.fps, self.constant_rate_indices, self.expected_frames = (
            self._index.fps,
            self._index.constant_rate_indices,
            self._index.expected_frames,
        )

    @staticmethod
    def _read_packet_index(path: Path) -> PacketIndex:
        try:
            found = path.stat()
        except (OSError, ValueError) as error:
            raise VideoError(f"{path}: {(getattr(error, 'strerror', None) or 'cannot be read').lower()}") from None
        if not stat.S_ISREG(found.st_mode):
            raise VideoError(f"{path}: no file, but a pipe, a socket or a device")  # to open one may wait for ever
        if found.st_size == 0:
            raise VideoError(f"{path}: empty file (0 bytes)")
        return build_packet_index(str(path), found.st_mtime_ns, found.st_size)

    def __len__(self) -> int:
        return self._index.num_frames

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        order = check_frame_indices(self.path, indices, len(self)).tolist()
        wanted = sorted(set(order))
        images = None
        if self._index.pts is not None:
            try:
                images = dict(self._decode_by_pts(wanted, self._index.pts))
            except _PtsNotAscending:
                images = None
        if images is None:
            images = dict(self._decode_by_count(wanted))
        self._check_decoded(len(images), len(wanted))
        return np.stack([images[number] for number in order])

    def iter_frames(self, indices: Sequence[int]) -> Iterator[np.ndarray]:
        """The frames of ascending numbers by one walk over the file, one in memory at a time."""
        wanted = check_frame_indices(self.path, indices, len(self)).tolist()
        done = 0
        if self._index.pts is not None:
            try:
                for _, image in self._decode_by_pts(wanted, self._index.pts):
                    done += 1
                    yield image
            except _PtsNotAscending:
                pass  # the rest is counted
            else:
                self._check_decoded(done, len(wanted))
        if done < len(wanted):
            for _, image in self._decode_by_count(wanted[done:]):
                done += 1
                yield image
        self._check_decoded(done, len(wanted))

    def _check_decoded(self, decoded: int, wanted: int) -> None:
        if decoded < wanted:
            raise VideoError(f"{self.path}: decoded {decoded} of the {wanted} frames wanted; truncated or damaged")

    def _decode_by_pts(self, wanted: list[int], times: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        """The wanted frames by their presentation times; _Disordered where decoded times do not ascend."""
        convert = VideoReformatter()
        with open_container(self.path) as (container, stream):
            context, size = stream.codec_context, _frame_size(stream)
            for key, run in group_by_seek_point(wanted, self._index.seek_points):
                if key > 0:
                    container.seek(int(times[key]), stream=stream)
                missing = {int(times[number]): number for number in run}
                last = None
                for packet in container.demux(stream):
                    # What is neither wanted nor referred to is not decoded at all.
                    spared = (
                        context.name not in _DECODERS_WITH_FIXED_SKIP
                        and packet.pts is not None
                        and packet.pts not in missing
                    )
                    context.skip_frame = "NONREF" if spared else "DEFAULT"
                    for frame in packet.decode():
                        if frame.pts is None or (last is not None and frame.pts <= last):
                            raise _PtsNotAscending
                        last = frame.pts
                        number = missing.pop(last, None)
                        if number is not None:
                            yield number, _to_rgb(convert, frame, size)
                    if not missing:
                        break

    def _decode_by_count(self, wanted: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        convert, keep = VideoReformatter(), set(wanted)
        with open_container(self.path) as (container, stream):
            size = _frame_size(stream)
            for number, frame in enumerate(container.decode(stream)):
                if number in keep:
                    yield number, _to_rgb(convert, frame, size)
                if number >= wanted[-1]:
                    break

    def __iter__(self) -> Iterator[np.ndarray]:
        """All frames in order, one in memory at a time."""
        convert, number = VideoReformatter(), 0
        with open_container(self.path) as (container, stream):
            size = _frame_size(stream)
            for frame in container.decode(stream):
                number += 1
                yield _to_rgb(convert, frame, size)
        if number != len(self):
            raise VideoError(f"{self.path}: decoded {number} of {len(self)} frames; truncated or damaged")


class _PtsNotAscending(Exception):
    """Decoded times do not ascend, whatever the packets said."""


def _frame_size(stream: Any) -> tuple[int, int]:
    """Width and height as the container says; the decoder's follow a stream that changes midway."""
    return stream.codec_context.width, stream.codec_context.height


def _to_rgb(convert: VideoReformatter, frame: Any, size: tuple[int, int]) -> np.ndarray:
    """A picture of a video's one size, to which a frame of another is scaled."""
    image = convert.reformat(frame, *size, format="rgb24", threads=1).to_ndarray()
    turns = round(frame.rotation / 90) % 4  # by its metadata, anticlockwise
    return np.ascontiguousarray(np.rot90(image, turns)) if turns else image
