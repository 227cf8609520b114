"""`stillmotion cluster`: silhouette scores of the classes that an encoder retrieves best (ViDiDi, Table 7).

Shapes: N videos, D channels.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.datasets.splits import TrainTestConfig, TrainTestSplit
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.process_group import run_on_main
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.feature_cache import FeatureTable
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.clustering.config import ClusteringConfig, DistanceMetric, SplitChoice
from stillmotion.evaluation.clustering.grouping import agglomerative_groups, central_rows
from stillmotion.evaluation.common import NUM_LISTED_VIDEOS, EncoderFeatures, file_name, load_feature_tables
from stillmotion.evaluation.retrieval.evaluate import RetrievalResult, score_feature_table
from stillmotion.utils.option_types import FeatureKind

NUM_CLASSES = (3, 5, 10, 15, 20)


@dataclass(frozen=True)
class ClusterResult:
    """Videos of an encoder by class, the best-retrieved class first, or by group where they have no labels.

    Args:
        encoder_name: Short name of the encoder.
        feature_kind: Feature kind of the vectors.
        target: What the classes are; "group" for videos without labels.
        class_names: Names of the classes or groups.
        recall_at_1: recall@1 of each class; empty for groups.
        silhouette: Silhouette scores by the number of classes, counted from the best.
        vectors: Vectors of the videos, (N, D).
        class_ranks: Index of each video's class in `class_names`, (N,).
        is_labeled: Whether the videos have labels.
        failed: Reason for each video that could not be read.
    """

    encoder_name: str
    feature_kind: FeatureKind
    target: str
    class_names: list[str]
    recall_at_1: list[float]
    silhouette: dict[int, float]
    vectors: np.ndarray
    class_ranks: np.ndarray
    is_labeled: bool = True
    failed: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON data, without the vectors."""
        return {
            "encoder": self.encoder_name,
            "feature_kind": self.feature_kind,
            "target": self.target,
            "videos": len(self.class_ranks),
            "class_names": self.class_names,
            "recall@1": self.recall_at_1,
            "silhouette": {str(n): None if math.isnan(score) else score for n, score in self.silhouette.items()},
        }


def evaluate_clustering(
    encoders: Sequence[Encoder],
    split_config: TrainTestConfig,
    config: ClusteringConfig | None = None,
    *,
    output_dir: str | Path | None = None,
    loader: LoaderConfig | None = None,
) -> list[ClusterResult]:
    """Score how well several encoders separate the classes, for each feature kind and target.

    Videos without labels are grouped by agglomerative clustering, and the groups are scored. Processes share the
    videos; the first one has the results, the others none.

    Args:
        encoders: Encoders.
        split_config: Videos.
        config: What is scored.
        output_dir: Folder of the report, which is checked first.
        loader: Batch size and number of decoding processes.

    Returns:
        A result for each encoder, feature kind and target.

    Raises:
        StillmotionError: If there are too few videos, or the folder overlaps the inputs.
    """
    config = config or ClusteringConfig()
    results: list[ClusterResult] = []
    for features in load_feature_tables(encoders, split_config, config, output_dir=output_dir, loader=loader):
        iter_results = _iter_classes if features.split.has_labels else _iter_groups
        run_on_main(partial(results.extend, iter_results(features, config)))
    return results


def _iter_classes(encoder_features: EncoderFeatures, config: ClusteringConfig) -> Iterator[ClusterResult]:
    name, _, split, table = encoder_features
    rows = _split_rows(table, split, config.split)
    for kind in table.features.available(config.feature_kinds):
        vectors = table.features.vectors(kind)[rows]
        for target, retrieval in score_feature_table(table, split, feature_kind=kind).items():
            order, recall = rank_classes_by_recall(retrieval)
            ranks = _class_ranks(table.labels[target][rows], order)
            yield ClusterResult(
                encoder_name=name,
                feature_kind=kind,
                target=target,
                class_names=[table.class_names[target][label] for label in order],
                recall_at_1=recall,
                silhouette=silhouette_by_num_classes(vectors, ranks, metric=config.metric),
                vectors=vectors[ranks >= 0],
                class_ranks=ranks[ranks >= 0],
                failed=dict(table.features.failed),
            )


def _iter_groups(encoder_features: EncoderFeatures, config: ClusteringConfig) -> Iterator[ClusterResult]:
    name, _, _, table = encoder_features
    if len(table.video_names) < 3:
        raise StillmotionError(f"Groups need at least 3 readable videos, got {len(table.video_names)}.")
    kinds: Sequence[FeatureKind] = [k for k in config.feature_kinds if k in table.features.kinds] or ["whole"]
    for kind in kinds:
        vectors = table.features.vectors(kind)
        groups = agglomerative_groups(vectors, metric=config.metric)
        central = [central_rows(vectors, groups == g, max_rows=NUM_LISTED_VIDEOS) for g in range(groups.max() + 1)]
        yield ClusterResult(
            encoder_name=name,
            feature_kind=kind,
            target="group",
            class_names=[
                f"{g + 1}: " + ", ".join(file_name(table.video_names[row]) for row in rows)
                for g, rows in enumerate(central)
            ],
            recall_at_1=[],
            silhouette=silhouette_by_num_classes(vectors, groups, metric=config.metric),
            vectors=vectors,
            class_ranks=groups,
            is_labeled=False,
            failed=dict(table.features.failed),
        )


def rank_classes_by_recall(result: RetrievalResult) -> tuple[list[int], list[float]]:
    """Rank the classes of queries by recall@1, and classes of equal recall by mAP.

    Args:
        result: Results of retrieval.

    Returns:
        The classes and the recall@1 of each, best first.
    """
    scores = {int(c): result.metrics(result.query_labels == c) for c in np.unique(result.query_labels)}
    order = sorted(scores, key=lambda c: (-scores[c]["recall@1"], -scores[c]["mAP"], c))
    return order, [scores[c]["recall@1"] for c in order]


def silhouette_by_num_classes(
    vectors: np.ndarray, class_ranks: np.ndarray, *, metric: DistanceMetric = "euclidean"
) -> dict[int, float]:
    """Compute silhouette scores of the 3, 5, 10, 15 and 20 best classes, as far as there are more, and of all.

    Args:
        vectors: Vectors, (N, D).
        class_ranks: Rank of each video's class, 0 for the best, (N,); -1 leaves a video out.
        metric: Distance.

    Returns:
        Scores by the number of classes; NaN where undefined (one class, or no class of two videos).
    """
    from sklearn.metrics import silhouette_score  # a second to import

    most = int(class_ranks.max(initial=-1)) + 1
    scores = {}
    for size in [*(size for size in NUM_CLASSES if size < most), most]:
        chosen = (class_ranks >= 0) & (class_ranks < size)
        classes = len(np.unique(class_ranks[chosen]))
        defined = 2 <= classes < chosen.sum()
        scores[size] = (
            float(silhouette_score(vectors[chosen], class_ranks[chosen], metric=metric)) if defined else np.nan
        )
    return scores


def _split_rows(table: FeatureTable, split: TrainTestSplit, split_choice: SplitChoice) -> np.ndarray:
    """Return the rows of the videos of a split, of all folds together."""
    parts = {"train": [0], "test": [1], "all": [0, 1]}[split_choice]
    indices = np.unique(np.concatenate([fold[i] for fold in split.folds for i in parts]))
    return np.flatnonzero(np.isin(table.features.index, indices))


def _class_ranks(labels: np.ndarray, order: Sequence[int]) -> np.ndarray:
    rank_of = {label: rank for rank, label in enumerate(order)}
    return np.array([rank_of.get(int(label), -1) for label in labels], np.int64)
