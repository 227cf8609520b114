"""`stillmotion order`: what frozen features know of the order of time (Bagad and Zisserman, arXiv 2509.08502).

Two tasks, each a linear classifier of two classes on frozen features:
    pairs      opposite actions, such as opening and closing; one classifier for each pair, mean over pairs
    reverse    a clip against the same clip played backwards; any videos will do, without labels

Shapes: N clips, T frames, D channels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.datasets.wrappers import ReversedDataset
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.process_group import enter_on_main, run_on_main
from stillmotion.encoders import Encoder, Features
from stillmotion.encoders.feature_cache import ExtractionJob, feature_cache_key
from stillmotion.encoders.feature_extraction import ClipViews
from stillmotion.encoders.input_paths import check_dir_no_overlap, collect_input_paths
from stillmotion.encoders.sharded_extraction import extract_features_distributed, remove_blocks
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.common import encoder_names
from stillmotion.evaluation.linear_probe.classifiers import logistic_probe_ranks
from stillmotion.evaluation.metrics.bootstrap import bootstrap_means
from stillmotion.evaluation.temporal_order.tasks import OrderTask, OrderTaskSet, build_order_tasks
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import check_writable, write_json, write_text
from stillmotion.utils.formatting import format_failed_videos

OrderFeature = Literal["frames", "whole", "static", "dynamic"]
ORDER_FEATURES: tuple[OrderFeature, ...] = get_args(OrderFeature)
RESULTS_FILE, RESULTS_TEXT_FILE = "results.json", "results.txt"
_CONFIDENCE_LEVEL = 0.95
_N_RESAMPLES = 2000


@dataclass(frozen=True)
class OrderAccuracy:
    """How often each test video of a task was told right, (M,) of 0 to 1, by the task's name."""

    correct: Mapping[str, np.ndarray]

    def mean_accuracy(self) -> tuple[float, float, float]:
        """The mean over tasks of their accuracy, and its interval over videos."""
        draws = [self._resampled_means(i, values) for i, values in enumerate(self.correct.values())]
        return _percentile_interval(float(np.mean([v.mean() for v in self.correct.values()])), np.mean(draws, 0))

    def task_accuracies(self) -> dict[str, tuple[float, float, float]]:
        """The accuracy of every task, and its interval over videos."""
        pairs = enumerate(self.correct.items())
        return {
            name: _percentile_interval(float(values.mean()), self._resampled_means(i, values))
            for i, (name, values) in pairs
        }

    def _resampled_means(self, seed: int, values: np.ndarray) -> np.ndarray:
        return bootstrap_means(values, n_resamples=_N_RESAMPLES, seed=seed)[0]


def evaluate_temporal_order(
    encoders: Sequence[Encoder],
    split_config: TrainTestConfig,
    *,
    action_pairs: str | Path | None = None,
    compare_untrained: bool = False,
    output_dir: str | Path | None = None,
    loader: LoaderConfig | None = None,
) -> dict[str, Any]:
    """How well linear classifiers tell the order of time from the embeddings of several encoders.

    encoders: each is shown as many evenly spaced frames of a video as it takes in a clip.
    split_config: "synthetic" videos are drawn as the first encoder's run draws them; without pairs, light only grows.
    action_pairs: a JSON file of opposite actions, as `open_tasks` reads it; None tells clips from their reverses.
    compare_untrained: beside each run the network that it started from.
    output_dir: a folder for `results.json` and `results.txt`, and for features until these are written.
    Ranks share the clips; the first asks, and writes.
    """
    jobs, tasks = prepare_temporal_order(
        encoders,
        split_config,
        action_pairs=action_pairs,
        compare_untrained=compare_untrained,
        output_dir=output_dir,
    )
    about = {"data": split_config.path, "task": "reverse" if action_pairs is None else "pairs"}
    if output_dir is None:
        return about | _evaluate(jobs, tasks, split_config.split_seed, None, loader)
    folder = Path(output_dir)
    with enter_on_main(lambda: lock_dir(folder)):
        blocks_dir = folder / "features.blocks"
        results = about | _evaluate(jobs, tasks, split_config.split_seed, blocks_dir, loader)
        run_on_main(lambda: write_results(results, folder, format_order_results(results)))
        remove_blocks(blocks_dir)
    return results


def prepare_temporal_order(
    encoders: Sequence[Encoder],
    split_config: TrainTestConfig,
    *,
    action_pairs: str | Path | None = None,
    compare_untrained: bool = False,
    output_dir: str | Path | None = None,
) -> tuple[list[ExtractionJob], OrderTaskSet]:
    """Check paths, open the videos, and return what is to be extracted, with the tasks.

    Args:
        encoders: Encoders.
        split_config: Videos.
        action_pairs: JSON file of opposite actions; None tells clips from their time-reversed copies.
        compare_untrained: Also evaluate each network with its initial weights.
        output_dir: Folder for the results.

    Raises:
        StillmotionError: If the folder overlaps the inputs or cannot be written to.
    """
    if output_dir is not None:
        inputs = collect_input_paths(split_config, encoders=encoders, extra_paths=[action_pairs])
        check_dir_no_overlap(output_dir, inputs)
        check_writable(output_dir)
    networks: dict[str, Encoder] = {}
    for name, encoder in zip(encoder_names(encoders), encoders, strict=True):
        networks[name] = encoder
        if compare_untrained:
            networks[f"{name}, untrained"] = encoder.untrained()
    tasks = build_order_tasks(split_config, action_pairs=action_pairs, synthetic=encoders[0].synthetic_config)
    jobs = []
    for name, network in networks.items():
        clips = ReversedDataset(
            tasks.videos, num_frames=network.input_config.num_frames, with_reversed=tasks.includes_reversed
        )
        encoder = network.with_input(stride=1, fps=0)
        jobs.append(ExtractionJob(name=name, encoder=encoder, videos=clips, views=ClipViews()))
    return jobs, tasks


