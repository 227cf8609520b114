"""`stillmotion probe`: what a linear classifier reads off frozen features, by label or by synthetic factor."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from stillmotion.data.datasets.splits import TrainTestConfig, TrainTestSplit
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed import process_group
from stillmotion.encoders import FEATURE_KINDS, Encoder, FeatureKind, ProgressCallback, resolve_num_clips
from stillmotion.encoders.feature_cache import (
    ExtractionJob,
    cached_extraction_job,
    check_cache_dir,
    feature_cache_key,
    load_or_extract_features,
    resolve_cache_dir,
)
from stillmotion.encoders.feature_extraction import ClipViews
from stillmotion.encoders.input_paths import RUN_DIR_HINT, collect_input_paths
from stillmotion.encoders.sharded_extraction import extract_features_distributed
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.common import majority_accuracy
from stillmotion.evaluation.linear_probe.classifiers import ProbeResult, logistic_probe, sgd_probe
from stillmotion.evaluation.linear_probe.config import LinearProbeConfig
from stillmotion.evaluation.linear_probe.online_classifier import SGDProbeConfig
from stillmotion.evaluation.linear_probe.online_probe import run_online_probe
from stillmotion.utils.files import check_writable, write_json
from stillmotion.utils.formatting import format_failed_videos

__all__ = [
    "PROBE_PROTOCOLS",
    "ProbeResult",
    "evaluate_linear_probe",
    "format_accuracy",
    "format_probe_results",
    "logistic_probe",
    "sgd_probe",
]
RESULTS_FILE = "linear_probe.json"


@dataclass(frozen=True)
class ProbeProtocol:
    """A protocol.

    num_clips: per video. crops: of each clip of a test video; training takes the centre. Entire frames have one.
    full_frame_crops: test crops are as large as the resized frame.
    use_sgd: the classifier is trained by SGD, on clips that are drawn anew in every epoch unless features are cached.
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


class _ProbeOutcome(NamedTuple):
    """Accuracies by kind and target, the videos that could be read, and name and reason of the others."""

    accuracy: dict[str, dict[str, dict[str, Any]]]
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
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """Linear probes of a frozen encoder, for every target that the videos are labelled with.

    encoder: into the folder of its run, `linear_probe.json` is written.
    split_config: labelled videos; "synthetic" ones are drawn as the encoder's run draws them and asked for all four factors.
    feature_kinds: of features; "concat" is static ⊕ dynamic. Of clips that are too short for halves, whole is asked alone.
    Ranks share the videos; the first writes.
    """
    config = config or LinearProbeConfig()
    if encoder.run_dir is not None:
        check_writable(encoder.run_dir / RESULTS_FILE, is_file=True, create=True, option_name=RUN_DIR_HINT)
    rule = resolve_protocol(encoder, config)
    _, parted = prepare_linear_probe(encoder, split_config, config)
    train, test = parted.train_test()
    networks = select_encoders(encoder, config)
    ask = _probe_feature_stream if rule.use_sgd and config.cache_dir is None else _probe_stored_features
    found = {
        name: ask(network, train, test, config, rule, feature_kinds, split_config.split_seed, loader, progress)
        for name, network in networks.items()
    }
    last = next(reversed(found.values()))
    train_y = {target: y[last.train] for target, y in train.labels.items()}
    test_y = {target: y[last.test] for target, y in test.labels.items()}
    results = {
        "encoder": encoder.origin.spec,
        "data": split_config.path,
        "preset": config.preset,
        "num_clips": rule.num_clips,
        "split_description": parted.description,
        "train_videos": len(last.train),
        "test_videos": len(last.test),
        "chance": {t: 1 / len(np.unique(y[y >= 0])) for t, y in train_y.items()},
        "majority": {t: majority_accuracy(train_y[t], test_y[t]) for t in train_y},
        "accuracy": {name: one.accuracy for name, one in found.items()},
        "failed": {name: reason for one in found.values() for name, reason in one.failed.items()},
    }
    if encoder.run_dir is not None:
        file = encoder.run_dir / RESULTS_FILE
        process_group.run_on_main(lambda: write_json(file, results, option_name=RUN_DIR_HINT))
    return results


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
    """The protocol with the clips that are asked for, or that the encoder is shown."""
    rule = PROBE_PROTOCOLS[config.preset]
    rule = replace(rule, num_clips=resolve_num_clips(encoder, config.num_clips, default=rule.num_clips))
    return replace(rule, num_crops=1) if encoder.eval_input.whole_frame else rule


def select_encoders(encoder: Encoder, config: LinearProbeConfig) -> dict[str, Encoder]:
    """What is probed, by what it is called."""
    networks = {"untrained" if encoder.origin.kind == "recipe" else "trained": encoder}
    return networks | {"untrained": encoder.untrained()} if config.compare_untrained else networks


