"""Fine-tuning: train an encoder and a new classifier end to end on labels, and test them.

All randomness of a video (clip, dropout, mixup) is a function of (seed, epoch, video). Batch norm is synchronized over
ranks, as in pre-training.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.datasets.splits import ClassificationSplit, open_classification_split
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.loading.clip_dataset import TrainClipDataset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.loading.loader import ClipLoader
from stillmotion.distributed import collectives, process_group
from stillmotion.encoders import Encoder
from stillmotion.errors import StillmotionError
from stillmotion.functional.classification import mixup_pairs, smooth_one_hot, soft_cross_entropy, topk_accuracy
from stillmotion.models.freeze import unfreeze
from stillmotion.models.heads import VideoClassifier, count_time_steps
from stillmotion.planning.dry_run import format_run_cost, measure_training
from stillmotion.training.downstream import (
    DownstreamTrainer,
    check_run,
    load_initial_encoder,
    open_downstream_run,
    run_downstream,
    train_and_test,
)
from stillmotion.training.finetune.config import ClassifierConfig, FinetuneConfig, FinetuneDataConfig
from stillmotion.training.finetune.evaluate import classification_metrics, predict_videos
from stillmotion.training.run_dir import (
    RESULTS_FILE,
    load_results,
    lock_run_dir,
    resolve_run_precision,
)
from stillmotion.training.run_log import RunLog
from stillmotion.training.run_setup import build_train_loader, num_decode_workers, prepare_model
from stillmotion.training.runtime import training_session
from stillmotion.utils import files
from stillmotion.utils.device import autocast
from stillmotion.utils.formatting import LabelValue

_RNG_DROPOUT, _RNG_MIXUP = 21, 22  # purpose of a generator, in its seed


def finetune(config: FinetuneConfig, run_dir: str | Path) -> Path:
    """Fine-tune and test an encoder; a folder with an unfinished run is resumed.

    Under torchrun every process calls this; the first writes.

    Args:
        config: Config of the run.
        run_dir: Run folder.

    Returns:
        The run folder.
    """
    return run_downstream(FinetuneTrainer, _check_run(config, run_dir), run_dir)


def _check_run(config: FinetuneConfig, run_dir: str | Path) -> FinetuneConfig:
    return check_run(config, run_dir, config.data.path, config.data.annotations)


def _open_dataset(data: FinetuneDataConfig) -> ClassificationSplit:
    return open_classification_split(
        data.train_test_config(), target=data.target, per_class=data.videos_per_class, synthetic=data.synthetic
    )


def _build_classifier(encoder: Encoder, num_classes: int, head: ClassifierConfig) -> VideoClassifier:
    """Return the encoder's network under a new head."""
    clip, num_steps = encoder.input_config, 1
    if head.pool == "concat":
        num_steps = count_time_steps(encoder.backbone, num_frames=clip.num_frames, image_size=clip.image_size)
    return VideoClassifier(encoder.backbone, num_classes, pool=head.pool, num_steps=num_steps)


def finetune_folds(config: FinetuneConfig, output_dir: str | Path, folds: Sequence[int]) -> Path:
    """Run `finetune` on each fold of a data set, and write the means over folds.

    Args:
        config: Config of each run, without the fold.
        output_dir: Folder for the run folders fold1, fold2, … and results.json.
        folds: Folds.

    Returns:
        The folder.

    Raises:
        StillmotionError: Two folds are the same.
    """
    config, folder = _check_run(config, output_dir), Path(output_dir)
    check_folds_differ(config, folds)
    with training_session(config.train) as device, lock_run_dir(folder):
        results: dict[str, Any] = {}
        for fold in folds:
            fold_config, run_dir = _with_fold(config, fold), folder / f"fold{fold}"
            with lock_run_dir(run_dir):
                trainer = FinetuneTrainer(resolve_run_precision(fold_config, run_dir, device), run_dir, device)
                results[str(fold)] = load_results(train_and_test(trainer))
        means = {
            name: float(np.mean([result[name] for result in results.values()]))
            for name in ("top1", "top5", "mean_class_accuracy")
        }
        process_group.run_on_main(lambda: files.write_json(folder / RESULTS_FILE, means | {"folds": results}))
    return folder


def _with_fold(config: FinetuneConfig, fold: int) -> FinetuneConfig:
    return replace(config, data=replace(config.data, fold=fold))


def check_folds_differ(config: FinetuneConfig, folds: Sequence[int]) -> None:
    """Raise an error if two folds have the same test videos.

    Args:
        config: Config of the run.
        folds: Folds.
    """
    fold_of: dict[frozenset[str], int] = {}
    for fold in folds:
        test = _open_dataset(_with_fold(config, fold).data).test
        same = fold_of.setdefault(frozenset(test.name(i) for i in range(len(test))), fold)
        if same != fold:
            raise StillmotionError(f"folds {same} and {fold} of {config.data.path} are the same; leave --folds out")


