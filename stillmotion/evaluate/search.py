"""`stillmotion search`: the videos of a folder that are most alike to one video."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from stillmotion.data.paths import PathSet
from stillmotion.data.reading import Reading
from stillmotion.data.video import open_video
from stillmotion.data.videos import Videos
from stillmotion.encoders import Encoder, Progress, clips_of, extract
from stillmotion.evaluate.cache import USUAL_CLIPS, cached_features, check_cache
from stillmotion.evaluate.index import check_index, open_index
from stillmotion.evaluate.options import Searching
from stillmotion.evaluate.outputs import read_by
from stillmotion.evaluate.told import say as to_stderr
from stillmotion.evaluate.told import skipped
from stillmotion.functional.search import top_k


class Match(NamedTuple):
    """A video and the cosine of its embedding with the query's."""

    path: str
    similarity: float


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
    say: told which videos could not be read, and of a damaged cache or index.
    """
    how = searching or Searching()
    by, top, clips, index = how.by, how.top, clips_of(encoder, how.clips, usual=USUAL_CLIPS), how.index
    open_video(query)  # what is wrong with it is said before the library is embedded
    searched = videos.open(drawn=encoder.drawn, seed=encoder.seed)
    read = read_by(videos, videos=searched, encoders=[encoder], also=[query])
    check_cache(how.cache, read)
    if index is not None:
        check_index(index, read)
    vector = extract(encoder, PathSet([Path(query)]), clips=clips, average=True).vector(by)
    library = cached_features(
        encoder, searched, clips=clips, cache=how.cache, reading=reading, say=say, progress=progress
    )
    for line in skipped(dict(library.features.broken)):
        say(line)
    vectors = library.features.vector(by)
    itself = [i for i, name in enumerate(library.names) if Path(name).resolve() == Path(query).resolve()]
    k = min(top + len(itself), len(vectors))
    if index is None:
        similarities, numbers = (x.numpy() for x in top_k(torch.from_numpy(vector), torch.from_numpy(vectors), k=k))
    else:
        similarities, numbers = open_index(index, vectors, say=say)(vector, k)
    others = ~np.isin(numbers[0], itself)
    pairs = zip(numbers[0][others], similarities[0][others], strict=True)
    return [Match(library.names[int(number)], float(similarity)) for number, similarity in pairs][:top]
