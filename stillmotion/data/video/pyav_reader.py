"""Random access to the frames of a video file with PyAV.

A packet index gives the number of frames, their timestamps and the seek points without decoding, if the container has
reliable timestamps. Otherwise (AVI with B-frames, missing or repeated timestamps), frames are counted by decoding them.
"""

import math
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition
from av.video.reformatter import VideoReformatter

from stillmotion.data.video import input_limits
from stillmotion.data.video.reader import DEFAULT_FPS, VideoReader, check_frame_indices
from stillmotion.data.video.remote import ByteSource
from stillmotion.errors import VideoError

# Containers whose packets have reliable presentation times, with or without B-frames.
_TIMED_CONTAINERS = ("mov,mp4", "matroska,webm")
# Codecs with packets that show no frame, so that packets are not frames.
_CODECS_WITH_HIDDEN_FRAMES = ("vp8",)
# A video counts as complete if no more than so many frames, plus a fraction, of the expected ones are missing.
_MISSING_FRAMES_ALLOWED, _MISSING_FRACTION_ALLOWED = 2, 0.05
_MAX_KEPT_PIXELS = 1 << 26  # of decoded frames; 96 MiB as most decoders store them


@dataclass(frozen=True, slots=True)
class PacketIndex:
    """What the packets of a file say about its frames.

    Attributes:
        num_frames: Number of frames.
        fps: Frames per second.
        pts: Presentation time of each frame; None if frames can only be counted.
        seek_points: Indices of the frames at which decoding can start.
        constant_rate_indices: As in `VideoReader`.
        expected_frames: As in `VideoReader`.
        stream_index: Index of the video stream in the container.
        time_base: Unit of the presentation times, in seconds.
        format: Container, codec and pixel format.
        frame_size: Height and width in the header.
    """

    num_frames: int
    fps: float
    pts: Sequence[int] | None
    seek_points: np.ndarray
    constant_rate_indices: np.ndarray | None
    expected_frames: int
    stream_index: int
    time_base: Fraction
    format: tuple[str, str, str]
    frame_size: tuple[int, int]


@lru_cache(maxsize=1 << 16)
def build_packet_index(path: str | ByteSource, mtime_ns: int, num_bytes: int) -> PacketIndex:
    """Index the frames of a file by its packets, without decoding if its timestamps are reliable.

    Args:
        path: The file, or an object that opens its bytes.
        mtime_ns: Modification time of the file, part of the cache key.
        num_bytes: Size of the file, part of the cache key.

    Raises:
        VideoError: If the file is truncated or has no video.
    """
    with open_container(path) as (container, stream):
        timed = container.format.name.startswith(_TIMED_CONTAINERS)
        rate = stream.average_rate or stream.guessed_rate
        packets = [(p.pts, p.is_keyframe, p.is_discard, p.is_corrupt) for p in container.demux(stream) if p.size]
        if any(corrupt for *_, corrupt in packets) or (timed and len(packets) < stream.frames):
            intact = sum(not corrupt for *_, corrupt in packets)
            total = f" of {stream.frames}" if stream.frames else ""
            raise VideoError(f"{path}: truncated; only {intact}{total} frames are complete")
        displayed = [(time, key) for time, key, discard, _ in packets if not discard]
        context = stream.codec_context
        reliable = (timed or not context.has_b_frames) and context.name not in _CODECS_WITH_HIDDEN_FRAMES
        fps, time_base = float(rate) if rate else DEFAULT_FPS, stream.time_base
        formats = (container.format.name, context.codec.canonical_name, context.pix_fmt or "")
        source = (stream.index, time_base, formats, (context.height, context.width))
        times = np.array(sorted(time for time, _ in displayed if time is not None), dtype=np.int64)
        expected = _expected_frames(container, stream, fps, int(times[0]) if len(times) else 0, len(displayed))
    if reliable and len(times) == len(displayed) > 0 and (np.diff(times) > 0).all():
        # The first frame always counts: in a cut video, its key frame may lie before it and not be displayed.
        keys = np.union1d(0, np.searchsorted(times, [time for time, key in displayed if key])).astype(np.int32)
        nearest = _constant_rate_indices(times) if timed else None
        if nearest is not None:  # use the mean rate, which may be far from the rate in the header
            fps = float((len(times) - 1) / (int(times[-1] - times[0]) * time_base))
        missing = _if_frames_missing(expected, len(times))
        return PacketIndex(len(times), fps, _compress_pts(times), keys, nearest, missing, *source)
    with open_container(path) as (container, stream):
        length = sum(1 for _ in container.decode(stream))
    if length == 0:
        raise VideoError(f"{path}: the video stream has no frames")
    return PacketIndex(length, fps, None, np.zeros(1, np.int32), None, _if_frames_missing(expected, length), *source)


