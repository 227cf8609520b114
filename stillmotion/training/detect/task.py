"""Action detection: an encoder and a head on boxes, trained end to end on key frames, and tested.

What is drawn for a key frame (its crop, its dropout) is a function of (seed, epoch, key frame). The loss is the mean
over all boxes of all ranks, however they are shared out. Batch norm is over all ranks, as in
pre-training."""

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
from stillmotion.training.encoder_file import write_encoder_file
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.metrics.detection_map import detection_metrics
from stillmotion.models.detector import ActionDetector
from stillmotion.planning.dry_run import format_run_cost, measure_training
from stillmotion.training.detect.config import DetectConfig, DetectDataConfig
from stillmotion.training.downstream import check_run, load_initial_encoder, run_downstream, seeded_dropout_mask
from stillmotion.training.model_setup import prepare_model
from stillmotion.training.run_dir import open_run_dir
from stillmotion.training.run_log import RunLog
from stillmotion.training.trainer import Trainer, build_train_loader, num_decode_workers
from stillmotion.utils import files
from stillmotion.utils.device import autocast
from stillmotion.utils.formatting import LabelValue
from stillmotion.utils.progress import report_progress

DETECTIONS_FILE = "detections.csv"
_RNG_DROPOUT = 31  # what a generator is for, beside seed, epoch and key frame


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
    """The key frames to train or to test on."""
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


