"""What a video is, and how one is opened: a sequence of frames that are asked for by number."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
import numpy as np
from stillmotion.data.video.remote import ByteSource
from stillmotion.data.video.pyav_reader import PyAVReader
from stillmotion.data.video.reader import DEFAULT_FPS, check_frame_indices
from stillmotion.data.video.frame_folder import FrameFolderReader
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.data.video.reader import VideoReader


# What a folder is searched for.
VIDEO_SUFFIXES = [".mp4", ".avi", ".webm", ".mkv", ".mov", ".m4v", ".mpg", ".mpeg", ".wmv", ".flv", ".ts", ".gif"]
DECODER_ENV = "STILLMOTION_DECODER"  # which library reads files, in the environment


def open_video(path: str | Path) -> VideoReader:
    """Opens a video file or a folder of jpg/png frames; whatever is wrong with it is a VideoError."""
    path = Path(path)
    if os.path.isdir(path):
        return FrameFolderReader(path)
    return open_video_file(path)


def open_video_file(source: Path | ByteSource) -> VideoReader:
    """Opens a video file, or bytes that are one, for the decoder that the environment names, or else for PyAV."""
    chosen = os.environ.get(DECODER_ENV, "pyav")
    if chosen not in ("pyav", "torchcodec"):
        raise StillmotionError(f"{DECODER_ENV} is {chosen!r}; it is pyav or torchcodec")
    if chosen == "pyav":
        return PyAVReader(source)
    from stillmotion.data.video.torchcodec_reader import TorchCodecReader

    return TorchCodecReader(source)
