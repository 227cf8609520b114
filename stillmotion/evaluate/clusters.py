"""`stillmotion clusters`: how well the classes that an encoder retrieves best stand apart (ViDiDi, Table 7).

Shapes: N videos, D channels.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from stillmotion.data.halves import Halves, Parted
from stillmotion.data.reading import Reading
from stillmotion.distributed import on_first
from stillmotion.encoders import Encoder, Kind, Progress
from stillmotion.evaluate.cache import Library
from stillmotion.evaluate.options import Clustering, Looked, Metric
from stillmotion.evaluate.outputs import read_by, spare_folder, tried_folder
from stillmotion.evaluate.retrieve import Answers, ask, libraries
from stillmotion.evaluate.told import say as to_stderr

SIZES = (3, 5, 10, 15, 20)
GROUP = "group"  # the target of videos without labels


@dataclass(frozen=True)
class Clusters:
    """The videos of one encoder's classes, the best-retrieved class first.

    encoder, kind, target: whose vectors they are and by what the videos are labelled.
    classes: their names. recall: R@1 of each. silhouette: by the number of classes, counted from the best.
    vectors (N, D). ranks (N,): each video's class as a place in `classes`.
    broken: name and reason of each video that could not be read.
    """

    encoder: str
    kind: Kind
    target: str
    classes: list[str]
    recall: list[float]
    silhouette: dict[int, float]
    vectors: np.ndarray
    ranks: np.ndarray
    broken: Mapping[str, str] = field(default_factory=dict)


def clusters(
    encoders: Sequence[Encoder],
    halves: Halves,
    clustering: Clustering | None = None,
    *,
    out: str | Path | None = None,
    reading: Reading | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: Progress | None = None,
) -> list[Clusters]:
    """The clusters of several encoders, for each kind of embedding and each target that the videos are labelled with.

    Videos, features and what is said are as for `retrieve`. Ranks share the videos; the first has the clusters, the
    others none.
    out: the folder that the report will be written to, which is looked at before the work.
    """
    how = clustering or Clustering()
    if out is not None:
        spare_folder(out, read_by(halves, encoders=encoders))
        tried_folder(out)
    found: list[Clusters] = []
    each = libraries(encoders, halves, clips=how.clips, cache=how.cache, reading=reading, say=say, progress=progress)
    for title, _, parted, library in each:
        on_first(partial(found.extend, _clusters_of(title, parted, library, how)))
    return found


def _clusters_of(title: str, parted: Parted, library: Library, how: Clustering) -> Iterator[Clusters]:
    rows = _rows(library, parted, how.split)
    for of in [of for of in how.by if of in library.features.kinds] or how.by:
        vectors = library.features.vector(of)[rows]
        for target, answered in ask(library, parted, kind=of).items():
            order, recall = best_retrieved(answered)
            ranks = _ranks(library.labels[target][rows], order)
            yield Clusters(
                encoder=title,
                kind=of,
                target=target,
                classes=[library.classes[target][number] for number in order],
                recall=recall,
                silhouette=silhouettes(vectors, ranks, metric=how.metric),
                vectors=vectors[ranks >= 0],
                ranks=ranks[ranks >= 0],
                broken=dict(library.features.broken),
            )


def best_retrieved(answered: Answers) -> tuple[list[int], list[float]]:
    """The numbers of the queries' classes and the R@1 of each, the best first; of equals, that of the higher mAP."""
    scores = {int(c): answered.scores(answered.labels == c) for c in np.unique(answered.labels)}
    order = sorted(scores, key=lambda c: (-scores[c]["R@1"], -scores[c]["mAP"], c))
    return order, [scores[c]["R@1"] for c in order]


def silhouettes(vectors: np.ndarray, ranks: np.ndarray, *, metric: Metric = "euclidean") -> dict[int, float]:
    """Silhouette scores of the 3, 5, 10, 15, 20 best classes, as far as there are more, and of all of them.

    ranks (N,): each video's class by how well it is retrieved, 0 for the best; -1 leaves a video out.
    Where the score is not defined, with one class or with no class of two videos, it is NaN.
    """
    from sklearn.metrics import silhouette_score  # a second to import

    most = int(ranks.max(initial=-1)) + 1
    found = {}
    for size in [*(size for size in SIZES if size < most), most]:
        chosen = (ranks >= 0) & (ranks < size)
        classes = len(np.unique(ranks[chosen]))
        defined = 2 <= classes < chosen.sum()
        found[size] = float(silhouette_score(vectors[chosen], ranks[chosen], metric=metric)) if defined else np.nan
    return found


def _rows(library: Library, parted: Parted, split: Looked) -> np.ndarray:
    """The rows of the videos that are looked at, those of all folds together."""
    place = {"train": [0], "test": [1], "all": [0, 1]}[split]
    numbers = np.unique(np.concatenate([fold[i] for fold in parted.folds for i in place]))
    return np.flatnonzero(np.isin(library.features.index, numbers))


def _ranks(labels: np.ndarray, order: Sequence[int]) -> np.ndarray:
    place = {number: rank for rank, number in enumerate(order)}
    return np.array([place.get(int(label), -1) for label in labels], np.int64)
