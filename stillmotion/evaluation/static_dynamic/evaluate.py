"""`stillmotion controlled evaluate`: what encoders know of appearance and of motion (BOD-VCL, Tables 1 and 2).

Each encoder is probed on the plain videos, on their static version (one frame repeated) and on their dynamic version
(noise that moves as they do). A probe on single frames of the dynamic version tells whether appearance is left in it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from stillmotion.data.datasets.base import DEFAULT_TARGET
from stillmotion.data.datasets.splits import TrainTestConfig, TrainTestSplit
from stillmotion.data.datasets.wrappers import ConcatDataset, FrozenFrameDataset
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.process_group import (
    all_gather_object,
    enter_on_main,
    get_rank,
    get_world_size,
    run_on_main,
)
from stillmotion.encoders import Encoder, FeatureKind, ProgressCallback, parse_spec
from stillmotion.encoders.feature_cache import (
    FEATURES_DIR,
    ExtractionJob,
    cached_extraction_job,
    load_or_extract_features,
)
from stillmotion.encoders.feature_extraction import ClipViews
from stillmotion.encoders.input_paths import check_dir_no_overlap, collect_input_paths
from stillmotion.errors import StillmotionError, VideoError, raise_if_none_readable
from stillmotion.evaluation.linear_probe.classifiers import logistic_probe_ranks
from stillmotion.evaluation.linear_probe.evaluate import check_single_fold
from stillmotion.evaluation.metrics.bootstrap import bootstrap_interval
from stillmotion.evaluation.static_dynamic.config import StaticDynamicEvalConfig
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import check_writable, write_json

RESULTS_FILE = "results.json"
VERSIONS = ("plain", "static", "dynamic")
PIXEL_BASELINE = "pixels"
_PIXEL_GRID = 8  # cells a side, of whose pixels mean and spread are taken


@dataclass(frozen=True)
class _ProbeOptions:
    """What all probes share, and the seed of their held-out part and of resampling."""

    num_clips: int
    feature_kinds: tuple[FeatureKind, ...]
    confidence_level: float
    n_resamples: int
    seed: int


@dataclass(frozen=True)
class ProbeOutcome:
    """A probe's answers: for each test video, the rank of its class; and which videos they were."""

    true_class_ranks: np.ndarray
    video_indices: np.ndarray
    best_c: float | None