def _evaluate(
    jobs: Sequence[ExtractionJob],
    requested: OrderTaskSet,
    seed: int,
    blocks_dir: Path | None,
    loader: LoaderConfig | None,
) -> dict[str, Any]:
    accuracy: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for job in jobs:
        key = feature_cache_key(job.encoder, job.videos, job.views) if blocks_dir else ""
        features = extract_features_distributed(
            job.encoder, job.videos, job.views, blocks_dir=blocks_dir, key=key, keep_frames=True, loader=loader
        )
        failed |= dict(features.failed)
        tasks = [task for task in (t.restricted_to(features.index) for t in requested.tasks) if task is not None]
        if not tasks:
            raise StillmotionError(
                f"too few videos: of {len(job.videos)} clips {len(features.index)} can be read, and a classifier needs "
                "two videos of each class to learn from and one to be asked"
            )
        accuracy[job.name] = run_on_main(partial(_accuracies, features, tasks, seed))
    return {
        "split_description": requested.split_description,
        "tasks": {task.name: task.summary() for task in tasks},
        "skipped_tasks": sorted({task.name for task in requested.tasks} - {task.name for task in tasks}),
        "confidence_level": _CONFIDENCE_LEVEL,
        "accuracy": accuracy,
        "failed": failed,
    }


def _accuracies(features: Features, tasks: Sequence[OrderTask], seed: int) -> dict[OrderFeature, dict[str, Any]]:
    by_part = {
        part: score_tasks(clip_vectors(features, part), features.index, tasks, seed=seed) for part in ORDER_FEATURES
    }
    return {part: {"mean": a.mean_accuracy(), "tasks": a.task_accuracies()} for part, a in by_part.items()}


def clip_vectors(features: Features, feature: OrderFeature) -> np.ndarray:
    """One vector of each clip: (N, D), and of `frames` (N, T·D), one frame after the other."""
    if feature == "frames":
        assert features.frames is not None
        return features.frames.reshape(len(features.frames), -1)
    return features.vectors(feature)


def score_tasks(x: np.ndarray, clip_indices: np.ndarray, tasks: Sequence[OrderTask], *, seed: int = 0) -> OrderAccuracy:
    """What linear classifiers, one for each task and fold, say of its test clips.

    x (N, D): of these clips (N,). A video that is asked in several folds or as several clips counts once.
    """
    row = np.full(clip_indices.max() + 1, -1)
    row[clip_indices] = np.arange(len(clip_indices))
    right = {}
    for task in tasks:
        videos, hits = [], []
        for train, test in task.folds:
            ranks = logistic_probe_ranks(
                x[row[train], None],
                task.labels[train],
                x[row[test], None],
                task.labels[test],
                seed=seed,
                groups=task.videos[train],
            ).ranks
            videos.append(task.videos[test])
            hits.append(ranks == 0)
        _, which = np.unique(np.concatenate(videos), return_inverse=True)
        right[task.name] = np.bincount(which, np.concatenate(hits)) / np.bincount(which)
    return OrderAccuracy(right)


def format_order_results(results: dict[str, Any]) -> list[str]:
    """The results of `order` as lines for a terminal."""
    asked = results["tasks"]
    count = sum(about["num_test_videos"] for about in asked.values())
    what = f"{len(asked)} pairs of opposite actions" if results["task"] == "pairs" else "clips against their reverses"
    lines = [f"{what}, {count} test videos ({results['split_description']})"]
    wide = max(16, *(len(name) + 2 for name in results["accuracy"]), *(len(name) + 4 for name in asked))
    lines.append(
        " " * wide + "".join(f"{part:>23}" for part in ("frames in order", *ORDER_FEATURES[1:])) + f"{'majority':>12}"
    )
    majority = float(np.mean([about["majority"] for about in asked.values()]))
    for name, found in results["accuracy"].items():
        lines.append(_format_row(name, [found[part]["mean"] for part in ORDER_FEATURES], majority, wide))
        if len(asked) > 1:
            for task, about in asked.items():
                cells = [found[part]["tasks"][task] for part in ORDER_FEATURES]
                lines.append(_format_row(f"  {task}", cells, about["majority"], wide))
    lines.append(
        f"accuracy, chance is 0.5; in brackets {results['confidence_level']:.0%} bootstrap intervals over videos"
    )
    if results["skipped_tasks"]:
        lines.append(f"{len(results['skipped_tasks'])} pairs had too few videos: {'; '.join(results['skipped_tasks'])}")
    return lines + format_failed_videos(results["failed"], noun="unreadable clip")


def write_results(results: dict[str, Any], output_dir: Path, lines: Sequence[str]) -> None:
    """Write results and their lines into a folder."""
    write_json(output_dir / RESULTS_FILE, results)
    write_text(output_dir / RESULTS_TEXT_FILE, "".join(f"{line}\n" for line in lines))


def _format_row(name: str, cells: Sequence[tuple[float, float, float]], majority: float, wide: int) -> str:
    texts = [f"{value:.3f} [{low:.3f}, {high:.3f}]" for value, low, high in cells]
    return f"{name:<{wide}}" + "".join(f"{text:>23}" for text in texts) + f"{majority:>12.3f}"


def _percentile_interval(value: float, draws: np.ndarray) -> tuple[float, float, float]:
    low, high = np.quantile(draws, [(1 - _CONFIDENCE_LEVEL) / 2, (1 + _CONFIDENCE_LEVEL) / 2])
    return value, float(low), float(high)
