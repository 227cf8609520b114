"""Videos without labels: which are nearest to each, and into which groups they fall.

Shapes: N videos, D channels.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stillmotion.data.reading import Reading
from stillmotion.data.videos import Located
from stillmotion.distributed import on_first
from stillmotion.encoders import Encoder, Kind, Progress
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.cache import Library, cached_features, check_cache
from stillmotion.evaluate.clusters import GROUP, Clusters, silhouettes
from stillmotion.evaluate.options import Clustering, Metric
from stillmotion.evaluate.outputs import read_by, spare_folder, tried_folder
from stillmotion.evaluate.retrieve import titles
from stillmotion.evaluate.told import readable, skipped
from stillmotion.evaluate.told import say as to_stderr
from stillmotion.functional.search import top_k

_LOOK_AND_MOTION: tuple[Kind, ...] = ("static", "motion")
_MOST_GROUPS = 10
_SHOWN = 3  # nearest videos in a line for a terminal


def neighbours(
    encoders: Sequence[Encoder],
    located: Located,
    *,
    clips: int | None = None,
    cache: str | Path | None = None,
    kinds: Sequence[Kind] = _LOOK_AND_MOTION,
    top: int = 10,
    reading: Reading | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The videos most alike to each video, by cosine, for several encoders and kinds of embedding.

    By the encoder's title and the kind: for each video's name the names of its `top` nearest, best first, and their
    similarities. clips, cache, say: as for `retrieve`.
    """
    results: dict[str, Any] = {}
    for title, library in _libraries(encoders, located, clips, cache, reading, say, progress):
        names, found = library.names, library.features
        if len(names) < 2:
            raise StillmotionError(f"{located.path} has {len(names)} readable video; two or more can be compared")
        results[title] = {"videos": len(names), "nearest": {}, "broken": dict(found.broken)}
        for kind in [of for of in kinds if of in found.kinds] or ["whole"]:
            vectors = torch.from_numpy(found.vector(kind))
            near = top_k(vectors, vectors, k=min(top, len(names) - 1), own=torch.arange(len(names)))
            results[title]["nearest"][kind] = {
                name: [(names[j], round(s, 4)) for s, j in zip(*row, strict=True)]
                for name, *row in zip(names, *(x.tolist() for x in near), strict=True)
            }
    return results


def neighbour_lines(results: dict[str, Any], path: str) -> list[str]:
    """The results of `neighbours` as lines for a terminal."""
    lines = []
    for title, found in results.items():
        lines.append(f"{found['videos']} videos of {path} without labels; the nearest to each by {title}, with cosines")
        for kind, nearest in found["nearest"].items():
            wide = max(len(_end(name)) for name in nearest) + 2
            lines.append(f"{'by ' + kind:<{wide}}")
            for name, near in nearest.items():
                cells = (f"{_end(other)} {similarity:.2f}" for other, similarity in near[:_SHOWN])
                lines.append(f"{_end(name):<{wide}}" + "   ".join(cells))
    broken = {name: reason for found in results.values() for name, reason in found["broken"].items()}
    return lines + skipped(broken)


def groups(
    encoders: Sequence[Encoder],
    located: Located,
    clustering: Clustering | None = None,
    *,
    out: str | Path | None = None,
    reading: Reading | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: Progress | None = None,
) -> list[Clusters]:
    """The groups that videos without labels fall into, the largest first, in place of `clusters` of their classes.

    Their number, up to ten, is the one of the best silhouette score. out, reading, say, ranks: as for `clusters`.
    """
    how = clustering or Clustering()
    if out is not None:
        spare_folder(out, read_by(located, encoders=encoders))
        tried_folder(out)
    made: list[Clusters] = []
    for title, library in _libraries(encoders, located, how.clips, how.cache, reading, say, progress):
        on_first(partial(made.extend, _groups_of(title, located, library, how)))
    return made


def _groups_of(title: str, located: Located, library: Library, how: Clustering) -> Iterator[Clusters]:
    if len(library.names) < 3:
        raise StillmotionError(f"{located.path} has {len(library.names)} readable videos; groups need three or more")
    for kind in [of for of in how.by if of in library.features.kinds] or ["whole"]:
        vectors = library.features.vector(kind)
        ranks = grouped(vectors, metric=how.metric)
        names = [
            f"{i + 1}: " + ", ".join(_end(library.names[row]) for row in _central(vectors, ranks == i))
            for i in range(ranks.max() + 1)
        ]
        yield Clusters(
            encoder=title,
            kind=kind,
            target=GROUP,
            classes=names,
            recall=[],
            silhouette=silhouettes(vectors, ranks, metric=how.metric),
            vectors=vectors,
            ranks=ranks,
            broken=dict(library.features.broken),
        )


def grouped(vectors: np.ndarray, *, metric: Metric = "euclidean") -> np.ndarray:
    """A group for each of N ≥ 3 vectors (N, D), as numbers (N,) from 0, the largest group first.

    By average linkage, at the number of groups whose silhouette score is the best.
    """
    from sklearn.cluster import AgglomerativeClustering  # a second to import
    from sklearn.metrics import silhouette_score

    best, chosen = -np.inf, np.zeros(len(vectors), np.int64)
    for count in range(2, min(_MOST_GROUPS, len(vectors) - 1) + 1):
        found = AgglomerativeClustering(count, metric=metric, linkage="average").fit_predict(vectors)
        score = silhouette_score(vectors, found, metric=metric)
        if score > best:
            best, chosen = score, found
    order = np.argsort(-np.bincount(chosen), kind="stable")
    return np.argsort(order)[chosen]


def _libraries(
    encoders: Sequence[Encoder],
    located: Located,
    clips: int | None,
    cache: str | Path | None,
    reading: Reading | None,
    say: Callable[[str], object],
    progress: Progress | None,
) -> Iterator[tuple[str, Library]]:
    for title, encoder in zip(titles(encoders), encoders, strict=True):
        videos = located.part().open()
        check_cache(cache, read_by(located, videos=videos, encoders=encoders))
        yield (
            title,
            cached_features(encoder, videos, clips=clips, cache=cache, reading=reading, say=say, progress=progress),
        )


def _central(vectors: np.ndarray, chosen: np.ndarray) -> list[int]:
    """The rows of the chosen vectors that lie nearest to their mean, a few."""
    rows = np.flatnonzero(chosen)
    far = np.linalg.norm(vectors[rows] - vectors[rows].mean(0), axis=1)
    return rows[np.argsort(far, kind="stable")[:_SHOWN]].tolist()


def _end(name: str) -> str:
    return readable(Path(name).name)
