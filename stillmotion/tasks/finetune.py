"""Fine-tuning: an encoder and a new head, trained end to end on labels, and tested.

What is drawn for a video (its clip, its dropout, its share in mixup) is a function of (seed, epoch, video). Batch norm
is over all ranks, as in pre-training.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stillmotion import distributed, files
from stillmotion.config.finetune import FinetuneConfig, HeadConfig, LabelledConfig
from stillmotion.data.labelled import Labelled, open_labelled
from stillmotion.data.loader import Batch, ClipDataset, ClipLoader
from stillmotion.data.subset import Subset
from stillmotion.encoders import Encoder, Progress
from stillmotion.encoders.runs import note_network
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.classify import classification, clip_probabilities
from stillmotion.functional.labels import mix_pairs, soft_cross_entropy, soft_targets, top_k
from stillmotion.nn.blocks import unfreeze
from stillmotion.nn.classifier import Classifier, time_steps
from stillmotion.tasks.start import RESULTS, Watch, located, place_of, read_results, start, train_and_test, unwatched
from stillmotion.train.folder import held, open_folder, settled, spare_inputs
from stillmotion.train.log import RunLog
from stillmotion.train.network import readied
from stillmotion.train.precision import autocast
from stillmotion.train.process import computing
from stillmotion.train.run import Run, decoders, shared_loader

_DROPOUT, _MIXUP = 21, 22  # what a generator is for, beside seed, epoch and video


def finetune(config: FinetuneConfig, out: str | Path, *, watch: Watch = unwatched) -> Path:
    """Train and test as `config` says and return the run folder; a folder with an unfinished run is resumed.

    watch: given a word for what goes on, shows its progress; for the test, which may be long.
    Under `torchrun` every process calls this; the first one writes.
    """
    config = located(config)
    spare_inputs(out, config.data.path, config.data.annotations, place_of(config.encoder))
    with computing(config.train) as device, held(out):
        return train_and_test(Finetuning(settled(config, out, device), Path(out), device), watch)


def _labelled(data: LabelledConfig) -> Labelled:
    return open_labelled(data.halves(), target=data.target, per_class=data.per_class, drawn=data.synthetic)


def _classifier(encoder: Encoder, classes: int, head: HeadConfig) -> Classifier:
    """The encoder's network under a new head."""
    intake, ordered = encoder.intake, head.pool == "order"
    steps = time_steps(encoder.backbone, frames=intake.frames, size=intake.size) if ordered else 1
    return Classifier(encoder.backbone, classes, pool=head.pool, steps=steps)


def finetune_folds(config: FinetuneConfig, out: str | Path, folds: Sequence[int], *, watch: Watch = unwatched) -> Path:
    """`finetune` on each of a set's folds, in the folders fold1, fold2, …; the means are written beside them."""
    config, folder = located(config), Path(out)
    spare_inputs(out, config.data.path, config.data.annotations, place_of(config.encoder))
    check_folds(config, folds)
    with computing(config.train) as device, held(folder):
        found: dict[str, Any] = {}
        for fold in folds:
            one = replace(config, data=replace(config.data, fold=fold))
            with held(folder / f"fold{fold}"):
                own = folder / f"fold{fold}"
                run = Finetuning(settled(one, own, device), own, device)
                found[str(fold)] = read_results(train_and_test(run, watch))
        means = {name: float(np.mean([r[name] for r in found.values()])) for name in ("top1", "top5", "mean_class")}
        distributed.on_first(lambda: files.write_json(folder / RESULTS, means | {"folds": found}))
    return folder


def check_folds(config: FinetuneConfig, folds: Sequence[int]) -> None:
    """Raises where two folds of a set are the same."""
    asked: dict[frozenset[str], int] = {}
    for fold in folds:
        test = _labelled(replace(config.data, fold=fold)).test
        same = asked.setdefault(frozenset(test.name(i) for i in range(len(test))), fold)
        if same != fold:
            raise StillmotionError(f"folds {same} and {fold} of {config.data.path} are the same; leave --folds out")


