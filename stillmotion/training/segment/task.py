"""Action localisation: a head learns from an encoder's features of untrimmed videos, and is asked about others."""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from stillmotion.data.datasets.base import ActionSegmentationDataset, FailedVideos, VideoDataset
from stillmotion.data.datasets.breakfast import BreakfastDataset
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.synthetic.untrimmed import SyntheticUntrimmedDataset
from stillmotion.data.video.reader import FrameSubset, VideoReader
from stillmotion.distributed import process_group
from stillmotion.encoders import Encoder, ProgressCallback, load
from stillmotion.encoders.frame_feature_cache import FrameFeatureCache
from stillmotion.encoders.run_encoders import PRECOMPUTED_FEATURES
from stillmotion.errors import StillmotionError, VideoError, raise_if_none_readable
from stillmotion.functional.segmentation_metrics import segmentation_scores
from stillmotion.planning.dry_run import format_run_cost, measure_training
from stillmotion.planning.flop_counter import FlopMemoryCounter
from stillmotion.training.downstream import Watch, encoder_path, resolve_encoder, unwatched
from stillmotion.training.run_dir import (
    RESULTS_FILE,
    check_inputs_not_overwritten,
    load_config,
    load_results,
    lock_run_dir,
    open_run_dir,
)
from stillmotion.training.runtime import FEATURE_EXTRACTION_TIMEOUT, training_session
from stillmotion.training.segment.config import SegmentConfig
from stillmotion.training.segment.head_trainer import LabeledFrames, SegmentTrainer, train_head
from stillmotion.training.trainer import num_decode_workers
from stillmotion.utils import files, formatting
from stillmotion.utils.files import check_writable
from stillmotion.utils.formatting import LabelValue
from stillmotion.utils.typed_config import to_dict

_FEATURE_DIR, _PREDICTION_DIR = "features", "predictions"


@dataclass(frozen=True)
class FrameFeatureDataset:
    """The readable videos of an untrimmed set, as features and labels of every hop-th frame.

    features: where they lie; None takes those that lie with the set. readable: numbers of the videos.
    """

    dataset: ActionSegmentationDataset
    features: FrameFeatureCache | None
    feature_stride: int
    readable_indices: list[int]

    def __len__(self) -> int:
        return len(self.readable_indices)

    def __getitem__(self, i: int) -> LabeledFrames:
        number = self.readable_indices[i]
        if self.features is not None:
            found = self.features.load(self.dataset, number)
        else:
            assert isinstance(self.dataset, BreakfastDataset)
            found = self.dataset.load_features(number)[:: self.feature_stride]
        labels = self.dataset.frame_labels(number)[:: self.feature_stride]
        shared = min(len(found), len(labels))
        return LabeledFrames(torch.from_numpy(found[:shared]), torch.from_numpy(labels[:shared]))


@dataclass(frozen=True)
class TrainTestFrames:
    """What is trained and what is tested on, and the videos of either that cannot be read."""

    train: FrameFeatureDataset
    test: FrameFeatureDataset
    failed_videos: FailedVideos


@dataclass(frozen=True)
class SegmentPredictions:
    """What `results.json` holds; and, by the test videos' names, the predicted and the true labels of all frames."""

    results: dict[str, Any]
    predictions: dict[str, np.ndarray]
    ground_truth: dict[str, np.ndarray]
    actions: list[str]


def read_train_test(
    config: SegmentConfig,
    run_dir: str | Path,
    *,
    cache_dir: str | Path | None = None,
    progress: ProgressCallback | None = None,
) -> TrainTestFrames:
    """Open the set and compute the features that are not on disk yet.

    run_dir: the run folder, which is checked first. cache: a folder for features, in place of the run's own.
    progress: called with features done and of all, once for either half.
    """
    return _select_readable(config, _compute_features(config, Path(run_dir), cache_dir, progress))


class _FeatureFiles(NamedTuple):
    """Both halves of a set, where their features lie, and why each video that cannot be read cannot."""

    datasets: tuple[ActionSegmentationDataset, ActionSegmentationDataset]
    features: FrameFeatureCache | None
    failed: dict[str, str]


