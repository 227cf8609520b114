"""Which videos an embedding holds to be alike, and moving thumbnails to see for oneself.

Shapes: N videos, D channels.
"""

import base64
from collections.abc import Mapping, Sequence

import numpy as np

from stillmotion.data.animated import animated, small
from stillmotion.data.video import Video
from stillmotion.errors import StillmotionError


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
    pictures = [small(frame, side) for frame in video.frames(range(0, len(video), step))]
    return data_uri(animated(pictures, seconds=step / max(video.fps, 1)))


def data_uri(webp: bytes) -> str:
    """A WebP as a page holds it."""
    return "data:image/webp;base64," + base64.b64encode(webp).decode()
