"""`stillmotion retrieve`: Recall@k and mAP of nearest-neighbor retrieval; neighbors of unlabeled videos.

Videos are ranked by cosine; by motion under alignment, where the encoder gives motion fields.

Shapes: q queries, r references, k nearest, D channels.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from stillmotion.data.datasets.splits import TrainTestConfig, TrainTestSplit
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.process_group import run_on_main
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.feature_cache import DEFAULT_NUM_CLIPS, FeatureTable
from stillmotion.encoders.feature_extraction import resolve_num_clips
from stillmotion.encoders.input_paths import RUN_DIR_HINT
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.common import EncoderFeatures, load_feature_tables
from stillmotion.evaluation.retrieval.config import CandidateSet, RetrievalConfig, RetrievalProtocol
from stillmotion.evaluation.retrieval.motion_ranking import score_by_motion
from stillmotion.functional.knn import knn_search, retrieval_average_precision
from stillmotion.utils.files import check_writable, write_json
from stillmotion.utils.option_types import FeatureKind

RESULTS_FILE = "retrieval.json"
RECALL_KS = (1, 5, 10)
METRIC_NAMES = (*(f"recall@{k}" for k in RECALL_KS), "mAP")
RETRIEVAL_FEATURE_KINDS: tuple[FeatureKind, ...] = ("whole", "static", "dynamic", "concat", "motion")
_UNLABELED_FEATURE_KINDS: tuple[FeatureKind, ...] = ("static", "motion")


@dataclass(frozen=True)
class RetrievalResult:
    """Retrieval results of each query.

    Args:
        hits: Which of the nearest references share the query's label, best first, (q, k).
        average_precision: Average precision, (q,).
        query_labels: Labels of the queries, (q,).
        chance_scores: Expected metrics of references in random order, (q, 4).
    """

    hits: np.ndarray
    average_precision: np.ndarray
    query_labels: np.ndarray
    chance_scores: np.ndarray

    def metrics(self, queries: np.ndarray | slice = slice(None)) -> dict[str, float]:
        """Return recall@1, recall@5, recall@10 and mAP of some of the queries.

        recall@k is the fraction of queries with a reference of their class among the k nearest.
        """
        recall = {f"recall@{k}": float(self.hits[queries, :k].any(1).mean()) for k in RECALL_KS}
        return recall | {"mAP": float(self.average_precision[queries].mean())}

    def chance_metrics(self) -> dict[str, float]:
        """Return the expected metrics of references in random order."""
        return dict(zip(METRIC_NAMES, self.chance_scores.mean(0).tolist(), strict=True))


@dataclass(frozen=True)
class RetrievalReport:
    """Retrieval results of one encoder.

    Args:
        encoder: Spec of the encoder.
        data: Data set.
        protocol: train-test or leave-one-out.
        candidates: Videos of leave-one-out.
        split_description: How the videos are split.
        num_clips: Clips per video.
        frames: Frames per clip.
        queries: Number of queries; without labels, of videos.
        reference_counts: Number of references; several where folds differ.
        scores: Metrics by feature kind and target; empty for videos without labels.
        chance: Metrics of a random order by target.
        failed: Reason for each video that could not be read.
        neighbors: Of videos without labels, by feature kind, the nearest videos of each with their cosines.
        reused: Whether the features were read from disk.
    """

    encoder: str
    data: str
    protocol: str
    candidates: str
    split_description: str
    num_clips: int
    frames: int
    queries: int
    reference_counts: list[int]
    scores: dict[str, dict[str, dict[str, float]]]
    chance: dict[str, dict[str, float]]
    failed: dict[str, str]
    neighbors: dict[str, dict[str, list[tuple[str, float]]]] = field(default_factory=dict)
    reused: bool = False

    @property
    def has_labels(self) -> bool:
        """Whether the videos have labels, so that there are scores."""
        return bool(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON data, without neighbors and without the state of the cache."""
        return {name: value for name, value in asdict(self).items() if name not in ("neighbors", "reused")}


