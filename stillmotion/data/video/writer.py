"""Write frames as H.264 mp4 or JPEG."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np

from stillmotion.errors import StillmotionError, VideoError
from stillmotion.utils.files import write_atomic

# H.264 in RGB with quantizer 0 is lossless. Noise warped by flow takes 25 to 90 % of its raw size, and 0.5 ms to decode
# a frame of 170×128; FFV1, which has no inter-frame prediction, takes 1.2 times that size and 3 ms.
_LOSSLESS, _LOSSY = "libx264rgb", "libx264"
# Noise moves by whole pixels: subpixel search takes a quarter of the time and saves nothing. A longer search saves 20 %
# of the size and takes twice as long.
_LOSSLESS_X264_OPTIONS = {"qp": "0", "preset": "veryfast", "x264-params": "me=dia:subme=0"}
_PLAYBACK_GOP_SIZE = 30


def write_mp4(
    path: Path,
    frames: Iterable[np.ndarray],
    *,
    size: tuple[int, int],
    fps: float,
    gop_size: int,
    crf: int | None = None,
) -> None:
    """Write frames as H.264 that is fast to decode: no B-frames, no in-loop filter, regular key frames.

    Args:
        path: The file.
        frames: RGB frames, uint8 (H, W, 3).
        size: Height and width.
        fps: Frames per second.
        gop_size: Number of frames from one codec key frame to the next.
        crf: Quality of 4:2:0 color, for even sizes; None is lossless RGB.

    Raises:
        OSError: If the disk is full or not writable.
        VideoError: If the encoder fails.
    """
    codec = _LOSSLESS if crf is None else _LOSSY
    try:
        # With "file:", a name such as http:… is not taken for a URL.
        with av.open(f"file:{path}", "w", format="mp4", options={"movflags": "+faststart"}) as container:
            stream: Any = container.add_stream(codec, rate=Fraction(fps).limit_denominator(65535))
            stream.height, stream.width = size
            stream.pix_fmt = "rgb24" if crf is None else "yuv420p"
            # Macroblock-tree rate control is not deterministic; without it, a copy made again has the same bytes.
            quality = _LOSSLESS_X264_OPTIONS if crf is None else {"crf": str(crf), "mbtree": "0", "preset": "fast"}
            stream.options = {**quality, "tune": "fastdecode", "bf": "0", "sc_threshold": "0"}
            stream.codec_context.gop_size = gop_size
            stream.codec_context.thread_count = 1
            for index, image in enumerate(frames):
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
                frame.pts = index
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
    except av.FFmpegError as error:
        if isinstance(error, OSError | MemoryError):
            raise
        raise VideoError(f"cannot be encoded at {fps:g} frames per second ({error.strerror})") from None


def write_jpeg(path: Path, image: np.ndarray, *, quality: int) -> None:
    """Write an image as JPEG.

    Args:
        path: The file.
        image: RGB image, uint8 (H, W, 3).
        quality: JPEG quality, 0 to 100.

    Raises:
        OSError: If the disk is full or not writable.
        VideoError: If the image is too large for JPEG.
    """
    # cv2.imwrite does not report a full disk, and cannot write names that are not UTF-8.
    success, content = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not success:
        raise VideoError(f"a frame of {image.shape[1]}×{image.shape[0]} pixels cannot be written as JPEG")
    path.write_bytes(content.tobytes())


def check_codec_available(*, lossless: bool = False, remedy: str = "install PyAV from PyPI") -> None:
    """Check that PyAV can encode H.264.

    Args:
        lossless: Check the encoder for lossless video.
        remedy: What to do if it is missing, for the error.

    Raises:
        StillmotionError: If this build of PyAV has no such encoder.
    """
    codec = _LOSSLESS if lossless else _LOSSY
    if codec not in av.codecs_available:
        raise StillmotionError(f"This build of PyAV has no {codec}; {remedy}")


def resize_frames(frames: Iterator[np.ndarray], height: int, width: int) -> Iterator[np.ndarray]:
    """Resize images by area interpolation; those of the requested size pass unchanged.

    Args:
        frames: Images (H, W, 3).
        height: New height.
        width: New width.
    """
    for image in frames:
        if image.shape[:2] == (height, width):
            yield image
        else:
            yield cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)


def write_video(path: str | Path, frames: Iterable[np.ndarray], *, fps: float) -> Path:
    """Write frames as an H.264 mp4 in 4:2:0; the file is replaced atomically.

    Args:
        path: The file.
        frames: RGB frames of one size, uint8 (H, W, 3), H and W even.
        fps: Frames per second.

    Returns:
        The path.
    """
    check_codec_available()
    images = iter(frames)
    first = next(images)
    write_atomic(
        path,
        lambda partial: write_mp4(
            partial, chain([first], images), size=first.shape[:2], fps=fps, gop_size=_PLAYBACK_GOP_SIZE, crf=20
        ),
    )
    return Path(path)
