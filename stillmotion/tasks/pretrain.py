"""Pre-training: what a step of a method is, with any solver, precision and number of accumulated parts."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stillmotion import distributed
from stillmotion.config import Config
from stillmotion.config.files import read_config, verb_of
from stillmotion.data.augment import augment
from stillmotion.data.loader import Batch, ClipDataset
from stillmotion.data.notes import say
from stillmotion.data.order import order_of
from stillmotion.data.paths import VideoSet
from stillmotion.data.tokens import TokenClips
from stillmotion.encoders import Encoder
from stillmotion.encoders.runs import in_training
from stillmotion.errors import StillmotionError
from stillmotion.methods.method import Method
from stillmotion.nn.backbones.tokens import TokensCNN
from stillmotion.nn.weights import load_weights
from stillmotion.optim.bilevel import Weights
from stillmotion.recipes import recipe
from stillmotion.tasks.between import Between
from stillmotion.tasks.tokens import TOKENS, fill, located, token_clips
from stillmotion.train.checkpoint import STATE, draw_by
from stillmotion.train.folder import held, open_folder, settled, spare_inputs
from stillmotion.train.health import Watch, health
from stillmotion.train.log import RunLog, bar
from stillmotion.train.network import readied
from stillmotion.train.process import computing
from stillmotion.train.run import Run, shared_loader
from stillmotion.train.solve import solve

_ANY_FOLDER = "laptop"  # the recipe for whatever videos there are, whose rate stands smaller batches


def pretrain(config: Config, out: str | Path, *, cache: str | Path | None = None) -> Path:
    """Train as `config` says and return the run folder; a folder with an unfinished run is resumed.

    cache: where tokens are kept, in place of the run's own folder; runs on the same videos share them.
    Under `torchrun` every process calls this; the first one writes.
    """
    config = located(config)
    model = config.method.model
    others = (config.data.annotations, model.weights, model.images.path, config.train.evaluate_data)
    spare_inputs(out, config.data.path, *others)
    with computing(config.train) as device, held(out):
        return Pretraining(settled(config, out, device), Path(out), device, cache).train()


class Pretraining(Run):
    """A method, its optimiser and its clips."""

    method: Method
    evaluates = True

    def __init__(self, config: Config, folder: Path, device: torch.device, cache: str | Path | None = None) -> None:
        data = config.data
        videos = data.open(drawn=data.synthetic, seed=config.train.seed)
        config = _fitting(config, len(videos), folder)
        super().__init__(config, folder, device)
        self.config = config
        method = _method(config, device, fresh=not (folder / STATE).exists())
        backbone = method.online.backbone
        self.augment = augment(data.augment, size=data.size)
        dataset = _clips(config, videos, finish=not _on_device(config, device))
        if isinstance(backbone, TokensCNN):
            dataset = token_clips(config, videos, backbone, cache or folder / TOKENS)
        order = order_of(videos, data.shuffle_buffer)
        self.loader = shared_loader(dataset, config.optim, config.train, workers=data.workers, order=order)
        self.counted = config.optim.batch * config.data.clips
        if self.steps_per_epoch == 0:
            raise StillmotionError(
                f"an epoch has {self.loader.steps_per_epoch} batches but a step takes {config.train.accumulate}; "
                "lower --train.accumulate"
            )
        _check_contrast(config)
        if config.train.evaluate_every:
            self.between = Between(self, data, self._encoder, drawn=data.synthetic, workers=data.workers)
        open_folder(folder, config)
        if isinstance(dataset, TokenClips) and isinstance(backbone, TokensCNN):
            with bar("tokens") if distributed.rank() == 0 else nullcontext() as progress:
                fill(dataset, config, backbone, progress=progress)
        self.note_videos(videos, root=data.path)
        self.labels = {target: torch.as_tensor(found) for target, found in videos.labels.items()}
        self.watch = Watch()
        if config.method.objective.shuffles:
            self.by_process = "; its batch norms see what one process has, which is another share of them now"
        torch.manual_seed(config.train.seed * 1009 + distributed.rank() + 1)
        self.equip(method, method.trainable())

    def _encoder(self) -> Encoder:
        return in_training(self.config, self.method.state_dict()).to(self.device)

    def advance(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        # How keys are shuffled over ranks is a function of seed and step, however many ranks there are.
        draw_by(self.config.train.seed, self.done)
        solved = []
        for _ in range(self.config.train.accumulate):
            batch = self._fetched(next(batches), log)
            solved.append(self._solve(batch))
        seen = self._health(batch, log) if self.logs(self.done + 1) else {}
        return self._step(solved, epoch) | seen

    def _fetched(self, batch: Batch, log: RunLog) -> Batch:
        """The batch with its clips on the device, as the augmentation left them or finished there."""
        self.note_broken(batch, log)
        self.look_at(batch["clips"])
        clips = batch["clips"].to(self.device, non_blocking=True)
        if "changes" in batch:
            clips = self.augment.finish(clips, np.stack(batch["changes"]))
        return batch | {"clips": clips}

    def _health(self, batch: Batch, log: RunLog) -> dict[str, float]:
        """What the frames of a batch, which are no derivatives, say of the method before its step."""
        clips = batch["clips"][:, :, :, : self.config.data.frames]
        labels = {target: found[batch["index"]] for target, found in self.labels.items()}
        numbers = health(self.method, clips, labels, precision=self.settings.precision)
        for line in self.watch.notice(numbers):
            log.say(f"step {self.done + 1}: {line}")
        return numbers

    def _solve(self, batch: Batch) -> tuple[Any, Weights]:
        epoch, step = divmod(self.done, self.steps_per_epoch)
        views, seed, clips = self.config.method.views, self.config.train.seed, batch["clips"]
        orders = views.orders(seed=seed, epoch=epoch, step=step)
        colours = views.colours(seed=seed, epoch=epoch, index=batch["index"], clips=clips.shape[1])
        shown = views(clips, orders, colours)
        return solve(self.method, shown, self.config, asked=views.asked(orders), scale=self.scaler.get_scale())

    def _step(self, solved: list[tuple[Any, Weights]], epoch: int) -> dict[str, float]:
        """Move the weights by the mean of the accumulated gradients; the numbers worth writing down."""
        frozen, scale = self.method.frozen(epoch), self.scaler.get_scale()
        for name, p in self.weights.items():
            p.grad = None if name in frozen else _mean([gradient[name] for _, gradient in solved]) * scale
        losses = {f"loss/{name}": _mean([found.parts[name] for found, _ in solved]) for name in solved[0][0].parts}
        numbers = self.move(losses)
        self.method.commit([found.keys for found, _ in solved], self.done / self.total)
        return numbers


def _method(config: Config, device: torch.device, *, fresh: bool) -> Method:
    torch.manual_seed(config.train.seed)
    method = Method(config.method)
    if config.method.model.weights and fresh:
        report = load_weights(method.online.backbone, config.method.model.weights)
        if method.target is not None:
            method.target.load_state_dict(method.online.state_dict())
        if distributed.rank() == 0:
            print(report)
            if config.method.model.border == "replicate":
                print(
                    "a clip's first and last frame are repeated beyond it: for weights that were trained with zeros "
                    "there, as public ones are, give --method.model.border zeros"
                )
    readied(method, method.online.backbone, config.train, device, joint=not config.method.objective.shuffles)
    return method


def _fitting(config: Config, videos: int, folder: Path) -> Config:
    """The configuration with a batch that so many videos make, where the batch is `laptop`'s and nobody's wish.

    A run that goes on keeps the batch of its folder, however many processes share it now.
    """
    parts = distributed.world() * config.train.accumulate
    batch = videos - videos % parts
    if (folder / STATE).exists() and verb_of(folder) == config.verb:
        batch = read_config(folder, Config).optim.batch
    own = config.recipe == _ANY_FOLDER and config.optim.batch == recipe(_ANY_FOLDER).optim.batch
    if not own or videos >= config.optim.batch or batch < 2 * config.train.accumulate:
        return config
    if distributed.rank() == 0:
        say(f"{videos} videos are fewer than a batch of {config.optim.batch}: taking {batch} at a time (--optim.batch)")
    return replace(config, optim=replace(config.optim, batch=batch))


def _check_contrast(config: Config) -> None:
    """Raises where videos are told from the others of their batch, and there are none."""
    together = config.optim.batch // config.train.accumulate
    if together < 2 and not config.method.objective.build(config.method.model.width).uses_target:
        parts = f" in {config.train.accumulate} parts (--train.accumulate)" * (config.train.accumulate > 1)
        raise StillmotionError(
            f"a batch of {config.optim.batch}{parts} has no second video, from which {config.method.objective.title} "
            "tells the first; raise --optim.batch"
        )


def _on_device(config: Config, device: torch.device) -> bool:
    """Whether clips are finished on the device."""
    return device.type == "cuda" if config.data.finish == "auto" else config.data.finish == "device"


def _clips(config: Config, videos: VideoSet, *, finish: bool = True) -> ClipDataset:
    data = config.data
    return ClipDataset(
        videos,
        frames=data.frames + config.method.views.extra,
        stride=data.stride,
        fps=data.fps,
        clips=data.clips,
        augment=augment(data.augment, size=data.size),
        seed=config.train.seed,
        strict=data.strict,
        finish=finish,
    )


def _mean(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.stack(tensors).mean(0)
