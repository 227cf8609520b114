"""`stillmotion retrieve`: whether the videos most alike to a video, by cosine, are of its class.

Shapes: q queries, r references, k nearest, D channels.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stillmotion.data.halves import Halves, Parted
from stillmotion.data.reading import Reading
from stillmotion.distributed import on_first
from stillmotion.encoders import Encoder, Kind, Progress, clips_of
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.cache import USUAL_CLIPS, Library, cached_features, check_cache
from stillmotion.evaluate.options import Among, Protocol, Retrieval
from stillmotion.evaluate.outputs import RUN, read_by, tried
from stillmotion.evaluate.told import say as to_stderr
from stillmotion.evaluate.told import skipped
from stillmotion.files import write_json
from stillmotion.functional.search import average_precision, top_k

RESULTS = "retrieve.json"
DEPTHS = (1, 5, 10)
KINDS: tuple[Kind, ...] = ("whole", "static", "dynamic", "both", "motion")


@dataclass(frozen=True)
class Answers:
    """What each query was given.

    hits (q, k): which of its nearest share its label, best first. precision (q,): its average precision.
    labels (q,): of the queries. chance: the scores expected of references in random order, (q, 4).
    """

    hits: np.ndarray
    precision: np.ndarray
    labels: np.ndarray
    chance: np.ndarray

    def scores(self, asked: np.ndarray | slice = slice(None)) -> dict[str, float]:
        """R@1, R@5 and R@10, the share of queries with a video of their class among so many nearest, and mAP."""
        recall = {f"R@{k}": float(self.hits[asked, :k].any(1).mean()) for k in DEPTHS}
        return recall | {"mAP": float(self.precision[asked].mean())}

    def chances(self) -> dict[str, float]:
        """The same of a random order."""
        return dict(zip([*(f"R@{k}" for k in DEPTHS), "mAP"], self.chance.mean(0).tolist(), strict=True))


def answers(
    queries: np.ndarray,
    query_labels: np.ndarray,
    references: np.ndarray,
    reference_labels: np.ndarray,
    *,
    own: np.ndarray | None = None,
) -> Answers:
    """What the exact search by cosine gives queries (q, D) among references (r, D); labels are ints.

    own: (q,), the number of the reference that a query is itself, which it is not given.
    A query whose class no reference has is missed.
    """
    for name, vectors in (("queries", queries), ("references", references)):
        if not np.isfinite(vectors).all():
            raise StillmotionError(f"features of the {name} hold NaN or infinity; the network that made them diverged")
    others = len(references) - (own is not None)
    if len(queries) == 0 or others < 1:
        raise StillmotionError(f"{len(queries)} queries and {others} other videos to search; both must be at least 1")
    k = min(max(DEPTHS), others)
    x, y, x_labels, y_labels = map(torch.from_numpy, (queries, references, query_labels, reference_labels))
    itself = None if own is None else torch.from_numpy(own)
    found = top_k(x, y, k=k, own=itself)[1].numpy()
    hits = np.zeros((len(queries), max(DEPTHS)), bool)
    hits[:, :k] = reference_labels[found] == query_labels[:, None]
    same = (reference_labels == query_labels[:, None]).sum(1) - (own is not None)
    precision = average_precision(x, y, x_labels, y_labels, own=itself).numpy()
    return Answers(hits, precision, query_labels, _chance(same, others))


def ask(
    library: Library,
    parted: Parted,
    *,
    kind: Kind = "whole",
    protocol: Protocol = "split",
    among: Among = "test",
) -> dict[str, Answers]:
    """The answers of an encoder's features for each target that the videos are labelled with, all folds together.

    protocol: "split" asks with the test videos among the training videos; "leave-one-out" with each of the `among`
        videos, the test half or all, among the others of them.
    """
    vectors = library.features.vector(kind)
    found = {}
    for target, labels in library.labels.items():
        parts = []
        for queries, references in rounds(library, parted, protocol=protocol, among=among):
            q, r = queries[labels[queries] >= 0], references[labels[references] >= 0]
            own = np.arange(len(r)) if protocol == "leave-one-out" else None
            parts.append(answers(vectors[q], labels[q], vectors[r], labels[r], own=own))
        fields = [np.concatenate([getattr(a, name) for a in parts]) for name in Answers.__dataclass_fields__]
        found[target] = Answers(*fields)
    return found


def rounds(
    library: Library, parted: Parted, *, protocol: Protocol, among: Among
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows of the queries and of the references, for each fold; those of leave-one-out are the same."""
    row = np.full(len(parted.videos), -1)
    row[library.features.index] = np.arange(len(library.names))
    halves = [tuple(row[half][row[half] >= 0] for half in fold) for fold in parted.folds]
    if protocol == "split":
        return [(test, train) for train, test in halves]
    own = [np.unique(test if among == "test" else np.concatenate([train, test])) for train, test in halves]
    return [(rows, rows) for rows in own]


