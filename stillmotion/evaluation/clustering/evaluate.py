"""`stillmotion clusters`: how well the classes that an encoder retrieves best stand apart (ViDiDi, Table 7).

Shapes: N videos, D channels.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from stillmotion.data.datasets.splits import TrainTestConfig, TrainTestSplit
from stillmotion.data.loading.collate import print_message as to_stderr
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.process_group import run_on_main
from stillmotion.encoders import Encoder, FeatureKind, ProgressCallback
from stillmotion.encoders.feature_cache import FeatureTable
from stillmotion.encoders.input_paths import check_dir_no_overlap, collect_input_paths
from stillmotion.evaluation.clustering.config import ClusteringConfig, DistanceMetric, SplitChoice
from stillmotion.evaluation.common import load_feature_tables
from stillmotion.evaluation.retrieval.evaluate import RetrievalResult, score_feature_table
from stillmotion.utils.files import check_writable

NUM_CLASSES = (3, 5, 10, 15, 20)
UNLABELED_TARGET = "group"  # the target of videos without labels


@dataclass(frozen=True)
class ClusterResult:
    """The videos of one encoder's classes, the best-retrieved class first.

    encoder_name, feature_kind, target: whose vectors they are and by what the videos are labelled.
    class_names: their names. recall: R@1 of each. silhouette: by the number of classes, counted from the best.
    vectors (N, D). ranks (N,): each video's class as a place in `class_names`.
    failed: name and reason of each video that could not be read.
    """

    encoder_name: str
    feature_kind: FeatureKind
    target: str
    class_names: list[str]
    recall_at_1: list[float]
    silhouette: dict[int, float]
    vectors: np.ndarray
    class_ranks: np.ndarray
    failed: Mapping[str, str] = field(default_factory=dict)


def evaluate_clustering(
    encoders: Sequence[Encoder],
    split_config: TrainTestConfig,
    config: ClusteringConfig | None = None,
    *,
    output_dir: str | Path | None = None,
    loader: LoaderConfig | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: ProgressCallback | None = None,
) -> list[ClusterResult]:
    """The clusters of several encoders, for each kind of embedding and each target that the videos are labelled with.

    Videos, features and what is said are as for `retrieve`. Ranks share the videos; the first has the clusters, the
    others none.
    output_dir: the folder that the report will be written to, which is looked at before the work.
    """
    how = config or ClusteringConfig()
    if output_dir is not None:
        check_dir_no_overlap(output_dir, collect_input_paths(split_config, encoders=encoders))
        check_writable(output_dir, create=True)
    found: list[ClusterResult] = []
    each = load_feature_tables(
        encoders,
        split_config,
        num_clips=how.num_clips,
        cache_dir=how.cache_dir,
        loader=loader,
        say=say,
        progress=progress,
    )
    for title, _, parted, library in each:
        run_on_main(partial(found.extend, _iter_clusters(title, parted, library, how)))
    return found


def _iter_clusters(
    encoder_name: str, split: TrainTestSplit, table: FeatureTable, config: ClusteringConfig
) -> Iterator[ClusterResult]:
    rows = _split_rows(table, split, config.split)
    for of in [of for of in config.feature_kinds if of in table.features.kinds] or config.feature_kinds:
        vectors = table.features.vectors(of)[rows]
        for target, answered in score_feature_table(table, split, feature_kind=of).items():
            order, recall = rank_classes_by_recall(answered)
            ranks = _class_ranks(table.labels[target][rows], order)
            yield ClusterResult(
                encoder_name=encoder_name,
                feature_kind=of,
                target=target,
                class_names=[table.class_names[target][number] for number in order],
                recall_at_1=recall,
                silhouette=silhouette_by_num_classes(vectors, ranks, metric=config.metric),
                vectors=vectors[ranks >= 0],
                class_ranks=ranks[ranks >= 0],
                failed=dict(table.features.failed),
            )


def rank_classes_by_recall(result: RetrievalResult) -> tuple[list[int], list[float]]:
    """The numbers of the queries' classes and the R@1 of each, the best first; of equals, that of the higher mAP."""
    scores = {int(c): result.metrics(result.query_labels == c) for c in np.unique(result.query_labels)}
    order = sorted(scores, key=lambda c: (-scores[c]["R@1"], -scores[c]["mAP"], c))
    return order, [scores[c]["R@1"] for c in order]


def silhouette_by_num_classes(
    vectors: np.ndarray, class_ranks: np.ndarray, *, metric: DistanceMetric = "euclidean"
) -> dict[int, float]:
    """Silhouette scores of the 3, 5, 10, 15, 20 best classes, as far as there are more, and of all of them.

    class_ranks (N,): each video's class by how well it is retrieved, 0 for the best; -1 leaves a video out.
    Where the score is not defined, with one class or with no class of two videos, it is NaN.
    """
    from sklearn.metrics import silhouette_score  # a second to import

    most = int(class_ranks.max(initial=-1)) + 1
    found = {}
    for size in [*(size for size in NUM_CLASSES if size < most), most]:
        chosen = (class_ranks >= 0) & (class_ranks < size)
        classes = len(np.unique(class_ranks[chosen]))
        defined = 2 <= classes < chosen.sum()
        found[size] = (
            float(silhouette_score(vectors[chosen], class_ranks[chosen], metric=metric)) if defined else np.nan
        )
    return found


def _split_rows(table: FeatureTable, split: TrainTestSplit, split_choice: SplitChoice) -> np.ndarray:
    """The rows of the videos that are looked at, those of all folds together."""
    place = {"train": [0], "test": [1], "all": [0, 1]}[split_choice]
    numbers = np.unique(np.concatenate([fold[i] for fold in split.folds for i in place]))
    return np.flatnonzero(np.isin(table.features.index, numbers))


def _class_ranks(labels: np.ndarray, order: Sequence[int]) -> np.ndarray:
    place = {number: rank for rank, number in enumerate(order)}
    return np.array([place.get(int(label), -1) for label in labels], np.int64)
