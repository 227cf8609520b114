"""`stillmotion order`: arrow-of-time and opposite-action tests (Bagad and Zisserman, arXiv 2509.08502).

Two tasks, each a linear classifier of two classes on frozen features:
    pairs      opposite actions, such as opening and closing; one classifier per pair, averaged over pairs
    reverse    clips against their time-reversed copies; needs no labels

Shapes: N clips, T frames, D channels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.datasets.wrappers import ForwardReversedDataset
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.process_group import enter_on_main, run_on_main
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.feature_cache import ExtractionJob, feature_cache_key
from stillmotion.encoders.feature_extraction import ClipViews, Features
from stillmotion.encoders.input_paths import check_dir_no_overlap, collect_input_paths
from stillmotion.encoders.sharded_extraction import extract_features_distributed, remove_blocks
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.common import encoder_names
from stillmotion.evaluation.linear_probe.classifiers import logistic_probe_ranks
from stillmotion.evaluation.metrics.confidence_intervals import Estimate, bootstrap_means, percentile_interval
from stillmotion.evaluation.temporal_order.config import OrderConfig
from stillmotion.evaluation.temporal_order.tasks import OrderTask, OrderTaskSet, build_order_tasks
from stillmotion.report.page_blocks import Table
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import check_writable, write_json, write_text
from stillmotion.utils.formatting import format_count, format_failed_videos

OrderFeature = Literal["frames", "whole", "static", "dynamic"]
ORDER_FEATURES: tuple[OrderFeature, ...] = get_args(OrderFeature)
RESULTS_FILE, RESULTS_TEXT_FILE = "results.json", "results.txt"
_CONFIDENCE_LEVEL = 0.95
_N_RESAMPLES = 2000


@dataclass(frozen=True)
class OrderAccuracy:
    """Accuracy on each test video, (M,) from 0 to 1, by the name of the task."""

    correct: Mapping[str, np.ndarray]

    def mean_accuracy(self) -> Estimate:
        """Return the mean accuracy over tasks, with its interval over videos."""
        resampled = [self._resampled_means(i, values) for i, values in enumerate(self.correct.values())]
        value = float(np.mean([v.mean() for v in self.correct.values()]))
        return Estimate(value, *percentile_interval(np.mean(resampled, 0), confidence_level=_CONFIDENCE_LEVEL))

    def task_accuracies(self) -> dict[str, Estimate]:
        """Return the accuracy of every task, with its interval over videos."""
        estimates = {}
        for i, (name, values) in enumerate(self.correct.items()):
            interval = percentile_interval(self._resampled_means(i, values), confidence_level=_CONFIDENCE_LEVEL)
            estimates[name] = Estimate(float(values.mean()), *interval)
        return estimates

    def _resampled_means(self, seed: int, values: np.ndarray) -> np.ndarray:
        return bootstrap_means(values, n_resamples=_N_RESAMPLES, seed=seed)[0]


@dataclass(frozen=True)
class FeatureAccuracy:
    """Accuracy of the classifiers of one feature: mean over tasks, and by task."""

    mean: Estimate
    tasks: dict[str, Estimate]


@dataclass(frozen=True)
class OrderReport:
    """Results of the temporal-order tests.

    Args:
        data: Data set.
        task: "reverse" or "pairs".
        split_description: How the videos are split.
        tasks: Number of videos and majority accuracy of each task.
        skipped_tasks: Tasks with too few videos.
        confidence_level: Confidence level of the intervals.
        accuracy: Accuracy by the name of the network and by feature.
        failed: Reason for each clip that could not be read.
    """

    data: str
    task: str
    split_description: str
    tasks: dict[str, dict[str, Any]]
    skipped_tasks: list[str]
    confidence_level: float
    accuracy: dict[str, dict[OrderFeature, FeatureAccuracy]]
    failed: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON data."""
        return asdict(self)

    def table(self) -> Table:
        """Return a row for each network and, below it, for each of several tasks."""
        majority = float(np.mean([task["majority_accuracy"] for task in self.tasks.values()]))
        rows = []
        for name, by_feature in self.accuracy.items():
            cells = [by_feature[feature].mean.format() for feature in ORDER_FEATURES]
            rows.append([name, *cells, f"{majority:.3f}"])
            for task, summary in self.tasks.items() if len(self.tasks) > 1 else ():
                cells = [by_feature[feature].tasks[task].format() for feature in ORDER_FEATURES]
                rows.append([f"  {task}", *cells, f"{summary['majority_accuracy']:.3f}"])
        return Table(["network", "frames in order", *ORDER_FEATURES[1:], "majority"], rows)

    def to_lines(self) -> list[str]:
        """Return the results as lines of text."""
        num_videos = sum(task["num_test_videos"] for task in self.tasks.values())
        what = "clips against their reverses"
        if self.task == "pairs":
            what = format_count(len(self.tasks), "pair of opposite actions", "pairs of opposite actions")
        lines = [
            f"{what}, {format_count(num_videos, 'test video')} ({self.split_description})",
            *self.table().to_text(),
            f"accuracy, chance is 0.5; in brackets {self.confidence_level:.0%} bootstrap intervals over videos",
        ]
        if self.skipped_tasks:
            pairs = format_count(len(self.skipped_tasks), "pair")
            lines.append(f"{pairs} had too few videos: {'; '.join(self.skipped_tasks)}")
        return lines + format_failed_videos(self.failed, noun="unreadable clip")


