"""Frames into an mp4 that is cheap to decode: no B-frames, no in-loop filter, key frames at even distances."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import repeat
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np

from stillmotion.data.video import FileVideo, Video
from stillmotion.errors import StillmotionError

# H.264 in RGB with quantiser 0 gives back every bit. Noise moved by flow takes a quarter to nine tenths of its raw size
# and 0.5 ms a frame of 170×128 to decode; FFV1, which looks at one frame at a time, takes 1.2 times its size and 3 ms.
_LOSSLESS, _LOSSY = "libx264rgb", "libx264"


def write_mp4(
    path: Path, frames: Iterable[np.ndarray], *, size: tuple[int, int], fps: float, gop: int, crf: int | None = None
) -> None:
    """Writes RGB frames of a size (height, width) as H.264.

    gop: frames between two key frames. crf: the quality of 4:2:0 colour, for even sizes; None loses nothing.
    """
    codec = _LOSSLESS if crf is None else _LOSSY
    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        stream: Any = container.add_stream(codec, rate=Fraction(fps).limit_denominator(65535))
        stream.height, stream.width = size
        stream.pix_fmt = "rgb24" if crf is None else "yuv420p"
        quality = {"qp": "0"} if crf is None else {"crf": str(crf)}
        # No B-frames, so that a frame needs only those before it; no in-loop filter and no CABAC: cheap to decode.
        stream.options = {**quality, "preset": "fast", "tune": "fastdecode", "bf": "0", "sc_threshold": "0"}
        stream.codec_context.gop_size = gop
        stream.codec_context.thread_count = 1
        for number, image in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def check_encoder(*, lossless: bool = False, remedy: str = "install PyAV from PyPI") -> None:
    """Raises where this build of PyAV cannot write what `write_mp4` writes."""
    codec = _LOSSLESS if lossless else _LOSSY
    if codec not in av.codecs_available:
        raise StillmotionError(f"this build of PyAV has no {codec}; {remedy}")


def each_frame(video: Video) -> Iterator[np.ndarray]:
    """What a video shows at each of its steps in time, one frame in memory at a time: a copy has a constant rate."""
    if not isinstance(video, FileVideo):
        yield from (video.frames([number])[0] for number in range(len(video)))
        return
    again = np.ones(len(video), int) if video.paced is None else np.bincount(video.paced, minlength=len(video))
    for frame, times in zip(video, again.tolist(), strict=False):
        yield from repeat(frame, times)


def resized(images: Iterator[np.ndarray], height: int, width: int) -> Iterator[np.ndarray]:
    """The images at another size; those that have it pass unchanged."""
    for image in images:
        if image.shape[:2] == (height, width):
            yield image
        else:
            yield cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
