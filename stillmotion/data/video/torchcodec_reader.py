"""Random access to frames with torchcodec, bit-exact to PyAV.

torchcodec uses another build of FFmpeg than PyAV. PyAV therefore decodes formats that the two may decode differently
(MPEG-4 part 2, 10 bits per color), formats whose frames torchcodec indexes differently (AVI with B-frames, transport
streams), and files that torchcodec cannot read. The packet index is PyAV's.
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

# Containers, codecs with bit-exact decoding, and pixel formats with 8 bits per color.
_BIT_EXACT_FORMATS = (
    ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm"),
    ("h264", "hevc", "vp9", "av1"),
    ("yuv420p", "yuvj420p", "yuv422p", "yuv444p"),
)


class TorchCodecReader(PyAVReader):
    """A video file: `get_frames` decodes with torchcodec, `iter_frames` with PyAV.

    Args:
        path: The file, or an object that opens its bytes.
    """

    def __init__(self, path: str | Path | ByteSource) -> None:
        import_torchcodec()  # raise here if it is not installed: later, the file would seem damaged
        super().__init__(path)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        frames = self._decode_with_torchcodec(indices)
        return super().get_frames(indices) if frames is None else frames

    def _decode_with_torchcodec(self, indices: Sequence[int]) -> np.ndarray | None:
        """Decode with torchcodec; None if the frames may differ from those of PyAV."""
        times = self._index.pts
        if times is None or not all(
            name in formats for name, formats in zip(self._index.format, _BIT_EXACT_FORMATS, strict=True)
        ):
            return None
        checked = check_frame_indices(self.path, indices, len(self)).tolist()
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
            batch = decoder.get_frames_at(checked)
        except (RuntimeError, LookupError, ValueError):  # damaged; name not UTF-8; size changes midway
            return None
        decoded_times = np.rint(batch.pts_seconds.numpy() / float(self._index.time_base))
        return batch.data.numpy() if (decoded_times == [times[index] for index in checked]).all() else None


@cache
def import_torchcodec() -> Any:
    """Import torchcodec's `VideoDecoder`; raise StillmotionError if it cannot be loaded."""
    try:
        from torchcodec.decoders import VideoDecoder
    except (ImportError, OSError, RuntimeError) as error:  # no library for this torch and FFmpeg
        reason = str(error).strip().partition("\n")[0]
        raise StillmotionError(
            f"torchcodec cannot be loaded ({reason}). Install FFmpeg and the torchcodec version for this torch, "
            "or unset STILLMOTION_DECODER."
        ) from None
    return VideoDecoder