def _expected_frames(container: Any, stream: Any, fps: float, first: int, packets: int) -> int:
    """Number of frames that a container declares; 0 if unknown or not reliable.

    The header of an AVI is often wrong, its index is not. Matroska stores the duration of a stream, or of the file.
    """
    if container.format.name == "avi":
        return max(packets, sum(1 for entry in stream.index_entries if entry.size))
    if not container.format.name.startswith("matroska,webm"):
        return 0
    seconds = _parse_duration(stream.metadata.get("DURATION", ""))
    if not seconds and len(container.streams) == 1 and container.duration:
        seconds = container.duration / av.time_base
    return max(0, round((seconds - float(first * stream.time_base)) * fps))


def _parse_duration(text: str) -> float:
    """Seconds of a duration in Matroska's format, 00:00:02.833000000; 0 if the text is something else."""
    match = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d*)?)", text.strip())
    return 3600 * int(match[1]) + 60 * int(match[2]) + float(match[3]) if match else 0.0


def _if_frames_missing(expected: int, length: int) -> int:
    """The expected number of frames if many of them are missing, else 0."""
    return expected if length + _MISSING_FRAMES_ALLOWED + _MISSING_FRACTION_ALLOWED * expected < expected else 0


def _constant_rate_indices(times: np.ndarray) -> np.ndarray | None:
    """`VideoReader.constant_rate_indices` of frames at these times."""
    if len(times) < 3:
        return None
    even = np.linspace(times[0], times[-1], len(times))
    after = np.clip(np.searchsorted(times, even), 1, len(times) - 1)
    nearest = after - (even - times[after - 1] <= times[after] - even)
    return None if (nearest == np.arange(len(times))).all() else nearest.astype(np.int32)


def _compress_pts(times: np.ndarray) -> Sequence[int]:
    """Evenly spaced times as a range, to save memory."""
    steps = np.diff(times)
    if len(steps) and (steps == steps[0]).all():
        return range(int(times[0]), int(times[-1]) + 1, int(steps[0]))
    return times  # type: ignore[return-value]


