"""Action detection: an encoder and a head on boxes, trained end to end on key frames, and tested.

What is drawn for a key frame (its crop, its dropout) is a function of (seed, epoch, key frame). The loss is the mean
over all boxes of all ranks, however they are shared out. Batch norm is over all ranks, as in
pre-training.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from stillmotion import distributed, files
from stillmotion.config.detect import ActionsConfig, DetectConfig
from stillmotion.data.acting import ActingSet
from stillmotion.data.augment import Augment, CenterCrops
from stillmotion.data.ava import AvaSet, write_boxes
from stillmotion.data.keyframes import ActionSet, BoxRows, KeyFrameClips, KeyFrameTests, stacked
from stillmotion.data.loader import Batch, ClipLoader, eval_loader
from stillmotion.encoders import Progress
from stillmotion.encoders.runs import note_network
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.detection import detection_results
from stillmotion.nn.detector import Detector
from stillmotion.tasks.start import Watch, located, place_of, start, train_and_test, unwatched
from stillmotion.train.folder import held, open_folder, settled, spare_inputs
from stillmotion.train.log import RunLog
from stillmotion.train.network import readied
from stillmotion.train.precision import autocast
from stillmotion.train.process import computing
from stillmotion.train.run import Run, decoders, shared_loader

DETECTIONS = "detections.csv"
_DROPOUT = 31  # what a generator is for, beside seed, epoch and key frame


def detect(config: DetectConfig, out: str | Path, *, watch: Watch = unwatched) -> Path:
    """Train and test as `config` says and return the run folder; a folder with an unfinished run is resumed.

    watch: given a word for what goes on, shows its progress; for the test, which may be long.
    Under `torchrun` every process calls this; the first one writes.
    """
    config = located(config)
    if not config.data.path:
        raise StillmotionError("no videos given; add --data FOLDER of AVA (or --data acting to try)")
    spare_inputs(out, config.data.path, config.data.annotations, place_of(config.encoder))
    with computing(config.train) as device, held(out):
        return train_and_test(Detecting(settled(config, out, device), Path(out), device), watch)


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


class Detecting(Run):
    """A detector, its optimiser and key frames."""

    method: Detector

    def __init__(self, config: DetectConfig, folder: Path, device: torch.device) -> None:
        super().__init__(config, folder, device)
        self.config = config
        self.videos = open_actions(config.data, seed=config.train.seed, train=True)
        self.tests = open_actions(config.data, seed=config.train.seed, train=False)
        began = start(config, config.data)
        self.intake = began.intake
        self.loader = self._clips()
        open_folder(folder, config)
        distributed.on_first(lambda: note_network(folder, began))
        self.note_videos(self.videos, root=config.data.path)
        torch.manual_seed(config.train.seed)
        method = Detector(began.backbone, len(self.videos.actions), config.head)
        readied(method, began.backbone, config.train, device)
        self.equip(method, method.trainable(), depth=method.depth)

    def advance(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        self.optimizer.zero_grad()
        parts = [next(batches) for _ in range(self.settings.accumulate)]
        boxes = torch.tensor(float(sum(len(own) for part in parts for own in part["boxes"])), device=self.device)
        distributed.average_([boxes])
        total = torch.zeros((), device=self.device)
        for part in parts:
            self.note_broken(part, log)
            self.look_at(part["clips"])
            loss = self._loss(part, epoch) / boxes.clamp(min=1)
            self.differentiate(loss)
            total += loss.detach()
        return self.move({"loss/action": total})

    def test(self, progress: Progress | None = None) -> dict[str, Any]:
        """Average precision on the test key frames; all scores of all their boxes are written beside it."""
        found, broken = self._scored(progress)
        file = self.folder / DETECTIONS
        distributed.on_first(lambda: files.write(file, lambda partial: write_boxes(partial, found)))
        return self._results(found, broken)

    def _scored(self, progress: Progress | None) -> tuple[BoxRows, dict[str, str]]:
        """All scores of all boxes of the test key frames, and why videos could not be read."""
        distributed.broadcast_(self.method.buffers())  # the running statistics that the checkpoint holds
        intake, world = self.intake, distributed.world()
        side = self.config.data.test_size or intake.size * 8 // 7
        dataset = KeyFrameTests(
            self.tests,
            **intake.sampling,
            clips=1,
            crop=CenterCrops(side, side, 1, *intake.normalisation),
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

    def _results(self, found: BoxRows, broken: dict[str, str]) -> dict[str, Any]:
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
            **detection_results(self.tests.truth, found, self.tests.actions, broken),
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
        rate, width = self.config.head.dropout, self.method.classifier.in_features
        draws = [
            np.random.default_rng((self.settings.seed, epoch, frame, _DROPOUT)).random((count, width), np.float32)
            for frame, count in zip(frames, boxes, strict=True)
        ]
        return torch.from_numpy((np.concatenate(draws) >= rate) / np.float32(1 - rate)).to(self.device)

    def _clips(self) -> ClipLoader:
        config, data, intake = self.config, self.config.data, self.intake
        mean, std = intake.normalisation
        least, most = data.short_side if any(data.short_side) else (intake.size * 8 // 7, intake.size * 10 // 7)
        if not intake.size <= least <= most:
            raise StillmotionError(
                f"frames are resized to a shorter edge of {least} to {most} and cut to {intake.size}; "
                "raise --data.short-side or lower --data.size"
            )
        dataset = KeyFrameClips(
            self.videos,
            **intake.sampling,
            clips=1,
            augment=Augment(intake.size, area=None, flip=data.flip, mean=mean, std=std),
            seed=config.train.seed,
            strict=data.strict,
            short_side=(least, most),
        )
        return shared_loader(dataset, config.optim, config.train, workers=data.workers)


def _rows(videos: ActionSet, found: dict[int, np.ndarray]) -> BoxRows:
    """Scores (n, C) of the boxes of each key frame as rows, one for each box and action."""
    numbers = sorted(found)
    keys = [videos.frames.keys[i] for i in numbers for _ in range(found[i].size)]
    boxes = [np.repeat(videos.frames[i][0], len(videos.actions), 0) for i in numbers]
    actions = np.tile(list(videos.actions), sum(len(found[i]) for i in numbers))
    scores = [found[i].ravel() for i in numbers]
    return BoxRows(
        keys,
        np.concatenate([np.zeros((0, 4)), *boxes]),
        actions.astype(int),
        np.concatenate([np.zeros(0), *scores]),
    )
