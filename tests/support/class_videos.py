"""A folder of small encoded videos in two classes."""

import os
from fractions import Fraction
from pathlib import Path

import av
import numpy as np


def write_class_folders(
    root: Path,
    *,
    videos_per_class: int,
    num_frames: int = 20,
    image_size: int = 40,
    seed: int = 0,
    with_broken: bool = False,
) -> Path:
    """Write videos of noise in the classes dark and light; returns the folder.

    Args:
        root: New folder.
        videos_per_class: Number of videos in each class.
        num_frames: Frames per video.
        image_size: Height and width.
        seed: Seed of the noise.
        with_broken: Add dark/broken.mp4, which is not a video.
    """
    rng = np.random.default_rng(seed)
    for name, level in (("dark", 40), ("light", 180)):
        (root / name).mkdir(parents=True)
        for i in range(videos_per_class):
            pixels = rng.integers(level, level + 40, (num_frames, image_size, image_size, 3), np.uint8)
            _write_video(root / name / f"{i}.mp4", pixels)
    if with_broken:
        (root / "dark" / "broken.mp4").write_bytes(b"no video")
    return root


def alter_bytes_keep_mtime(path: Path) -> None:
    """Change the content of a video but neither its size nor its modification time; it stays readable."""
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"Lavf", b"Lavg"))  # the name of the encoding library
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _write_video(path: Path, pixels: np.ndarray) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.height, stream.width = pixels.shape[1:3]
        stream.pix_fmt = "yuv420p"
        for number, picture in enumerate(pixels):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
