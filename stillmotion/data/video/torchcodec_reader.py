"""Frames by number out of video files, by torchcodec: those that PyAV gives, bit for bit.

torchcodec reads with another FFmpeg than PyAV. Left to PyAV is therefore what two of them need not decode alike
(MPEG-4 part 2 by its inverse transform, ten bits a colour by their conversion), what torchcodec does not number by
counting (AVI with B-frames, transport streams), and whatever it fails at. What a file holds is PyAV's to say.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.video.pyav_reader import PyAVReader
from stillmotion.data.video.reader import check_frame_indices
from stillmotion.data.video.remote import ByteSource
from stillmotion.errors import StillmotionError

# What it reads: containers, codecs whose norms fix every bit, and eight bits a colour.
_BIT_EXACT_FORMATS = (
    ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"),
    ("h264", "hevc", "vp9", "av1"),
    ("yuv420p", "yuvj420p", "yuv422p", "yuv444p"),
)


class TorchCodecReader(PyAVReader):
    """A video file, of which frames by number come from torchcodec; walks over it are PyAV's."""

    def __init__(self, path: str | Path | ByteSource) -> None:
        import_torchcodec()  # what is not installed is said here, and not taken for a damaged file
        super().__init__(path)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        found = self._decode_with_torchcodec(indices)
        return super().get_frames(indices) if found is None else found

    def _decode_with_torchcodec(self, indices: Sequence[int]) -> np.ndarray | None:
        """The frames, or None where they are not certain to be PyAV's."""
        times = self._index.pts
        if times is None or not all(
            name in read for name, read in zip(self._index.format, _BIT_EXACT_FORMATS, strict=True)
        ):
            return None
        wanted = check_frame_indices(self.path, indices, len(self)).tolist()
        source: Any = self.path.open().read() if isinstance(self.path, ByteSource) else f"file:{self.path}"
        try:
            decoder = import_torchcodec()(
                source,
                stream_index=self._index.stream_index,
                dimension_order="NHWC",
                num_ffmpeg_threads=1,
                seek_mode="exact",
            )
            if len(decoder) != len(self):
                return None
            batch = decoder.get_frames_at(wanted)
        except (RuntimeError, LookupError, ValueError):  # damage; a name that is not UTF-8; a size that changes midway
            return None
        shown = np.rint(batch.pts_seconds.numpy() / float(self._index.time_base))
        return batch.data.numpy() if (shown == [times[number] for number in wanted]).all() else None


@cache
def import_torchcodec() -> Any:
    """Its `VideoDecoder`, or StillmotionError."""
    try:
        from torchcodec.decoders import VideoDecoder
    except (ImportError, OSError, RuntimeError) as error:  # none of its libraries fits this torch and this FFmpeg
        reason = str(error).strip().partition("\n")[0]
        raise StillmotionError(
            f"torchcodec cannot be loaded ({reason}); install FFmpeg and the version for this torch, "
            "or unset STILLMOTION_DECODER"
        ) from None
    return VideoDecoder
