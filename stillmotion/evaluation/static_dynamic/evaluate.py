"""`stillmotion static-dynamic evaluate`: probes on versions of a data set (BOD-VCL, Tables 1 and 2).

Each encoder is probed on the plain videos, on their static version (one frame repeated) and on their dynamic version
(noise moved by their optical flow). Probes on single frames of the dynamic version check that no appearance is left in
it.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.datasets.base import DEFAULT_TARGET
from stillmotion.data.datasets.splits import TrainTestConfig, TrainTestSplit
from stillmotion.data.datasets.wrappers import ConcatDataset, FrozenFrameDataset
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.process_group import enter_on_main, run_on_main
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.feature_cache import (
    FEATURES_DIR,
    ExtractionJob,
    cached_extraction_job,
    load_or_extract_features,
)
from stillmotion.encoders.feature_extraction import ClipViews
from stillmotion.encoders.input_paths import check_dir_no_overlap, collect_input_paths
from stillmotion.encoders.loading import parse_spec
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.common import chance_accuracy, majority_accuracy
from stillmotion.evaluation.linear_probe.classifiers import logistic_probe_ranks
from stillmotion.evaluation.linear_probe.evaluate import check_single_fold
from stillmotion.evaluation.metrics.confidence_intervals import Estimate, bootstrap_interval, wilson_interval
from stillmotion.evaluation.static_dynamic.config import StaticDynamicEvalConfig
from stillmotion.evaluation.static_dynamic.pixel_features import extract_pixel_features
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import check_writable, write_json
from stillmotion.utils.option_types import FeatureKind
from stillmotion.utils.progress import progress_part, report_progress

logger = logging.getLogger(__name__)

RESULTS_FILE = "results.json"
VERSIONS = ("plain", "static", "dynamic")
SINGLE_FRAMES = "single frames of the dynamic version"
PIXEL_BASELINE = "pixels"
MIN_CONCLUSIVE_VIDEOS = 10  # with fewer test videos, nothing is concluded about single frames


@dataclass(frozen=True)
class VersionSummary:
    """A version of the data set.

    Args:
        data: Data set.
        split_description: How the videos are split.
        num_train_videos: Number of training videos.
        num_test_videos: Number of test videos.
        num_classes: Number of classes.
        chance_accuracy: Accuracy of guessing.
        majority_accuracy: Accuracy of always predicting the most frequent training class.
    """

    data: str
    split_description: str
    num_train_videos: int
    num_test_videos: int
    num_classes: int
    chance_accuracy: float
    majority_accuracy: float

    @property
    def chance_level(self) -> float:
        """Accuracy that needs no features: the larger of chance and majority accuracy."""
        return max(self.chance_accuracy, self.majority_accuracy)


@dataclass(frozen=True)
class ProbeAccuracy:
    """Accuracy of a probe.

    Args:
        top1: Top-1 accuracy, with its Wilson interval.
        top5: Top-5 accuracy, with its Wilson interval.
        num_test_videos: Number of readable test videos.
        best_c: Chosen C of logistic regression.
    """

    top1: Estimate
    top5: Estimate
    num_test_videos: int
    best_c: float | None


@dataclass(frozen=True)
class SingleFrameCheck:
    """Probe on single frames of the dynamic version.

    Args:
        accuracy: Accuracy of the probe.
        chance_level: Accuracy that needs no features.
        at_chance: Whether the accuracy is not measurably above that; None with too few test videos to conclude.
    """

    accuracy: ProbeAccuracy
    chance_level: float
    at_chance: bool | None


@dataclass(frozen=True)
class StaticDynamicReport:
    """Results of probes on the versions of a data set.

    Args:
        encoders: Specs of the encoders by name.
        versions: Versions by name.
        accuracy: Accuracy by encoder, version and feature kind.
        top1_difference: Top-1 minus that of the first encoder, on the same test videos, with paired intervals.
        single_frame: Checks by the name of the encoder, and of a probe of pixels.
        settings: Options of the probes, and their seed.
        failed: Reason for each video that could not be read.
    """

    encoders: dict[str, str]
    versions: dict[str, VersionSummary]
    accuracy: dict[str, dict[str, dict[FeatureKind, ProbeAccuracy]]]
    top1_difference: dict[str, dict[str, dict[FeatureKind, Estimate]]]
    single_frame: dict[str, SingleFrameCheck]
    settings: dict[str, Any]
    failed: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON data."""
        return asdict(self)


@dataclass(frozen=True)
class _ProbeOutcome:
    """Ranks of the true classes of the test videos, and their indices."""

    true_class_ranks: np.ndarray
    video_indices: np.ndarray
    best_c: float | None