def evaluate_static_dynamic(
    encoders: Mapping[str, Encoder],
    versions: Mapping[str, TrainTestConfig],
    output_dir: str | Path,
    config: StaticDynamicEvalConfig | None = None,
    *,
    loader: LoaderConfig | None = None,
    say: Callable[[str], None] = print,
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """Probe several encoders on the versions of one data set and write `results.json` into the folder `output_dir`.

    encoders: by what tables call them.
    versions: "plain", the videos as they are, and "static" and "dynamic", which `controlled make` writes; at least one.
    output_dir: features are kept in it, so that the same command again only goes on. say: told each line of the table.
    Ranks share the videos; the first asks, says and writes.
    """
    how = config or StaticDynamicEvalConfig()
    seed = next(iter(versions.values())).split_seed
    options = _ProbeOptions(how.num_clips, how.feature_kinds, how.confidence_level, how.n_resamples, seed)
    _, parted = prepare_static_dynamic(encoders, versions, output_dir, how)
    with enter_on_main(lambda: lock_dir(output_dir)):
        return _evaluate(encoders, versions, parted, Path(output_dir), options, loader, say, progress)


def prepare_static_dynamic(
    encoders: Mapping[str, Encoder],
    versions: Mapping[str, TrainTestConfig],
    output_dir: str | Path,
    config: StaticDynamicEvalConfig,
) -> tuple[list[ExtractionJob], dict[str, TrainTestSplit]]:
    """Check the arguments, open the versions, and return what is to be extracted, with the splits by version.

    Args:
        encoders: Encoders by their names in the tables.
        versions: Videos by version: "plain", "static" and "dynamic"; at least one.
        output_dir: Folder for results and features.
        config: Options of the probes.

    Raises:
        StillmotionError: If nothing can be compared, or the folder overlaps the inputs or cannot be written to.
    """
    check_inputs(encoders, versions)
    splits = {name: versions[name].open() for name in VERSIONS if name in versions}
    for name, split in splits.items():
        inputs = collect_input_paths(versions[name], dataset=split.dataset, encoders=encoders.values())
        check_dir_no_overlap(output_dir, inputs)
    check_writable(output_dir)
    datasets = {name: (split.dataset, config.num_clips) for name, split in splits.items()}
    if "dynamic" in splits:
        datasets["single frames of the dynamic version"] = _single_frames(splits["dynamic"]).dataset, 1
    jobs = [
        cached_extraction_job(
            f"{title}, {name}", encoder, dataset, ClipViews(num_clips=num_clips), Path(output_dir) / FEATURES_DIR
        )
        for title, encoder in encoders.items()
        for name, (dataset, num_clips) in datasets.items()
    ]
    return jobs, splits


def _single_frames(split: TrainTestSplit) -> TrainTestSplit:
    return replace(split, dataset=ConcatDataset([FrozenFrameDataset(split.dataset)]))


def _evaluate(
    encoders: Mapping[str, Encoder],
    versions: Mapping[str, TrainTestConfig],
    splits: Mapping[str, TrainTestSplit],
    output_dir: Path,
    options: _ProbeOptions,
    loader: LoaderConfig | None,
    say: Callable[[str], None],
    progress: ProgressCallback | None,
) -> dict[str, Any]:
    steps = _TotalProgress(
        progress, len(encoders) * (sum(_num_videos(p) for p in splits.values()) + _num_videos(splits.get("dynamic")))
    )

    def ask(
        encoder: Encoder, videos: TrainTestSplit, options: _ProbeOptions
    ) -> tuple[dict[FeatureKind, ProbeOutcome], dict[str, str]]:
        """The answers of an encoder's probes by kind of feature, and the videos that could not be read."""
        found = load_or_extract_features(
            encoder,
            videos.dataset,
            num_clips=options.num_clips,
            average_views=False,
            cache_dir=output_dir / FEATURES_DIR,
            loader=loader,
        ).features
        steps.advance(len(videos.dataset))

        def probes() -> dict[FeatureKind, ProbeOutcome]:
            vectors = {kind: found.vectors(kind, average=False) for kind in options.feature_kinds}
            return {kind: _probe(x, found.index, videos, options.seed) for kind, x in vectors.items()}

        return run_on_main(probes), dict(found.failed)

    asked: dict[str, dict[str, dict[FeatureKind, ProbeOutcome]]] = {name: {} for name in encoders}
    single: dict[str, ProbeOutcome] = {}
    broken: dict[str, str] = {}
    if "dynamic" in splits:
        single[PIXEL_BASELINE] = _probe_pixels(splits["dynamic"], options)
    for name, encoder in encoders.items():
        for version, videos in splits.items():
            asked[name][version], failed = ask(encoder, videos, options)
            broken |= failed
        if "dynamic" in splits:
            frames = _single_frames(splits["dynamic"])
            single[name] = ask(encoder, frames, replace(options, num_clips=1, feature_kinds=("whole",)))[0]["whole"]
        cells = [
            f"{version} {_accuracies(found[options.feature_kinds[0]])[0]:.3f}" for version, found in asked[name].items()
        ]
        if get_rank() == 0:
            say(f"{name}: top-1 " + ", ".join(cells))

    about = {version: _describe_version(versions[version].path, videos) for version, videos in splits.items()}
    results = {
        "encoders": {name: encoder.origin.spec for name, encoder in encoders.items()},
        "versions": about,
        "accuracy": {
            name: {v: {k: _summary(a, options) for k, a in kinds.items()} for v, kinds in found.items()}
            for name, found in asked.items()
        },
        "top1_difference": _differences(asked, options),
        "single_frame": {
            name: _summary(answers, options) | _chance_check(answers, about["dynamic"], options)
            for name, answers in single.items()
        },
        "settings": asdict(options) | {"feature_kinds": list(options.feature_kinds)},
        "failed": broken,
    }
    run_on_main(lambda: write_json(output_dir / RESULTS_FILE, results))
    return results


def parse_named_specs(specs: Sequence[str]) -> dict[str, str]:
    """The texts of encoders by the names they go by in tables; each is checked to be one.

    specs: each with a name in front if wanted, as in "I3D=i3d:weights.safetensors".
    """
    named: dict[str, str] = {}
    for text in specs:
        name, sign, rest = text.partition("=")
        if not sign or any(mark in name for mark in "/@:") or Path(text).exists():
            name, rest = "", text
        found = parse_spec(rest)
        name = name or Path(found.path).name + (f" ({found.option_string})" if found.options else "")
        if name in named:
            name = rest
        if name in named:
            raise StillmotionError(f"{name} is given twice; an encoder is evaluated once")
        named[name] = rest
    return named


def check_inputs(encoders: Mapping[str, Encoder], versions: Mapping[str, TrainTestConfig]) -> None:
    """Raises where nothing can be compared."""
    if not encoders:
        raise StillmotionError("no encoder to evaluate; give one or more run folders, recipes or models")
    if PIXEL_BASELINE in encoders:
        raise StillmotionError(
            f"no encoder may be called {PIXEL_BASELINE!r}, which stands for none; give it another name"
        )
    if not versions:
        raise StillmotionError("no videos to evaluate on; give --data, --static-data or --dynamic-data")
    for name, halves in versions.items():
        if name not in VERSIONS:
            raise StillmotionError(f"there is no version {name!r}; choose of {', '.join(VERSIONS)}")
        check_single_fold(halves)


class _TotalProgress:
    """One count of videos over all encoders and sets."""

    def __init__(self, progress: ProgressCallback | None, total: int) -> None:
        self.progress, self.total, self.before = progress, total, 0

    def __call__(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(self.before + done, self.total)

    def advance(self, videos: int) -> None:
        self.before += videos
        self(0, 0)


def _num_videos(split: TrainTestSplit | None) -> int:
    return len(split.dataset) if split is not None else 0


def _probe_pixels(split: TrainTestSplit, options: _ProbeOptions) -> ProbeOutcome:
    """The answers of a probe that has no network: colours and contrasts of the middle frame, cell by cell."""
    own, failed = {}, []
    for i in range(get_rank(), len(split.dataset), get_world_size()):
        try:
            video = split.dataset.open_video(i)
            frame = video.get_frames([len(video) // 2])[0].astype(np.float32) / 255
        except VideoError as error:
            failed.append((split.dataset.name(i), str(error)))
            continue  # named where the encoders meet it
        mean, square = (
            cv2.resize(x, (_PIXEL_GRID, _PIXEL_GRID), interpolation=cv2.INTER_AREA) for x in (frame, frame**2)
        )
        own[i] = np.concatenate([mean.ravel(), np.sqrt(np.maximum(square - mean**2, 0)).ravel()])
    rows = {i: row for some in all_gather_object(own) for i, row in some.items()}
    if not rows:
        raise_if_none_readable(failed, len(failed), "dynamic videos")
    numbers = sorted(rows)
    x = np.stack([rows[i] for i in numbers])[:, None]
    return run_on_main(partial(_probe, x, np.array(numbers), split, options.seed))


def _probe(x: np.ndarray, index: np.ndarray, split: TrainTestSplit, seed: int) -> ProbeOutcome:
    """Logistic regression on features (n, V, D) of the videos with these numbers, by the set's first fold."""
    y = split.dataset.labels[DEFAULT_TARGET][index]
    train, test = (np.flatnonzero(np.isin(index, half)) for half in split.folds[0])
    ranks, regularisation = logistic_probe_ranks(x[train], y[train], x[test], y[test], seed=seed)
    return ProbeOutcome(ranks, index[test], regularisation)


def _accuracies(outcome: ProbeOutcome) -> tuple[float, float]:
    top1, top5 = (float((outcome.true_class_ranks < k).mean()) for k in (1, 5))
    return top1, top5


def _summary(outcome: ProbeOutcome, options: _ProbeOptions) -> dict[str, Any]:
    top1, top5 = _accuracies(outcome)
    bounds = [
        list(
            bootstrap_interval(
                outcome.true_class_ranks < k,
                confidence_level=options.confidence_level,
                n_resamples=options.n_resamples,
                seed=options.seed,
            )
        )
        for k in (1, 5)
    ]
    return {
        "top1": top1,
        "top1_interval": bounds[0],
        "top5": top5,
        "top5_interval": bounds[1],
        "test_videos": len(outcome.true_class_ranks),
        "best_c": outcome.best_c,
    }


def _differences(
    outcomes: Mapping[str, Mapping[str, Mapping[FeatureKind, ProbeOutcome]]], options: _ProbeOptions
) -> dict[str, Any]:
    """Each encoder's top-1 less the first one's, on the same test videos, with intervals of paired resamples."""
    first, *others = outcomes
    found: dict[str, Any] = {}
    for name in others:
        found[name] = {}
        for version, kinds in outcomes[name].items():
            for kind, answers in kinds.items():
                base = outcomes[first][version][kind]
                if not np.array_equal(base.video_indices, answers.video_indices):
                    continue
                gain = (answers.true_class_ranks < 1).astype(float) - (base.true_class_ranks < 1)
                bounds = bootstrap_interval(
                    gain, confidence_level=options.confidence_level, n_resamples=options.n_resamples, seed=options.seed
                )
                found[name].setdefault(version, {})[kind] = {"top1": float(gain.mean()), "interval": list(bounds)}
    return found


def _describe_version(path: str, split: TrainTestSplit) -> dict[str, Any]:
    train, test = (split.dataset.labels[DEFAULT_TARGET][half] for half in split.folds[0])
    values, counts = np.unique(train, return_counts=True)
    return {
        "data": path,
        "split_description": split.description,
        "train_videos": len(train),
        "test_videos": len(test),
        "classes": len(values),
        "chance": 1 / len(values),
        "majority": float((test == values[counts.argmax()]).mean()),
    }


def _chance_check(outcome: ProbeOutcome, description: Mapping[str, Any], options: _ProbeOptions) -> dict[str, Any]:
    """Whether an accuracy may be that of guessing, which reaches the commonest class's share."""
    guess = max(description["chance"], description["majority"])
    low = bootstrap_interval(
        outcome.true_class_ranks < 1,
        confidence_level=options.confidence_level,
        n_resamples=options.n_resamples,
        seed=options.seed,
    ).low
    return {"chance_level": guess, "at_chance": bool(low <= guess)}
