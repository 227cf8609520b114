"""Temporal action segmentation: train a head on frozen features of untrimmed videos, and predict test videos."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stillmotion.data.datasets.base import ActionSegmentationDataset, FailedVideos
from stillmotion.data.datasets.breakfast import BreakfastDataset
from stillmotion.data.synthetic.untrimmed import SyntheticUntrimmedDataset
from stillmotion.distributed import process_group
from stillmotion.encoders import Encoder, load
from stillmotion.encoders.frame_feature_cache import FrameFeatureCache
from stillmotion.errors import StillmotionError, VideoError, as_video_error, raise_if_none_readable
from stillmotion.functional.segmentation_metrics import segmentation_scores
from stillmotion.planning.dry_run import format_run_cost, measure_training
from stillmotion.planning.extraction_estimate import (
    ForwardWork,
    decode_samples,
    estimate_forward,
    estimate_forward_passes,
)
from stillmotion.training.downstream import check_run
from stillmotion.training.run_dir import (
    RESULTS_FILE,
    check_run_dir,
    load_config,
    load_results,
    lock_run_dir,
    open_run_dir,
)
from stillmotion.training.run_setup import num_decode_workers
from stillmotion.training.runtime import FEATURE_EXTRACTION_TIMEOUT, training_session
from stillmotion.training.segment.config import PRECOMPUTED_FEATURES, SegmentConfig
from stillmotion.training.segment.head_trainer import LabeledFrames, SegmentTrainer, train_head
from stillmotion.utils import files
from stillmotion.utils.formatting import LabelValue
from stillmotion.utils.progress import progress_bar
from stillmotion.utils.typed_config import to_dict

_FEATURE_DIR, _PREDICTION_DIR = "features", "predictions"


@dataclass(frozen=True)
class FrameFeatureDataset:
    """Features and labels of the readable videos of an untrimmed data set.

    Args:
        dataset: Videos and their labels.
        features: Cache of the features; None reads those that are stored with the data set.
        feature_stride: Frames from one feature to the next.
        readable_indices: Indices of the readable videos.
    """

    dataset: ActionSegmentationDataset
    features: FrameFeatureCache | None
    feature_stride: int
    readable_indices: list[int]

    def __len__(self) -> int:
        return len(self.readable_indices)

    def __getitem__(self, i: int) -> LabeledFrames:
        index = self.readable_indices[i]
        if self.features is not None:
            features = self.features.load(self.dataset, index)
        else:
            features = _require_features_on_disk(self.dataset).load_features(index)[:: self.feature_stride]
        labels = self.dataset.frame_labels(index)[:: self.feature_stride]
        length = min(len(features), len(labels))
        return LabeledFrames(torch.from_numpy(features[:length]), torch.from_numpy(labels[:length]))


@dataclass(frozen=True)
class TrainTestVideos:
    """Training and test videos with frame labels, and the failed ones with their reasons."""

    train: FrameFeatureDataset
    test: FrameFeatureDataset
    failed_videos: FailedVideos


@dataclass(frozen=True)
class SegmentPredictions:
    """Results of a run.

    Args:
        results: Contents of `results.json`.
        predictions: Predicted label of every frame, by the name of the test video.
        ground_truth: True label of every frame.
        actions: Names of the actions.
    """

    results: dict[str, Any]
    predictions: dict[str, np.ndarray]
    ground_truth: dict[str, np.ndarray]
    actions: list[str]


def _compute_features(
    config: SegmentConfig, run_dir: str | Path, cache_dir: str | Path | None
) -> tuple[tuple[ActionSegmentationDataset, ...], FrameFeatureCache | None, dict[str, str]]:
    """Open training and test videos, compute their features, and return name and reason of unreadable videos.

    Ranks share the videos.
    """
    datasets = open_train_test(config)
    open_run_dir(Path(run_dir), config)
    features, failed = None, dict[str, str]()
    if config.encoder == PRECOMPUTED_FEATURES:
        _require_features_on_disk(datasets[0])
    else:
        features = FrameFeatureCache(
            _load_encoder(config), _feature_dir(run_dir, cache_dir), feature_stride=config.data.feature_stride
        )
        num_workers = num_decode_workers(config.data.num_workers)
        for videos in datasets:
            failed |= features.compute_missing(videos, num_workers=num_workers)
    return datasets, features, failed


def _select_readable(
    config: SegmentConfig,
    datasets: tuple[ActionSegmentationDataset, ...],
    features: FrameFeatureCache | None,
    failed: dict[str, str],
) -> TrainTestVideos:
    frames: list[FrameFeatureDataset] = []
    for videos in datasets:
        indices = [i for i in range(len(videos)) if videos.name(i) not in failed]
        feature_dim = frames[0][0].features.shape[1] if frames else None
        candidates = FrameFeatureDataset(videos, features, config.data.feature_stride, indices)
        frames.append(_drop_unreadable(candidates, failed, feature_dim))
    return TrainTestVideos(frames[0], frames[1], sorted(failed.items()))


def _load_encoder(config: SegmentConfig) -> Encoder:
    encoder = load(config.encoder, device=config.train.device)
    return encoder.untrained() if config.untrained else encoder


def _feature_dir(run_dir: str | Path, cache_dir: str | Path | None) -> Path:
    return Path(cache_dir) if cache_dir is not None else Path(run_dir) / _FEATURE_DIR


def _require_features_on_disk(dataset: ActionSegmentationDataset) -> BreakfastDataset:
    if not isinstance(dataset, BreakfastDataset):
        raise StillmotionError("synthetic videos have no features on disk; name an encoder (--encoder)")
    return dataset


def open_train_test(config: SegmentConfig) -> tuple[ActionSegmentationDataset, ActionSegmentationDataset]:
    """Open the training and the test videos of a config."""
    data = config.data

    def open_split(train: bool) -> ActionSegmentationDataset:
        if data.path == "synthetic":
            return SyntheticUntrimmedDataset(data.synthetic, train=train, seed=data.seed)
        return BreakfastDataset(data.path, train=train, fold=data.fold, video_root=data.video_dir)

    train, test = open_split(True), open_split(False)
    for name in data.background_actions:
        if name not in train.actions:
            raise StillmotionError(
                f"there is no action {name!r}; one is {train.actions[0]!r} (--data.background-actions)"
            )
    return train, test


def segment(
    config: SegmentConfig, run_dir: str | Path, *, cache_dir: str | Path | None = None
) -> SegmentPredictions | None:
    """Train a head for action segmentation, predict the test videos, and write `results.json` and `predictions/`.

    Predictions are written in the format of Breakfast's ground truth. Under torchrun every process calls this: they
    share the extraction of features; then the first trains the head.

    Args:
        config: Config of the run.
        run_dir: Run folder.
        cache_dir: Folder of the features; None is that of the run.

    Returns:
        The predictions; None on ranks other than the first.
    """
    config = _check_run(config, run_dir)
    with training_session(config.train, timeout=FEATURE_EXTRACTION_TIMEOUT) as device, lock_run_dir(run_dir):
        with progress_bar("embedding"):
            computed = _compute_features(config, run_dir, cache_dir)
        is_main = process_group.get_rank() == 0
        process_group.destroy_process_group()
        if not is_main:
            return None
        return _train_and_predict(config, Path(run_dir), device, _select_readable(config, *computed))


def _check_run(config: SegmentConfig, run_dir: str | Path) -> SegmentConfig:
    if config.encoder != PRECOMPUTED_FEATURES:
        return check_run(config, run_dir, config.data.path, config.data.video_dir)
    check_run_dir(run_dir, config.data.path, config.data.video_dir)
    return config


def _train_and_predict(
    config: SegmentConfig, run_dir: Path, device: torch.device, frames: TrainTestVideos
) -> SegmentPredictions:
    test, videos, failed = frames.test, frames.train.dataset, dict(frames.failed_videos)
    actions = videos.actions
    head = train_head(config, run_dir, device, frames.train, len(actions), failed_videos=failed, named_videos=videos)
    predictions, ground_truth = {}, {}
    for i, index in enumerate(test.readable_indices):
        name, labels = test.dataset.video_ids[index], test.dataset.frame_labels(index)
        predicted = head.predict(test[i].features.to(device)).cpu().numpy()
        stride = config.data.feature_stride
        predictions[name] = upsample_labels(predicted, feature_stride=stride, num_frames=len(labels))
        ground_truth[name] = labels
    background = [actions.index(name) for name in config.data.background_actions]
    counts = np.stack([np.bincount(frames.train[i].labels, minlength=len(actions)) for i in range(len(frames.train))])
    majority = int(counts.sum(0).argmax())
    predicted_labels, true_labels = list(predictions.values()), list(ground_truth.values())
    majority_labels = [np.full_like(labels, majority) for labels in true_labels]
    results = {
        "encoder": config.encoder + " (untrained)" * config.untrained,
        "head": config.head.name,
        "data": config.data.path,
        "fold": config.data.fold,
        "seed": config.train.seed,
        "train_videos": len(frames.train),
        "test_videos": len(test),
        "metrics": segmentation_scores(predicted_labels, true_labels, background=background),
        "majority_baseline": {
            "action": actions[majority],
            **segmentation_scores(majority_labels, true_labels, background=background),
        },
        "frame_recall": _frame_recall(np.concatenate(predicted_labels), np.concatenate(true_labels), actions),
        "failed": failed,
        "config": to_dict(config),
    }
    folder = files.ensure_dir(run_dir / _PREDICTION_DIR)
    for name, labels in predictions.items():
        files.write_text(folder / f"{name}.txt", "".join(f"{actions[label]}\n" for label in labels.tolist()))
    files.write_json(run_dir / RESULTS_FILE, results)
    return SegmentPredictions(results, predictions, ground_truth, actions)


def load_predictions(run_dir: str | Path) -> SegmentPredictions:
    """Load the predictions of a finished run from its folder and its data set."""
    folder = Path(run_dir)
    config, results = load_config(folder, SegmentConfig), load_results(folder)
    test = open_train_test(config)[1]
    label_of = {name: i for i, name in enumerate(test.actions)}
    predictions, ground_truth = {}, {}
    for i, name in enumerate(test.video_ids):
        file = folder / _PREDICTION_DIR / f"{name}.txt"
        if file.exists():
            predictions[name] = np.array([label_of[word] for word in file.read_text().splitlines()])
            ground_truth[name] = test.frame_labels(i)
    return SegmentPredictions(results, predictions, ground_truth, test.actions)


def upsample_labels(predictions: np.ndarray, *, feature_stride: int, num_frames: int) -> np.ndarray:
    """Repeat predictions of every n-th frame for the frames between.

    Args:
        predictions: Labels (N,).
        feature_stride: Frames from one prediction to the next.
        num_frames: Number of frames.

    Returns:
        Labels (num_frames,); the last prediction lasts to the end.
    """
    return predictions[np.minimum(np.arange(num_frames) // feature_stride, len(predictions) - 1)]


def _drop_unreadable(
    frames: FrameFeatureDataset, failed: dict[str, str], feature_dim: int | None
) -> FrameFeatureDataset:
    """Return the data set without unreadable videos, whose reasons are added to `failed`."""
    readable = []
    for i, index in enumerate(frames.readable_indices):
        name = frames.dataset.name(index)
        try:
            with as_video_error(name):
                num_channels = frames[i].features.shape[1]
        except VideoError as error:
            failed[name] = str(error)
            continue
        feature_dim = feature_dim or num_channels
        if num_channels == feature_dim:
            readable.append(index)
        else:
            failed[name] = f"{name}: features of {num_channels} channels, where the first has {feature_dim}"
    names = [frames.dataset.name(i) for i in range(len(frames.dataset))]
    raise_if_none_readable({name: failed[name] for name in names if name in failed}, len(names))
    return replace(frames, readable_indices=readable)


def _frame_recall(predictions: np.ndarray, ground_truth: np.ndarray, actions: list[str]) -> dict[str, float]:
    """Return the percentage of each action's frames that are predicted correctly, for actions that occur."""
    return {
        name: 100 * float((predictions[ground_truth == label] == label).mean())
        for label, name in enumerate(actions)
        if (ground_truth == label).any()
    }