def train_test_views(protocol: ProbeProtocol, config: LinearProbeConfig) -> tuple[ClipViews, ClipViews]:
    """What is taken of training and of test videos where features are held."""
    views = ClipViews(num_clips=protocol.num_clips, precision=config.precision)
    return views, replace(views, num_crops=protocol.num_crops, full_frame_crops=protocol.full_frame_crops)


def _probe_stored_features(
    encoder: Encoder,
    train: Subset,
    test: Subset,
    config: LinearProbeConfig,
    protocol: ProbeProtocol,
    feature_kinds: Sequence[FeatureKind],
    seed: int,
    loader: LoaderConfig | None,
    progress: ProgressCallback | None,
) -> _ProbeOutcome:
    """Evenly spaced clips, all of whose features are held."""
    views, tested = train_test_views(protocol, config)
    if config.cache_dir is None:
        x, tx = (
            extract_features_distributed(encoder, half, of, loader=loader)
            for half, of in ((train, views), (test, tested))
        )
    else:
        x, tx = (
            load_or_extract_features(encoder, half, **asdict(of), cache_dir=config.cache_dir, loader=loader).features
            for half, of in ((train, views), (test, tested))
        )

    def fitted() -> dict[str, dict[str, dict[str, Any]]]:
        fit = (
            partial(sgd_probe, sgd_config=SGDProbeConfig(batch_size=config.sgd_batch_size))
            if protocol.use_sgd
            else logistic_probe
        )
        return {
            of: {
                target: fit(
                    x.vectors(of, average=False),
                    y[x.index],
                    tx.vectors(of, average=False),
                    test.labels[target][tx.index],
                    seed=seed,
                )._asdict()
                for target, y in train.labels.items()
            }
            for of in [of for of in feature_kinds if of in x.kinds] or feature_kinds
        }

    return _ProbeOutcome(process_group.run_on_main(fitted), x.index, tx.index, dict(x.failed + tx.failed))


def _probe_feature_stream(
    encoder: Encoder,
    train: Subset,
    test: Subset,
    config: LinearProbeConfig,
    protocol: ProbeProtocol,
    feature_kinds: Sequence[FeatureKind],
    seed: int,
    loader: LoaderConfig | None,
    progress: ProgressCallback | None,
) -> _ProbeOutcome:
    """Clips that are drawn anew in every epoch, whose features pass."""
    views = ClipViews(
        num_clips=protocol.num_clips,
        num_crops=protocol.num_crops,
        full_frame_crops=protocol.full_frame_crops,
        precision=config.precision,
    )
    sgd, folder = SGDProbeConfig(batch_size=config.sgd_batch_size), resolve_cache_dir(encoder, None)
    kept = None
    if folder is not None:
        key = feature_cache_key(encoder, train, views)
        kept = folder / f"{key}-{seed}-{sgd.batch_size}-{'-'.join(feature_kinds)}.probe-checkpoint.safetensors"
    found = run_online_probe(
        encoder,
        train,
        test,
        views,
        feature_kinds=feature_kinds,
        seed=seed,
        sgd_config=sgd,
        checkpoint_file=kept,
        loader=loader,
        progress=progress,
    )
    accuracy: dict[str, dict[str, dict[str, Any]]] = {
        of: {t: result._asdict() for t, result in by.items()} for of, by in found.accuracy.items()
    }
    train_index, test_index = (
        np.array([i for i in range(len(half)) if half.name(i) not in broken], np.int64)
        for half, broken in ((train, found.failed_train), (test, found.failed_test))
    )
    return _ProbeOutcome(accuracy, train_index, test_index, found.failed_train | found.failed_test)


def check_single_fold(split_config: TrainTestConfig) -> None:
    """Raises where all folds are meant: a probe learns from one training half."""
    if split_config.fold == "all":
        raise StillmotionError("fold is all, and a probe is of one; give its number (--fold 1)")


def format_probe_results(results: dict[str, Any]) -> list[str]:
    """The results of `probe` as lines for a terminal."""
    targets = list(results["chance"])
    width = max(10, *(len(t) + 2 for t in targets))
    lines = [
        f"{results['train_videos']} training and {results['test_videos']} test videos ({results['split_description']}), "
        f"clips of each: {results['num_clips']}; top-1, and top-5 where there are more than five classes",
        " " * 22 + "".join(f"{t:>{width}}" for t in targets),
    ]
    for network, by_kind in results["accuracy"].items():
        for kind, by_target in by_kind.items():
            cells = [format_accuracy(by_target[t], results["chance"][t]) for t in targets]
            lines.append(f"{network:<12}{kind:<10}" + "".join(f"{c:>{width}}" for c in cells))
    lines.append(f"{'majority class':<22}" + "".join(f"{results['majority'][t]:>{width}.3f}" for t in targets))
    return lines + format_failed_videos(results["failed"])


def format_accuracy(result: Mapping[str, float], chance: float) -> str:
    """Top-1, and top-5 where there are more than five classes."""
    return f"{result['top1']:.3f}" + (f"/{result['top5']:.3f}" if chance < 1 / 5 else "")
