"""An index of synthetic videos with the interface of `VideoIndex`, whose vectors are known and need no network.

Appearance is a video's color and motion its trajectory, each with a little noise.
"""

import hashlib
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.data.video import open_video
from stillmotion.data.video.writer import write_mp4
from stillmotion.index.search.backends import SearchResult
from stillmotion.index.video_segments import VideoSegment
from stillmotion.report.images import thumbnail_uri

COLORS, TRAJECTORIES = ("red", "green", "blue", "violet"), ("horizontal", "vertical", "circling", "zooming")


class Query(NamedTuple):
    appearance: np.ndarray
    motion: np.ndarray


class FakeIndex:
    """An index of synthetic videos, one segment each."""

    encoder_spec = "synthetic"

    def __init__(self, root: Path, *, num_videos: int = 12, image_size: int = 96, num_frames: int = 24) -> None:
        self.local_dir, self.videos_dir = root / "index", root / "videos"
        self.local_dir.mkdir(parents=True)
        self.videos_dir.mkdir()
        dataset = SyntheticDataset(
            SyntheticConfig(num_videos=max(1, num_videos), num_frames=num_frames, image_size=image_size), seed=1
        )
        rng = np.random.default_rng(0)
        rows: list[tuple[VideoSegment, np.ndarray, np.ndarray, bytes]] = []
        for i in range(num_videos):
            color, trajectory = (int(dataset.labels[name][i]) for name in ("color", "trajectory"))
            video = dataset.open_video(i)
            path = f"{COLORS[color]}/{TRAJECTORIES[trajectory]}-{i:02}.mp4"
            file = self.videos_dir / path
            file.parent.mkdir(exist_ok=True)
            write_mp4(
                file,
                video.get_frames(range(num_frames)),
                size=(image_size, image_size),
                fps=video.fps,
                gop_size=8,
                crf=20,
            )
            seconds = num_frames / video.fps
            segment = VideoSegment(hashlib.sha256(path.encode()).hexdigest()[:16], path, 0.0, seconds, seconds)
            noise = 0.1 * rng.standard_normal((2, 8))
            vectors = np.eye(8)[color] + noise[0], np.eye(8)[trajectory] + noise[1]
            rows.append((segment, *vectors, _thumbnail_bytes(file)))
        rows.sort(key=lambda row: row[0].path)
        self._segments = [row[0] for row in rows]
        self._vectors = {
            "appearance": np.array([row[1] for row in rows], np.float32).reshape(-1, 8),
            "motion": np.array([row[2] for row in rows], np.float32).reshape(-1, 8),
        }
        self._thumbnails = {row[0].id: row[3] for row in rows}

    def __len__(self) -> int:
        return len(self._segments)

    def segments(self) -> list[VideoSegment]:
        return list(self._segments)

    def segment(self, id: str) -> VideoSegment:
        return {segment.id: segment for segment in self._segments}[id]

    def video_path(self, id: str) -> Path:
        return self.videos_dir / self.segment(id).path

    def thumbnail(self, id: str) -> bytes:
        return self._thumbnails[id]

    def vectors(self, vector_name: Literal["appearance", "motion"]) -> np.ndarray:
        return self._vectors[vector_name]

    def motion_fields(self) -> None:
        return None

    def neighbors(
        self, query: Any, *, motion_weight: float = 0.5, top_k: int = 12, exclude_same_video: bool = True
    ) -> list[SearchResult]:
        excluded = None
        if isinstance(query, str):
            excluded = [segment.id for segment in self._segments].index(query)
            query = Query(self._vectors["appearance"][excluded], self._vectors["motion"][excluded])
        appearance, motion = (
            _cosine_similarities(self._vectors[name], getattr(query, name)) for name in ("appearance", "motion")
        )
        mixed = (1 - motion_weight) * appearance + motion_weight * motion
        order = [i for i in np.argsort(-mixed).tolist() if i != excluded]
        return [
            SearchResult(
                self._segments[i],
                float(mixed[i]),
                float(appearance[i]),
                float(motion[i]),
                appearance_percentile=100 * max(0.0, float(appearance[i])),
                motion_percentile=100 * max(0.0, float(motion[i])),
                close_by=("motion",) if motion[i] > 0.5 else (),
            )
            for i in order[:top_k]
        ]

    def failed_videos(self) -> dict[str, str]:
        return {"broken.mp4": "broken.mp4: cannot be decoded"}


def encode_red_circling(video: Path) -> Query:
    """Embed any readable video as red and circling."""
    open_video(video)
    return Query(np.eye(8, dtype=np.float32)[0], np.eye(8, dtype=np.float32)[2])


def _cosine_similarities(rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    return rows @ query / (np.linalg.norm(rows, axis=1) * np.linalg.norm(query))


def _thumbnail_bytes(file: Path) -> bytes:
    import base64

    return base64.b64decode(thumbnail_uri(open_video(file)).partition(",")[2])
