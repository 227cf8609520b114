"""`stillmotion probe`: linear probes of a frozen encoder."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from stillmotion.data.datasets.config import SYNTHETIC
from stillmotion.data.datasets.splits import TrainTestConfig, TrainTestSplit
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed import process_group
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.feature_cache import (
    ExtractionJob,
    cached_extraction_job,
    check_cache_dir,
    feature_cache_key,
    load_or_extract_features,
    resolve_cache_dir,
)
from stillmotion.encoders.feature_extraction import FEATURE_KINDS, ClipViews, resolve_num_clips
from stillmotion.encoders.input_paths import RUN_DIR_HINT, collect_input_paths
from stillmotion.encoders.sharded_extraction import extract_features_distributed
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.common import chance_accuracy, majority_accuracy
from stillmotion.evaluation.linear_probe.classifiers import logistic_probe, sgd_probe
from stillmotion.evaluation.linear_probe.config import LinearProbeConfig
from stillmotion.evaluation.linear_probe.streaming_classifiers import SGDProbeConfig
from stillmotion.evaluation.linear_probe.streaming_probe import run_streaming_probe
from stillmotion.report.page_blocks import Table
from stillmotion.utils.files import check_writable, write_json
from stillmotion.utils.formatting import format_count, format_failed_videos
from stillmotion.utils.option_types import FeatureKind

logger = logging.getLogger(__name__)

RESULTS_FILE = "linear_probe.json"
Accuracies = dict[str, dict[str, dict[str, Any]]]  # by feature kind and target: top1, top5, best_c


@dataclass(frozen=True)
class ProbeProtocol:
    """A protocol of linear probing.

    Args:
        num_clips: Clips per video.
        num_crops: Crops per clip of a test video; training uses the center crop. Whole frames have one.
        full_frame_crops: Test crops are as large as the short side of the resized frame.
        use_sgd: Train the classifier by SGD, on clips that are sampled in every epoch unless features are cached.
    """

    num_clips: int
    num_crops: int
    full_frame_crops: bool
    use_sgd: bool


PROBE_PROTOCOLS = {
    "logistic": ProbeProtocol(num_clips=4, num_crops=1, full_frame_crops=False, use_sgd=False),
    "k400": ProbeProtocol(num_clips=10, num_crops=3, full_frame_crops=True, use_sgd=True),
    "k400-3": ProbeProtocol(num_clips=3, num_crops=1, full_frame_crops=True, use_sgd=True),
}


@dataclass(frozen=True)
class LinearProbeReport:
    """Results of linear probes.

    Args:
        encoder: Spec of the encoder.
        data: Data set.
        preset: Protocol.
        num_clips: Clips per video.
        split_description: How the videos are split.
        num_train_videos: Number of training videos.
        num_test_videos: Number of test videos.
        chance_accuracy: Accuracy of guessing, by target.
        majority_accuracy: Accuracy of always predicting the most frequent training class, by target.
        accuracy: top1, top5 and the chosen C, by the role of the network (pretrained, untrained, or no-weights),
            feature kind and target.
        failed: Reason for each video that could not be read.
    """

    encoder: str
    data: str
    preset: str
    num_clips: int
    split_description: str
    num_train_videos: int
    num_test_videos: int
    chance_accuracy: dict[str, float]
    majority_accuracy: dict[str, float]
    accuracy: dict[str, Accuracies]
    failed: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON data."""
        return asdict(self)

    def table(self) -> Table:
        """Return a row for each network and feature kind, and one for the majority class."""
        targets = list(self.chance_accuracy)
        rows = [
            [role, kind, *(format_accuracy(by_target[t], self.chance_accuracy[t]) for t in targets)]
            for role, by_kind in self.accuracy.items()
            for kind, by_target in by_kind.items()
        ]
        rows.append(["majority class", "", *(f"{self.majority_accuracy[t]:.3f}" for t in targets)])
        caption = (
            f"Linear probe ({self.preset}) on {self.data}: {self.num_train_videos} training and "
            f"{format_count(self.num_test_videos, 'test video')} ({self.split_description}), "
            f"{format_count(self.num_clips, 'clip')} per video; top-1, and top-5 for more than five classes"
        )
        return Table(["network", "features", *targets], rows, caption)

    def to_lines(self) -> list[str]:
        """Return the results as lines of text."""
        table = self.table()
        return [table.caption, *table.to_text(), *format_failed_videos(self.failed)]


class _ProbeTask(NamedTuple):
    """What is probed on each network."""

    train: Subset
    test: Subset
    config: LinearProbeConfig
    protocol: ProbeProtocol
    feature_kinds: Sequence[FeatureKind]
    seed: int
    loader: LoaderConfig | None


class _ProbeOutcome(NamedTuple):
    """Accuracies, indices of the readable videos, and reasons of the others."""

    accuracy: Accuracies
    train: np.ndarray
    test: np.ndarray
    failed: dict[str, str]


