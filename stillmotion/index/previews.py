"""Small H.264 previews of segments that every browser plays."""

import tempfile
from pathlib import Path

import numpy as np

from stillmotion.data.video.reader import VideoReader, to_frame_indices
from stillmotion.data.video.writer import resize_frames, write_mp4
from stillmotion.utils.file_lock import temp_prefix
from stillmotion.utils.files import report_disk_errors

_SHORT_SIDE = 360  # pixels, never enlarged
_MAX_FPS, _MAX_SECONDS = 15.0, 20.0


def encode_preview(video: VideoReader, start: float, end: float | None = None) -> bytes:
    """Encode an interval of a video as a small mp4: 4:2:0 at even sizes, which browsers play everywhere.

    Args:
        video: The video.
        start: Start in seconds.
        end: End in seconds; None is the end of the video. At most 20 s are encoded.

    Returns:
        The content of the mp4 file.
    """
    end = len(video) / video.fps if end is None else end
    fps = min(_MAX_FPS, video.fps)
    count = max(1, round(min(end - start, _MAX_SECONDS) * fps))
    steps = np.floor((start + np.arange(count) / fps) * video.fps + 1e-6).astype(int)
    indices = to_frame_indices(video, np.clip(steps, 0, len(video) - 1)).tolist()
    height, width = video.get_frames(indices[:1]).shape[1:3]
    scale = min(1.0, _SHORT_SIDE / min(height, width))
    height, width = (max(2, 2 * round(side * scale / 2)) for side in (height, width))
    frames = resize_frames(video.iter_frames(indices), height, width)
    with (
        report_disk_errors(tempfile.gettempdir(), option_name="TMPDIR"),
        tempfile.TemporaryDirectory(prefix=temp_prefix("copy")) as folder,
    ):
        file = Path(folder, "preview.mp4")
        write_mp4(file, frames, size=(height, width), fps=fps, gop_size=30, crf=26)
        return file.read_bytes()
