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

from stillmotion.data.video import open_video
from stillmotion.data.video.reader import VideoReader, to_frame_indices
from stillmotion.data.video.writer import write_mp4
from stillmotion.errors import StillmotionError

if TYPE_CHECKING:
    from stillmotion.index import VideoIndex

# What browsers play, as far as a name tells; where one refuses it after all, the page asks for a copy.
PLAYABLE_TYPES = {".mp4": "video/mp4", ".m4v": "video/mp4", ".mov": "video/mp4", ".webm": "video/webm"}
_PREVIEW_SIDE, _PREVIEW_FPS, _PREVIEW_SECONDS = (
    360,
    15.0,
    20.0,
)  # of a copy: its shorter edge, frames a second, and length at most
_FRAMES_PER_READ = 16  # frames that are decoded at a time
_PREVIEW_CACHE_BYTES = 64 * 2**20  # bytes of copies that stay in memory


class VideoMissingError(StillmotionError):
    """An indexed video that is not there any more, or no longer where it was indexed."""


class VideoPlayback:
    """The videos of an index by the ids of their moments; nothing else on the disk can be named."""

    def __init__(self, index: "VideoIndex") -> None:
        self._index = index
        self._previews: OrderedDict[str, bytes] = OrderedDict()
        self._one = threading.Lock()  # copies are made one at a time

    def resolve_path(self, id: str) -> Path:
        """Where a moment's video is. KeyError where no moment has this id, GoneError where the video has gone."""
        name, place = self._index.segment(id).path, self._index.video_path(id)
        inside, real = (Path(os.path.realpath(path)) for path in (self._index.videos_dir, place))
        if not real.is_relative_to(inside):
            raise VideoMissingError(f"{name} leads out of {self._index.videos_dir}; only what lies in this folder is shown")
        if not (real.is_file() or real.is_dir()):
            raise VideoMissingError(f"{name} has gone since it was indexed")
        return real

    def playback_mode(self, id: str) -> Literal["file", "preview", "missing"]:
        """Whether the page plays the file itself, a copy of the moment, or its thumbnail alone."""
        try:
            place = self.resolve_path(id)
        except VideoMissingError:
            return "missing"
        return "file" if place.is_file() and place.suffix.lower() in PLAYABLE_TYPES else "preview"

    def playable_file(self, id: str) -> tuple[Path, str]:
        """A video that browsers play, and its media type."""
        place = self.resolve_path(id)
        kind = PLAYABLE_TYPES.get(place.suffix.lower())
        if kind is None or not place.is_file():
            raise StillmotionError(f"{place.name} is of no kind that browsers play; ask for a copy")
        return place, kind

    def preview(self, id: str) -> bytes:
        """A moment as a small mp4, kept in memory for a while."""
        place, moment = self.resolve_path(id), self._index.segment(id)
        with self._one:
            if id not in self._previews:
                self._previews[id] = _encode_preview(open_video(place), moment.start, moment.end)
            self._previews.move_to_end(id)
            while len(self._previews) > 1 and sum(map(len, self._previews.values())) > _PREVIEW_CACHE_BYTES:
                self._previews.popitem(last=False)
            return self._previews[id]


def _encode_preview(video: VideoReader, start: float, end: float) -> bytes:
    """The seconds from start to end as H.264, of which browsers everywhere play 4:2:0 at even sizes."""
    rate = min(_PREVIEW_FPS, video.fps)
    count = max(1, round(min(end - start, _PREVIEW_SECONDS) * rate))
    numbers = _frame_indices(video, start + np.arange(count) / rate)
    height, width = video.get_frames(numbers[:1]).shape[1:3]
    scale = min(1.0, _PREVIEW_SIDE / min(height, width))
    size = tuple(max(2, 2 * round(edge * scale / 2)) for edge in (height, width))
    with tempfile.TemporaryDirectory(prefix="stillmotion-copy-") as folder:
        file = Path(folder, "copy.mp4")
        write_mp4(
            file,
            _resized_frames(video, numbers, (size[0], size[1])),
            size=(size[0], size[1]),
            fps=rate,
            gop_size=30,
            crf=26,
        )
        return file.read_bytes()


def _frame_indices(video: VideoReader, times: np.ndarray) -> list[int]:
    """The frames shown at these seconds; `paced` tells them where the rate varies."""
    steps = np.clip(np.floor(times * video.fps + 1e-6).astype(int), 0, len(video) - 1)
    return to_frame_indices(video, steps).tolist()


def _resized_frames(video: VideoReader, numbers: list[int], size: tuple[int, int]) -> Iterator[np.ndarray]:
    for first in range(0, len(numbers), _FRAMES_PER_READ):
        for frame in video.get_frames(numbers[first : first + _FRAMES_PER_READ]):
            yield cv2.resize(frame, size[::-1], interpolation=cv2.INTER_AREA)