class DetectTrainer(Trainer):
    """A detector, its optimiser and key frames."""

    model: ActionDetector

    def __init__(self, config: DetectConfig, run_dir: Path, device: torch.device) -> None:
        super().__init__(config, run_dir, device)
        self.config = config
        self.train_set = open_action_dataset(config.data, seed=config.train.seed, train=True)
        self.test_set = open_action_dataset(config.data, seed=config.train.seed, train=False)
        began = load_initial_encoder(config, config.data)
        self.input_config = began.input_config
        self.loader = self._build_loader()
        open_run_dir(run_dir, config)
        process_group.run_on_main(lambda: write_encoder_file(run_dir, began))
        self.record_dataset(self.train_set, root=config.data.path)
        torch.manual_seed(config.train.seed)
        method = ActionDetector(began.backbone, len(self.train_set.actions), config.head)
        prepare_model(method, began.backbone, config.train, device)
        self.setup(method, method.trainable_parameters(), layer_depth=method.layer_depth)

    def train_step(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        self.optimizer.zero_grad()
        parts = [next(batches) for _ in range(self.train_config.grad_accum_steps)]
        boxes = torch.tensor(float(sum(len(own) for part in parts for own in part["boxes"])), device=self.device)
        collectives.all_reduce_mean_([boxes])
        total = torch.zeros((), device=self.device)
        for part in parts:
            self.record_failed_videos(part, log)
            self.check_input(part["clips"])
            loss = self._loss(part, epoch) / boxes.clamp(min=1)
            self.backward(loss)
            total += loss.detach()
        return self.optimizer_step({"loss/binary_cross_entropy": total})

    def test(self) -> dict[str, Any]:
        """Average precision on the test key frames; all scores of all their boxes are written beside it."""
        found, broken = self._predict()
        file = self.run_dir / DETECTIONS_FILE
        process_group.run_on_main(lambda: files.write_atomic(file, lambda partial: write_box_csv(partial, found)))
        return self._build_results(found, broken)

    def _predict(self) -> tuple[BoxTable, dict[str, str]]:
        """All scores of all boxes of the test key frames, and why videos could not be read."""
        collectives.broadcast_(self.model.buffers())  # the running statistics that the checkpoint holds
        intake, world = self.input_config, process_group.get_world_size()
        side = self.config.data.test_short_side or intake.image_size * 8 // 7
        dataset = KeyframeEvalDataset(
            self.test_set,
            **intake.sampling,
            num_clips=1,
            crop=EvalCrop(side, side, 1, *intake.normalization),
            size_divisor=self.model.backbone.size_divisor,
        )
        # One at a time: films differ in their frames' shape.
        loader = iter_eval_batches(
            dataset,
            batch_size=1,
            num_workers=num_decode_workers(self.config.data.num_workers),
            rank=process_group.get_rank(),
            world_size=world,
        )
        found: dict[int, np.ndarray] = {}
        broken: dict[str, str] = {}
        self.model.eval()
        for step, batch in enumerate(loader, 1):
            broken |= dict(batch["failed"])
            if len(batch["index"]):
                with torch.inference_mode(), autocast(self.device, self.train_config.precision):
                    scores = self.model(*clips_and_boxes_to(batch, self.device)).float().sigmoid()
                found[int(batch["index"])] = scores.cpu().numpy()
            report_progress(min(step * world, len(dataset)), len(dataset))
        self.model.train()
        for others, reasons in process_group.all_gather_object((found, broken)):
            found |= others
            broken |= reasons
        return _to_box_rows(self.test_set, found), broken

    def _build_results(self, found: BoxTable, failed: dict[str, str]) -> dict[str, Any]:
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
            **detection_metrics(self.test_set.annotated_boxes, found, self.test_set.actions, failed),
            "missing_videos": [*self.train_set.missing_videos, *self.test_set.missing_videos],
            "failed": self.failed_videos | failed,
        }

    def _loss(self, batch: Batch, epoch: int) -> Tensor:
        """The binary cross entropy of a batch: the mean over actions, summed over boxes."""
        clips, boxes = clips_and_boxes_to(batch, self.device)
        actions = torch.cat(batch["actions"]).to(self.device)
        counts = [len(own) for own in boxes]
        kept = self._dropout_mask(batch["index"].tolist(), counts, epoch) if self.config.head.dropout else None
        with autocast(self.device, self.train_config.precision):
            scores = self.model(clips, boxes, kept).float()
        return F.binary_cross_entropy_with_logits(scores, actions, reduction="sum") / actions.shape[1]

    def _dropout_mask(self, keyframes: list[int], num_boxes: list[int], epoch: int) -> Tensor:
        """Return dropout factors (N, D) of the boxes' features."""
        seeds = [(self.train_config.seed, epoch, keyframe, _RNG_DROPOUT) for keyframe in keyframes]
        dim, rate = self.model.classifier.in_features, self.config.head.dropout
        return seeded_dropout_mask(seeds, num_boxes, dim, rate).to(self.device)

    def _build_loader(self) -> ClipLoader:
        config, data, intake = self.config, self.config.data, self.input_config
        mean, std = intake.normalization
        least, most = (
            data.train_short_side
            if any(data.train_short_side)
            else (intake.image_size * 8 // 7, intake.image_size * 10 // 7)
        )
        if not intake.image_size <= least <= most:
            raise StillmotionError(
                f"frames are resized to a shorter edge of {least} to {most} and cut to {intake.image_size}; "
                "raise --data.train-short-side or lower --data.image-size"
            )
        dataset = KeyframeTrainDataset(
            self.train_set,
            **intake.sampling,
            num_clips=1,
            augment=ClipAugmentation(intake.image_size, scale=None, flip_p=data.flip_prob, mean=mean, std=std),
            seed=config.train.seed,
            strict=data.fail_on_unreadable,
            short_side=(least, most),
        )
        return build_train_loader(dataset, config.optim, config.train, num_workers=data.num_workers)


def _to_box_rows(dataset: ActionDetectionDataset, found: dict[int, np.ndarray]) -> BoxTable:
    """Scores (n, C) of the boxes of each key frame as rows, one for each box and action."""
    numbers = sorted(found)
    keys = [dataset.keyframes.keyframes[i] for i in numbers for _ in range(found[i].size)]
    boxes = [np.repeat(dataset.keyframes[i][0], len(dataset.actions), 0) for i in numbers]
    actions = np.tile(list(dataset.actions), sum(len(found[i]) for i in numbers))
    scores = [found[i].ravel() for i in numbers]
    return BoxTable(
        keys,
        np.concatenate([np.zeros((0, 4)), *boxes]),
        actions.astype(int),
        np.concatenate([np.zeros(0), *scores]),
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
