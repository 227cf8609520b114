"""R@1 and linear probes of networks on real videos, by component and seed.

Shared by pretrain_on_tokens.py, pretrain_from_scratch.py and static_dynamic_retrieval.py; it is no benchmark itself.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.splits import TrainTestConfig, TrainTestSplit
from stillmotion.data.transforms.sampling import read_clips, sample_uniform_clips
from stillmotion.encoders.feature_cache import FeatureTable
from stillmotion.evaluation.linear_probe.classifiers import logistic_probe_ranks
from stillmotion.evaluation.metrics.confidence_intervals import bootstrap_means
from stillmotion.evaluation.retrieval.evaluate import score_feature_table, score_retrieval
from stillmotion.utils.files import write_json

FEATURE_KINDS = ("whole", "static", "dynamic", "concat")
Hits = dict[tuple[str, str, str], np.ndarray]  # by method, readout and feature kind


def make_parser(description: str | None, *, default_seeds: list[int]) -> argparse.ArgumentParser:
    """Options of a benchmark that trains with several seeds."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="Labeled videos.")
    parser.add_argument("--fold", default="all", type=lambda text: text if text == "all" else int(text))
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=default_seeds)
    parser.add_argument("--epochs", type=int, help="Epochs, instead of the recipe's.")
    parser.add_argument("--probe", action="store_true", help="Add a linear probe on the official split.")
    return parser


def official_split(data: str, train_test_split: TrainTestSplit) -> tuple[np.ndarray, np.ndarray]:
    """Indices in `train_test_split` of the training and test videos of the official split."""
    numbers = {train_test_split.dataset.name(i): i for i in range(len(train_test_split.dataset))}
    official = TrainTestConfig(data).open()
    train, test = (np.array([numbers[official.dataset.name(int(i))] for i in part]) for part in official.folds[0])
    return train, test


def pixel_features(videos: VideoDataset) -> dict[str, np.ndarray]:
    """Features (n, D) of raw pixels, 16 gray frames of 24×24 per video, by name."""
    small = []
    for i in range(len(videos)):
        video = videos.open_video(i)
        frames = read_clips(video, sample_uniform_clips(len(video), num_frames=16, stride=0, num_clips=1))[0]
        small.append([cv2.resize(cv2.cvtColor(f, cv2.COLOR_RGB2GRAY), (24, 24), interpolation=3) for f in frames])
    gray = np.array(small, np.float32) / 255
    features = {"mean frame": gray.mean(1), "differences of frames": np.abs(np.diff(gray, axis=1)), "16 frames": gray}
    return {name: x.reshape(len(x), -1) for name, x in features.items()}


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


def print_pixel_baseline(train_test_split: TrainTestSplit) -> None:
    """Print R@1 of raw pixels."""
    for name, x in pixel_features(train_test_split.dataset).items():
        hits = nearest_neighbor_hits(x, train_test_split.dataset.labels["class"], train_test_split.folds)
        print(f"pixels, {name}: {hits.mean():.3f}", flush=True)


def evaluate_components(
    name: str,
    readout: str,
    features: FeatureTable,
    train_test_split: TrainTestSplit,
    *,
    train_test: tuple[np.ndarray, np.ndarray] | None,
) -> Hits:
    """Evaluate R@1 and a linear probe of every video, by feature kind.

    Args:
        name: Name of the network.
        readout: How its components are read.
        features: Features of all videos, in the order of `train_test_split`.
        train_test_split: Videos and folds.
        train_test: Training and test videos of the probe; None omits it.
    """
    hits: Hits = {}
    for kind in FEATURE_KINDS:
        hits[name, readout, kind] = (
            score_feature_table(features, train_test_split, feature_kind=kind)["class"].hits[:, 0].astype(float)
        )
        if train_test is not None:
            x, y = features.features.vectors(kind, average=False), features.labels["class"]
            train, test = train_test
            hits[name, f"{readout}, probe", kind] = (
                logistic_probe_ranks(x[train], y[train], x[test], y[test]).ranks < 1
            ) + 0.0
    return hits


def print_table(hits_by_seed: dict[int, Hits], *, only_seed: int | None = None) -> None:
    """Print a row for each network and a column for each feature kind: means over seeds, or one seed."""
    seeds = [only_seed] if only_seed is not None else list(hits_by_seed)
    print(f"\nseeds {' '.join(map(str, seeds))}: " + ", ".join(FEATURE_KINDS))
    for name, readout in dict.fromkeys(key[:2] for key in hits_by_seed[seeds[0]]):
        values = np.array([[hits_by_seed[s][name, readout, kind].mean() for kind in FEATURE_KINDS] for s in seeds])
        means = "  ".join(f"{value:.3f}" for value in values.mean(0))
        by_seed = (
            "  dynamic by seed: " + " ".join(f"{value:.3f}" for value in values[:, 2]) if only_seed is None else ""
        )
        print(f"{name:26} {readout:12} {means}{by_seed}", flush=True)


def print_intervals(hits_by_seed: dict[int, Hits], *, reference: tuple[str, str, str]) -> None:
    """Print the differences of one embedding from all others, with 95 % intervals over resampled videos."""
    means = {
        key: np.mean([hits_by_seed[s][key] for s in hits_by_seed], axis=0) for key in next(iter(hits_by_seed.values()))
    }
    for probe in (False, True):
        minuend = (reference[0], reference[1] + ", probe" * probe, reference[2])
        others = {key: values for key, values in means.items() if key[1].endswith("probe") == probe}
        if others:
            print(f"\n{', '.join(minuend)}, less:")
        for key, values in others.items():
            gap = means[minuend] - values
            low, high = np.quantile(bootstrap_means(gap[None])[0], [0.025, 0.975])
            print(f"{' '.join(key):36} {gap.mean():+.3f} [{low:+.3f}, {high:+.3f}]")


def print_and_save(hits_by_seed: dict[int, Hits], output_dir: Path, *, reference: tuple[str, str, str]) -> None:
    """Print the means and the intervals of `print_intervals`, and write results.json."""
    print_table(hits_by_seed)
    print_intervals(hits_by_seed, reference=reference)
    seeds = list(hits_by_seed)
    rows = {" / ".join(key): [hits_by_seed[s][key].mean() for s in seeds] for key in hits_by_seed[seeds[0]]}
    write_json(output_dir / "results.json", {"seeds": seeds, "top-1": rows})