_TIMED_FRAMES = 48  # frames of a video that are decoded for an estimate
_CLIPS_PER_PASS = 16  # clips of a forward pass


def plan_segment(config: SegmentConfig, run_dir: str | Path, cache_dir: str | Path | None = None) -> list[LabelValue]:
    """Estimate `segment`: features of all frames, and the training of a head.

    Args:
        config: Config of the run.
        run_dir: Run folder.
        cache_dir: Folder of the features; None is that of the run.

    Returns:
        Rows of label and value.
    """
    config = _check_run(config, run_dir)
    train, test = open_train_test(config)
    rows: list[LabelValue] = []
    if config.encoder == PRECOMPUTED_FEATURES:
        feature_dim = _require_features_on_disk(train).load_features(0).shape[1]
    else:
        work = _sample_frame_features(config, (train, test), _feature_dir(run_dir, cache_dir))
        feature_dim = estimate_forward(work).output.shape[-1]
        rows = [*estimate_forward_passes([work]), ("", ""), ("head training", "")]

    def build(config: SegmentConfig, folder: Path, device: torch.device) -> SegmentTrainer:
        num_videos = min(len(train), config.optim.batch_size)
        frames = _RandomFrameFeatures(train, feature_dim, config.data.feature_stride, num_videos)
        return SegmentTrainer(config, folder, device, frames, len(train.actions))

    cost, _ = measure_training(build, config, run_dir, build_full_run=False)
    num_steps = -(-len(train) // config.optim.batch_size) * config.optim.epochs
    cost = replace(cost, num_videos=len(train), total_steps=num_steps)
    return [*rows, *format_run_cost(cost, batch_size=config.optim.batch_size)]


def _sample_frame_features(
    config: SegmentConfig, datasets: tuple[ActionSegmentationDataset, ...], cache_dir: Path
) -> ForwardWork:
    """Decode some frames of the first readable videos."""
    stride, num_videos = config.data.feature_stride, sum(map(len, datasets))
    with tempfile.TemporaryDirectory() as folder:
        features = FrameFeatureCache(_load_encoder(config), folder, feature_stride=stride)
    encoder, num_done = features.encoder, len(list((cache_dir / features.cache_dir.name).glob("*.safetensors")))
    num_features = sum(-(-len(videos.frame_labels(i)) // stride) for videos in datasets for i in range(len(videos)))
    num_left = num_features * max(0, 1 - num_done / num_videos)
    config_in = encoder.input_config
    width = config_in.frame_width or config_in.image_size

    def decode(index: int) -> int:
        video = datasets[0].open_video(index)
        return len(video.get_frames(range(min(len(video), _TIMED_FRAMES))))

    num_decoded, seconds = decode_samples(len(datasets[0]), decode)
    return ForwardWork(
        name="features",
        amount=f"{round(num_left)} of {num_videos} videos" + f", {num_done} of them done" * bool(num_done),
        num_units=num_left,
        clips=torch.zeros(
            (_CLIPS_PER_PASS, 3, config_in.num_frames, config_in.image_size, width), device=encoder.device
        ),
        network=encoder,
        forward=encoder.frame_features,
        stored_bytes=lambda output: 4.0 * output.shape[-1] * num_left,
        decode_seconds=stride * seconds * len(num_decoded) / sum(num_decoded),
        unit="feature",
    )


@dataclass(frozen=True)
class _RandomFrameFeatures:
    """Random features with the lengths and labels of the first videos of a data set."""

    dataset: ActionSegmentationDataset
    feature_dim: int
    feature_stride: int
    num_videos: int

    def __len__(self) -> int:
        return self.num_videos

    def __getitem__(self, i: int) -> LabeledFrames:
        labels = torch.from_numpy(self.dataset.frame_labels(i)[:: self.feature_stride])
        return LabeledFrames(torch.randn(len(labels), self.feature_dim), labels)
