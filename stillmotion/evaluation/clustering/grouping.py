"""Videos without labels: which are nearest to each, and into which groups they fall.

Shapes: N videos, D channels."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from stillmotion.data.datasets.config import VideoSource
from stillmotion.data.loading.collate import print_message as to_stderr
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.process_group import run_on_main
from stillmotion.encoders import Encoder, ProgressCallback
from stillmotion.encoders.feature_cache import FeatureTable
from stillmotion.encoders.input_paths import check_dir_no_overlap, collect_input_paths
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.clustering.config import ClusteringConfig, DistanceMetric
from stillmotion.evaluation.clustering.evaluate import UNLABELED_TARGET, ClusterResult, silhouette_by_num_classes
from stillmotion.evaluation.common import NUM_LISTED_VIDEOS, file_name, load_unlabeled_feature_tables
from stillmotion.utils.files import check_writable

_MAX_GROUPS = 10


def group_videos(
    encoders: Sequence[Encoder],
    source: VideoSource,
    config: ClusteringConfig | None = None,
    *,
    output_dir: str | Path | None = None,
    loader: LoaderConfig | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: ProgressCallback | None = None,
) -> list[ClusterResult]:
    """The groups that videos without labels fall into, the largest first, in place of `clusters` of their classes.

    Their number, up to ten, is the one of the best silhouette score. out, reading, say, ranks: as for `clusters`.
    """
    how = config or ClusteringConfig()
    if output_dir is not None:
        check_dir_no_overlap(output_dir, collect_input_paths(source, encoders=encoders))
        check_writable(output_dir, create=True)
    made: list[ClusterResult] = []
    for title, library in load_unlabeled_feature_tables(
        encoders, source, how.num_clips, how.cache_dir, loader, say, progress
    ):
        run_on_main(partial(made.extend, _iter_groups(title, source, library, how)))
    return made


def _iter_groups(
    encoder_name: str, source: VideoSource, table: FeatureTable, config: ClusteringConfig
) -> Iterator[ClusterResult]:
    if len(table.video_names) < 3:
        raise StillmotionError(f"{source.path} has {len(table.video_names)} readable videos; groups need three or more")
    for kind in [of for of in config.feature_kinds if of in table.features.kinds] or ["whole"]:
        vectors = table.features.vectors(kind)
        ranks = agglomerative_groups(vectors, metric=config.metric)
        names = [
            f"{i + 1}: " + ", ".join(file_name(table.video_names[row]) for row in _most_central(vectors, ranks == i))
            for i in range(ranks.max() + 1)
        ]
        yield ClusterResult(
            encoder_name=encoder_name,
            feature_kind=kind,
            target=UNLABELED_TARGET,
            class_names=names,
            recall_at_1=[],
            silhouette=silhouette_by_num_classes(vectors, ranks, metric=config.metric),
            vectors=vectors,
            class_ranks=ranks,
            failed=dict(table.features.failed),
        )


def agglomerative_groups(vectors: np.ndarray, *, metric: DistanceMetric = "euclidean") -> np.ndarray:
    """A group for each of N ≥ 3 vectors (N, D), as numbers (N,) from 0, the largest group first.

    By average linkage, at the number of groups whose silhouette score is the best.
    """
    from sklearn.cluster import AgglomerativeClustering  # a second to import
    from sklearn.metrics import silhouette_score

    best, chosen = -np.inf, np.zeros(len(vectors), np.int64)
    for count in range(2, min(_MAX_GROUPS, len(vectors) - 1) + 1):
        found = AgglomerativeClustering(count, metric=metric, linkage="average").fit_predict(vectors)
        score = silhouette_score(vectors, found, metric=metric)
        if score > best:
            best, chosen = score, found
    order = np.argsort(-np.bincount(chosen), kind="stable")
    return np.argsort(order)[chosen]


def _most_central(vectors: np.ndarray, chosen: np.ndarray) -> list[int]:
    """The rows of the chosen vectors that lie nearest to their mean, a few."""
    rows = np.flatnonzero(chosen)
    far = np.linalg.norm(vectors[rows] - vectors[rows].mean(0), axis=1)
    return rows[np.argsort(far, kind="stable")[:NUM_LISTED_VIDEOS]].tolist()
