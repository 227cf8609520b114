"""The linear probe of the papers: a new clip of each training video in every epoch, whose features pass and are gone.

Memory is that of a few clips, whatever the set.

Shapes: n videos of a step, D channels of all kinds together.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.datasets.base import FailedVideos, VideoDataset
from stillmotion.data.loading.clip_dataset import TrainClipDataset
from stillmotion.data.loading.collate import SampleKey
from stillmotion.data.loading.collate import print_message as to_stderr
from stillmotion.data.loading.loader import iter_batches
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.data.transforms.augment import ClipAugmentation, EvalCrop
from stillmotion.distributed import collectives, process_group
from stillmotion.encoders import Encoder, FeatureKind, Features, ProgressCallback
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
from stillmotion.evaluation.linear_probe.online_classifier import STATE_KEYS, OnlineLinearClassifiers, SGDProbeConfig
from stillmotion.models.input_config import InputConfig
from stillmotion.utils.array_store import load_arrays, save_arrays

_SAVE_INTERVAL_SECONDS = 60.0  # seconds from one writing of the classifiers to the next, at least
_SHUFFLE_STREAM = 31  # what a generator is for, beside seed and epoch
# A square of size pixels of a shorter edge of 256 to 320 for 224: so much of a frame of 4:3.
_CROP_AREA = (0.37, 0.57)


class OnlineProbeResult(NamedTuple):
    """Accuracies by kind and target, and name and reason of the training and of the test videos that are unreadable."""

    accuracy: dict[FeatureKind, dict[str, ProbeResult]]
    failed_train: dict[str, str]
    failed_test: dict[str, str]


def run_online_probe(
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
    say: Callable[[str], object] = to_stderr,
    progress: ProgressCallback | None = None,
) -> OnlineProbeResult:
    """Train a linear classifier for each kind of feature and each target, all by the same passes, and test them.

    views: of a test video, told by the mean of their probabilities, and the precision of all. A training video shows
        one random clip in an epoch, cropped and mirrored by chance, as (seed, epoch, video) has it.
    feature_kinds: of which those that the encoder has are asked.
    checkpoint_file: a file for the classifiers, written between epochs, which the same call goes on from if it is ended before
        its time; it is removed at the end. say: told where it is damaged.
    Ranks share each step's videos, and each learns from the features of all: the classifiers are those of one process.
    """
    sgd_config, loader = sgd_config or SGDProbeConfig(), loader or LoaderConfig()
    asked = _ProbeLabels(train, test)
    total = sgd_config.epochs * len(train) + len(test)
    course = _ProbeCheckpoint(checkpoint_file, sgd_config, asked.num_classes, say)
    learners, broken = course.classifiers, course.failed
    for step in _iter_feature_batches(
        encoder, train, views, feature_kinds, seed, sgd_config, loader, start_epoch=course.epochs_done
    ):
        course.save_if_due(step.epoch)
        for kind, x in step.features.items():
            if kind not in learners:
                learners[kind] = OnlineLinearClassifiers(x.shape[1], asked.num_classes, sgd_config)
            learners[kind].train_step(x, asked.train[step.videos], epoch=step.epoch)
        broken |= dict(step.failed)
        if progress is not None:
            progress(round(step.epoch * len(train)), total)
    course.save_if_due(sgd_config.epochs)
    so_far = len(train) * sgd_config.epochs
    tell = None if progress is None else lambda done: progress(so_far + done, total)
    ranks, test_broken = _test_classifiers(encoder, test, views, learners, asked, loader, tell)
    every = {name: reason for some in process_group.all_gather_object(broken) for name, reason in some.items()}
    course.delete()
    found = {
        kind: {target: TrueClassRanks(of, None).accuracy() for target, of in by_target.items()}
        for kind, by_target in ranks.items()
    }
    return OnlineProbeResult(found, every, test_broken)


class _ProbeLabels:
    """The labels of both halves.

    classes: of each target, those that training videos have. train: (videos, targets), their places among these, -1
    where unknown. counts: how many there are.
    """

    def __init__(self, train: VideoDataset, test: VideoDataset) -> None:
        self.classes: dict[str, np.ndarray] = {}
        columns = []
        for target, y in train.labels.items():
            for name, labels in (("training", y), ("test", test.labels[target])):
                if not (labels >= 0).any():
                    raise StillmotionError(
                        f"none of the {len(labels)} {name} videos has a label {target}; a probe needs labels on both "
                        "sides"
                    )
            known = np.unique(y[y >= 0])
            if len(known) < 2:
                raise StillmotionError(
                    f"all training videos have the same {target}; a probe needs at least two classes"
                )
            self.classes[target] = known
            columns.append(np.where(y >= 0, np.searchsorted(known, y), -1))
        self.train = torch.from_numpy(np.stack(columns, 1))
        self.test = test.labels
        self.num_classes = [len(known) for known in self.classes.values()]


class _FeatureBatch(NamedTuple):
    """What all ranks saw at a step: features (n, D) by kind, numbers of the videos (n,); epoch: how far it begins."""

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
    """The steps from the epoch `start_epoch` on, which is what they would be had those before been taken."""
    rank, world = process_group.get_rank(), process_group.get_world_size()
    if min(len(train), sgd_config.batch_size) < world:
        raise StillmotionError(
            f"{len(train)} training videos, {sgd_config.batch_size} a step, are fewer than {world} processes; start fewer"
        )
    size = min(loader.batch_size, videos_per_batch(encoder.eval_input, 1))
    steps = -(-len(train) // sgd_config.batch_size)

    def shares() -> Iterator[tuple[int, int, list[np.ndarray]]]:
        """Epoch, step and the videos of each rank."""
        for epoch in range(start_epoch, sgd_config.epochs):
            order = np.random.default_rng((seed, epoch, _SHUFFLE_STREAM)).permutation(len(train))
            for step in range(steps):
                yield (
                    epoch,
                    step,
                    np.array_split(order[step * sgd_config.batch_size : (step + 1) * sgd_config.batch_size], world),
                )

    def keys() -> Iterator[Sequence[SampleKey]]:
        for epoch, _, ranks in shares():
            own = ranks[rank].tolist()
            yield from ([(epoch, i) for i in own[first : first + size]] for first in range(0, len(own), size))

    workers = loader.resolve_num_workers(train)
    batches = iter_batches(_training_clips(encoder, train, seed), keys(), num_videos=len(train), num_workers=workers)
    widths: dict[FeatureKind, int] = {}
    for epoch, step, ranks in shares():
        parts = [embed_batch(encoder, next(batches), views.precision) for _ in range(0, len(ranks[rank]), size)]
        found = concat_features(parts)
        if not widths:
            widths = {kind: found.vectors(kind).shape[-1] for kind in _available_kinds(found, feature_kinds)}
        own = [found.vectors(kind) if parts else np.empty((0, width), np.float32) for kind, width in widths.items()]
        counts = [len(some) for some in ranks]
        rows = collectives.all_gather_uneven(torch.from_numpy(np.concatenate(own, 1)), counts)
        index = collectives.all_gather_uneven(torch.from_numpy(found.index), counts)
        features = dict(zip(widths, rows.split(list(widths.values()), 1), strict=True))
        yield _FeatureBatch(features, index, epoch + step / steps, found.failed)


class _ProbeCheckpoint:
    """The classifiers on their way, and where they go on after an end before their time. epochs: done before."""

    def __init__(
        self, file: Path | None, sgd_config: SGDProbeConfig, num_classes: Sequence[int], say: Callable[[str], object]
    ) -> None:
        self._file, self._written = file, time.monotonic()
        self.classifiers: dict[FeatureKind, OnlineLinearClassifiers] = {}
        self.failed: dict[str, str] = {}
        self.epochs_done = 0
        found = process_group.run_on_main(lambda: load_arrays(file)) if file else None
        if found is None:
            return
        self.epochs_done, self.failed = found.metadata["epochs_done"], found.metadata["failed"]
        for kind in found.metadata["feature_kinds"]:
            state = {name: found.arrays[f"{kind}.{name}"] for name in STATE_KEYS}
            self.classifiers[kind] = OnlineLinearClassifiers(len(state["mean"]), num_classes, sgd_config)
            self.classifiers[kind].load_state_dict(state)

    def save_if_due(self, epoch: float) -> None:
        """Write them down where an epoch is over, now and then."""
        due = epoch == int(epoch) > self.epochs_done and time.monotonic() - self._written >= _SAVE_INTERVAL_SECONDS
        if self._file is None or process_group.get_rank() or not due:
            return
        arrays = {f"{kind}.{name}": x for kind, own in self.classifiers.items() for name, x in own.state_dict().items()}
        about = {"epochs_done": int(epoch), "feature_kinds": list(self.classifiers), "failed": self.failed}
        save_arrays(self._file, dict(sorted(arrays.items())), about)
        self._written = time.monotonic()

    def delete(self) -> None:
        if self._file is not None and process_group.get_rank() == 0:
            self._file.unlink(missing_ok=True)


def _available_kinds(features: Features, feature_kinds: Sequence[FeatureKind]) -> Sequence[FeatureKind]:
    return [kind for kind in feature_kinds if kind in features.kinds] or feature_kinds


def _training_clips(encoder: Encoder, train: VideoDataset, seed: int) -> TrainClipDataset:
    return TrainClipDataset(
        train, **encoder.eval_input.sampling, num_clips=1, augment=_augment(encoder.eval_input), seed=seed
    )


def _augment(input_config: InputConfig) -> "ClipAugmentation | _RandomFlip":
    """Scale, place and flip by chance; of frames that are shown entire the flip alone."""
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
    """Frames as a test shows them, half of the time mirrored."""

    crop: EvalCrop

    def __call__(self, clip: np.ndarray, rng: np.random.Generator) -> Tensor:
        return self.crop(clip[:, :, ::-1] if rng.random() < 0.5 else clip)[0]


def _test_classifiers(
    encoder: Encoder,
    test: VideoDataset,
    views: ClipViews,
    classifiers: Mapping[FeatureKind, OnlineLinearClassifiers],
    labels: _ProbeLabels,
    loader: LoaderConfig,
    tell: Callable[[int], object] | None,
) -> tuple[dict[FeatureKind, dict[str, np.ndarray]], dict[str, str]]:
    """By kind and target the ranks of the labelled test videos' own classes, and the videos that are unreadable."""
    own: dict[FeatureKind, dict[str, list[np.ndarray]]] = {
        kind: {t: [] for t in labels.classes} for kind in classifiers
    }
    broken: dict[str, str] = {}
    blocks = range(num_blocks(test))[process_group.get_rank() :: process_group.get_world_size()]
    done = 0
    for _, part in iter_features(encoder, test, views, blocks=blocks, loader=loader):
        broken |= dict(part.failed)
        done += len(part.index) + len(part.failed)
        if tell is not None:
            tell(min(done * process_group.get_world_size(), len(test)))
        if len(part.index) == 0:
            continue
        for kind, learner in classifiers.items():
            shares = learner.predict_proba(torch.from_numpy(part.vectors(kind, average=False)))
            for (target, classes), of in zip(labels.classes.items(), shares, strict=True):
                y = labels.test[target][part.index]
                own[kind][target].append(true_class_ranks(of[y >= 0], classes, y[y >= 0]))
    everyone = process_group.all_gather_object((own, broken))
    unread = {name: reason for _, some in everyone for name, reason in some.items()}
    raise_if_none_readable(unread, len(test), "test videos")
    joined = {
        kind: {target: np.concatenate([of for some, _ in everyone for of in some[kind][target]]) for target in by}
        for kind, by in own.items()
    }
    return joined, unread
