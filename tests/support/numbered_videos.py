"""Small videos whose frames show their number."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

WriteVideo = Callable[..., Path]
LEVELS = 6
VIDEO_KINDS: dict[str, dict[str, Any]] = {
    "mp4": {"name": "a.mp4"},
    "mp4 with B-frames": {"name": "b.mp4", "b_frames": 3},
    "mp4 all in one GOP": {"name": "c.mp4", "b_frames": 2, "gop": 250},
    "mp4 of key frames": {"name": "d.mp4", "gop": 1},
    "mkv with B-frames": {"name": "e.mkv", "b_frames": 3},
    "avi": {"name": "f.avi", "codec": "mpeg4"},
    "avi with B-frames": {"name": "g.avi", "codec": "mpeg4", "b_frames": 2},
    "avi of H.264 with B-frames": {"name": "h.avi", "b_frames": 3},
    "transport stream with B-frames": {"name": "i.ts", "b_frames": 2},
    "webm of VP8": {"name": "j.webm", "codec": "libvpx"},
    "webm of VP9": {"name": "k.webm", "codec": "libvpx-vp9"},
    "mkv of AV1": {"name": "m.mkv", "codec": "libsvtav1", "size": (64, 64), "gop": 250},
    "raw mpeg4 without times": {"name": "l.m4v", "codec": "mpeg4"},
}


def numbered_frame(number: int, height: int = 48, width: int = 64) -> np.ndarray:
    """Frame whose red and green levels are the two digits of its number in base 6."""
    frame = np.zeros((height, width, 3), np.uint8)
    frame[..., 0] = 20 + 40 * (number % LEVELS)
    frame[..., 1] = 20 + 40 * (number // LEVELS % LEVELS)
    frame[..., 2] = 100
    frame[: height // 2, : (number * 5) % width] += 10  # motion, so that B-frames are used
    return frame


def read_frame_numbers(frames: np.ndarray) -> list[int]:
    """Numbers that `numbered_frame` painted into frames of any size."""
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
    """Encode a video of numbered frames; times are presentation times in units of 1/rate."""
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
    """Write a second of silence without video."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 16000), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 16000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def touch_files(root: Path, *names: str) -> Path:
    """Write empty files."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def write_unreadable_files(folder: Path, write: WriteVideo) -> dict[str, Path]:
    """One file or folder of each kind that is not a readable video, by kind."""
    faststart = write("whole.mp4", num_frames=60, options={"movflags": "faststart"}).read_bytes()
    standard = write("plain.mp4", num_frames=60).read_bytes()
    contents = {
        "zero bytes": b"",
        "text": b"this is not a video\n" * 100,
        "noise": np.random.default_rng(0).bytes(5000),
        "cut, index at the front": faststart[: len(faststart) * 2 // 3],
        "cut, index at the end": standard[: len(standard) * 2 // 3],
    }
    paths = {kind: folder / f"{kind}.mp4" for kind in contents}
    for kind, content in contents.items():
        paths[kind].write_bytes(content)
    paths["text by name"] = folder / "notes.txt"
    paths["text by name"].write_text("hello\n" * 50)
    paths["audio only"] = write_audio(folder / "audio only.mp4")
    paths["missing"] = folder / "missing.mp4"
    paths["empty folder"] = folder / "empty folder"
    paths["empty folder"].mkdir()
    return paths