def _compute_features(
    config: SegmentConfig, run_dir: Path, cache_dir: str | Path | None, progress: ProgressCallback | None
) -> _FeatureFiles:
    """Ranks share the videos."""
    halves = open_train_test(config)
    open_run_dir(run_dir, config)
    if config.encoder == PRECOMPUTED_FEATURES:
        if not isinstance(halves[0], BreakfastDataset):
            raise StillmotionError("drawn videos have no features on disk; name an encoder (--encoder)")
        return _FeatureFiles(halves, None, {})
    place = Path(cache_dir) if cache_dir is not None else run_dir / _FEATURE_DIR
    encoder = load(config.encoder, device=config.train.device)
    features = FrameFeatureCache(
        encoder.untrained() if config.untrained else encoder, place, feature_stride=config.data.feature_stride
    )
    broken: dict[str, str] = {}
    for videos in halves:
        broken |= features.compute_missing(videos, num_workers=num_decode_workers(config.data.num_workers))
    return _FeatureFiles(halves, features, broken)


def _select_readable(config: SegmentConfig, found: _FeatureFiles) -> TrainTestFrames:
    halves: list[FrameFeatureDataset] = []
    broken = dict(found.failed)
    for videos in found.datasets:
        known = [i for i in range(len(videos)) if videos.name(i) not in broken]
        width = halves[0][0].features.shape[1] if halves else None
        halves.append(
            _drop_unreadable(
                FrameFeatureDataset(videos, found.features, config.data.feature_stride, known), broken, width
            )
        )
    return TrainTestFrames(halves[0], halves[1], sorted(broken.items()))


def open_train_test(config: SegmentConfig) -> tuple[ActionSegmentationDataset, ActionSegmentationDataset]:
    """The training and the test videos that a configuration names."""
    data = config.data

    def half(train: bool) -> ActionSegmentationDataset:
        if data.path == "synthetic":
            return SyntheticUntrimmedDataset(data.synthetic, train=train, seed=data.seed)
        return BreakfastDataset(data.path, train=train, fold=data.fold, video_root=data.video_dir)

    train, test = half(True), half(False)
    for name in data.background_actions:
        if name not in train.actions:
            raise StillmotionError(
                f"there is no action {name!r}; one is {train.actions[0]!r} (--data.background-actions)"
            )
    return train, test


def segment(
    config: SegmentConfig, run_dir: str | Path, *, cache_dir: str | Path | None = None, watch: Watch = unwatched
) -> SegmentPredictions | None:
    """Train a head, ask it about the test videos, and write `results.json` and `predictions/` to the run folder.

    cache_dir: as for `read_halves`. watch: given a word for what goes on, shows its progress; for the features.
    Predictions are written as Breakfast's ground truth is.
    Under `torchrun` every process calls this: they share the features. The first then trains the head, alone, and the
    others are done, which is None.
    """
    config = config if config.encoder == PRECOMPUTED_FEATURES else resolve_encoder(config)
    if not config.data.path:
        raise StillmotionError("no videos given; add --data FOLDER (or --data synthetic to try)")
    encoder = None if config.encoder == PRECOMPUTED_FEATURES else encoder_path(config.encoder)
    check_inputs_not_overwritten(run_dir, config.data.path, config.data.video_dir, encoder)
    with training_session(config.train, timeout=FEATURE_EXTRACTION_TIMEOUT), lock_run_dir(run_dir):
        with watch("embedding") as progress:
            found = _compute_features(config, Path(run_dir), cache_dir, progress)
        first = process_group.get_rank() == 0
        process_group.destroy_process_group()
        return _train_and_predict(config, Path(run_dir), _select_readable(config, found)) if first else None


def _train_and_predict(config: SegmentConfig, run_dir: Path, frames: TrainTestFrames) -> SegmentPredictions:
    test, videos = frames.test, frames.train.dataset
    actions = videos.actions
    head = train_head(
        config, run_dir, frames.train, len(actions), failed_videos=dict(frames.failed_videos), named_videos=videos
    )
    device = next(head.parameters()).device
    predicted, truth = {}, {}
    for i, number in enumerate(test.readable_indices):
        name, labels = test.dataset.video_ids[number], test.dataset.frame_labels(number)
        found = head.predict(test[i].features.to(device)).cpu().numpy()
        predicted[name], truth[name] = (
            upsample_labels(found, feature_stride=config.data.feature_stride, num_frames=len(labels)),
            labels,
        )
    background = [actions.index(name) for name in config.data.background_actions]
    counts = np.stack([np.bincount(frames.train[i].labels, minlength=len(actions)) for i in range(len(frames.train))])
    commonest = int(counts.sum(0).argmax())
    answers, wanted = list(predicted.values()), list(truth.values())
    results = {
        "encoder": config.encoder + " (untrained)" * config.untrained,
        "head": config.head.name,
        "data": config.data.path,
        "fold": config.data.fold,
        "seed": config.train.seed,
        "train_videos": len(frames.train),
        "test_videos": len(test),
        "metrics": segmentation_scores(answers, wanted, background=background),
        "majority_baseline": {
            "action": actions[commonest],
            **segmentation_scores([np.full_like(y, commonest) for y in wanted], wanted, background=background),
        },
        "frame_recall": _frame_recall(np.concatenate(answers), np.concatenate(wanted), actions),
        "failed": dict(frames.failed_videos),
        "config": to_dict(config),
    }
    place = files.ensure_dir(run_dir / _PREDICTION_DIR)
    for name, found in predicted.items():
        files.write_text(place / f"{name}.txt", "".join(f"{actions[label]}\n" for label in found.tolist()))
    files.write_json(run_dir / RESULTS_FILE, results)
    return SegmentPredictions(results, predicted, truth, actions)


