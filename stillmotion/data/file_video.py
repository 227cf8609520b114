"""Frames by number out of video files, by PyAV.

A frame's number is its place in the order of display. Where packets are believed, reading jumps to the last key frame
before the next wanted frame and leaves undecoded what nothing refers to; elsewhere frames are counted from the start.
A video that says how it is to be turned is turned.
"""

import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from av.video.reformatter import VideoReformatter

from stillmotion.data.address import Source
from stillmotion.data.packets import Index, index, opened, runs
from stillmotion.data.pictures import checked
from stillmotion.errors import VideoError

# What they are told to skip at their first packet holds for all.
_TOLD_ONCE = ("libdav1d",)


class FileVideo:
    """A video file, read by PyAV. Opening it walks once over its packets; nothing is kept open."""

    def __init__(self, path: str | Path | Source) -> None:
        self.path = path if isinstance(path, Source) else Path(path)
        self._index = index(path, 0, 0) if isinstance(path, Source) else self._index_of(Path(path))
        self.fps, self.paced, self.promised = self._index.fps, self._index.paced, self._index.promised

    @staticmethod
    def _index_of(path: Path) -> Index:
        try:
            found = path.stat()
        except (OSError, ValueError) as error:
            raise VideoError(f"{path}: {(getattr(error, 'strerror', None) or 'cannot be read').lower()}") from None
        if not stat.S_ISREG(found.st_mode):
            raise VideoError(f"{path}: no file, but a pipe, a socket or a device")  # to open one may wait for ever
        if found.st_size == 0:
            raise VideoError(f"{path}: empty file (0 bytes)")
        return index(str(path), found.st_mtime_ns, found.st_size)

    def __len__(self) -> int:
        return self._index.length

    def frames(self, indices: Sequence[int]) -> np.ndarray:
        order = checked(self.path, indices, len(self)).tolist()
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
        wanted = checked(self.path, numbers, len(self)).tolist()
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
        with opened(self.path) as (container, stream):
            context, size = stream.codec_context, _size(stream)
            for key, run in runs(wanted, self._index.keys):
                if key > 0:
                    container.seek(int(times[key]), stream=stream)
                missing = {int(times[number]): number for number in run}
                last = None
                for packet in container.demux(stream):
                    # What is neither wanted nor referred to is not decoded at all.
                    spared = context.name not in _TOLD_ONCE and packet.pts is not None and packet.pts not in missing
                    context.skip_frame = "NONREF" if spared else "DEFAULT"
                    for frame in packet.decode():
                        if frame.pts is None or (last is not None and frame.pts <= last):
                            raise _Disordered
                        last = frame.pts
                        number = missing.pop(last, None)
                        if number is not None:
                            yield number, _rgb(convert, frame, size)
                    if not missing:
                        break

    def _by_count(self, wanted: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        convert, keep = VideoReformatter(), set(wanted)
        with opened(self.path) as (container, stream):
            size = _size(stream)
            for number, frame in enumerate(container.decode(stream)):
                if number in keep:
                    yield number, _rgb(convert, frame, size)
                if number >= wanted[-1]:
                    break

    def __iter__(self) -> Iterator[np.ndarray]:
        """All frames in order, one in memory at a time."""
        convert, number = VideoReformatter(), 0
        with opened(self.path) as (container, stream):
            size = _size(stream)
            for frame in container.decode(stream):
                number += 1
                yield _rgb(convert, frame, size)
        if number != len(self):
            raise VideoError(f"{self.path}: decoded {number} of {len(self)} frames; truncated or damaged")


class _Disordered(Exception):
    """Decoded times do not ascend, whatever the packets said."""


def _size(stream: Any) -> tuple[int, int]:
    """Width and height as the container says; the decoder's follow a stream that changes midway."""
    return stream.codec_context.width, stream.codec_context.height


def _rgb(convert: VideoReformatter, frame: Any, size: tuple[int, int]) -> np.ndarray:
    """A picture of a video's one size, to which a frame of another is scaled."""
    image = convert.reformat(frame, *size, format="rgb24", threads=1).to_ndarray()
    turns = round(frame.rotation / 90) % 4  # by its metadata, anticlockwise
    return np.ascontiguousarray(np.rot90(image, turns)) if turns else image