def evaluate_temporal_order(
    encoders: Sequence[Encoder],
    split_config: TrainTestConfig,
    config: OrderConfig | None = None,
    *,
    output_dir: str | Path | None = None,
    loader: LoaderConfig | None = None,
) -> OrderReport:
    """Test how well linear classifiers tell temporal order from the features of several encoders.

    Processes share the clips; the first one evaluates and writes.

    Args:
        encoders: Encoders; each gets as many evenly spaced frames of a video as its clips have.
        split_config: Videos. "synthetic" ones are generated as in the first encoder's run; without pairs, only those
            that brighten.
        config: Opposite actions, and whether networks with initial weights are evaluated too.
        output_dir: Folder for `results.json` and `results.txt`, and for features until these are written.
        loader: Batch size and number of decoding processes.

    Returns:
        The accuracies.

    Raises:
        StillmotionError: If there are too few videos, or the folder overlaps the inputs.
    """
    jobs, tasks = prepare_temporal_order(encoders, split_config, config, output_dir=output_dir)
    if output_dir is None:
        return _evaluate(jobs, tasks, split_config, None, loader)
    folder = Path(output_dir)
    with enter_on_main(lambda: lock_dir(folder)):
        blocks_dir = folder / "features.blocks"
        report = _evaluate(jobs, tasks, split_config, blocks_dir, loader)
        run_on_main(lambda: write_results(report.to_dict(), folder, report.to_lines()))
        remove_blocks(blocks_dir)
    return report


def prepare_temporal_order(
    encoders: Sequence[Encoder],
    split_config: TrainTestConfig,
    config: OrderConfig | None = None,
    *,
    output_dir: str | Path | None = None,
) -> tuple[list[ExtractionJob], OrderTaskSet]:
    """Check paths, open the videos, and return what is to be extracted, with the tasks.

    Args:
        encoders: Encoders.
        split_config: Videos.
        config: Opposite actions, and whether networks with initial weights are evaluated too.
        output_dir: Folder for the results.

    Raises:
        StillmotionError: If the folder overlaps the inputs or cannot be written to.
    """
    config = config or OrderConfig()
    if output_dir is not None:
        inputs = collect_input_paths(split_config, encoders=encoders, extra_paths=[config.action_pairs])
        check_dir_no_overlap(output_dir, inputs)
        check_writable(output_dir)
    networks: dict[str, Encoder] = {}
    for name, encoder in zip(encoder_names(encoders), encoders, strict=True):
        networks[name] = encoder
        if config.compare_untrained:
            networks[f"{name}, untrained"] = encoder.untrained()
    tasks = build_order_tasks(split_config, action_pairs=config.action_pairs, synthetic=encoders[0].synthetic_config)
    jobs = []
    for name, network in networks.items():
        clips = ForwardReversedDataset(
            tasks.videos, num_frames=network.input_config.num_frames, with_reversed=tasks.includes_reversed
        )
        encoder = network.with_input(stride=1, fps=0)
        jobs.append(ExtractionJob(name=name, encoder=encoder, videos=clips, views=ClipViews()))
    return jobs, tasks


