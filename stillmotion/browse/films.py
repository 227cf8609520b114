"""The indexed videos themselves: the files that a browser can play, and small copies of moments of the others."""

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import cv2
import numpy as np

from stillmotion.data.encode import write_mp4
from stillmotion.data.video import Video, open_video
from stillmotion.errors import StillmotionError

if TYPE_CHECKING:
    from stillmotion.index import Index

# What browsers play, as far as a name tells; where one refuses it after all, the page asks for a copy.
PLAYED = {".mp4": "video/mp4", ".m4v": "video/mp4", ".mov": "video/mp4", ".webm": "video/webm"}
_SIDE, _RATE, _SECONDS = 360, 15.0, 20.0  # of a copy: its shorter edge, frames a second, and length at most
_TOGETHER = 16  # frames that are decoded at a time
_KEPT = 64 * 2**20  # bytes of copies that stay in memory


class GoneError(StillmotionError):
    """An indexed video that is not there any more, or no longer where it was indexed."""


class Films:
    """The videos of an index by the ids of their moments; nothing else on the disk can be named."""

    def __init__(self, index: "Index") -> None:
        self._index = index
        self._copies: OrderedDict[str, bytes] = OrderedDict()
        self._one = threading.Lock()  # copies are made one at a time

    def place(self, id: str) -> Path:
        """Where a moment's video is. KeyError where no moment has this id, GoneError where the video has gone."""
        name, place = self._index.moment(id).path, self._index.file(id)
        inside, real = (Path(os.path.realpath(path)) for path in (self._index.videos, place))
        if not real.is_relative_to(inside):
            raise GoneError(f"{name} leads out of {self._index.videos}; only what lies in this folder is shown")
        if not (real.is_file() or real.is_dir()):
            raise GoneError(f"{name} has gone since it was indexed")
        return real

    def shown_as(self, id: str) -> Literal["file", "copy", "gone"]:
        """Whether the page plays the file itself, a copy of the moment, or its thumbnail alone."""
        try:
            place = self.place(id)
        except GoneError:
            return "gone"
        return "file" if place.is_file() and place.suffix.lower() in PLAYED else "copy"

    def file(self, id: str) -> tuple[Path, str]:
        """A video that browsers play, and its media type."""
        place = self.place(id)
        kind = PLAYED.get(place.suffix.lower())
        if kind is None or not place.is_file():
            raise StillmotionError(f"{place.name} is of no kind that browsers play; ask for a copy")
        return place, kind

    def copy(self, id: str) -> bytes:
        """A moment as a small mp4, kept in memory for a while."""
        place, moment = self.place(id), self._index.moment(id)
        with self._one:
            if id not in self._copies:
                self._copies[id] = _encoded(open_video(place), moment.start, moment.end)
            self._copies.move_to_end(id)
            while len(self._copies) > 1 and sum(map(len, self._copies.values())) > _KEPT:
                self._copies.popitem(last=False)
            return self._copies[id]


def _encoded(video: Video, start: float, end: float) -> bytes:
    """The seconds from start to end as H.264, of which browsers everywhere play 4:2:0 at even sizes."""
    rate = min(_RATE, video.fps)
    count = max(1, round(min(end - start, _SECONDS) * rate))
    numbers = _numbers(video, start + np.arange(count) / rate)
    height, width = video.frames(numbers[:1]).shape[1:3]
    scale = min(1.0, _SIDE / min(height, width))
    size = tuple(max(2, 2 * round(edge * scale / 2)) for edge in (height, width))
    with tempfile.TemporaryDirectory(prefix="stillmotion-copy-") as folder:
        file = Path(folder, "copy.mp4")
        write_mp4(file, _small(video, numbers, (size[0], size[1])), size=(size[0], size[1]), fps=rate, gop=30, crf=26)
        return file.read_bytes()


def _numbers(video: Video, times: np.ndarray) -> list[int]:
    """The frames shown at these seconds; `paced` tells them where the rate varies."""
    steps = np.clip(np.floor(times * video.fps + 1e-6).astype(int), 0, len(video) - 1)
    paced = getattr(video, "paced", None)
    return (steps if paced is None else paced[steps]).tolist()


def _small(video: Video, numbers: list[int], size: tuple[int, int]) -> Iterator[np.ndarray]:
    for first in range(0, len(numbers), _TOGETHER):
        for frame in video.frames(numbers[first : first + _TOGETHER]):
            yield cv2.resize(frame, size[::-1], interpolation=cv2.INTER_AREA)