def evaluate_static_dynamic_sets(
    encoders: Mapping[str, Encoder],
    versions: Mapping[str, TrainTestConfig],
    output_dir: str | Path,
    config: StaticDynamicEvalConfig | None = None,
    *,
    loader: LoaderConfig | None = None,
) -> StaticDynamicReport:
    """Probe several encoders on the plain, static and dynamic versions of a data set; write `results.json`.

    Processes share the videos; the first one evaluates and writes.

    Args:
        encoders: Encoders by their names in the tables.
        versions: Videos by version: "plain", the original ones, and "static" and "dynamic", which `static-dynamic make`
            writes; at least one.
        output_dir: Folder for results and features; the same call again reuses the features.
        config: Options of the probes.
        loader: Batch size and number of decoding processes.

    Returns:
        The accuracies.

    Raises:
        StillmotionError: If nothing can be compared, or the folder overlaps the inputs.
    """
    config = config or StaticDynamicEvalConfig()
    _, splits = prepare_static_dynamic_sets(encoders, versions, output_dir, config)
    with enter_on_main(lambda: lock_dir(output_dir)):
        return _evaluate(encoders, versions, splits, Path(output_dir), config, loader)


def prepare_static_dynamic_sets(
    encoders: Mapping[str, Encoder],
    versions: Mapping[str, TrainTestConfig],
    output_dir: str | Path,
    config: StaticDynamicEvalConfig,
) -> tuple[list[ExtractionJob], dict[str, TrainTestSplit]]:
    """Check the arguments, open the versions, and return what is to be extracted, with the splits.

    Args:
        encoders: Encoders by their names in the tables.
        versions: Videos by version: "plain", "static" and "dynamic"; at least one.
        output_dir: Folder for results and features.
        config: Options of the probes.

    Returns:
        The jobs; and the split of each version and, if there is a dynamic version, of its `SINGLE_FRAMES`.

    Raises:
        StillmotionError: If nothing can be compared, or the folder overlaps the inputs or cannot be written to.
    """
    _check_inputs(encoders, versions)
    splits = {name: versions[name].open() for name in VERSIONS if name in versions}
    for name, split in splits.items():
        inputs = collect_input_paths(versions[name], dataset=split.dataset, encoders=encoders.values())
        check_dir_no_overlap(output_dir, inputs)
    check_writable(output_dir)
    if "dynamic" in splits:
        frames = ConcatDataset([FrozenFrameDataset(splits["dynamic"].dataset)])
        splits[SINGLE_FRAMES] = replace(splits["dynamic"], dataset=frames)
    jobs = []
    for title, encoder in encoders.items():
        for name, split in splits.items():
            views = ClipViews(num_clips=1 if name == SINGLE_FRAMES else config.num_clips)
            folder = Path(output_dir) / FEATURES_DIR
            jobs.append(cached_extraction_job(f"{title}, {name}", encoder, split.dataset, views, folder))
    return jobs, splits


def _evaluate(
    encoders: Mapping[str, Encoder],
    versions: Mapping[str, TrainTestConfig],
    splits: Mapping[str, TrainTestSplit],
    output_dir: Path,
    config: StaticDynamicEvalConfig,
    loader: LoaderConfig | None,
) -> StaticDynamicReport:
    seed = next(iter(versions.values())).split_seed
    total, done = len(encoders) * sum(len(split.dataset) for split in splits.values()), 0
    splits = dict(splits)
    frames = splits.pop(SINGLE_FRAMES, None)
    failed: dict[str, str] = {}

    def probe(encoder: Encoder, split: TrainTestSplit, options: StaticDynamicEvalConfig) -> dict[Any, _ProbeOutcome]:
        nonlocal done
        with progress_part(done, total):
            features = load_or_extract_features(
                encoder,
                split.dataset,
                num_clips=options.num_clips,
                average_views=False,
                cache_dir=output_dir / FEATURES_DIR,
                loader=loader,
            ).features
            report_progress(len(split.dataset), len(split.dataset))
        done += len(split.dataset)
        failed.update(features.failed)
        return run_on_main(
            lambda: {
                kind: _probe(features.vectors(kind, average=False), features.index, split, seed)
                for kind in options.feature_kinds
            }
        )

    outcomes: dict[str, dict[str, dict[FeatureKind, _ProbeOutcome]]] = {}
    single_frame: dict[str, _ProbeOutcome] = {}
    if "dynamic" in splits:
        pixels, indices = extract_pixel_features(splits["dynamic"].dataset)
        single_frame[PIXEL_BASELINE] = run_on_main(partial(_probe, pixels, indices, splits["dynamic"], seed))
    for name, encoder in encoders.items():
        outcomes[name] = {version: probe(encoder, split, config) for version, split in splits.items()}
        if frames is not None:
            options = replace(config, num_clips=1, feature_kinds=("whole",))
            single_frame[name] = probe(encoder, frames, options)["whole"]
        first_kind = config.feature_kinds[0]
        cells = [f"{v} {np.mean(kinds[first_kind].true_class_ranks < 1):.3f}" for v, kinds in outcomes[name].items()]
        logger.info("%s: top-1 %s", name, ", ".join(cells))

    summaries = {version: _summarize_version(versions[version].path, split) for version, split in splits.items()}
    report = StaticDynamicReport(
        encoders={name: encoder.origin.spec for name, encoder in encoders.items()},
        versions=summaries,
        accuracy={
            name: {
                v: {k: _accuracy(outcome, config) for k, outcome in kinds.items()} for v, kinds in by_version.items()
            }
            for name, by_version in outcomes.items()
        },
        top1_difference=_differences(outcomes, config, seed),
        single_frame={
            name: _check_single_frame(_accuracy(outcome, config), summaries["dynamic"])
            for name, outcome in single_frame.items()
        },
        settings=asdict(config) | {"feature_kinds": list(config.feature_kinds), "seed": seed},
        failed=failed,
    )
    run_on_main(lambda: write_json(output_dir / RESULTS_FILE, report.to_dict()))
    return report


