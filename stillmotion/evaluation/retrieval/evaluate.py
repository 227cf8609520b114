"""`stillmotion retrieve`: whether the videos most alike to a video, by cosine, are of its class.

Shapes: q queries, r references, k nearest, D channels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from stillmotion.data.datasets.splits import TrainTestConfig, TrainTestSplit
from stillmotion.data.loading.collate import print_message as to_stderr
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.process_group import run_on_main
from stillmotion.encoders import Encoder, FeatureKind, ProgressCallback, resolve_num_clips
from stillmotion.encoders.feature_cache import DEFAULT_NUM_CLIPS, FeatureTable
from stillmotion.encoders.input_paths import RUN_DIR_HINT
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.common import load_feature_tables
from stillmotion.evaluation.retrieval.config import CandidateSet, RetrievalConfig, RetrievalProtocol
from stillmotion.functional.knn import knn_search, retrieval_average_precision
from stillmotion.utils.files import check_writable, write_json
from stillmotion.utils.formatting import format_failed_videos

RESULTS_FILE = "retrieval.json"
RECALL_KS = (1, 5, 10)
RETRIEVAL_FEATURE_KINDS: tuple[FeatureKind, ...] = ("whole", "static", "dynamic", "concat", "motion")


@dataclass(frozen=True)
class RetrievalResult:
    """What each query was given.

    hits (q, k): which of its nearest share its label, best first. precision (q,): its average precision.
    query_labels (q,): of the queries. chance: the scores expected of references in random order, (q, 4).
    """

    hits: np.ndarray
    average_precision: np.ndarray
    query_labels: np.ndarray
    chance_scores: np.ndarray

    def metrics(self, queries: np.ndarray | slice = slice(None)) -> dict[str, float]:
        """R@1, R@5 and R@10, the share of queries with a video of their class among so many nearest, and mAP."""
        recall = {f"R@{k}": float(self.hits[queries, :k].any(1).mean()) for k in RECALL_KS}
        return recall | {"mAP": float(self.average_precision[queries].mean())}

    def chance_metrics(self) -> dict[str, float]:
        """The same of a random order."""
        return dict(zip([*(f"R@{k}" for k in RECALL_KS), "mAP"], self.chance_scores.mean(0).tolist(), strict=True))


def score_retrieval(
    queries: np.ndarray,
    query_labels: np.ndarray,
    references: np.ndarray,
    reference_labels: np.ndarray,
    *,
    self_index: np.ndarray | None = None,
) -> RetrievalResult:
    """What the exact search by cosine gives queries (q, D) among references (r, D); labels are ints.

    self_index: (q,), the number of the reference that a query is itself, which it is not given.
    A query whose class no reference has is missed.
    """
    for name, vectors in (("queries", queries), ("references", references)):
        if not np.isfinite(vectors).all():
            raise StillmotionError(f"features of the {name} hold NaN or infinity; the network that made them diverged")
    others = len(references) - (self_index is not None)
    if len(queries) == 0 or others < 1:
        raise StillmotionError(f"{len(queries)} queries and {others} other videos to search; both must be at least 1")
    k = min(max(RECALL_KS), others)
    x, y, x_labels, y_labels = map(torch.from_numpy, (queries, references, query_labels, reference_labels))
    itself = None if self_index is None else torch.from_numpy(self_index)
    found = knn_search(x, y, k=k, self_index=itself)[1].numpy()
    hits = np.zeros((len(queries), max(RECALL_KS)), bool)
    hits[:, :k] = reference_labels[found] == query_labels[:, None]
    same = (reference_labels == query_labels[:, None]).sum(1) - (self_index is not None)
    precision = retrieval_average_precision(x, y, x_labels, y_labels, self_index=itself).numpy()
    return RetrievalResult(hits, precision, query_labels, _random_order_scores(same, others))


def score_feature_table(
    table: FeatureTable,
    split: TrainTestSplit,
    *,
    feature_kind: FeatureKind = "whole",
    protocol: RetrievalProtocol = "train-test",
    candidates: CandidateSet = "test",
) -> dict[str, RetrievalResult]:
    """The answers of an encoder's features for each target that the videos are labelled with, all folds together.

    protocol: "train-test" asks with the test videos among the training videos; "leave-one-out" with each of the `candidates`
        videos, the test half or all, among the others of them.
    """
    vectors = table.features.vectors(feature_kind)
    found = {}
    for target, labels in table.labels.items():
        parts = []
        for queries, references in query_reference_rows(table, split, protocol=protocol, candidates=candidates):
            q, r = queries[labels[queries] >= 0], references[labels[references] >= 0]
            own = np.arange(len(r)) if protocol == "leave-one-out" else None
            parts.append(score_retrieval(vectors[q], labels[q], vectors[r], labels[r], self_index=own))
        fields = [np.concatenate([getattr(a, name) for a in parts]) for name in RetrievalResult.__dataclass_fields__]
        found[target] = RetrievalResult(*fields)
    return found


def query_reference_rows(
    table: FeatureTable, split: TrainTestSplit, *, protocol: RetrievalProtocol, candidates: CandidateSet
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows of the queries and of the references, for each fold; those of leave-one-out are the same."""
    row = np.full(len(split.dataset), -1)
    row[table.features.index] = np.arange(len(table.video_names))
    halves = [tuple(row[half][row[half] >= 0] for half in fold) for fold in split.folds]
    if protocol == "train-test":
        return [(test, train) for train, test in halves]
    own = [np.unique(test if candidates == "test" else np.concatenate([train, test])) for train, test in halves]
    return [(rows, rows) for rows in own]


