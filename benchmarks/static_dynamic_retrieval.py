"""Retrieval and linear probes by appearance and by motion, on the plain, static and dynamic versions of a data set.

    stillmotion static-dynamic make --data ut_interaction --variant static --out sets/static
    stillmotion static-dynamic make --data ut_interaction --variant dynamic --out sets/dynamic
    python benchmarks/static_dynamic_retrieval.py --images dinov2_vits14@layer=11 \\
        --i3d i3d:i3d.safetensors@frames=32,stride=0,size=128 \\
        --data ut_interaction --static sets/static --dynamic sets/dynamic --out runs/motion

R@1 is that of the official split and of all folds, the probe that of the official split. Features are cached in
runs/motion.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from retrieval_tasks import pixel_features

from stillmotion.data.datasets.splits import TrainTestConfig, TrainTestSplit
from stillmotion.encoders import FeatureKind, load
from stillmotion.encoders.feature_cache import load_or_extract_features
from stillmotion.evaluation.linear_probe.classifiers import logistic_probe
from stillmotion.evaluation.retrieval.evaluate import score_retrieval

FEATURE_KINDS: tuple[FeatureKind, ...] = ("whole", "static", "motion")
FeatureSource = Callable[[TrainTestSplit], Iterator[tuple[str, np.ndarray]]]  # names and features, one row per video


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="labelled videos in folds")
    parser.add_argument("--static", help="their static version")
    parser.add_argument("--dynamic", help="their dynamic version")
    parser.add_argument("--images", help="an encoder of frames")
    parser.add_argument("--i3d", help="an encoder of clips")
    parser.add_argument("--out", required=True, type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    versions = {"plain": options.data, "static": options.static, "dynamic": options.dynamic}
    print(f"{'':44}{'version':10}{'split':>7}{'folds':>7}{'probe':>7}")
    specs = [spec for spec in ("flow", options.images, options.i3d) if spec]
    for source in (pixel_rows, *(encoder_rows(spec, options.out) for spec in specs)):
        for version, path in versions.items():
            if path is not None:
                print_rows(version, path, source)


def pixel_rows(train_test_split: TrainTestSplit) -> Iterator[tuple[str, np.ndarray]]:
    for name, x in pixel_features(train_test_split.dataset).items():
        yield f"pixels, {name}", x


def encoder_rows(encoder_spec: str, output_dir: Path) -> FeatureSource:
    """Return a source of an encoder's features by kind, from one clip of each video."""
    encoder = load(encoder_spec)

    def iter_features(train_test_split: TrainTestSplit) -> Iterator[tuple[str, np.ndarray]]:
        videos = train_test_split.dataset
        features = load_or_extract_features(encoder, videos, num_clips=1, cache_dir=output_dir).features
        assert not features.failed, features.failed
        for kind in FEATURE_KINDS:
            yield f"{Path(encoder_spec).name.partition('@')[0]}, {kind}", features.vectors(kind)

    return iter_features


def print_rows(variant: str, path: str, source: FeatureSource) -> None:
    """Print R@1 of the official split and of all folds, and the probe's accuracy, for all features of a version."""
    train_test_split = TrainTestConfig(path, fold="all").open()
    y, split = train_test_split.dataset.labels["class"], official_split(path, train_test_split)
    train, test = split
    for name, x in source(train_test_split):
        recalls = (nearest_neighbor_hits(x, y, folds).mean() for folds in ([split], train_test_split.folds))
        probe = logistic_probe(x[train, None], y[train], x[test, None], y[test]).top1
        print(f"{name:44}{variant:10}" + "".join(f"{value:7.3f}" for value in (*recalls, probe)), flush=True)


def official_split(data: str, train_test_split: TrainTestSplit) -> tuple[np.ndarray, np.ndarray]:
    """Indices in `train_test_split` of the training and test videos of the official split."""
    numbers = {train_test_split.dataset.name(i): i for i in range(len(train_test_split.dataset))}
    official = TrainTestConfig(data).open()
    train, test = (np.array([numbers[official.dataset.name(int(i))] for i in indices]) for indices in official.folds[0])
    return train, test


def nearest_neighbor_hits(
    features: np.ndarray, labels: np.ndarray, folds: Sequence[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """Return whether the nearest training video of each test video is of its class, all folds together."""
    return np.concatenate(
        [
            score_retrieval(features[test], labels[test], features[train], labels[train]).hits[:, 0]
            for train, test in folds
        ]
    )


if __name__ == "__main__":
    main()