def retrieve(
    encoders: Sequence[Encoder],
    halves: Halves,
    retrieval: Retrieval | None = None,
    *,
    kinds: Sequence[Kind] = KINDS,
    reading: Reading | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """R@1, R@5, R@10 and mAP of several encoders, by whole, static and dynamic embedding and by both halves.

    encoders: into the folder of a run its `retrieve.json` is written.
    halves: with the fold "all", the queries of every fold are asked.
    say: told of a damaged cache.
    Ranks share the videos; the first asks, and writes.
    """
    how = retrieval or Retrieval()
    results: dict[str, Any] = {}
    for encoder in encoders:
        if encoder.folder is not None:
            tried(encoder.folder / RESULTS, option=RUN)
    each = libraries(encoders, halves, clips=how.clips, cache=how.cache, reading=reading, say=say, progress=progress)
    for title, encoder, parted, library in each:
        found = on_first(partial(_scores, encoder, halves, how, parted, library, kinds))
        results[title] = found | {"reused": library.reused}
    return results


def _scores(
    encoder: Encoder, halves: Halves, how: Retrieval, parted: Parted, library: Library, kinds: Sequence[Kind]
) -> dict[str, Any]:
    """What is found of one encoder, which is written beside it."""
    protocol, among = how.protocol, how.among
    there = [kind for kind in kinds if kind in library.features.kinds] or kinds
    asked = {k: ask(library, parted, kind=k, protocol=protocol, among=among) for k in there}
    turns = rounds(library, parted, protocol=protocol, among=among)
    found = {
        "run": encoder.origin.text,
        "data": halves.path,
        "protocol": protocol if protocol == "split" else f"{protocol}, {among} videos",
        "split": parted.how,
        "clips": clips_of(encoder, how.clips, usual=USUAL_CLIPS),
        "frames": encoder.survey.frames,
        "queries": sum(len(queries) for queries, _ in turns),
        "references": sorted({len(rows) - (protocol == "leave-one-out") for _, rows in turns}),
        "scores": {k: {t: a.scores() for t, a in by.items()} for k, by in asked.items()},
        "chance": {t: a.chances() for t, a in next(iter(asked.values())).items()},
        "broken": dict(library.features.broken),
    }
    if encoder.folder is not None:
        write_json(encoder.folder / RESULTS, found, option=RUN)
    return found


def libraries(
    encoders: Sequence[Encoder],
    halves: Halves,
    *,
    clips: int | None,
    cache: str | Path | None,
    reading: Reading | None,
    say: Callable[[str], object],
    progress: Progress | None,
) -> Iterator[tuple[str, Encoder, Parted, Library]]:
    """Encoders one after the other: what each is called, the videos, and its features as `cached_features` has them."""
    for title, encoder in zip(titles(encoders), encoders, strict=True):
        parted = halves.open(encoder.drawn)
        check_cache(cache, read_by(halves, videos=parted.videos, encoders=encoders))
        found = cached_features(
            encoder, parted.videos, clips=clips, cache=cache, reading=reading, say=say, progress=progress
        )
        yield title, encoder, parted, found


def result_lines(results: dict[str, Any]) -> list[str]:
    """The results of `retrieve` as lines for a terminal."""
    first = next(iter(results.values()))
    size = "–".join(map(str, dict.fromkeys((first["references"][0], first["references"][-1]))))
    lines = [
        f"{first['queries']} queries among {size} references ({first['protocol']}: {first['split']}), "
        f"clips of each video: {first['clips']}"
    ]
    wide = max(14, *(len(name) + 2 for name in results))
    metrics = list(next(iter(first["chance"].values())))
    for target, chance in first["chance"].items():
        lines.append(f"{target if len(first['chance']) > 1 else '':<{wide + 10}}" + "".join(f"{m:>8}" for m in metrics))
        for name, found in results.items():
            for kind, scores in found["scores"].items():
                lines.append(f"{name:<{wide}}{kind:<10}" + "".join(f"{scores[target][m]:8.3f}" for m in metrics))
        lines.append(f"{'random order':<{wide + 10}}" + "".join(f"{chance[m]:8.3f}" for m in metrics))
    broken = {name: reason for found in results.values() for name, reason in found["broken"].items()}
    return lines + skipped(broken)


def titles(encoders: Sequence[Encoder]) -> list[str]:
    """A short name for each encoder: the end of its text, or the whole where two ends are alike."""
    if not encoders:
        raise StillmotionError("no encoder given; name a run folder or a recipe")
    ends = [encoder.name for encoder in encoders]
    texts = [encoder.origin.text or encoder.name for encoder in encoders]
    names = [end if ends.count(end) == 1 else text for end, text in zip(ends, texts, strict=True)]
    if len(set(names)) < len(names):
        raise StillmotionError(f"{max(names, key=names.count)} is given twice; name each encoder once")
    return names


def _chance(same: np.ndarray, others: int) -> np.ndarray:
    """What a random order of `others` references is expected to score, of which `same` (q,) share the query's label."""
    columns = []
    for depth in DEPTHS:
        drawn = np.arange(min(depth, others))
        missed = np.clip((others - same[:, None] - drawn) / (others - drawn), 0, None).prod(1)
        columns.append(1 - missed)
    harmonic = (1 / np.arange(1, others + 1)).sum()
    further = (same - 1) / max(others - 1, 1) * (others - harmonic)
    columns.append(np.where(same > 0, (harmonic + further) / others, 0.0))
    return np.stack(columns, 1)
