"""The one training loop, for whatever is trained: steps, checkpoints and resuming, signals, unreadable videos."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from stillmotion import distributed
from stillmotion.config import TrainConfig
from stillmotion.data.loader import Batch, ClipDataset, ClipLoader
from stillmotion.errors import NonFiniteError, StillmotionError
from stillmotion.optim.optimizers import OptimConfig, learning_rate, set_rate
from stillmotion.train import checkpoint
from stillmotion.train.log import RunLog
from stillmotion.train.process import stop_signals


class Interrupted(Exception):
    """A signal asked the run to stop; it saved itself and can be resumed."""


class Batches(Protocol):
    """Where a run's batches come from: a `ClipLoader`, or what else numbers its steps."""

    steps_per_epoch: int

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]: ...


class Run:
    """What every run holds, and its course from the first step to the last.

    What is trained sets `loader`, `method` and `optimizer`, and says in `advance` what a step is.
    counted: clips or pairs of a step, by which its rate is shown.
    """

    loader: Batches
    method: nn.Module
    optimizer: torch.optim.Optimizer
    counted: int

    def __init__(self, folder: Path, device: torch.device, optim: OptimConfig, train: TrainConfig) -> None:
        self.folder, self.device, self.optim, self.settings = folder, device, optim, train
        self.done = 0
        self.broken: dict[str, str] = {}

    def advance(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        """Take a step from the next batches and return the numbers worth writing down."""
        raise NotImplementedError

    @property
    def steps_per_epoch(self) -> int:
        return self.loader.steps_per_epoch // self.settings.accumulate

    @property
    def total(self) -> int:
        return self.steps_per_epoch * self.optim.epochs

    def train(self) -> Path:
        """Take the steps that are left and return the run folder."""
        log = RunLog(self.folder, total=self.total, start=self.done, show=distributed.rank() == 0)
        with log, stop_signals(self.device) as request:
            if self.done:
                log.say(f"resuming {self.folder} at step {self.done} of {self.total}")
            while self.done < self.total:
                epoch, inside = divmod(self.done, self.steps_per_epoch)
                batches = self.loader.epoch(epoch, start_step=inside * self.settings.accumulate)
                for _ in range(inside, self.steps_per_epoch):
                    numbers = self.advance(batches, epoch, log)
                    last = self.done == self.total
                    written = last or self.done % self.settings.log_every == 0
                    log.step(self.done, self.counted, numbers if written else None)
                    stop = request.agreed()
                    if stop or last or self.done % self.settings.checkpoint_every == 0:
                        self._save()
                    if stop and not last:
                        raise Interrupted(f"stopped at step {self.done} of {self.total}; the same command resumes it")
            self._tell_broken(log)
        return self.folder

    def set_rate(self) -> float:
        """Give the optimiser this step's learning rate."""
        rate = learning_rate(self.optim, self.done / self.steps_per_epoch)
        set_rate(self.optimizer, rate)
        return rate

    def not_finite(self, bad: list[str], rate: float, advice: str) -> NonFiniteError:
        """The error that ends a run whose numbers of these names are not finite."""
        what = f"{', '.join(bad)} is not finite (learning rate {rate:.2g})"
        return NonFiniteError(f"step {self.done + 1}: {what}; {self.last_good()}. {advice}")

    def last_good(self) -> str:
        """Where the weights are that a failed run falls back on, in words."""
        state = checkpoint.load_state(self.folder)
        where = f"{self.folder / checkpoint.WEIGHTS} of step {state['step']}" if state else "none was written yet"
        return f"last good checkpoint: {where}"

    def note_broken(self, batch: Batch, log: RunLog) -> None:
        """Name the unreadable videos of a batch, each once."""
        for name, reason in batch["broken"]:
            if name not in self.broken:
                self.broken[name] = reason
                log.say(f"unreadable, skipped: {reason}")

    def state(self) -> dict[str, Any]:
        """What goes on after a resume, beside the method and the generators."""
        return {"optimizer": self.optimizer.state_dict()}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from what a checkpoint holds."""
        if len(state["random"]) != distributed.world():
            raise StillmotionError(
                f"{self.folder} was trained on {len(state['random'])} processes and cannot go on with "
                f"{distributed.world()}; the same number resumes it bit for bit"
            )
        self.method.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done, self.broken = state["step"], dict(state["broken"])
        checkpoint.set_random_state(state["random"][distributed.rank()])

    def _save(self) -> None:
        everyone = distributed.gather_objects((checkpoint.random_state(), self.broken))
        for _, broken in everyone:
            self.broken.update(broken)
        if distributed.rank() == 0:
            random = [generators for generators, _ in everyone]
            state = self.state() | {"step": self.done, "broken": self.broken, "random": random}
            checkpoint.save(self.folder, self.method, state)
        distributed.barrier()

    def _tell_broken(self, log: RunLog) -> None:
        if distributed.rank() == 0:
            (self.folder / "broken.json").write_text(json.dumps(self.broken, indent=1))
        if self.broken:
            log.say(f"{len(self.broken)} unreadable videos were skipped (broken.json says why):")
            for name in sorted(self.broken):
                log.say(f"  {name}")


def bad_numbers(numbers: Mapping[str, float]) -> list[str]:
    """The names of those that are not finite."""
    return [name for name, value in numbers.items() if not math.isfinite(value)]


def shared_loader(
    dataset: ClipDataset, optim: OptimConfig, train: TrainConfig, *, workers: int, together: int = 1
) -> ClipLoader:
    """This process's share of the batches. together: videos that are not parted. workers: -1 is one per core."""
    world = distributed.world()
    parts = world * train.accumulate
    if optim.batch % (parts * together):
        videos = f" of {together} videos at least" * (together > 1)
        raise StillmotionError(
            f"a batch of {optim.batch} cannot be shared by {world} processes × {train.accumulate} accumulated "
            f"parts{videos}; choose a multiple of {parts * together} (--optim.batch)"
        )
    return ClipLoader(
        dataset,
        batch=optim.batch // parts,
        rank=distributed.rank(),
        world=world,
        seed=train.seed,
        workers=decoders(workers),
    )


def decoders(workers: int) -> int:
    """How many decoding processes this process starts; -1 is its share of one per core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return workers if workers >= 0 else max(1, cores // distributed.world())
