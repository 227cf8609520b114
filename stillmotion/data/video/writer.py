"""Frames into files that are cheap to decode: mp4 without B-frames or in-loop filter, key frames even; or JPEG."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import repeat
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np

from stillmotion.data.video.pyav_reader import PyAVReader
from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.utils.files import write_atomic

# H.264 in RGB with quantiser 0 gives back every bit. Noise moved by flow takes a quarter to nine tenths of its raw size
# and 0.5 ms a frame of 170×128 to decode; FFV1, which looks at one frame at a time, takes 1.2 times its size and 3 ms.
_LOSSLESS, _LOSSY = "libx264rgb", "libx264"
# Noise moves by whole pixels: a search for parts of them takes a quarter of the time and saves no room. A longer search
# saves a fifth of the room and takes twice the time.
_LOSSLESS_X264_OPTIONS = {"qp": "0", "preset": "veryfast", "x264-params": "me=dia:subme=0"}


def write_mp4(
    path: Path,
    frames: Iterable[np.ndarray],
    *,
    size: tuple[int, int],
    fps: float,
    gop_size: int,
    crf: int | None = None,
) -> None:
    """Writes RGB frames of a size (height, width) as H.264.

    gop_size: frames between two key frames. crf: the quality of 4:2:0 colour, for even sizes; None loses nothing.
    What the disk refuses is an OSError, and what the encoder does a VideoError.
    """
    codec = _LOSSLESS if crf is None else _LOSSY
    try:
        # The protocol is said, so that no name is taken for an address, such as http:….
        with av.open(f"file:{path}", "w", format="mp4", options={"movflags": "+faststart"}) as container:
            stream: Any = container.add_stream(codec, rate=Fraction(fps).limit_denominator(65535))
            stream.height, stream.width = size
            stream.pix_fmt = "rgb24" if crf is None else "yuv420p"
            # Rate control by macroblock tree has other bytes once in some hundred runs; a copy made again is the same.
            quality = _LOSSLESS_X264_OPTIONS if crf is None else {"crf": str(crf), "mbtree": "0", "preset": "fast"}
            # No B-frames, so that a frame needs only those before it; no in-loop filter and no CABAC: cheap to decode.
            stream.options = {**quality, "tune": "fastdecode", "bf": "0", "sc_threshold": "0"}
            stream.codec_context.gop_size = gop_size
            stream.codec_context.thread_count = 1
            for number, image in enumerate(frames):
                frame = av.VideoFrame.from_ndarray(image, format="rgb24")
                frame.pts = number
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
    except av.FFmpegError as error:
        if isinstance(error, OSError | MemoryError):
            raise
        raise VideoError(f"cannot be encoded at {fps:g} frames a second ({error.strerror})") from None


def write_jpeg(path: Path, image: np.ndarray, *, quality: int) -> None:
    """Writes an RGB image; what the disk refuses is an OSError."""
    # OpenCV's own writer keeps silent of a full disk, and refuses names that are not UTF-8.
    good, content = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not good:
        raise VideoError(f"a frame of {image.shape[1]}×{image.shape[0]} pixels cannot be written as JPEG")
    path.write_bytes(content.tobytes())


def check_codec_available(*, lossless: bool = False, remedy: str = "install PyAV from PyPI") -> None:
    """Raises where this build of PyAV cannot write what `write_mp4` writes."""
    codec = _LOSSLESS if lossless else _LOSSY
    if codec not in av.codecs_available:
        raise StillmotionError(f"this build of PyAV has no {codec}; {remedy}")


def iter_constant_rate(video: VideoReader) -> Iterator[np.ndarray]:
    """What a video shows at each of its steps in time, one frame in memory at a time: a copy has a constant rate."""
    if not isinstance(video, PyAVReader):
        yield from (video.get_frames([number])[0] for number in range(len(video)))
        return
    again = (
        np.ones(len(video), int)
        if video.constant_rate_indices is None
        else np.bincount(video.constant_rate_indices, minlength=len(video))
    )
    for frame, times in zip(video, again.tolist(), strict=False):
        yield from repeat(frame, times)


def resize_frames(frames: Iterator[np.ndarray], height: int, width: int) -> Iterator[np.ndarray]:
    """The images at another size; those that have it pass unchanged."""
    for image in frames:
        if image.shape[:2] == (height, width):
            yield image
        else:
            yield cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)


def write_video(path: str | Path, frames: Iterable[np.ndarray], *, fps: float, option_name: str = "--out") -> Path:
    """Frames uint8 (H, W, 3), H and W even, as an H.264 mp4 in 4:2:0, whole or not at all."""
    if "libx264" not in av.codecs_available:
        raise StillmotionError("this build of PyAV has no libx264; install PyAV's own wheel (pip install av)")
    write_atomic(path, lambda partial: _encode_h264(partial, frames, fps), option_name=option_name)
    return Path(path)


def _encode_h264(file: Path, frames: Iterable[np.ndarray], fps: float) -> None:
    with av.open(str(file.absolute()), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(65535))
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "20", "preset": "medium"}
        stream.codec_context.thread_count = 1
        for number, picture in enumerate(frames):
            if number == 0:
                stream.height, stream.width = picture.shape[:2]
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