def group_by_seek_point(indices: list[int], seek_points: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    """Group frame indices by the seek point from which they are decoded.

    Args:
        indices: Ascending frame indices.
        seek_points: Ascending indices of the frames at which decoding can start.

    Yields:
        A seek point and the indices that are decoded from it.
    """
    group: list[int] = []
    begin = 0
    starts = seek_points[np.searchsorted(seek_points, indices, side="right") - 1].tolist()
    for index, start in zip(indices, starts, strict=True):
        if group and start > group[-1]:
            yield begin, group
            group = []
        if not group:
            begin = start
        group.append(index)
    yield begin, group


@contextmanager
def open_container(path: str | Path | ByteSource) -> Iterator[tuple[Any, Any]]:
    """Open a container and its first video stream, decoding on one thread; FFmpeg's errors become VideoError."""
    try:
        # With "file:", a name such as http:… is not taken for a URL.
        file: Any = path.open() if isinstance(path, ByteSource) else f"file:{path}"
        options, timeout = input_limits.demuxer_options(), input_limits.READ_SECONDS.value
        with _open_known_format(path, file, options=options, timeout=timeout, metadata_errors="ignore") as container:
            videos = (s for s in container.streams.video if not s.disposition & Disposition.attached_pic)
            streams = [s for s in videos if s.codec_context is not None]  # None: unknown codec
            if not streams:
                raise VideoError(f"{path}: no video stream")
            context = streams[0].codec_context
            input_limits.check_frame_size(path, context.height, context.width)
            context.options = input_limits.decoder_options()
            # Workers run in parallel already; more threads would decode frames that are not needed.
            context.thread_count = 1
            yield container, streams[0]
    except (av.FFmpegError, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise VideoError(f"{path}: cannot be decoded ({reason})") from None


def _open_known_format(path: str | Path | ByteSource, file: Any, **options: Any) -> Any:
    try:
        return av.open(file, **options)
    except av.ArgumentError:  # the format is not on the list
        raise VideoError(
            f"{path}: not a video format that is read; playlists and scripts are refused. "
            f"Set {input_limits.FORMATS_VARIABLE} to the name of a further FFmpeg format."
        ) from None


# Decoders that apply the skip setting of the first packet to all packets.
_DECODERS_WITH_FIXED_SKIP = ("libdav1d",)


class PyAVReader(VideoReader):
    """A video file, decoded with PyAV. Opening it reads its packets once; the file is not kept open.

    Args:
        path: The file, or an object that opens its bytes.
    """

    def __init__(self, path: str | Path | ByteSource) -> None:
        self.path = path if isinstance(path, ByteSource) else Path(path)
        self.name = str(path)
        self._index = (
            build_packet_index(path, 0, 0) if isinstance(path, ByteSource) else self._read_packet_index(Path(path))
        )
        self.fps, self.expected_frames = self._index.fps, self._index.expected_frames
        self.constant_rate_indices = self._index.constant_rate_indices
        self._kept_frames: list[Any] = []  # all frames, decoded but not converted, or none

    @staticmethod
    def _read_packet_index(path: Path) -> PacketIndex:
        try:
            status = path.stat()
        except (OSError, ValueError) as error:
            raise VideoError(f"{path}: {(getattr(error, 'strerror', None) or 'cannot be read').lower()}") from None
        if not stat.S_ISREG(status.st_mode):  # opening it could block
            raise VideoError(f"{path}: not a regular file (pipe, socket or device)")
        if status.st_size == 0:
            raise VideoError(f"{path}: empty file (0 bytes)")
        return build_packet_index(str(path), status.st_mtime_ns, status.st_size)

    def __len__(self) -> int:
        return self._index.num_frames

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        order = check_frame_indices(self.path, indices, len(self)).tolist()
        unique = sorted(set(order))
        input_limits.check_clip_size(self.path, len(order), *self._index.frame_size)
        images: dict[int, np.ndarray] = {}
        if self._index.pts is not None:
            with suppress(_PtsNotAscending):
                images = dict(self._decode_by_pts(unique, self._index.pts))
        if len(images) < len(unique):  # the times of a damaged file may be others after a seek
            images = dict(self._decode_by_count(unique))
        self._check_decoded(len(images), len(unique))
        return np.stack([images[index] for index in order])

    def _iter_unique(self, indices: list[int]) -> Iterator[np.ndarray]:
        check_frame_indices(self.path, indices, len(self))
        if self._kept_frames:
            convert, (height, width) = VideoReformatter(), self._index.frame_size
            yield from (_to_rgb(convert, self._kept_frames[index], (width, height)) for index in indices)
            return
        done = 0
        # All frames are decoded without seeking.
        if self._index.pts is not None and len(indices) < len(self):
            with suppress(_PtsNotAscending):
                for index, image in self._decode_by_pts(indices, self._index.pts):
                    if index != indices[done]:  # one is missing
                        break
                    done += 1
                    yield image
        if done < len(indices):  # decode the rest by counting
            for _, image in self._decode_by_count(indices[done:]):
                done += 1
                yield image
        self._check_decoded(done, len(indices))

    def iter_shrunk_frames(self, side: int) -> Iterator[np.ndarray]:
        # The frames of a short video are kept, so that reading them next does not decode it again.
        kept: list[Any] | None = None
        if len(self) * math.prod(self._index.frame_size) <= _MAX_KEPT_PIXELS:
            kept = []
        done = 0
        for _, image in self._decode_by_count(list(range(len(self))), size=(side, side), kept=kept):
            done += 1
            yield image
        self._check_decoded(done, len(self))
        self._kept_frames = kept or []

    def _check_decoded(self, decoded: int, requested: int) -> None:
        if decoded < requested:
            raise VideoError(
                f"{self.path}: only {decoded} of {requested} requested frames could be decoded; "
                "the file is truncated or damaged"
            )

    def _decode_by_pts(self, indices: list[int], times: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        """Decode frames by presentation time; raises _PtsNotAscending if the decoded times do not ascend."""
        convert = VideoReformatter()
        with open_container(self.path) as (container, stream):
            context, size = stream.codec_context, _frame_size(stream)
            for key, group in group_by_seek_point(indices, self._index.seek_points):
                if key > 0:
                    container.seek(int(times[key]), stream=stream)
                missing = {int(times[index]): index for index in group}
                last = None
                for packet in container.demux(stream):
                    # Skip frames that are neither requested nor referenced by others.
                    can_skip = (
                        context.name not in _DECODERS_WITH_FIXED_SKIP
                        and packet.pts is not None
                        and packet.pts not in missing
                    )
                    context.skip_frame = "NONREF" if can_skip else "DEFAULT"
                    for frame in packet.decode():
                        if frame.pts is None or (last is not None and frame.pts <= last):
                            raise _PtsNotAscending
                        last = frame.pts
                        index = missing.pop(last, None)
                        if index is not None:
                            yield index, _to_rgb(convert, frame, size)
                    if not missing:
                        break

    def _decode_by_count(
        self, indices: list[int], *, size: tuple[int, int] | None = None, kept: list[Any] | None = None
    ) -> Iterator[tuple[int, np.ndarray]]:
        convert, requested = VideoReformatter(), set(indices)
        with open_container(self.path) as (container, stream):
            size = size or _frame_size(stream)
            for index, frame in enumerate(container.decode(stream)):
                if index in requested:
                    yield index, _to_rgb(convert, frame, size)
                    if kept is not None:
                        kept.append(frame)
                if index >= indices[-1]:
                    break


class _PtsNotAscending(Exception):
    """The decoded presentation times do not ascend, although those of the packets do."""


def _frame_size(stream: Any) -> tuple[int, int]:
    """Width and height by the container; those of the decoder change if the stream changes midway."""
    return stream.codec_context.width, stream.codec_context.height


def _to_rgb(convert: VideoReformatter, frame: Any, size: tuple[int, int]) -> np.ndarray:
    """Convert a frame to RGB, scaled to the size of the video and rotated by its metadata."""
    image = convert.reformat(frame, *size, format="rgb24", threads=1).to_ndarray()
    turns = round(frame.rotation / 90) % 4  # counterclockwise
    return np.ascontiguousarray(np.rot90(image, turns)) if turns else image