def load_predictions(run_dir: str | Path) -> SegmentPredictions:
    """What a finished run answered, from its folder and its data."""
    place = Path(run_dir)
    config, results = load_config(place, SegmentConfig), load_results(place)
    test = open_train_test(config)[1]
    number = {name: i for i, name in enumerate(test.actions)}
    predicted, truth = {}, {}
    for i, name in enumerate(test.video_ids):
        file = place / _PREDICTION_DIR / f"{name}.txt"
        if file.exists():
            predicted[name] = np.array([number[word] for word in file.read_text().splitlines()])
            truth[name] = test.frame_labels(i)
    return SegmentPredictions(results, predicted, truth, test.actions)


def upsample_labels(predictions: np.ndarray, *, feature_stride: int, num_frames: int) -> np.ndarray:
    """Predictions of every hop-th frame as those of all frames (length,); the last one lasts to the end."""
    return predictions[np.minimum(np.arange(num_frames) // feature_stride, len(predictions) - 1)]


def _drop_unreadable(
    frames: FrameFeatureDataset, failed: dict[str, str], feature_dim: int | None
) -> FrameFeatureDataset:
    """The set without what cannot be read, whose reasons are added to `failed`. width: of features, where known."""
    good = []
    for place, number in enumerate(frames.readable_indices):
        name = frames.dataset.name(number)
        try:
            found = frames[place].features.shape[1]
        except VideoError as error:
            failed[name] = str(error)
            continue
        feature_dim = feature_dim or found
        if found == feature_dim:
            good.append(number)
        else:
            failed[name] = f"{name}: features of {found} channels, where the first has {feature_dim}"
    raise_if_none_readable(failed, len(failed) + len(good))
    return replace(frames, readable_indices=good)


def _frame_recall(predictions: np.ndarray, ground_truth: np.ndarray, actions: list[str]) -> dict[str, float]:
    """The share of an action's frames that were told, in percent, for those that occur."""
    return {
        name: 100 * float((predictions[ground_truth == label] == label).mean())
        for label, name in enumerate(actions)
        if (ground_truth == label).any()
    }


_EXCERPT_FRAMES = 48  # frames of an untrimmed video whose features are made
_CLIPS_PER_PASS = 16  # clips of a pass


def plan_segment(config: SegmentConfig, run_dir: str, cache_dir: str | None) -> list[LabelValue]:
    """Of `segment`: features of all frames, and then a head on them."""
    config = config if config.encoder == PRECOMPUTED_FEATURES else resolve_encoder(config)
    if not config.data.path:
        raise StillmotionError("no videos given; add --data FOLDER (or --data synthetic to try)")
    check_inputs_not_overwritten(
        run_dir,
        config.data.path,
        config.data.video_dir,
        None if config.encoder == PRECOMPUTED_FEATURES else encoder_path(config.encoder),
    )
    check_writable(run_dir)
    train, test = open_train_test(config)
    if config.encoder != PRECOMPUTED_FEATURES:
        encoder = load(config.encoder, device=config.train.device)
        place = Path(cache_dir) if cache_dir is not None else Path(run_dir) / "features"
        told, width = _plan_frame_features(
            encoder.untrained() if config.untrained else encoder, (train, test), config, place
        )
    elif isinstance(train, BreakfastDataset):
        told, width = [], train.load_features(0).shape[1]
    else:
        raise StillmotionError("drawn videos have no features on disk; name an encoder (--encoder)")

    def build(config: SegmentConfig, folder: Path, device: torch.device) -> SegmentTrainer:
        videos = _RandomFrameFeatures(
            train, width, config.data.feature_stride, min(len(train), config.optim.batch_size)
        )
        return SegmentTrainer(config, folder, device, videos, len(train.actions), None)

    found, _ = measure_training(build, config, run_dir, build_full_run=False)
    steps = -(-len(train) // config.optim.batch_size) * config.optim.epochs
    found = replace(found, num_videos=len(train), total_steps=steps)
    return [*told, ("", ""), ("then the head", ""), *format_run_cost(found, batch_size=config.optim.batch_size)]


def _plan_frame_features(
    encoder: Encoder, splits: tuple[ActionSegmentationDataset, ...], config: SegmentConfig, cache_dir: Path
) -> tuple[list[LabelValue], int]:
    """What the features of all frames take, by those of two parts of a video; and their width."""
    hop, every = config.data.feature_stride, sum(map(len, splits))
    with tempfile.TemporaryDirectory() as folder:
        features = FrameFeatureCache(encoder, folder, feature_stride=hop)
        parts, seconds = _time_frame_features(features, splits[0])
        found = features.load(parts, 1)
        done = min(every, len(list((cache_dir / features.cache_dir.name).glob("*.safetensors"))))
    total = sum(-(-len(videos.frame_labels(i)) // hop) for videos in splits for i in range(len(videos)))
    left, shown = round(total * (1 - done / every)), features.encoder
    intake = shown.input_config
    clips = torch.zeros(
        _CLIPS_PER_PASS,
        3,
        intake.num_frames,
        intake.image_size,
        intake.frame_width or intake.image_size,
        device=encoder.device,
    )
    with torch.no_grad(), FlopMemoryCounter() as tally:
        tally.track([*shown.parameters(), *shown.buffers(), clips])
        shown.frame_features(clips)
    each = tally.flops / _CLIPS_PER_PASS
    told = [
        ("videos", f"{every}" + (f", {done} of them done" if done else "")),
        ("features to make", f"{left}, each of a clip of {intake.num_frames} frames, {intake.image_size} pixels a side"),
        ("operations", f"{formatting.format_flops(each)} a feature; {formatting.format_flops(each * left)} in all"),
        ("features to be written", formatting.format_bytes(4 * found.shape[1] * left)),
        ("memory for them", formatting.format_memory(tally.peak_bytes)),
        (
            "time for them",
            f"{formatting.format_duration(seconds / len(found) * left)}, by {len(found)} that were made here",
        ),
    ]
    return told, found.shape[1]


def _time_frame_features(
    features: FrameFeatureCache, dataset: ActionSegmentationDataset
) -> tuple["_VideoExcerpts", float]:
    """Two parts of the first video that can be read, and the seconds that the features of the second took."""
    failed: FailedVideos = []
    for number in range(len(dataset)):
        parts = _VideoExcerpts(dataset, number)
        broken = features.compute_missing(
            Subset(parts, np.array([0]))
        )  # and nothing is made for the first time after it
        started = time.perf_counter()
        broken += features.compute_missing(Subset(parts, np.array([1])))
        if not broken:
            return parts, time.perf_counter() - started
        failed += broken
    raise_if_none_readable(failed, len(failed))
    raise AssertionError("unreachable")


class _VideoExcerpts(VideoDataset):
    """Two parts of a video as videos: its beginning, and what comes next."""

    def __init__(self, dataset: ActionSegmentationDataset, index: int) -> None:
        self.dataset, self.index = dataset, index

    def __len__(self) -> int:
        return 2

    def name(self, i: int) -> str:
        return f"{self.dataset.name(self.index)}, part {i}"

    def open_video(self, i: int) -> VideoReader:
        whole = self.dataset.open_video(self.index)
        first = max(0, min(i * _EXCERPT_FRAMES, len(whole) - _EXCERPT_FRAMES))
        return FrameSubset(whole, np.arange(first, min(first + _EXCERPT_FRAMES, len(whole))))


@dataclass(frozen=True)
class _RandomFrameFeatures:
    """Features of no meaning, as long as those of the first videos of a set, with their labels."""

    dataset: ActionSegmentationDataset
    feature_dim: int
    feature_stride: int
    num_videos: int

    def __len__(self) -> int:
        return self.num_videos

    def __getitem__(self, i: int) -> LabeledFrames:
        labels = torch.from_numpy(self.dataset.frame_labels(i)[:: self.feature_stride])
        return LabeledFrames(torch.randn(len(labels), self.feature_dim), labels)
