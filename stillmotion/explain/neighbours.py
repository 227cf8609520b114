"""Which videos an embedding holds to be alike, and moving thumbnails to see for oneself.

Shapes: N videos, D channels.
"""

import base64
import io
from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from PIL import Image

from stillmotion.data.video import Video
from stillmotion.errors import StillmotionError

_FASTEST = 80  # milliseconds a frame


def nearest(vectors: np.ndarray, queries: Sequence[int], *, k: int) -> np.ndarray:
    """The k nearest other videos (len(queries), k) of each query, by the cosine of centred embeddings (N, D)."""
    if not 0 < k < len(vectors):
        raise StillmotionError(f"{k} neighbours among {len(vectors)} videos asked for; choose 1 to {len(vectors) - 1}")
    centred = vectors - vectors.mean(0)
    unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    cosine = unit[queries] @ unit.T
    cosine[np.arange(len(queries)), queries] = -np.inf
    return np.argsort(-cosine, axis=1, kind="stable")[:, :k]


def agreement(vectors: np.ndarray, labels: Mapping[str, np.ndarray], *, k: int) -> dict[str, float]:
    """For each target, how many of a video's k nearest have its label; the mean over all videos that have one."""
    found = nearest(vectors, range(len(vectors)), k=k)
    return {name: float((y[found] == y[:, None])[y >= 0].mean()) for name, y in labels.items()}


def thumbnail(video: Video, *, side: int = 96, frames: int = 32) -> str:
    """A video as a small animated WebP in a data URI.

    side: its shorter edge, never enlarged. frames: at most so many, evenly spaced over the whole video.
    """
    step = -(-len(video) // frames)
    pixels = video.frames(range(0, len(video), step))
    scale = min(1.0, side / min(pixels.shape[1:3]))
    size = (max(1, round(pixels.shape[2] * scale)), max(1, round(pixels.shape[1] * scale)))
    pictures = [Image.fromarray(cv2.resize(p, size, interpolation=cv2.INTER_AREA)) for p in pixels]
    file = io.BytesIO()
    pictures[0].save(
        file,
        "WEBP",
        save_all=True,
        append_images=pictures[1:],
        duration=max(_FASTEST, min(200, round(1000 * step / max(video.fps, 1)))),
        loop=0,
        quality=45,
        method=4,
    )
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
