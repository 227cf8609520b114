"""Video files that a browser can play, and transcoded previews of segments of the others."""

import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stillmotion.data.video import open_video
from stillmotion.errors import StillmotionError
from stillmotion.index.previews import encode_preview

if TYPE_CHECKING:
    from stillmotion.index import VideoIndex

# What browsers play, as far as the name tells; if one refuses a file after all, the page requests a preview.
PLAYABLE_TYPES = {".mp4": "video/mp4", ".m4v": "video/mp4", ".mov": "video/mp4", ".webm": "video/webm"}
_PREVIEW_CACHE_BYTES = 64 * 2**20  # previews that are kept in memory


class VideoMissingError(StillmotionError):
    """An indexed video no longer exists, or lies outside the indexed folder."""


class IndexedVideoFiles:
    """Video files of an index, looked up by segment id; no other file can be requested.

    Args:
        index: The index.
    """

    def __init__(self, index: "VideoIndex") -> None:
        self._index = index
        self._previews: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()  # previews are encoded one at a time

    def resolve_path(self, id: str) -> Path:
        """Return the path of a segment's video.

        Args:
            id: Id of the segment.

        Raises:
            KeyError: If no segment has this id.
            VideoMissingError: If the video no longer exists or lies outside the indexed folder.
        """
        name, folder = self._index.segment(id).path, self._index.videos_dir
        path = Path(os.path.realpath(self._index.video_path(id)))
        if not path.is_relative_to(os.path.realpath(folder)):
            raise VideoMissingError(f"{name} is outside {folder} and is not served")
        if not (path.is_file() or path.is_dir()):
            raise VideoMissingError(f"{name} no longer exists")
        return path

    def playback_mode(self, id: str) -> Literal["file", "preview", "missing"]:
        """Return whether the page plays the file itself, a preview of the segment, or only its thumbnail."""
        try:
            path = self.resolve_path(id)
        except VideoMissingError:
            return "missing"
        return "file" if path.is_file() and path.suffix.lower() in PLAYABLE_TYPES else "preview"

    def playable_file(self, id: str) -> tuple[Path, str]:
        """Return the path and media type of a video that browsers play.

        Raises:
            StillmotionError: If browsers cannot play it.
        """
        path = self.resolve_path(id)
        media_type = PLAYABLE_TYPES.get(path.suffix.lower())
        if media_type is None or not path.is_file():
            raise StillmotionError(f"browsers cannot play {path.name}; request a preview")
        return path, media_type

    def preview(self, id: str) -> bytes:
        """Return a segment as a small mp4; recent ones are kept in memory."""
        path, segment = self.resolve_path(id), self._index.segment(id)
        with self._lock:
            if id not in self._previews:
                self._previews[id] = encode_preview(open_video(path), segment.start, segment.end)
            self._previews.move_to_end(id)
            while len(self._previews) > 1 and sum(map(len, self._previews.values())) > _PREVIEW_CACHE_BYTES:
                self._previews.popitem(last=False)
            return self._previews[id]