def score_retrieval(
    queries: np.ndarray,
    query_labels: np.ndarray,
    references: np.ndarray,
    reference_labels: np.ndarray,
    *,
    self_index: np.ndarray | None = None,
) -> RetrievalResult:
    """Search references by cosine for each query, and compare labels.

    A query whose class no reference has counts as missed.

    Args:
        queries: Vectors of the queries, (q, D).
        query_labels: Labels of the queries, ints (q,).
        references: Vectors of the references, (r, D).
        reference_labels: Labels of the references, ints (r,).
        self_index: Index of the reference that is the query itself and is left out, (q,).

    Returns:
        The results of each query.

    Raises:
        StillmotionError: If vectors are not finite, or there is no query or no reference.
    """
    for name, vectors in (("queries", queries), ("references", references)):
        if not np.isfinite(vectors).all():
            raise StillmotionError(f"Features of the {name} are NaN or infinite; the network probably diverged.")
    others = len(references) - (self_index is not None)
    if len(queries) == 0 or others < 1:
        raise StillmotionError(f"Retrieval needs at least 1 query and 1 reference, got {len(queries)} and {others}.")
    k = min(max(RECALL_KS), others)
    x, y, x_labels, y_labels = map(torch.from_numpy, (queries, references, query_labels, reference_labels))
    itself = None if self_index is None else torch.from_numpy(self_index)
    neighbors = knn_search(x, y, k=k, self_index=itself)[1].numpy()
    hits = np.zeros((len(queries), max(RECALL_KS)), bool)
    hits[:, :k] = reference_labels[neighbors] == query_labels[:, None]
    same = (reference_labels == query_labels[:, None]).sum(1) - (self_index is not None)
    precision = retrieval_average_precision(x, y, x_labels, y_labels, self_index=itself).numpy()
    return RetrievalResult(hits, precision, query_labels, _random_order_scores(same, others))


def score_ranking(scores: np.ndarray, query_labels: np.ndarray, reference_labels: np.ndarray) -> RetrievalResult:
    """Compare the labels of queries with those of references that are ranked by scores.

    Args:
        scores: Score of each reference for each query, (q, r); -inf leaves one out.
        query_labels: Labels of the queries, ints (q,).
        reference_labels: Labels of the references, ints (r,).

    Returns:
        The results of each query.

    Raises:
        StillmotionError: If there is no query or no reference.
    """
    counted = scores > -np.inf
    if not counted.any():
        raise StillmotionError(f"Retrieval needs at least 1 query and 1 reference, got {len(scores)} and 0.")
    order = np.argsort(-scores, axis=1, kind="stable")
    relevant = np.take_along_axis((reference_labels == query_labels[:, None]) & counted, order, 1)
    precision = relevant.cumsum(1) / np.arange(1, relevant.shape[1] + 1)
    num_same, others = relevant.sum(1), int(counted.sum(1).max())
    hits = np.zeros((len(scores), max(RECALL_KS)), bool)
    hits[:, : relevant.shape[1]] = relevant[:, : max(RECALL_KS)]
    average_precision = (precision * relevant).sum(1) / np.maximum(num_same, 1)
    return RetrievalResult(hits, average_precision, query_labels, _random_order_scores(num_same, others))


