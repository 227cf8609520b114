"""The one training loop: distribution, precision, checkpoints and resuming, for every method."""

import json
import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stillmotion import distributed
from stillmotion.config import Config, DataConfig
from stillmotion.data.augment import augment
from stillmotion.data.loader import ClipDataset, ClipLoader
from stillmotion.data.paths import VideoSet
from stillmotion.data.sets import open_dataset
from stillmotion.data.synthetic import SyntheticSet
from stillmotion.errors import NonFiniteError, StillmotionError
from stillmotion.methods.method import Method
from stillmotion.methods.moco import MoCoConfig
from stillmotion.nn.weights import load_weights
from stillmotion.optim.bilevel import Weights
from stillmotion.optim.optimizers import build_optimizer, learning_rate
from stillmotion.train import checkpoint
from stillmotion.train.folder import open_folder
from stillmotion.train.log import RunLog
from stillmotion.train.process import choose_device, stop_signals
from stillmotion.train.solve import solve

_PATIENCE = 20  # steps in a row that fp16 may skip while its scale settles


class Interrupted(Exception):
    """A signal asked the run to stop; it saved itself and can be resumed."""


def pretrain(config: Config, out: str | Path) -> Path:
    """Train as `config` says and return the run folder; a folder with an unfinished run is resumed.

    Under `torchrun` every process calls this; the first one writes.
    """
    device = choose_device(config.train.device)
    distributed.start(device.type)
    try:
        if config.train.threads:
            torch.set_num_threads(config.train.threads)
        return _Run(config, Path(out), device).train()
    finally:
        distributed.stop()


class _Run:
    """What a run holds: the method, its optimiser, its clips, and how far it is."""

    def __init__(self, config: Config, folder: Path, device: torch.device) -> None:
        self.config, self.folder, self.device = config, folder, device
        self.loader = _loader(config)
        self.steps_per_epoch = self.loader.steps_per_epoch // config.train.accumulate
        if self.steps_per_epoch == 0:
            raise StillmotionError(
                f"an epoch has {self.loader.steps_per_epoch} batches but a step takes {config.train.accumulate}; "
                "lower --train.accumulate"
            )
        self.total = self.steps_per_epoch * config.optim.epochs
        open_folder(folder, config)
        state = checkpoint.load_state(folder)
        self.method = _method(config, device, fresh=state is None)
        self.weights = self.method.trainable()
        self.optimizer = build_optimizer(self.weights, config.optim)
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.train.precision == "fp16")
        self.scaler.scale(torch.zeros((), device=device))  # makes its state; gradients are scaled in `solve`
        self.done = self.skipped = 0
        self.broken: dict[str, str] = {}
        torch.manual_seed(config.train.seed * 1009 + distributed.rank() + 1)
        if state is not None:
            self._resume(state)

    def train(self) -> Path:
        config = self.config
        log = RunLog(self.folder, total=self.total, start=self.done, show=distributed.rank() == 0)
        with log, stop_signals(self.device) as request:
            if self.done:
                log.say(f"resuming {self.folder} at step {self.done} of {self.total}")
            while self.done < self.total:
                epoch, inside = divmod(self.done, self.steps_per_epoch)
                batches = self.loader.epoch(epoch, start_step=inside * config.train.accumulate)
                for _ in range(inside, self.steps_per_epoch):
                    parts = [self._solve(next(batches), log) for _ in range(config.train.accumulate)]
                    numbers = self._step(parts, epoch)
                    last = self.done == self.total
                    log.step(
                        self.done,
                        config.optim.batch * config.data.clips,
                        numbers if last or self.done % config.train.log_every == 0 else None,
                    )
                    stop = request.agreed()
                    if stop or last or self.done % config.train.checkpoint_every == 0:
                        self._save()
                    if stop and not last:
                        raise Interrupted(f"stopped at step {self.done} of {self.total}; the same command resumes it")
            self._tell_broken(log)
        return self.folder

    def _solve(self, batch: dict[str, Any], log: RunLog) -> tuple[Any, Weights]:
        for name, reason in batch["broken"]:
            if name not in self.broken:
                self.broken[name] = reason
                log.say(f"unreadable, skipped: {reason}")
        epoch, step = divmod(self.done, self.steps_per_epoch)
        views = self.config.method.views
        orders = views.orders(seed=self.config.train.seed, epoch=epoch, step=step)
        clips = views(batch["clips"].to(self.device, non_blocking=True), orders)
        try:
            return solve(self.method, clips, self.config, scale=self.scaler.get_scale())
        except NonFiniteError as error:
            raise NonFiniteError(f"step {self.done + 1}: {error}; {self._last_good()}") from None

    def _step(self, solved: list[tuple[Any, Weights]], epoch: int) -> dict[str, float]:
        """Move the weights by the mean of the accumulated gradients; the numbers worth writing down."""
        rate = learning_rate(self.config.optim, self.done / self.steps_per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        frozen, scale = self.method.frozen(epoch), self.scaler.get_scale()
        for name, p in self.weights.items():
            p.grad = None if name in frozen else _mean([gradient[name] for _, gradient in solved]) * scale
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.weights.values(), self.config.optim.clip or math.inf)

        losses = {name: _mean([found.parts[name] for found, _ in solved]) for name in solved[0][0].parts}
        values = torch.stack([*losses.values(), norm]).float()
        distributed.average_([values])
        numbers = dict(zip([*(f"loss/{name}" for name in losses), "gradient_norm"], values.tolist(), strict=True))
        bad = [name for name, value in numbers.items() if not math.isfinite(value)]
        self.skipped = self.skipped + 1 if bad else 0
        if bad and not (self.scaler.is_enabled() and self.skipped <= _PATIENCE):
            raise NonFiniteError(
                f"step {self.done + 1}: {', '.join(bad)} is not finite (learning rate {rate:.2g}); "
                f"{self._last_good()}. Lower --optim.lr, set --optim.clip 1, or use --train.precision fp32"
            )
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.done += 1
        self.method.commit([found.keys for found, _ in solved], self.done / self.total)
        return numbers | {"lr": rate, "epoch": self.done / self.steps_per_epoch}

    def _save(self) -> None:
        everyone = distributed.gather_objects((checkpoint.random_state(), self.broken))
        for _, broken in everyone:
            self.broken.update(broken)
        if distributed.rank() == 0:
            state = {
                "optimizer": self.optimizer.state_dict(),
                "scaler": self.scaler.state_dict(),
                "step": self.done,
                "broken": self.broken,
                "random": [generators for generators, _ in everyone],
            }
            checkpoint.save(self.folder, self.method, state)
        distributed.barrier()

    def _resume(self, state: dict[str, Any]) -> None:
        if len(state["random"]) != distributed.world():
            raise StillmotionError(
                f"{self.folder} was trained on {len(state['random'])} processes and cannot go on with "
                f"{distributed.world()}; the same number resumes it bit for bit"
            )
        self.method.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.done, self.broken = state["step"], dict(state["broken"])
        checkpoint.set_random_state(state["random"][distributed.rank()])

    def _last_good(self) -> str:
        state = checkpoint.load_state(self.folder)
        where = f"{self.folder / checkpoint.WEIGHTS} of step {state['step']}" if state else "none was written yet"
        return f"last good checkpoint: {where}"

    def _tell_broken(self, log: RunLog) -> None:
        if distributed.rank() == 0:
            (self.folder / "broken.json").write_text(json.dumps(self.broken, indent=1))
        if self.broken:
            log.say(f"{len(self.broken)} unreadable videos were skipped (broken.json says why):")
            for name in sorted(self.broken):
                log.say(f"  {name}")