def evaluate_linear_probe(
    encoder: Encoder,
    split_config: TrainTestConfig,
    config: LinearProbeConfig | None = None,
    *,
    feature_kinds: Sequence[FeatureKind] = FEATURE_KINDS,
    loader: LoaderConfig | None = None,
) -> LinearProbeReport:
    """Train linear probes on a frozen encoder, for every target of the labels.

    Writes `linear_probe.json` into the run folder of the encoder, if it has one. Processes share the videos; the first
    one writes.

    Args:
        encoder: Encoder.
        split_config: Labeled videos; "synthetic" ones are generated as in the encoder's run, with four factors as
            targets.
        config: Protocol.
        feature_kinds: Feature kinds; those that the encoder does not have are skipped.
        loader: Batch size and number of decoding processes.

    Returns:
        The accuracies.

    Raises:
        StillmotionError: If the videos have no labels, or several folds are requested.
    """
    config = config or LinearProbeConfig()
    if encoder.run_dir is not None:
        check_writable(encoder.run_dir / RESULTS_FILE, is_file=True, create=True, option_name=RUN_DIR_HINT)
    _warn_if_other_videos(encoder, split_config)
    protocol = resolve_protocol(encoder, config)
    _, split = prepare_linear_probe(encoder, split_config, config)
    train, test = split.train_test()
    probe = _probe_feature_stream if protocol.use_sgd and config.cache_dir is None else _probe_stored_features
    task = _ProbeTask(train, test, config, protocol, feature_kinds, split_config.split_seed, loader)
    outcomes = {role: probe(network, task) for role, network in select_encoders(encoder, config).items()}
    last = next(reversed(outcomes.values()))
    train_y = {target: y[last.train] for target, y in train.labels.items()}
    test_y = {target: y[last.test] for target, y in test.labels.items()}
    report = LinearProbeReport(
        encoder=encoder.origin.spec,
        data=split_config.path,
        preset=config.preset,
        num_clips=protocol.num_clips,
        split_description=split.description,
        num_train_videos=len(last.train),
        num_test_videos=len(last.test),
        chance_accuracy={target: chance_accuracy(y) for target, y in train_y.items()},
        majority_accuracy={target: majority_accuracy(y, test_y[target]) for target, y in train_y.items()},
        accuracy={role: outcome.accuracy for role, outcome in outcomes.items()},
        failed={name: reason for outcome in outcomes.values() for name, reason in outcome.failed.items()},
    )
    if encoder.run_dir is not None:
        file = encoder.run_dir / RESULTS_FILE
        process_group.run_on_main(lambda: write_json(file, report.to_dict(), option_name=RUN_DIR_HINT))
    return report


def _warn_if_other_videos(encoder: Encoder, split_config: TrainTestConfig) -> None:
    """Warn if a network that was trained on real videos is probed on synthetic ones."""
    config = encoder.origin.pretrain_config
    if split_config.path == SYNTHETIC and config is not None and config.data.path not in ("", SYNTHETIC):
        logger.warning(
            "Probing on synthetic videos, but %s was trained on %s. Add --data to probe on labeled videos.",
            encoder.name,
            config.data.path,
        )


def prepare_linear_probe(
    encoder: Encoder, split_config: TrainTestConfig, config: LinearProbeConfig
) -> tuple[list[ExtractionJob], TrainTestSplit]:
    """Check the arguments of a probe, open the videos, and return what is to be extracted, with the split.

    Args:
        encoder: Encoder.
        split_config: Labeled videos.
        config: Options of the probe.

    Raises:
        StillmotionError: If several folds are requested, or the cache overlaps the inputs or cannot be written to.
    """
    protocol = resolve_protocol(encoder, config)
    check_single_fold(split_config)
    split = split_config.open(encoder.synthetic_config)
    check_cache_dir(config.cache_dir, collect_input_paths(split_config, dataset=split.dataset, encoders=[encoder]))
    train_views, test_views = train_test_views(protocol, config)
    num_epochs = 1
    if protocol.use_sgd and config.cache_dir is None:  # one random clip per epoch
        train_views, num_epochs = replace(train_views, num_clips=1, average_views=True), SGDProbeConfig().epochs
    train, test = split.train_test()
    jobs = []
    for name, network in select_encoders(encoder, config).items():
        for what, dataset, views, num_passes in (
            ("training videos", train, train_views, num_epochs),
            ("test videos", test, test_views, 1),
        ):
            title = f"{name}, {what}"
            if config.cache_dir is not None:
                jobs.append(cached_extraction_job(title, network, dataset, views, config.cache_dir))
            else:
                job = ExtractionJob(name=title, encoder=network, videos=dataset, views=views, num_passes=num_passes)
                jobs.append(job)
    return jobs, split