def parse_named_specs(specs: Sequence[str]) -> dict[str, str]:
    """Parse encoder specs with optional names, as in "I3D=i3d:weights.safetensors".

    Args:
        specs: Encoder specs, each with a name before it if wanted.

    Returns:
        Specs by their names in the tables.

    Raises:
        StillmotionError: If a spec names no encoder, or two have the same name.
    """
    named: dict[str, str] = {}
    for text in specs:
        name, sign, spec = text.partition("=")
        if not sign or any(mark in name for mark in "/@:") or Path(text).exists():
            name, spec = "", text
        parsed = parse_spec(spec)
        name = name or Path(parsed.path).name + (f" ({parsed.option_string})" if parsed.options else "")
        if name in named:
            name = spec
        if name in named:
            raise StillmotionError(f"{name} is given twice; name each encoder once.")
        named[name] = spec
    return named


def _check_inputs(encoders: Mapping[str, Encoder], versions: Mapping[str, TrainTestConfig]) -> None:
    """Check that there is something to compare."""
    if not encoders:
        raise StillmotionError("No encoder to evaluate. Give one or more run folders, recipes or models.")
    if PIXEL_BASELINE in encoders:
        raise StillmotionError(
            f"The name {PIXEL_BASELINE!r} is reserved for the baseline without a network; choose another."
        )
    if not versions:
        raise StillmotionError("No videos to evaluate on. Give --data, --static-data or --dynamic-data.")
    for name, split_config in versions.items():
        if name not in VERSIONS:
            raise StillmotionError(f"Unknown version {name!r}; choose one of {', '.join(VERSIONS)}.")
        check_single_fold(split_config)


def _probe(x: np.ndarray, index: np.ndarray, split: TrainTestSplit, seed: int) -> _ProbeOutcome:
    """Fit logistic regression on features (n, V, D) of the videos with these indices, in the first fold."""
    y = split.dataset.labels[DEFAULT_TARGET][index]
    train, test = (np.flatnonzero(np.isin(index, part)) for part in split.folds[0])
    ranks, best_c = logistic_probe_ranks(x[train], y[train], x[test], y[test], seed=seed)
    return _ProbeOutcome(ranks, index[test], best_c)


def _accuracy(outcome: _ProbeOutcome, config: StaticDynamicEvalConfig) -> ProbeAccuracy:
    n = len(outcome.true_class_ranks)

    def top(k: int) -> Estimate:
        correct = outcome.true_class_ranks < k
        interval = wilson_interval(int(correct.sum()), n, confidence_level=config.confidence_level)
        return Estimate(float(correct.mean()), *interval)

    return ProbeAccuracy(top(1), top(5), n, outcome.best_c)


def _differences(
    outcomes: Mapping[str, Mapping[str, Mapping[FeatureKind, _ProbeOutcome]]],
    config: StaticDynamicEvalConfig,
    seed: int,
) -> dict[str, dict[str, dict[FeatureKind, Estimate]]]:
    """Return the top-1 of each encoder minus that of the first, on the same test videos, with paired intervals."""
    first, *others = outcomes
    differences: dict[str, dict[str, dict[FeatureKind, Estimate]]] = {}
    for name in others:
        differences[name] = {}
        for version, kinds in outcomes[name].items():
            for kind, outcome in kinds.items():
                base = outcomes[first][version][kind]
                if not np.array_equal(base.video_indices, outcome.video_indices):
                    continue
                gain = (outcome.true_class_ranks < 1).astype(float) - (base.true_class_ranks < 1)
                interval = bootstrap_interval(
                    gain, confidence_level=config.confidence_level, n_resamples=config.n_resamples, seed=seed
                )
                differences[name].setdefault(version, {})[kind] = Estimate(float(gain.mean()), *interval)
    return differences


def _summarize_version(path: str, split: TrainTestSplit) -> VersionSummary:
    train, test = (split.dataset.labels[DEFAULT_TARGET][part] for part in split.folds[0])
    return VersionSummary(
        data=path,
        split_description=split.description,
        num_train_videos=len(train),
        num_test_videos=len(test),
        num_classes=len(np.unique(train)),
        chance_accuracy=chance_accuracy(train),
        majority_accuracy=majority_accuracy(train, test),
    )


def _check_single_frame(accuracy: ProbeAccuracy, version: VersionSummary) -> SingleFrameCheck:
    at_chance = accuracy.top1.low <= version.chance_level
    return SingleFrameCheck(
        accuracy, version.chance_level, at_chance if accuracy.num_test_videos >= MIN_CONCLUSIVE_VIDEOS else None
    )
