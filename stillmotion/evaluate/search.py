"""`stillmotion search` without an index: the videos of a folder that are most alike to one video."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from stillmotion.data.clips import Excerpt, in_time
from stillmotion.data.paths import PathSet
from stillmotion.data.reading import Reading
from stillmotion.data.video import Video
from stillmotion.data.videos import Videos
from stillmotion.encoders import Encoder, Features, Progress, clips_of, extract
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.cache import USUAL_CLIPS, cached_features, check_cache
from stillmotion.evaluate.options import Searching
from stillmotion.evaluate.outputs import read_by
from stillmotion.evaluate.told import say as to_stderr
from stillmotion.evaluate.told import skipped
from stillmotion.functional.search import top_k


class Match(NamedTuple):
    """A video and the similarity of its embedding to the query's."""

    path: str
    similarity: float


class _Part(PathSet):
    """One video, from some second on up to another."""

    def __init__(self, path: Path, start: float | None, end: float | None) -> None:
        super().__init__([path])
        self._limits = start, end

    def video(self, i: int) -> Video:
        video = super().video(i)
        if self._limits == (None, None):
            return video
        first, last = steps_between(video, *self._limits, name=self.name(i))
        return Excerpt(video, in_time(video, np.arange(first, last)))


def steps_between(video: Video, start: float | None, end: float | None, *, name: str) -> tuple[int, int]:
    """The first step of a video's mean rate from one second on, and that behind the last up to another.

    start, end: None is the video's own. name: what an error calls it.
    """
    lasts = len(video) / video.fps
    first, last = start or 0.0, lasts if end is None else end
    if not 0 <= first < min(last, lasts):
        raise StillmotionError(f"{name} lasts {lasts:.2f} s; {first:g} to {last:g} is no moment of it")
    begin = min(int(first * video.fps), len(video) - 1)
    return begin, max(begin + 1, min(round(last * video.fps), len(video)))


def search(
    encoder: Encoder,
    query: str | Path,
    videos: Videos,
    searching: Searching | None = None,
    *,
    reading: Reading | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: Progress | None = None,
) -> list[Match]:
    """The videos most alike to the query, best first; the query itself, where it is among them, is left out.

    query: a video file or a folder of frames.
    say: told which videos could not be read, and of a damaged cache.
    """
    how = searching or Searching()
    asked = _Part(Path(query), how.start, how.end)
    asked.video(0)  # what is wrong with it is said before the library is embedded
    clips = clips_of(encoder, how.clips, usual=USUAL_CLIPS)
    searched = videos.open(drawn=encoder.drawn, seed=encoder.seed)
    check_cache(how.cache, read_by(videos, videos=searched, encoders=[encoder], also=[query]))
    vector = _vectors(extract(encoder, asked, clips=clips, average=True), how)
    library = cached_features(
        encoder, searched, clips=clips, cache=how.cache, reading=reading, say=say, progress=progress
    )
    for line in skipped(dict(library.features.broken)):
        say(line)
    vectors = _vectors(library.features, how)
    itself = [i for i, name in enumerate(library.names) if Path(name).resolve() == Path(query).resolve()]
    k = min(how.top + len(itself), len(vectors))
    similarities, numbers = (x.numpy() for x in top_k(torch.from_numpy(vector), torch.from_numpy(vectors), k=k))
    others = ~np.isin(numbers[0], itself)
    pairs = zip(numbers[0][others], similarities[0][others], strict=True)
    return [Match(library.names[int(number)], float(similarity)) for number, similarity in pairs][: how.top]


def _vectors(features: Features, how: Searching) -> np.ndarray:
    """What is compared of videos; the cosine of mixed vectors is the mixture of their cosines."""
    if how.mix is None:
        return features.vector("static" if how.by == "look" else how.by or "whole")
    looks, motions = (_unit(features.vector(kind)) for kind in ("static", "motion"))
    return np.concatenate([(1 - how.mix) ** 0.5 * looks, how.mix**0.5 * motions], 1).astype(np.float32)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