class FinetuneTrainer(DownstreamTrainer):
    """Trainer of a video classifier."""

    model: VideoClassifier

    def __init__(self, config: FinetuneConfig, run_dir: Path, device: torch.device) -> None:
        super().__init__(config, run_dir, device)
        self.config = config
        self.videos = _open_dataset(config.data)
        # Labels of the items of an epoch.
        self.labels = torch.from_numpy(np.tile(self.videos.train_labels, config.data.clips_per_video))
        encoder = load_initial_encoder(config)
        self.input_config = encoder.input_config
        self.loader = self._build_loader()
        open_downstream_run(run_dir, config, encoder)
        names = [self.videos.classes[i] for i in self.videos.train_labels]
        self.record_dataset(self.videos.train, root=config.data.path, labels=names)
        torch.manual_seed(config.train.seed)
        unfreeze(encoder.backbone, config.head.unfreeze)
        model = _build_classifier(encoder, len(self.videos.classes), config.head)
        prepare_model(model, encoder.backbone, config.train, device)
        torch.manual_seed(config.train.seed * 1009 + process_group.get_rank() + 1)
        weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.setup(model, weights, layer_depth=model.layer_depth)

    def train_step(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        if self.global_step == 0:
            self._report_frozen_params(log)
        self.optimizer.zero_grad()
        num_parts = self.train_config.grad_accum_steps
        metrics = torch.zeros(2, device=self.device)
        for _ in range(num_parts):
            batch = next(batches)
            self.check_batch(batch)
            loss, accuracy = self._loss(batch, epoch)
            self.backward(loss / num_parts)
            metrics += torch.stack([loss.detach(), accuracy]) / num_parts
        return self.optimizer_step({"loss/cross_entropy": metrics[0], "train_accuracy": metrics[1]})

    def test(self) -> dict[str, Any]:
        """Return the accuracy on the test videos, averaged over their clips."""
        collectives.broadcast_(self.model.buffers())  # running statistics, as in the checkpoint
        videos, data = self.videos, self.config.data
        indices, probabilities, failed = predict_videos(
            self.model,
            videos.test,
            self.input_config,
            num_clips=data.num_test_clips,
            num_crops=data.num_test_crops,
            full_frame_crops=data.test_full_frame,
            num_workers=num_decode_workers(data.num_workers),
        )
        labels = videos.test_labels[indices]
        majority = np.bincount(videos.train_labels).argmax()
        return {
            "encoder": self.config.encoder,
            "from_scratch": self.config.from_scratch,
            "data": data.path,
            "target": videos.target,
            "pool": self.config.head.pool,
            "unfreeze": self.config.head.unfreeze,
            "split_description": videos.description,
            "classes": videos.classes,
            "train_videos": len(videos.train),
            "test_videos": len(indices),
            "steps": self.global_step,
            "seed": self.train_config.seed,
            "num_test_clips": data.num_test_clips,
            "num_test_crops": data.num_test_crops,
            **classification_metrics(probabilities, labels, videos.classes),
            "majority_accuracy": float((labels == majority).mean()),
            "failed": dict(failed),
        }

    def _loss(self, batch: Batch, epoch: int) -> tuple[Tensor, Tensor]:
        """Return the cross entropy of a batch, and the top-1 accuracy, for mixed videos of the larger label."""
        head, videos = self.config.head, batch["index"].tolist()
        clips = batch["clips"][:, 0].to(self.device, non_blocking=True)
        targets = smooth_one_hot(self.labels[batch["index"]], len(self.videos.classes), smoothing=head.label_smoothing)
        targets = targets.to(self.device)
        if head.mixup_alpha:
            alpha = head.mixup_alpha
            fractions = torch.tensor([self._rng(v, epoch, _RNG_MIXUP).beta(alpha, alpha) for v in videos[::2]])
            clips, targets = mixup_pairs(clips, fractions), mixup_pairs(targets, fractions)
        mask = self._dropout_mask(videos, epoch) if head.dropout else None
        with autocast(self.device, self.train_config.precision):
            logits = self.model(clips, mask).float()
        accuracy = topk_accuracy(logits.detach(), targets.argmax(1), 1)
        return soft_cross_entropy(logits, targets), torch.tensor(accuracy, device=self.device)

    def _dropout_mask(self, videos: list[int], epoch: int) -> Tensor:
        """Return dropout factors of the pooled features."""
        dim, rate = self.model.head.in_features, self.config.head.dropout
        return self.dropout_mask(videos, [1] * len(videos), epoch, dim=dim, rate=rate, purpose=_RNG_DROPOUT)

    def _rng(self, video: int, epoch: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.train_config.seed, epoch, video, purpose))

    def _build_loader(self) -> ClipLoader:
        config, data, clip = self.config, self.config.data, self.input_config
        train = self.videos.train
        dataset = TrainClipDataset(
            Subset(train.dataset, np.tile(train.indices, data.clips_per_video)),
            **clip.sampling,
            num_clips=1,
            augment=data.augment.build(clip.image_size, clip.normalization),
            seed=config.train.seed,
            strict=data.fail_on_unreadable,
        )
        return build_train_loader(
            dataset,
            config.optim,
            config.train,
            num_workers=data.num_workers,
            group_size=2 if config.head.mixup_alpha else 1,
        )

    def _report_frozen_params(self, log: RunLog) -> None:
        frozen = sum(p.numel() for p in self.model.parameters() if not p.requires_grad)
        if frozen:
            total = sum(p.numel() for p in self.model.parameters())
            log.info(f"{frozen} of {total} weights are frozen (--head.unfreeze)")


def plan_finetune(config: FinetuneConfig, output_dir: str | Path, folds: Sequence[int] = ()) -> list[LabelValue]:
    """Estimate `finetune`, or `finetune_folds`, whose folds take as long as the first.

    Args:
        config: Config of the run.
        output_dir: Run folder, or folder of the folds.
        folds: Folds.

    Returns:
        Rows of label and value.
    """
    config = _check_run(config, output_dir)
    run_dir = Path(output_dir)
    if folds:
        check_folds_differ(config, folds)
        config, run_dir = _with_fold(config, folds[0]), run_dir / f"fold{folds[0]}"
    cost, trainer = measure_training(FinetuneTrainer, config, run_dir)
    num_clips = len(trainer.videos.test) * config.data.num_test_clips * config.data.num_test_crops
    return format_run_cost(cost, batch_size=config.optim.batch_size, num_test_clips=num_clips, num_runs=len(folds) or 1)
