"""Open videos: `open_video`, `open_video_file` and the suffixes of video files."""

import os
from pathlib import Path

from stillmotion.data.video.reader import ArrayReader, VideoReader
from stillmotion.data.video.remote import ByteSource
from stillmotion.errors import StillmotionError

__all__ = ["DECODER_ENV", "VIDEO_SUFFIXES", "ArrayReader", "VideoReader", "open_video", "open_video_file"]

VIDEO_SUFFIXES = [".mp4", ".avi", ".webm", ".mkv", ".mov", ".m4v", ".mpg", ".mpeg", ".wmv", ".flv", ".ts", ".gif"]
DECODER_ENV = "STILLMOTION_DECODER"  # environment variable that selects the decoding library


def open_video(path: str | Path) -> VideoReader:
    """Open a video file or a folder of JPEG or PNG frames.

    Args:
        path: The file or folder.

    Raises:
        VideoError: If it cannot be read.
    """
    path = Path(path)
    if os.path.isdir(path):
        from stillmotion.data.video.frame_folder import FrameFolderReader

        return FrameFolderReader(path)
    return open_video_file(path)


def open_video_file(source: Path | ByteSource) -> VideoReader:
    """Open a video file, or bytes with its content, with the decoder of STILLMOTION_DECODER (default: PyAV).

    Args:
        source: The file, or an object that opens its bytes.

    Raises:
        VideoError: If it cannot be read.
    """
    decoder = os.environ.get(DECODER_ENV, "pyav")
    if decoder not in ("pyav", "torchcodec"):
        raise StillmotionError(f"{DECODER_ENV} is {decoder!r}; must be pyav or torchcodec")
    if decoder == "pyav":  # imported here: options and help texts need no decoder
        from stillmotion.data.video.pyav_reader import PyAVReader

        return PyAVReader(source)
    from stillmotion.data.video.torchcodec_reader import TorchCodecReader

    return TorchCodecReader(source)