class Finetuning(Run):
    """A classifier, its optimiser and labelled clips."""

    method: Classifier

    def __init__(self, config: FinetuneConfig, folder: Path, device: torch.device) -> None:
        super().__init__(config, folder, device)
        self.config = config
        self.videos = _labelled(config.data)
        self.labels = torch.from_numpy(np.tile(self.videos.train_labels, config.data.clips))  # of an epoch's items
        began = start(config, config.data)
        self.intake = began.intake
        self.loader = self._clips()
        open_folder(folder, config)
        distributed.on_first(lambda: note_network(folder, began))
        names = [self.videos.classes[i] for i in self.videos.train_labels]
        self.note_videos(self.videos.train, root=config.data.path, labels=names)
        torch.manual_seed(config.train.seed)
        unfreeze(began.backbone, config.head.unfreeze)
        method = _classifier(began, len(self.videos.classes), config.head)
        readied(method, began.backbone, config.train, device)
        torch.manual_seed(config.train.seed * 1009 + distributed.rank() + 1)
        weights = {name: p for name, p in method.named_parameters() if p.requires_grad}
        self.equip(method, weights, depth=method.depth)

    def advance(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        if self.done == 0:
            self._tell_frozen(log)
        self.optimizer.zero_grad()
        parts = self.settings.accumulate
        found = torch.zeros(2, device=self.device)
        for _ in range(parts):
            batch = next(batches)
            self.note_broken(batch, log)
            self.look_at(batch["clips"])
            loss, accuracy = self._loss(batch, epoch)
            self.differentiate(loss / parts)
            found += torch.stack([loss.detach(), accuracy]) / parts
        return self.move({"loss/class": found[0], "accuracy": found[1]})

    def test(self, progress: Progress | None = None) -> dict[str, Any]:
        """Accuracy on the test half, by its K clips."""
        distributed.broadcast_(self.method.buffers())  # the running statistics that the checkpoint holds
        videos, data = self.videos, self.config.data
        index, probabilities, broken = clip_probabilities(
            self.method,
            videos.test,
            self.intake,
            clips=data.test_clips,
            crops=data.test_crops,
            full=data.test_full,
            workers=decoders(data.workers),
            progress=progress,
        )
        labels = videos.test_labels[index]
        commonest = np.bincount(videos.train_labels).argmax()
        return {
            "encoder": self.config.encoder,
            "untrained": self.config.untrained,
            "data": data.path,
            "target": videos.target,
            "pool": self.config.head.pool,
            "unfreeze": self.config.head.unfreeze,
            "split": videos.how,
            "classes": videos.classes,
            "train_videos": len(videos.train),
            "test_videos": len(index),
            "steps": self.done,
            "seed": self.settings.seed,
            "clips": data.test_clips,
            "crops": data.test_crops,
            **classification(probabilities, labels, videos.classes),
            "majority": float((labels == commonest).mean()),
            "broken": dict(broken),
        }

    def _loss(self, batch: Batch, epoch: int) -> tuple[Tensor, Tensor]:
        """The cross entropy of a batch, and the share of videos whose (larger) label comes first."""
        head, videos = self.config.head, batch["index"].tolist()
        clips = batch["clips"][:, 0].to(self.device, non_blocking=True)
        targets = soft_targets(self.labels[batch["index"]], len(self.videos.classes), smoothing=head.smoothing)
        targets = targets.to(self.device)
        if head.mixup:
            shares = torch.tensor([self._draw(v, epoch, _MIXUP).beta(head.mixup, head.mixup) for v in videos[::2]])
            clips, targets = mix_pairs(clips, shares), mix_pairs(targets, shares)
        kept = self._kept(videos, epoch) if head.dropout else None
        with autocast(self.device, self.settings.precision):
            scores = self.method(clips, kept).float()
        right = top_k(scores.detach(), targets.argmax(1), 1)
        return soft_cross_entropy(scores, targets), torch.tensor(right, device=self.device)

    def _kept(self, videos: list[int], epoch: int) -> Tensor:
        """Dropout's factors of the pooled features."""
        rate, width = self.config.head.dropout, self.method.head.in_features
        draws = np.stack([self._draw(video, epoch, _DROPOUT).random(width, np.float32) for video in videos])
        return torch.from_numpy((draws >= rate) / np.float32(1 - rate)).to(self.device)

    def _draw(self, video: int, epoch: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.settings.seed, epoch, video, purpose))

    def _clips(self) -> ClipLoader:
        config, data, intake = self.config, self.config.data, self.intake
        train = self.videos.train
        dataset = ClipDataset(
            Subset(train.videos, np.tile(train.chosen, data.clips)),
            **intake.sampling,
            clips=1,
            augment=data.augment.augment(intake.size, intake.normalisation),
            seed=config.train.seed,
            strict=data.strict,
        )
        return shared_loader(
            dataset, config.optim, config.train, workers=data.workers, together=2 if config.head.mixup else 1
        )

    def _tell_frozen(self, log: RunLog) -> None:
        still = sum(p.numel() for p in self.method.parameters() if not p.requires_grad)
        if still:
            every = sum(p.numel() for p in self.method.parameters())
            log.say(f"{still} of {every} weights stay as they are in {self.config.encoder} (--head.unfreeze)")