def score_feature_table(
    table: FeatureTable,
    split: TrainTestSplit,
    *,
    feature_kind: FeatureKind = "whole",
    protocol: RetrievalProtocol = "train-test",
    candidates: CandidateSet = "test",
) -> dict[str, RetrievalResult]:
    """Score the features of an encoder for each target, all folds together.

    Args:
        table: Features with labels.
        split: Train/test split of the videos.
        feature_kind: Feature kind.
        protocol: "train-test": test videos query the training videos; "leave-one-out": each video queries the others.
        candidates: Videos of leave-one-out: the test split or all.

    Returns:
        Results by target.
    """
    vectors, motion_fields = table.features.vectors(feature_kind), _motion_fields(table, feature_kind)
    rows = query_reference_rows(table, split, protocol=protocol, candidates=candidates)
    results = {}
    for target, labels in table.labels.items():
        parts = []
        for queries, references in rows:
            q, r = queries[labels[queries] >= 0], references[labels[references] >= 0]
            if motion_fields is not None:
                scores = score_by_motion(motion_fields[q], motion_fields[r], q, r).numpy()
                parts.append(score_ranking(scores, labels[q], labels[r]))
                continue
            self_index = np.arange(len(r)) if protocol == "leave-one-out" else None
            parts.append(score_retrieval(vectors[q], labels[q], vectors[r], labels[r], self_index=self_index))
        fields = [np.concatenate([getattr(a, name) for a in parts]) for name in RetrievalResult.__dataclass_fields__]
        results[target] = RetrievalResult(*fields)
    return results


