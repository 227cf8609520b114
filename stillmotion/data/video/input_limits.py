"""Limits on the videos that are read, so that a small file cannot take all memory, time or files of the machine.

Each limit has a default that ordinary videos do not reach, and an environment variable that raises it. What exceeds a
limit is a `VideoError`, so that a command leaves out that video and goes on.
"""

import math
import os
from typing import NamedTuple

from stillmotion.errors import StillmotionError, VideoError


class InputLimit(NamedTuple):
    """A limit on what is read.

    Attributes:
        variable: Environment variable that sets another value.
        default: Its value if the variable is not set.
    """

    variable: str
    default: float

    @property
    def value(self) -> float:
        """The limit in force.

        Raises:
            StillmotionError: If the variable is not a number above 0.
        """
        text = os.environ.get(self.variable)
        if text is None:
            return self.default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not value > 0:
            raise StillmotionError(f"{self.variable} is {text!r}; must be a number above 0")
        return value


# Pixels of a frame, by the header and while decoding. Frames of 8K video have 35 million.
FRAME_PIXELS = InputLimit("STILLMOTION_MAX_FRAME_PIXELS", 40_000_000)
# Longer side of a frame divided by the shorter: resizing the shorter side of a thin frame would make it enormous.
ASPECT_RATIO = InputLimit("STILLMOTION_MAX_ASPECT_RATIO", 200)
# Bytes of the RGB frames of one video that are in memory together, such as those of its clips.
CLIP_BYTES = InputLimit("STILLMOTION_MAX_CLIP_BYTES", 4 * 2**30)
# Seconds that FFmpeg may take to open a file, and for each read.
READ_SECONDS = InputLimit("STILLMOTION_MAX_READ_SECONDS", 60)
# Of the process that embeds a video dropped on the page of `browse`: bytes besides the encoder, and seconds.
UPLOAD_MEMORY = InputLimit("STILLMOTION_MAX_UPLOAD_MEMORY", 8 * 2**30)
UPLOAD_SECONDS = InputLimit("STILLMOTION_MAX_UPLOAD_SECONDS", 1800)
INPUT_LIMITS = (FRAME_PIXELS, ASPECT_RATIO, CLIP_BYTES, READ_SECONDS, UPLOAD_MEMORY, UPLOAD_SECONDS)

FORMATS_VARIABLE = "STILLMOTION_VIDEO_FORMATS"  # environment variable with names of further FFmpeg demuxers
# FFmpeg demuxers of files that hold their own frames. Playlists and scripts (ffconcat, HLS, DASH, SDP, …) name other
# files or addresses, may name themselves, and may never end.
_VIDEO_FORMATS = (
    "3gp,apng,asf,av1,avi,dv,flv,gif,h263,h264,hevc,ivf,m4v,matroska,mjpeg,mov,mp4,mpeg,mpegts,mpegvideo,mxf,nut,obu,ogg,"
    "rm,vc1,webm,wtv,yuv4mpegpipe"
)


def demuxer_options() -> dict[str, str]:
    """Options of FFmpeg by which a file is opened as one of the supported formats, and opens no other address."""
    extra = os.environ.get(FORMATS_VARIABLE)
    formats = f"{_VIDEO_FORMATS},{extra}" if extra else _VIDEO_FORMATS
    return {"format_whitelist": formats, "protocol_whitelist": "file"}


def decoder_options() -> dict[str, str]:
    """Options of FFmpeg by which no frame is decoded that is much larger than the limit, whatever the header says."""
    padded = 2 * FRAME_PIXELS.value + 2**16  # decoders count the padding of their buffers
    return {"max_pixels": str(int(min(padded, 2**31 - 1)))}


def check_frame_size(name: object, height: int, width: int) -> None:
    """Check the size of the frames of a video before they are decoded.

    Args:
        name: Name of the video, for the error.
        height: Height in pixels; 0 if the header does not say it.
        width: Width in pixels; 0 if the header does not say it.

    Raises:
        VideoError: If they are too large or too thin.
    """
    if height * width > FRAME_PIXELS.value:
        raise VideoError(
            f"{name}: frames of {width}×{height} pixels are too large; the limit is {FRAME_PIXELS.value:,.0f} pixels. "
            f"Set {FRAME_PIXELS.variable} to raise it."
        )
    if height * width and max(height, width) > ASPECT_RATIO.value * min(height, width):
        raise VideoError(
            f"{name}: frames of {width}×{height} pixels are too thin; the longer side may be {ASPECT_RATIO.value:g} "
            f"times the shorter. Set {ASPECT_RATIO.variable} to raise it."
        )


def check_clip_size(name: object, num_frames: int, height: int, width: int) -> None:
    """Check the memory of frames that are decoded together.

    Args:
        name: Name of the video, for the error.
        num_frames: Number of frames.
        height: Height in pixels.
        width: Width in pixels.

    Raises:
        VideoError: If they take too much memory.
    """
    num_bytes = 3 * num_frames * height * width
    if num_bytes > CLIP_BYTES.value:
        raise VideoError(
            f"{name}: {num_frames} frames of {width}×{height} pixels take {num_bytes / 2**30:.1f} GiB; the limit is "
            f"{CLIP_BYTES.value / 2**30:.1f} GiB. Make smaller copies with `stillmotion prepare`, or set "
            f"{CLIP_BYTES.variable}."
        )
