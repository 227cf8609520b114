"""Action detection: train an encoder and a box classifier end to end on key frames, and test them.

All randomness of a key frame (crop, dropout) is a function of (seed, epoch, key frame). The loss is the mean over the
boxes of all ranks. Batch norm is synchronized over ranks, as in pre-training.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from stillmotion.data.datasets.ava import ActionDetectionDataset, AVADataset, BoxTable, write_box_csv
from stillmotion.data.loading.collate import Batch
from stillmotion.data.loading.keyframe_clips import KeyframeEvalDataset, KeyframeTrainDataset, clips_and_boxes_to
from stillmotion.data.loading.loader import ClipLoader, iter_eval_batches
from stillmotion.data.synthetic.ava import SyntheticAVADataset
from stillmotion.data.transforms.augment import ClipAugmentation, EvalCrop
from stillmotion.distributed import collectives, process_group
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.metrics.detection_map import detection_metrics
from stillmotion.models.detector import ActionDetector
from stillmotion.planning.dry_run import format_run_cost, measure_training
from stillmotion.training.detect.config import DetectConfig, DetectDataConfig
from stillmotion.training.downstream import (
    DownstreamTrainer,
    check_run,
    load_initial_encoder,
    open_downstream_run,
    run_downstream,
)
from stillmotion.training.run_log import RunLog
from stillmotion.training.run_setup import build_train_loader, num_decode_workers, prepare_model
from stillmotion.utils import files
from stillmotion.utils.device import autocast
from stillmotion.utils.formatting import LabelValue
from stillmotion.utils.progress import report_progress

DETECTIONS_FILE = "detections.csv"
_RNG_DROPOUT = 31  # purpose of a generator, in its seed


def detect(config: DetectConfig, run_dir: str | Path) -> Path:
    """Train and test an action detector; a folder with an unfinished run is resumed.

    Under torchrun every process calls this; the first writes.

    Args:
        config: Config of the run.
        run_dir: Run folder.

    Returns:
        The run folder.
    """
    return run_downstream(DetectTrainer, _check_run(config, run_dir), run_dir)


def _check_run(config: DetectConfig, run_dir: str | Path) -> DetectConfig:
    return check_run(config, run_dir, config.data.path, config.data.annotations)


def open_action_dataset(config: DetectDataConfig, *, seed: int, train: bool) -> ActionDetectionDataset:
    """Open the training or the test key frames.

    Args:
        config: Config of the data.
        seed: Seed of synthetic videos.
        train: Whether to open the training set.
    """
    if config.path == "synthetic":
        return SyntheticAVADataset(
            config.synthetic, seed=seed, train=train, min_score=config.min_box_score, min_iou=config.min_box_iou
        )
    return AVADataset(
        config.path,
        "train" if train else "val",
        annotations=config.annotations,
        train=train,
        min_score=config.min_box_score,
        min_iou=config.min_box_iou,
        start_seconds=config.start_second,
    )


class DetectTrainer(DownstreamTrainer):
    """Trainer of an action detector."""

    model: ActionDetector

    def __init__(self, config: DetectConfig, run_dir: Path, device: torch.device) -> None:
        super().__init__(config, run_dir, device)
        self.config = config
        self.train_set = open_action_dataset(config.data, seed=config.train.seed, train=True)
        self.test_set = open_action_dataset(config.data, seed=config.train.seed, train=False)
        encoder = load_initial_encoder(config)
        self.input_config = encoder.input_config
        self.loader = self._build_loader()
        open_downstream_run(run_dir, config, encoder)
        self.record_dataset(self.train_set, root=config.data.path)
        torch.manual_seed(config.train.seed)
        model = ActionDetector(encoder.backbone, len(self.train_set.actions), config.head)
        prepare_model(model, encoder.backbone, config.train, device)
        self.setup(model, model.trainable_parameters(), layer_depth=model.layer_depth)

    def train_step(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        self.optimizer.zero_grad()
        parts = [next(batches) for _ in range(self.train_config.grad_accum_steps)]
        num_boxes = torch.tensor(
            float(sum(len(boxes) for part in parts for boxes in part["boxes"])), device=self.device
        )
        collectives.all_reduce_mean_([num_boxes])
        total = torch.zeros((), device=self.device)
        for part in parts:
            self.check_batch(part)
            loss = self._loss(part, epoch) / num_boxes.clamp(min=1)
            self.backward(loss)
            total += loss.detach()
        return self.optimizer_step({"loss/binary_cross_entropy": total})

    def test(self) -> dict[str, Any]:
        """Return average precisions on the test key frames, and write the scores of all boxes."""
        detections, failed = self._predict()
        file = self.run_dir / DETECTIONS_FILE
        process_group.run_on_main(lambda: files.write_atomic(file, lambda partial: write_box_csv(partial, detections)))
        return self._build_results(detections, failed)

    def _predict(self) -> tuple[BoxTable, dict[str, str]]:
        """Return the scores of all test boxes, and name and reason of unreadable videos."""
        collectives.broadcast_(self.model.buffers())  # running statistics, as in the checkpoint
        clip, world_size = self.input_config, process_group.get_world_size()
        side = self.config.data.test_short_side or clip.image_size * 8 // 7
        dataset = KeyframeEvalDataset(
            self.test_set,
            **clip.sampling,
            num_clips=1,
            crop=EvalCrop(side, side, 1, *clip.normalization),
            size_divisor=self.model.backbone.size_divisor,
        )
        # One at a time, because frame sizes differ.
        loader = iter_eval_batches(
            dataset,
            batch_size=1,
            num_workers=num_decode_workers(self.config.data.num_workers),
            rank=process_group.get_rank(),
            world_size=world_size,
        )
        scores: dict[int, np.ndarray] = {}
        failed: dict[str, str] = {}
        self.model.eval()
        for step, batch in enumerate(loader, 1):
            failed |= dict(batch["failed"])
            if len(batch["index"]):
                with torch.inference_mode(), autocast(self.device, self.train_config.precision):
                    probabilities = self.model(*clips_and_boxes_to(batch, self.device)).float().sigmoid()
                scores[int(batch["index"])] = probabilities.cpu().numpy()
            report_progress(min(step * world_size, len(dataset)), len(dataset))
        self.model.train()
        for rank_scores, rank_failed in process_group.all_gather_object((scores, failed)):
            scores |= rank_scores
            failed |= rank_failed
        return _to_box_rows(self.test_set, scores), failed

    def _build_results(self, detections: BoxTable, failed: dict[str, str]) -> dict[str, Any]:
        config = self.config
        return {
            "encoder": config.encoder,
            "from_scratch": config.from_scratch,
            "frozen_backbone": config.head.freeze_backbone,
            "data": config.data.path,
            "train_key_frames": len(self.train_set),
            "train_box_source": self.train_set.box_source,
            "test_key_frames": len(self.test_set),
            "test_box_source": self.test_set.box_source,
            "steps": self.global_step,
            "seed": self.train_config.seed,
            **detection_metrics(self.test_set.annotated_boxes, detections, self.test_set.actions, failed),
            "missing_videos": [*self.train_set.missing_videos, *self.test_set.missing_videos],
            "failed": self.data_warnings.failed_videos | failed,
        }

    def _loss(self, batch: Batch, epoch: int) -> Tensor:
        """Return the binary cross entropy of a batch: the mean over actions, summed over boxes."""
        clips, boxes = clips_and_boxes_to(batch, self.device)
        actions = torch.cat(batch["actions"]).to(self.device)
        counts = [len(clip_boxes) for clip_boxes in boxes]
        mask = self._dropout_mask(batch["index"].tolist(), counts, epoch) if self.config.head.dropout else None
        with autocast(self.device, self.train_config.precision):
            logits = self.model(clips, boxes, mask).float()
        return F.binary_cross_entropy_with_logits(logits, actions, reduction="sum") / actions.shape[1]

    def _dropout_mask(self, keyframes: list[int], num_boxes: list[int], epoch: int) -> Tensor:
        """Return dropout factors (N, D) of the boxes' features."""
        dim, rate = self.model.classifier.in_features, self.config.head.dropout
        return self.dropout_mask(keyframes, num_boxes, epoch, dim=dim, rate=rate, purpose=_RNG_DROPOUT)

    def _build_loader(self) -> ClipLoader:
        config, data, clip = self.config, self.config.data, self.input_config
        mean, std = clip.normalization
        low, high = data.train_short_side
        if not (low or high):
            low, high = clip.image_size * 8 // 7, clip.image_size * 10 // 7
        if not clip.image_size <= low <= high:
            raise StillmotionError(
                f"frames are resized to a short side of {low} to {high} and cut to {clip.image_size}; "
                "raise --data.train-short-side or lower --data.image-size"
            )
        dataset = KeyframeTrainDataset(
            self.train_set,
            **clip.sampling,
            num_clips=1,
            augment=ClipAugmentation(clip.image_size, scale=None, flip_p=data.flip_prob, mean=mean, std=std),
            seed=config.train.seed,
            strict=data.fail_on_unreadable,
            short_side=(low, high),
        )
        return build_train_loader(dataset, config.optim, config.train, num_workers=data.num_workers)


def _to_box_rows(dataset: ActionDetectionDataset, scores: dict[int, np.ndarray]) -> BoxTable:
    """Return scores (n, C) of the boxes of each key frame as rows, one for each box and action."""
    indices = sorted(scores)
    keys = [dataset.keyframes.keyframes[i] for i in indices for _ in range(scores[i].size)]
    boxes = [np.repeat(dataset.keyframes[i][0], len(dataset.actions), 0) for i in indices]
    actions = np.tile(list(dataset.actions), sum(len(scores[i]) for i in indices))
    flat_scores = [scores[i].ravel() for i in indices]
    return BoxTable(
        keys,
        np.concatenate([np.zeros((0, 4)), *boxes]),
        actions.astype(int),
        np.concatenate([np.zeros(0), *flat_scores]),
    )


def plan_detect(config: DetectConfig, run_dir: str | Path) -> list[LabelValue]:
    """Estimate `detect`.

    Args:
        config: Config of the run.
        run_dir: Run folder.

    Returns:
        Rows of label and value.
    """
    config = _check_run(config, run_dir)
    cost, trainer = measure_training(DetectTrainer, config, run_dir)
    return format_run_cost(cost, batch_size=config.optim.batch_size, num_test_clips=len(trainer.test_set))