def query_reference_rows(
    table: FeatureTable, split: TrainTestSplit, *, protocol: RetrievalProtocol, candidates: CandidateSet
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the table rows of queries and references for each fold; for leave-one-out they are the same.

    Args:
        table: Features.
        split: Train/test split of the videos.
        protocol: train-test or leave-one-out.
        candidates: Videos of leave-one-out: the test split or all.

    Returns:
        Rows of queries and of references, for each fold.
    """
    row = np.full(len(split.dataset), -1)
    row[table.features.index] = np.arange(len(table.video_names))
    folds = [tuple(row[part][row[part] >= 0] for part in fold) for fold in split.folds]
    if protocol == "train-test":
        return [(test, train) for train, test in folds]
    selected = [np.unique(test if candidates == "test" else np.concatenate([train, test])) for train, test in folds]
    return [(rows, rows) for rows in selected]


def evaluate_retrieval(
    encoders: Sequence[Encoder],
    split_config: TrainTestConfig,
    config: RetrievalConfig | None = None,
    *,
    feature_kinds: Sequence[FeatureKind] | None = None,
    top_k: int = 10,
    loader: LoaderConfig | None = None,
) -> dict[str, RetrievalReport]:
    """Evaluate retrieval by several encoders: recall@1, recall@5, recall@10 and mAP by feature kind.

    Writes `retrieval.json` into the run folder of each encoder that has one. For videos without labels, the nearest
    neighbors of each video are listed instead. Processes share the videos; the first one evaluates and writes.

    Args:
        encoders: Encoders.
        split_config: Videos; with the fold "all", the queries of every fold are counted.
        config: Protocol.
        feature_kinds: Feature kinds; default: all, or static and motion for videos without labels.
        top_k: Number of neighbors listed for each video without labels.
        loader: Batch size and number of decoding processes.

    Returns:
        Results by the name of the encoder.

    Raises:
        StillmotionError: If there are fewer than 2 readable videos.
    """
    config = config or RetrievalConfig()
    for encoder in encoders:
        if encoder.run_dir is not None:
            check_writable(encoder.run_dir / RESULTS_FILE, is_file=True, create=True, option_name=RUN_DIR_HINT)
    return {
        features.name: run_on_main(partial(_evaluate_encoder, features, split_config, config, feature_kinds, top_k))
        for features in load_feature_tables(encoders, split_config, config, loader=loader)
    }


def _evaluate_encoder(
    encoder_features: EncoderFeatures,
    split_config: TrainTestConfig,
    config: RetrievalConfig,
    feature_kinds: Sequence[FeatureKind] | None,
    top_k: int,
) -> RetrievalReport:
    _, encoder, split, table = encoder_features
    protocol, candidates = config.protocol, config.candidates
    scored: dict[str, dict[str, RetrievalResult]] = {}
    neighbors: dict[str, dict[str, list[tuple[str, float]]]] = {}
    num_queries, reference_counts = len(table.video_names), [len(table.video_names) - 1]
    if split.has_labels:
        for kind in table.features.available(feature_kinds or RETRIEVAL_FEATURE_KINDS):
            scored[kind] = score_feature_table(
                table, split, feature_kind=kind, protocol=protocol, candidates=candidates
            )
        rows = query_reference_rows(table, split, protocol=protocol, candidates=candidates)
        num_queries = sum(len(queries) for queries, _ in rows)
        reference_counts = sorted({len(references) - (protocol == "leave-one-out") for _, references in rows})
    else:
        kinds = [kind for kind in feature_kinds or _UNLABELED_FEATURE_KINDS if kind in table.features.kinds]
        neighbors = {kind: list_neighbors(table, kind, top_k=top_k) for kind in kinds or ["whole"]}
    report = RetrievalReport(
        encoder=encoder.origin.spec,
        data=split_config.path,
        protocol=protocol,
        candidates=candidates,
        split_description=split.description,
        num_clips=resolve_num_clips(encoder, config.num_clips, default=DEFAULT_NUM_CLIPS),
        frames=encoder.eval_input.num_frames,
        queries=num_queries,
        reference_counts=reference_counts,
        scores={kind: {target: r.metrics() for target, r in by_target.items()} for kind, by_target in scored.items()},
        chance={target: r.chance_metrics() for target, r in next(iter(scored.values()), {}).items()},
        failed=dict(table.features.failed),
        neighbors=neighbors,
        reused=table.from_cache,
    )
    if encoder.run_dir is not None and report.has_labels:
        write_json(encoder.run_dir / RESULTS_FILE, report.to_dict(), option_name=RUN_DIR_HINT)
    return report


def list_neighbors(
    table: FeatureTable, feature_kind: FeatureKind, *, top_k: int = 10
) -> dict[str, list[tuple[str, float]]]:
    """List the nearest videos of each video.

    Args:
        table: Features.
        feature_kind: Feature kind.
        top_k: Number of neighbors.

    Returns:
        For each video's name, names and similarities of its nearest videos, best first: cosines or, by motion under
        alignment, the scores of `score_by_motion`.

    Raises:
        StillmotionError: If there are fewer than 2 videos.
    """
    names = table.video_names
    if len(names) < 2:
        raise StillmotionError(f"Retrieval needs at least 2 readable videos, got {len(names)}.")
    k, rows, fields = min(top_k, len(names) - 1), np.arange(len(names)), _motion_fields(table, feature_kind)
    if fields is not None:
        nearest: tuple[torch.Tensor, torch.Tensor] = score_by_motion(fields, fields, rows, rows).topk(k)
    else:
        vectors = torch.from_numpy(table.features.vectors(feature_kind))
        nearest = knn_search(vectors, vectors, k=k, self_index=torch.from_numpy(rows))
    return {
        name: [(names[j], round(similarity, 4)) for similarity, j in zip(*row, strict=True)]
        for name, *row in zip(names, *(x.tolist() for x in nearest), strict=True)
    }


def _motion_fields(table: FeatureTable, feature_kind: FeatureKind) -> np.ndarray | None:
    """Return the motion fields (N, F) by which videos are ranked; None if they are ranked by vectors."""
    fields = table.features.motion_field.mean(1)
    return fields if feature_kind == "motion" and fields.shape[1] else None


def _random_order_scores(num_same_class: np.ndarray, num_references: int) -> np.ndarray:
    """Return the expected scores of a random order of references, some of which share the query's label (q,)."""
    columns = []
    for depth in RECALL_KS:
        rank = np.arange(min(depth, num_references))
        missed = np.clip((num_references - num_same_class[:, None] - rank) / (num_references - rank), 0, None).prod(1)
        columns.append(1 - missed)
    harmonic = (1 / np.arange(1, num_references + 1)).sum()
    further = (num_same_class - 1) / max(num_references - 1, 1) * (num_references - harmonic)
    columns.append(np.where(num_same_class > 0, (harmonic + further) / num_references, 0.0))
    return np.stack(columns, 1)