def open_videos(config: DataConfig, *, seed: int) -> VideoSet:
    """The data set that a configuration names."""
    if config.path == "synthetic":
        return SyntheticSet(config.synthetic, seed=seed)
    return open_dataset(config.path, kind=config.kind, split=config.split, annotations=config.annotations)


def _method(config: Config, device: torch.device, *, fresh: bool) -> Method:
    torch.manual_seed(config.train.seed)
    method = Method(config.method)
    if config.method.model.weights and fresh:
        report = load_weights(method.online.backbone, config.method.model.weights)
        if method.target is not None:
            method.target.load_state_dict(method.online.state_dict())
        if distributed.rank() == 0:
            print(report)
    if distributed.world() > 1 and device.type == "cuda" and not isinstance(config.method.objective, MoCoConfig):
        nn.SyncBatchNorm.convert_sync_batchnorm(method)
    return method.to(device).train()


def _loader(config: Config) -> ClipLoader:
    data, world = config.data, distributed.world()
    parts = world * config.train.accumulate
    if config.optim.batch % parts:
        raise StillmotionError(
            f"a batch of {config.optim.batch} cannot be shared by {world} processes × {config.train.accumulate} "
            f"accumulated parts; choose a multiple of {parts} (--optim.batch)"
        )
    dataset = ClipDataset(
        open_videos(data, seed=config.train.seed),
        frames=data.frames + config.method.views.extra,
        stride=data.stride,
        clips=data.clips,
        augment=augment(data.augment, size=data.size),
        seed=config.train.seed,
        strict=data.strict,
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ClipLoader(
        dataset,
        batch=config.optim.batch // parts,
        rank=distributed.rank(),
        world=world,
        seed=config.train.seed,
        workers=data.workers if data.workers >= 0 else max(1, cores // world),
    )


def _mean(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.stack(tensors).mean(0)
