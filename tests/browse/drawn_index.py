"""An index of drawn videos with the face of `stillmotion.index.Index`, whose vectors are known and need no network.

Look is a video's colour and motion its trajectory, each with a little noise that is its own.
"""

import hashlib
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from stillmotion.data.encode import write_mp4
from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet
from stillmotion.data.video import open_video
from stillmotion.explain.neighbours import thumbnail

COLOURS, WAYS = ("red", "green", "blue", "violet"), ("horizontal", "vertical", "circling", "zooming")


class Moment(NamedTuple):
    id: str
    path: str
    start: float
    end: float
    duration: float


class Found(NamedTuple):
    moment: Moment
    similarity: float
    look: float
    motion: float


class Query(NamedTuple):
    look: np.ndarray
    motion: np.ndarray


class DrawnIndex:
    """So many drawn videos in a folder, one moment each."""

    encoder = "drawn"

    def __init__(self, root: Path, *, videos: int = 12, size: int = 96, length: int = 24) -> None:
        self.folder, self.videos = root / "index", root / "videos"
        self.folder.mkdir(parents=True)
        self.videos.mkdir()
        drawn = SyntheticSet(SyntheticConfig(videos=max(1, videos), length=length, size=size), seed=1)
        rng = np.random.default_rng(0)
        rows: list[tuple[Moment, np.ndarray, np.ndarray, bytes]] = []
        for i in range(videos):
            colour, way = (int(drawn.labels[name][i]) for name in ("color", "trajectory"))
            video = drawn.video(i)
            path = f"{COLOURS[colour]}/{WAYS[way]}-{i:02}.mp4"
            file = self.videos / path
            file.parent.mkdir(exist_ok=True)
            write_mp4(file, video.frames(range(length)), size=(size, size), fps=video.fps, gop=8, crf=20)
            seconds = length / video.fps
            moment = Moment(hashlib.sha256(path.encode()).hexdigest()[:16], path, 0.0, seconds, seconds)
            noise = 0.1 * rng.standard_normal((2, 8))
            rows.append((moment, np.eye(8)[colour] + noise[0], np.eye(8)[way] + noise[1], _picture(file)))
        rows.sort(key=lambda row: row[0].path)
        self._moments = [row[0] for row in rows]
        self._vectors = {
            "look": np.array([row[1] for row in rows], np.float32).reshape(-1, 8),
            "motion": np.array([row[2] for row in rows], np.float32).reshape(-1, 8),
        }
        self._pictures = {row[0].id: row[3] for row in rows}

    def __len__(self) -> int:
        return len(self._moments)

    def moments(self) -> list[Moment]:
        return list(self._moments)

    def moment(self, id: str) -> Moment:
        return {moment.id: moment for moment in self._moments}[id]

    def file(self, id: str) -> Path:
        return self.videos / self.moment(id).path

    def thumbnail(self, id: str) -> bytes:
        return self._pictures[id]

    def vectors(self, kind: Literal["look", "motion"]) -> np.ndarray:
        return self._vectors[kind]

    def near(self, query: Any, *, mix: float = 0.5, top: int = 12, apart: bool = True) -> list[Found]:
        own = None
        if isinstance(query, str):
            own = [moment.id for moment in self._moments].index(query)
            query = Query(self._vectors["look"][own], self._vectors["motion"][own])
        look, motion = (_cosines(self._vectors[kind], getattr(query, kind)) for kind in ("look", "motion"))
        mixed = (1 - mix) * look + mix * motion
        order = [i for i in np.argsort(-mixed).tolist() if i != own]
        return [Found(self._moments[i], float(mixed[i]), float(look[i]), float(motion[i])) for i in order[:top]]

    def skipped(self) -> dict[str, str]:
        return {"broken.mp4": "broken.mp4: cannot be decoded"}


def encode_red_circling(video: Path) -> Query:
    """What every dropped video is held to be: it must be readable, and the rest is settled."""
    open_video(video)
    return Query(np.eye(8, dtype=np.float32)[0], np.eye(8, dtype=np.float32)[2])


def _cosines(rows: np.ndarray, one: np.ndarray) -> np.ndarray:
    return rows @ one / (np.linalg.norm(rows, axis=1) * np.linalg.norm(one))


def _picture(file: Path) -> bytes:
    import base64

    return base64.b64decode(thumbnail(open_video(file)).partition(",")[2])