def resolve_protocol(encoder: Encoder, config: LinearProbeConfig) -> ProbeProtocol:
    """Return the protocol of a preset with the number of clips and crops for an encoder.

    Args:
        encoder: Encoder.
        config: Options of the probe.

    Returns:
        The protocol.
    """
    protocol = PROBE_PROTOCOLS[config.preset]
    num_clips = resolve_num_clips(encoder, config.num_clips, default=protocol.num_clips)
    num_crops = 1 if encoder.eval_input.whole_frame else protocol.num_crops
    return replace(protocol, num_clips=num_clips, num_crops=num_crops)


def select_encoders(encoder: Encoder, config: LinearProbeConfig) -> dict[str, Encoder]:
    """Return the networks to probe by role: pretrained, untrained, or no-weights (such as `flow`).

    Args:
        encoder: Encoder.
        config: Options of the probe.

    Returns:
        The networks.
    """
    role = "untrained" if encoder.origin.kind == "recipe" else "pretrained"
    if not any(True for _ in encoder.parameters()):
        role = "no-weights"
    networks = {role: encoder}
    return networks | {"untrained": encoder.untrained()} if config.compare_untrained else networks


def train_test_views(protocol: ProbeProtocol, config: LinearProbeConfig) -> tuple[ClipViews, ClipViews]:
    """Return the views of training and of test videos, where features are stored.

    Args:
        protocol: Protocol.
        config: Options of the probe.

    Returns:
        Views of training and of test videos.
    """
    views = ClipViews(num_clips=protocol.num_clips, precision=config.precision)
    return views, replace(views, num_crops=protocol.num_crops, full_frame_crops=protocol.full_frame_crops)


def _probe_stored_features(encoder: Encoder, task: _ProbeTask) -> _ProbeOutcome:
    """Probe evenly spaced clips, whose features are all kept in memory."""
    train, test, config, protocol, feature_kinds, seed, loader = task
    parts = zip((train, test), train_test_views(protocol, config), strict=True)
    if config.cache_dir is None:
        x, test_x = (extract_features_distributed(encoder, part, views, loader=loader) for part, views in parts)
    else:
        x, test_x = (
            load_or_extract_features(encoder, part, **asdict(views), cache_dir=config.cache_dir, loader=loader).features
            for part, views in parts
        )

    def fit_all() -> Accuracies:
        fit = logistic_probe
        if protocol.use_sgd:
            fit = partial(sgd_probe, sgd_config=SGDProbeConfig(batch_size=config.sgd_batch_size))
        return {
            kind: {
                target: fit(
                    x.vectors(kind, average=False),
                    y[x.index],
                    test_x.vectors(kind, average=False),
                    test.labels[target][test_x.index],
                    seed=seed,
                )._asdict()
                for target, y in train.labels.items()
            }
            for kind in x.available(feature_kinds)
        }

    return _ProbeOutcome(process_group.run_on_main(fit_all), x.index, test_x.index, dict(x.failed + test_x.failed))


def _probe_feature_stream(encoder: Encoder, task: _ProbeTask) -> _ProbeOutcome:
    """Probe clips that are sampled in every epoch, whose features are not stored."""
    train, test, config, protocol, feature_kinds, seed, loader = task
    _, views = train_test_views(protocol, config)
    sgd_config, folder = SGDProbeConfig(batch_size=config.sgd_batch_size), resolve_cache_dir(encoder, None)
    checkpoint_file = None
    if folder is not None:
        key = feature_cache_key(encoder, train, views)
        name = f"{key}-{seed}-{sgd_config.batch_size}-{'-'.join(feature_kinds)}.probe-checkpoint.safetensors"
        checkpoint_file = folder / name
    result = run_streaming_probe(
        encoder,
        train,
        test,
        views,
        feature_kinds=feature_kinds,
        seed=seed,
        sgd_config=sgd_config,
        checkpoint_file=checkpoint_file,
        loader=loader,
    )
    accuracy: Accuracies = {
        kind: {target: of_target._asdict() for target, of_target in by_target.items()}
        for kind, by_target in result.accuracy.items()
    }
    train_index, test_index = (
        np.array([i for i in range(len(part)) if part.name(i) not in failed], np.int64)
        for part, failed in ((train, result.failed_train), (test, result.failed_test))
    )
    return _ProbeOutcome(accuracy, train_index, test_index, result.failed_train | result.failed_test)


def check_single_fold(split_config: TrainTestConfig) -> None:
    """Raise StillmotionError if all folds are requested: a probe has one training split."""
    if split_config.fold == "all":
        raise StillmotionError("A linear probe uses one fold, got --fold all. Give a number, e.g. --fold 1.")


def format_accuracy(result: Mapping[str, float], chance: float) -> str:
    """Format top-1, and top-5 for more than five classes.

    Args:
        result: top1 and top5.
        chance: Accuracy of guessing.

    Returns:
        Text such as "0.512" or "0.512/0.803".
    """
    return f"{result['top1']:.3f}" + (f"/{result['top5']:.3f}" if chance < 1 / 5 else "")