def _evaluate(
    jobs: Sequence[ExtractionJob],
    requested: OrderTaskSet,
    split_config: TrainTestConfig,
    blocks_dir: Path | None,
    loader: LoaderConfig | None,
) -> OrderReport:
    accuracy: dict[str, dict[OrderFeature, FeatureAccuracy]] = {}
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
                f"Too few readable videos: {len(features.index)} of {len(job.videos)} clips. Each class needs 2 "
                "training videos and 1 test video."
            )
        accuracy[job.name] = run_on_main(partial(_accuracies, features, tasks, split_config.split_seed))
    return OrderReport(
        data=split_config.path,
        task="reverse" if requested.includes_reversed else "pairs",
        split_description=requested.split_description,
        tasks={task.name: task.summary() for task in tasks},
        skipped_tasks=sorted({task.name for task in requested.tasks} - {task.name for task in tasks}),
        confidence_level=_CONFIDENCE_LEVEL,
        accuracy=accuracy,
        failed=failed,
    )


def _accuracies(features: Features, tasks: Sequence[OrderTask], seed: int) -> dict[OrderFeature, FeatureAccuracy]:
    accuracies = {}
    for feature in ORDER_FEATURES:
        scores = score_tasks(clip_vectors(features, feature), features.index, tasks, seed=seed)
        accuracies[feature] = FeatureAccuracy(scores.mean_accuracy(), scores.task_accuracies())
    return accuracies


def clip_vectors(features: Features, feature: OrderFeature) -> np.ndarray:
    """Return one vector per clip.

    Args:
        features: Features with per-frame features.
        feature: Feature; "frames" concatenates the features of all frames in order.

    Returns:
        Vectors, (N, D), or (N, T·D) for "frames".
    """
    if feature == "frames":
        assert features.frames is not None
        return features.frames.reshape(len(features.frames), -1)
    return features.vectors(feature)


def score_tasks(x: np.ndarray, clip_indices: np.ndarray, tasks: Sequence[OrderTask], *, seed: int = 0) -> OrderAccuracy:
    """Train a linear classifier for each task and fold, and score it on the test clips.

    Args:
        x: Vectors of the clips, (N, D).
        clip_indices: Indices of the clips in the tasks, (N,).
        tasks: Tasks.
        seed: Seed of the choice of validation videos.

    Returns:
        Accuracy on each test video, which counts once even if it is in several folds or clips.
    """
    row = np.full(clip_indices.max() + 1, -1)
    row[clip_indices] = np.arange(len(clip_indices))
    correct = {}
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
        correct[task.name] = np.bincount(which, np.concatenate(hits)) / np.bincount(which)
    return OrderAccuracy(correct)


def write_results(results: dict[str, Any], output_dir: Path, lines: Sequence[str]) -> None:
    """Write results as JSON and as text.

    Args:
        results: JSON data.
        output_dir: Folder to write to.
        lines: Lines of text.
    """
    write_json(output_dir / RESULTS_FILE, results)
    write_text(output_dir / RESULTS_TEXT_FILE, "".join(f"{line}\n" for line in lines))
