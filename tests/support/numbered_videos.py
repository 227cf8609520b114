"""Small videos that the tests make themselves: frame i is painted so that its number can be read back."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

WriteVideo = Callable[..., Path]
LEVELS = 6


def numbered_frame(number: int, height: int = 48, width: int = 64) -> np.ndarray:
    """A flat frame whose red and green levels are the two digits of its number in base 6."""
    frame = np.zeros((height, width, 3), np.uint8)
    frame[..., 0] = 20 + 40 * (number % LEVELS)
    frame[..., 1] = 20 + 40 * (number // LEVELS % LEVELS)
    frame[..., 2] = 100
    frame[: height // 2, : (number * 5) % width] += 10  # something that moves, so that B-frames pay
    return frame


def read_frame_numbers(frames: np.ndarray) -> list[int]:
    """The numbers that `painted` wrote into frames, whatever their size."""
    edge = frames[:, -frames.shape[1] // 4 :].reshape(len(frames), -1, 3).astype(float).mean(1)
    digits = np.round((edge - 20) / 40).astype(int)
    return (digits[:, 0] + LEVELS * digits[:, 1]).tolist()


def write_numbered_video(
    path: Path,
    *,
    num_frames: int = 30,
    size: tuple[int, int] = (48, 64),
    codec: str = "libx264",
    b_frames: int = 0,
    gop: int = 12,
    rate: int = 25,
    times: list[int] | None = None,
    options: dict[str, str] | None = None,
) -> Path:
    """An encoded video of `painted` frames; times: presentation times in units of 1/rate."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.height, stream.width = size
        stream.pix_fmt = "yuv420p" if size[0] % 2 == 0 and size[1] % 2 == 0 else "yuv444p"
        context = stream.codec_context
        context.gop_size, context.max_b_frames, context.thread_count = gop, b_frames, 1
        if codec == "libx264":
            stream.options = {"crf": "10", "preset": "veryfast", "bf": str(b_frames), "sc_threshold": "0"}
        else:
            context.bit_rate = 2_000_000
        for number in range(num_frames):
            frame = av.VideoFrame.from_ndarray(numbered_frame(number, *size), format="rgb24")
            frame.pts = times[number] if times else number
            frame.time_base = Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def write_audio(path: Path) -> Path:
    """A second of silence and no picture."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 16000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def touch_files(root: Path, *names: str) -> Path:
    """Empty files: enough for what only looks at names."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root
