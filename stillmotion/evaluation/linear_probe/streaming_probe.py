"""Linear probe of the papers: a new clip of each training video in every epoch, whose features are not stored.

It needs the memory of a few clips, whatever the size of the data set.

Shapes: n videos of a step, D channels of all feature kinds together.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.datasets.base import FailedVideos, VideoDataset
from stillmotion.data.loading.clip_dataset import TrainClipDataset
from stillmotion.data.loading.collate import SampleKey
from stillmotion.data.loading.loader import iter_batches
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.data.transforms.augment import ClipAugmentation, EvalCrop
from stillmotion.distributed import collectives, process_group
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.feature_extraction import (
    ClipViews,
    concat_features,
    embed_batch,
    eval_crop,
    iter_features,
    num_blocks,
    videos_per_batch,
)
from stillmotion.errors import StillmotionError, raise_if_none_readable
from stillmotion.evaluation.linear_probe.classifiers import ProbeResult, TrueClassRanks, true_class_ranks
from stillmotion.evaluation.linear_probe.streaming_classifiers import (
    STATE_KEYS,
    SGDProbeConfig,
    StreamingLinearClassifiers,
)
from stillmotion.models.input_config import InputConfig
from stillmotion.utils.array_store import load_arrays, save_arrays
from stillmotion.utils.option_types import FeatureKind
from stillmotion.utils.progress import progress_part, report_progress

_SAVE_INTERVAL_SECONDS = 60.0  # minimum time between two checkpoints
_SHUFFLE_STREAM = 31  # number of the random stream, beside seed and epoch
# Area of a 224-pixel crop of a 4:3 frame whose short side is 256 to 320 pixels.
_CROP_AREA = (0.37, 0.57)


class StreamingProbeResult(NamedTuple):
    """Accuracies by feature kind and target, and reasons of the training and test videos that could not be read."""

    accuracy: dict[FeatureKind, dict[str, ProbeResult]]
    failed_train: dict[str, str]
    failed_test: dict[str, str]


def run_streaming_probe(
    encoder: Encoder,
    train: VideoDataset,
    test: VideoDataset,
    views: ClipViews,
    *,
    feature_kinds: Sequence[FeatureKind],
    seed: int = 0,
    sgd_config: SGDProbeConfig | None = None,
    checkpoint_file: Path | None = None,
    loader: LoaderConfig | None = None,
) -> StreamingProbeResult:
    """Train a linear classifier for each feature kind and target, all in the same passes, and test them.

    In each epoch a training video gives one random clip, randomly cropped and flipped by (seed, epoch, video).
    Processes share the videos of each step, and each learns from the features of all: the classifiers are those of a
    single process.

    Args:
        encoder: Encoder.
        train: Labeled training videos.
        test: Labeled test videos.
        views: Views of a test video, whose probabilities are averaged, and the precision of all passes.
        feature_kinds: Feature kinds; those that the encoder does not have are skipped.
        seed: Seed of order, clips and augmentation.
        sgd_config: Settings of SGD.
        checkpoint_file: File to which the classifiers are written between epochs, and from which the same call
            continues if it was interrupted; it is removed at the end.
        loader: Batch size and number of decoding processes.

    Returns:
        The accuracies.

    Raises:
        StillmotionError: If there are no labels, only one class, or fewer training videos than processes.
    """
    sgd_config, loader = sgd_config or SGDProbeConfig(), loader or LoaderConfig()
    labels = _ProbeLabels(train, test)
    num_train_steps = sgd_config.epochs * len(train)
    total = num_train_steps + len(test)
    checkpoint = _ProbeCheckpoint(checkpoint_file, sgd_config, labels.num_classes)
    classifiers, failed = checkpoint.classifiers, checkpoint.failed
    batches = _iter_feature_batches(
        encoder, train, views, feature_kinds, seed, sgd_config, loader, start_epoch=checkpoint.epochs_done
    )
    for batch in batches:
        checkpoint.save_if_due(batch.epoch)
        for kind, x in batch.features.items():
            if kind not in classifiers:
                classifiers[kind] = StreamingLinearClassifiers(x.shape[1], labels.num_classes, sgd_config)
            classifiers[kind].train_step(x, labels.train[batch.videos], epoch=batch.epoch)
        failed |= dict(batch.failed)
        report_progress(round(batch.epoch * len(train)), total)
    checkpoint.save_if_due(sgd_config.epochs)
    with progress_part(num_train_steps, total):
        ranks, failed_test = _test_classifiers(encoder, test, views, classifiers, labels, loader)
    all_failed = {name: reason for part in process_group.all_gather_object(failed) for name, reason in part.items()}
    checkpoint.delete()
    accuracy = {
        kind: {target: TrueClassRanks(of_target, None).accuracy() for target, of_target in by_target.items()}
        for kind, by_target in ranks.items()
    }
    return StreamingProbeResult(accuracy, all_failed, failed_test)


class _ProbeLabels:
    """Labels of the training and test videos.

    classes: classes of each target that training videos have. train: (videos, targets), indices among these classes,
    -1 where unknown.
    """

    def __init__(self, train: VideoDataset, test: VideoDataset) -> None:
        self.classes: dict[str, np.ndarray] = {}
        columns = []
        for target, y in train.labels.items():
            for name, labels in (("training", y), ("test", test.labels[target])):
                if not (labels >= 0).any():
                    raise StillmotionError(
                        f"None of the {len(labels)} {name} videos has a label {target}; a probe needs labels in both "
                        "splits."
                    )
            known = np.unique(y[y >= 0])
            if len(known) < 2:
                raise StillmotionError(
                    f"All training videos have the same {target}; a probe needs at least two classes."
                )
            self.classes[target] = known
            columns.append(np.where(y >= 0, np.searchsorted(known, y), -1))
        self.train = torch.from_numpy(np.stack(columns, 1))
        self.test = test.labels
        self.num_classes = [len(known) for known in self.classes.values()]


class _FeatureBatch(NamedTuple):
    """Features (n, D) by kind and indices of the videos (n,) of a step over all processes; epoch at its start."""

    features: dict[FeatureKind, Tensor]
    videos: Tensor
    epoch: float
    failed: FailedVideos


def _iter_feature_batches(
    encoder: Encoder,
    train: VideoDataset,
    views: ClipViews,
    feature_kinds: Sequence[FeatureKind],
    seed: int,
    sgd_config: SGDProbeConfig,
    loader: LoaderConfig,
    *,
    start_epoch: int,
) -> Iterator[_FeatureBatch]:
    """Yield the steps from an epoch on, the same as if the epochs before had been run."""
    rank, world_size = process_group.get_rank(), process_group.get_world_size()
    if min(len(train), sgd_config.batch_size) < world_size:
        raise StillmotionError(
            f"{len(train)} training videos (batch size {sgd_config.batch_size}) are fewer than {world_size} processes. "
            "Start fewer processes."
        )
    size = min(loader.batch_size, videos_per_batch(encoder.eval_input, 1))
    steps = -(-len(train) // sgd_config.batch_size)

    def iter_steps() -> Iterator[tuple[int, int, list[np.ndarray]]]:
        """Yield epoch, step and the videos of each process."""
        for epoch in range(start_epoch, sgd_config.epochs):
            order = np.random.default_rng((seed, epoch, _SHUFFLE_STREAM)).permutation(len(train))
            for step in range(steps):
                batch = order[step * sgd_config.batch_size : (step + 1) * sgd_config.batch_size]
                yield epoch, step, np.array_split(batch, world_size)

    def keys() -> Iterator[Sequence[SampleKey]]:
        for epoch, _, by_rank in iter_steps():
            local = by_rank[rank].tolist()
            yield from ([(epoch, i) for i in local[first : first + size]] for first in range(0, len(local), size))

    workers = loader.resolve_num_workers(train)
    batches = iter_batches(_training_clips(encoder, train, seed), keys(), num_videos=len(train), num_workers=workers)
    widths: dict[FeatureKind, int] = {}
    for epoch, step, by_rank in iter_steps():
        parts = [embed_batch(encoder, next(batches), views.precision) for _ in range(0, len(by_rank[rank]), size)]
        local = concat_features(parts)
        if not widths:
            widths = {kind: local.vectors(kind).shape[-1] for kind in local.available(feature_kinds)}
        vectors = [local.vectors(k) if parts else np.empty((0, width), np.float32) for k, width in widths.items()]
        counts = [len(videos) for videos in by_rank]
        rows = collectives.all_gather_uneven(torch.from_numpy(np.concatenate(vectors, 1)), counts)
        index = collectives.all_gather_uneven(torch.from_numpy(local.index), counts)
        features = dict(zip(widths, rows.split(list(widths.values()), 1), strict=True))
        yield _FeatureBatch(features, index, epoch + step / steps, local.failed)


class _ProbeCheckpoint:
    """The classifiers in training, and the file from which an interrupted probe continues."""

    def __init__(self, file: Path | None, sgd_config: SGDProbeConfig, num_classes: Sequence[int]) -> None:
        self._file, self._written = file, time.monotonic()
        self.classifiers: dict[FeatureKind, StreamingLinearClassifiers] = {}
        self.failed: dict[str, str] = {}
        self.epochs_done = 0
        stored = process_group.run_on_main(lambda: load_arrays(file)) if file else None
        if stored is None:
            return
        self.epochs_done, self.failed = stored.metadata["epochs_done"], stored.metadata["failed"]
        for kind in stored.metadata["feature_kinds"]:
            state = {name: stored.arrays[f"{kind}.{name}"] for name in STATE_KEYS}
            self.classifiers[kind] = StreamingLinearClassifiers(len(state["mean"]), num_classes, sgd_config)
            self.classifiers[kind].load_state_dict(state)

    def save_if_due(self, epoch: float) -> None:
        """Write them at the end of an epoch, if enough time has passed."""
        due = epoch == int(epoch) > self.epochs_done and time.monotonic() - self._written >= _SAVE_INTERVAL_SECONDS
        if self._file is None or process_group.get_rank() or not due:
            return
        arrays = {f"{kind}.{name}": x for kind, c in self.classifiers.items() for name, x in c.state_dict().items()}
        metadata = {"epochs_done": int(epoch), "feature_kinds": list(self.classifiers), "failed": self.failed}
        save_arrays(self._file, dict(sorted(arrays.items())), metadata)
        self._written = time.monotonic()

    def delete(self) -> None:
        if self._file is not None and process_group.get_rank() == 0:
            self._file.unlink(missing_ok=True)


def _training_clips(encoder: Encoder, train: VideoDataset, seed: int) -> TrainClipDataset:
    return TrainClipDataset(
        train, **encoder.eval_input.sampling, num_clips=1, augment=_augment(encoder.eval_input), seed=seed
    )


def _augment(input_config: InputConfig) -> "ClipAugmentation | _RandomFlip":
    """Return random crop and flip; only the flip for inputs of whole frames."""
    if input_config.whole_frame:
        return _RandomFlip(eval_crop(input_config))
    mean, std = input_config.normalization
    return ClipAugmentation(
        input_config.image_size,
        scale=_CROP_AREA,
        ratio=(1.0, 1.0),
        color_jitter_p=0.0,
        gray_p=0.0,
        blur_p=0.0,
        mean=mean,
        std=std,
    )


@dataclass(frozen=True)
class _RandomFlip:
    """Test crop, flipped half of the time."""

    crop: EvalCrop

    def __call__(self, clip: np.ndarray, rng: np.random.Generator) -> Tensor:
        return self.crop(clip[:, :, ::-1] if rng.random() < 0.5 else clip)[0]


def _test_classifiers(
    encoder: Encoder,
    test: VideoDataset,
    views: ClipViews,
    classifiers: Mapping[FeatureKind, StreamingLinearClassifiers],
    labels: _ProbeLabels,
    loader: LoaderConfig,
) -> tuple[dict[FeatureKind, dict[str, np.ndarray]], dict[str, str]]:
    """Return the ranks of the true classes by kind and target, and the test videos that could not be read."""
    local: dict[FeatureKind, dict[str, list[np.ndarray]]] = {
        kind: {t: [] for t in labels.classes} for kind in classifiers
    }
    failed: dict[str, str] = {}
    world_size, done = process_group.get_world_size(), 0
    blocks = range(num_blocks(test))[process_group.get_rank() :: world_size]
    for _, part in iter_features(encoder, test, views, blocks=blocks, loader=loader):
        failed |= dict(part.failed)
        done += len(part.index) + len(part.failed)
        report_progress(min(done * world_size, len(test)), len(test))
        if len(part.index) == 0:
            continue
        for kind, classifier in classifiers.items():
            probabilities = classifier.predict_proba(torch.from_numpy(part.vectors(kind, average=False)))
            for (target, classes), of_target in zip(labels.classes.items(), probabilities, strict=True):
                y = labels.test[target][part.index]
                local[kind][target].append(true_class_ranks(of_target[y >= 0], classes, y[y >= 0]))
    gathered = process_group.all_gather_object((local, failed))
    all_failed = {name: reason for _, part in gathered for name, reason in part.items()}
    raise_if_none_readable(all_failed, len(test), "test videos")
    ranks = {
        kind: {target: np.concatenate([x for part, _ in gathered for x in part[kind][target]]) for target in by_target}
        for kind, by_target in local.items()
    }
    return ranks, all_failed