def evaluate_retrieval(
    encoders: Sequence[Encoder],
    split_config: TrainTestConfig,
    config: RetrievalConfig | None = None,
    *,
    feature_kinds: Sequence[FeatureKind] = RETRIEVAL_FEATURE_KINDS,
    loader: LoaderConfig | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """R@1, R@5, R@10 and mAP of several encoders, by whole, static and dynamic embedding and by both halves.

    encoders: into the folder of a run its `retrieval.json` is written.
    split_config: with the fold "all", the queries of every fold are asked.
    say: told of a damaged cache.
    Ranks share the videos; the first asks, and writes.
    """
    how = config or RetrievalConfig()
    results: dict[str, Any] = {}
    for encoder in encoders:
        if encoder.run_dir is not None:
            check_writable(encoder.run_dir / RESULTS_FILE, is_file=True, create=True, option_name=RUN_DIR_HINT)
    each = load_feature_tables(
        encoders,
        split_config,
        num_clips=how.num_clips,
        cache_dir=how.cache_dir,
        loader=loader,
        say=say,
        progress=progress,
    )
    for title, encoder, parted, library in each:
        found = run_on_main(partial(_score_encoder, encoder, split_config, how, parted, library, feature_kinds))
        results[title] = found | {"reused": library.from_cache}
    return results


def _score_encoder(
    encoder: Encoder,
    split_config: TrainTestConfig,
    config: RetrievalConfig,
    split: TrainTestSplit,
    table: FeatureTable,
    feature_kinds: Sequence[FeatureKind],
) -> dict[str, Any]:
    """What is found of one encoder, which is written beside it."""
    protocol, among = config.protocol, config.candidates
    there = [kind for kind in feature_kinds if kind in table.features.kinds] or feature_kinds
    asked = {k: score_feature_table(table, split, feature_kind=k, protocol=protocol, candidates=among) for k in there}
    turns = query_reference_rows(table, split, protocol=protocol, candidates=among)
    found = {
        "encoder": encoder.origin.spec,
        "data": split_config.path,
        "protocol": protocol if protocol == "train-test" else f"{protocol}, {among} videos",
        "split_description": split.description,
        "num_clips": resolve_num_clips(encoder, config.num_clips, default=DEFAULT_NUM_CLIPS),
        "frames": encoder.eval_input.num_frames,
        "queries": sum(len(queries) for queries, _ in turns),
        "reference_counts": sorted({len(rows) - (protocol == "leave-one-out") for _, rows in turns}),
        "scores": {k: {t: a.metrics() for t, a in by.items()} for k, by in asked.items()},
        "chance": {t: a.chance_metrics() for t, a in next(iter(asked.values())).items()},
        "failed": dict(table.features.failed),
    }
    if encoder.run_dir is not None:
        write_json(encoder.run_dir / RESULTS_FILE, found, option_name=RUN_DIR_HINT)
    return found


def format_retrieval_results(results: dict[str, Any]) -> list[str]:
    """The results of `retrieve` as lines for a terminal."""
    first = next(iter(results.values()))
    size = "–".join(map(str, dict.fromkeys((first["reference_counts"][0], first["reference_counts"][-1]))))
    lines = [
        f"{first['queries']} queries among {size} references ({first['protocol']}: {first['split_description']}), "
        f"clips of each video: {first['num_clips']}"
    ]
    wide = max(14, *(len(name) + 2 for name in results))
    metrics = list(next(iter(first["chance"].values())))
    for target, chance in first["chance"].items():
        lines.append(f"{target if len(first['chance']) > 1 else '':<{wide + 10}}" + "".join(f"{m:>8}" for m in metrics))
        for name, found in results.items():
            for kind, scores in found["scores"].items():
                lines.append(f"{name:<{wide}}{kind:<10}" + "".join(f"{scores[target][m]:8.3f}" for m in metrics))
        lines.append(f"{'random order':<{wide + 10}}" + "".join(f"{chance[m]:8.3f}" for m in metrics))
    broken = {name: reason for found in results.values() for name, reason in found["failed"].items()}
    return lines + format_failed_videos(broken)


def _random_order_scores(num_same_class: np.ndarray, num_references: int) -> np.ndarray:
    """What a random order of `num_references` references is expected to score, of which `num_same_class` (q,) share the query's label."""
    columns = []
    for depth in RECALL_KS:
        drawn = np.arange(min(depth, num_references))
        missed = np.clip((num_references - num_same_class[:, None] - drawn) / (num_references - drawn), 0, None).prod(1)
        columns.append(1 - missed)
    harmonic = (1 / np.arange(1, num_references + 1)).sum()
    further = (num_same_class - 1) / max(num_references - 1, 1) * (num_references - harmonic)
    columns.append(np.where(num_same_class > 0, (harmonic + further) / num_references, 0.0))
    return np.stack(columns, 1)
