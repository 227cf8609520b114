"""Action detection: an encoder and a head on boxes, trained end to end on key frames, and tested.

What is drawn for a key frame (its crop, its dropout) is a function of (seed, epoch, key frame). The loss is the mean
over all boxes of all ranks, however they are shared out. Batch norm is over all ranks on CUDA and each rank's own
elsewhere, as in pre-training.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from stillmotion import distributed
from stillmotion.data.acting import ActingSet
from stillmotion.data.augment import Augment, CenterCrops, augment
from stillmotion.data.ava import AvaSet, write_boxes
from stillmotion.data.keyframes import ActionSet, BoxRows, KeyFrameClips, KeyFrameTests, stacked
from stillmotion.data.loader import Batch, ClipLoader, eval_loader
from stillmotion.downstream.start import RESULTS, Watch, start, unwatched
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.detection import detection_results
from stillmotion.evaluate.encoders import named, read_spec
from stillmotion.evaluate.features import Progress
from stillmotion.nn.detector import Detector
from stillmotion.optim.optimizers import build_optimizer
from stillmotion.train import checkpoint
from stillmotion.train.detect_config import ActionsConfig, DetectConfig
from stillmotion.train.folder import open_folder
from stillmotion.train.log import RunLog
from stillmotion.train.precision import ScaledRun, autocast
from stillmotion.train.process import computing, synchronise_norms
from stillmotion.train.run import decoders, shared_loader

DETECTIONS = "detections.csv"
_DROPOUT = 31  # what a generator is for, beside seed, epoch and key frame


def detect(config: DetectConfig, out: str | Path, *, watch: Watch = unwatched) -> Path:
    """Train and test as `config` says and return the run folder; a folder with an unfinished run is resumed.

    watch: given a word for what goes on, shows its progress; for the test, which may be long.
    Under `torchrun` every process calls this; the first one writes.
    """
    if not config.encoder:
        raise StillmotionError("no encoder given; add --encoder RUN (or a recipe's name, for its untrained network)")
    if not config.data.path:
        raise StillmotionError("no videos given; add --data FOLDER of AVA (or --data acting to try)")
    config = replace(config, encoder=named(read_spec(config.encoder)))
    folder = Path(out)
    with computing(config.train) as device:
        run = _Detecting(config, folder, device)
        first = distributed.rank() == 0
        if run.done < run.total and first:
            (folder / RESULTS).unlink(missing_ok=True)
        run.train()
        if not (folder / RESULTS).exists():
            with watch("testing") if first else contextlib.nullcontext() as progress:
                found, broken = run.test(progress)
            if first:
                write_boxes(folder / DETECTIONS, found)
                (folder / RESULTS).write_text(json.dumps(run.results(found, broken), indent=1))
        distributed.barrier()
    return folder


def open_actions(config: ActionsConfig, *, seed: int, train: bool) -> ActionSet:
    """The key frames to train or to test on."""
    if config.path == "acting":
        return ActingSet(config.acting, seed=seed, train=train, score=config.score, overlap=config.overlap)
    return AvaSet(
        config.path,
        "train" if train else "val",
        annotations=config.annotations,
        train=train,
        score=config.score,
        overlap=config.overlap,
        start=config.start,
    )


class _Detecting(ScaledRun):
    """A detector, its optimiser and key frames."""

    method: Detector

    def __init__(self, config: DetectConfig, folder: Path, device: torch.device) -> None:
        super().__init__(folder, device, config.optim, config.train)
        self.config, self.counted = config, config.optim.batch
        self.videos = open_actions(config.data, seed=config.train.seed, train=True)
        self.tests = open_actions(config.data, seed=config.train.seed, train=False)
        began = start(config.encoder, config.data, untrained=config.untrained, seed=config.train.seed)
        self.shown = began.told.data
        self.preset = augment(self.shown.augment, size=self.shown.size)
        self.loader = self._clips()
        open_folder(folder, config)
        torch.manual_seed(config.train.seed)
        self.method = Detector(began.backbone, len(self.videos.classes), config.head)
        synchronise_norms(self.method, device)
        self.method.to(device).train()
        self.weights = self.method.trainable()
        self.optimizer = build_optimizer(self.weights, config.optim, depth=self.method.depth)
        state = checkpoint.load_state(folder)
        if state is not None:
            self.resume(state)

    def advance(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        self.optimizer.zero_grad()
        parts = [next(batches) for _ in range(self.settings.accumulate)]
        boxes = torch.tensor(float(sum(len(own) for part in parts for own in part["boxes"])), device=self.device)
        distributed.average_([boxes])
        total = torch.zeros((), device=self.device)
        for part in parts:
            self.note_broken(part, log)
            loss = self._loss(part, epoch) / boxes.clamp(min=1)
            self.scaler.scale(loss).backward()
            total += loss.detach()
        distributed.average_([p.grad for p in self.weights.values() if p.grad is not None])
        return self.move({"loss/action": total})

    def test(self, progress: Progress | None = None) -> tuple[BoxRows, dict[str, str]]:
        """All scores of all boxes of the test key frames, and why videos could not be read."""
        distributed.broadcast_(self.method.buffers())  # the running statistics that the checkpoint holds
        shown, world = self.shown, distributed.world()
        side = self.config.data.test_size or shown.size * 8 // 7
        dataset = KeyFrameTests(
            self.tests,
            frames=shown.frames,
            stride=shown.stride,
            clips=1,
            crop=CenterCrops(side, side, mean=self.preset.mean, std=self.preset.std),
            step=self.method.backbone.size_step,
        )
        # One at a time: films differ in their frames' shape.
        loader = eval_loader(
            dataset, batch=1, workers=decoders(self.config.data.workers), rank=distributed.rank(), world=world
        )
        found: dict[int, np.ndarray] = {}
        broken: dict[str, str] = {}
        self.method.eval()
        for step, batch in enumerate(loader, 1):
            broken |= dict(batch["broken"])
            if len(batch["index"]):
                with torch.inference_mode(), autocast(self.device, self.settings.precision):
                    scores = self.method(*stacked(batch, self.device)).float().sigmoid()
                found[int(batch["index"])] = scores.cpu().numpy()
            if progress is not None:
                progress(min(step * world, len(dataset)), len(dataset))
        self.method.train()
        for others, reasons in distributed.gather_objects((found, broken)):
            found |= others
            broken |= reasons
        return _rows(self.tests, found), broken

    def results(self, found: BoxRows, broken: dict[str, str]) -> dict[str, Any]:
        """What is written of a finished run."""
        config = self.config
        return {
            "encoder": config.encoder,
            "untrained": config.untrained,
            "frozen": config.head.frozen,
            "data": config.data.path,
            "train_key_frames": len(self.videos),
            "train_boxes": self.videos.source,
            "test_key_frames": len(self.tests),
            "test_boxes": self.tests.source,
            "steps": self.done,
            "seed": self.settings.seed,
            **detection_results(self.tests.truth, found, self.tests.classes, broken),
            "missing": [*self.videos.missing, *self.tests.missing],
            "broken": self.broken | broken,
        }

    def _loss(self, batch: Batch, epoch: int) -> Tensor:
        """The binary cross entropy of a batch: the mean over actions, summed over boxes."""
        clips, boxes = stacked(batch, self.device)
        actions = torch.cat(batch["actions"]).to(self.device)
        counts = [len(own) for own in boxes]
        kept = self._kept(batch["index"].tolist(), counts, epoch) if self.config.head.dropout else None
        with autocast(self.device, self.settings.precision):
            scores = self.method(clips, boxes, kept).float()
        return F.binary_cross_entropy_with_logits(scores, actions, reduction="sum") / actions.shape[1]

    def _kept(self, frames: list[int], boxes: list[int], epoch: int) -> Tensor:
        """Dropout's factors (N, D)."""
        rate, width = self.config.head.dropout, self.method.backbone.width
        draws = [
            np.random.default_rng((self.settings.seed, epoch, frame, _DROPOUT)).random((count, width), np.float32)
            for frame, count in zip(frames, boxes, strict=True)
        ]
        return torch.from_numpy((np.concatenate(draws) >= rate) / np.float32(1 - rate)).to(self.device)

    def _clips(self) -> ClipLoader:
        config, data, shown = self.config, self.config.data, self.shown
        least, most = data.short_side if any(data.short_side) else (shown.size * 8 // 7, shown.size * 10 // 7)
        if not shown.size <= least <= most:
            raise StillmotionError(
                f"frames are resized to a shorter edge of {least} to {most} and cut to {shown.size}; "
                "raise --data.short-side or lower --data.size"
            )
        dataset = KeyFrameClips(
            self.videos,
            frames=shown.frames,
            stride=shown.stride,
            clips=1,
            augment=Augment(shown.size, area=None, flip=data.flip, mean=self.preset.mean, std=self.preset.std),
            seed=config.train.seed,
            strict=data.strict,
            short_side=(least, most),
        )
        return shared_loader(dataset, config.optim, config.train, workers=data.workers)


def _rows(videos: ActionSet, found: dict[int, np.ndarray]) -> BoxRows:
    """Scores (n, C) of the boxes of each key frame as rows, one for each box and action."""
    numbers = sorted(found)
    keys = [videos.frames.keys[i] for i in numbers for _ in range(found[i].size)]
    boxes = [np.repeat(videos.frames[i][0], len(videos.classes), 0) for i in numbers]
    actions = np.tile(list(videos.classes), sum(len(found[i]) for i in numbers))
    scores = [found[i].ravel() for i in numbers]
    return BoxRows(
        keys,
        np.concatenate([np.zeros((0, 4)), *boxes]),
        actions.astype(int),
        np.concatenate([np.zeros(0), *scores]),
    )
