"""The one training loop, for whatever is trained: steps in any precision, checkpoints, signals, unreadable videos."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from stillmotion import distributed
from stillmotion.config.base import RunConfig, TrainConfig
from stillmotion.data.loader import Batch, ClipDataset, ClipLoader
from stillmotion.data.reading import cores
from stillmotion.errors import Interrupted, NonFiniteError, StillmotionError
from stillmotion.optim.optimizers import OptimConfig, build_optimizer, learning_rate, set_rate
from stillmotion.train import checkpoint
from stillmotion.train.log import RunLog
from stillmotion.train.process import stop_signals

_PATIENCE = 20  # steps in a row that fp16 may skip while its scale settles


class Batches(Protocol):
    """Where a run's batches come from: a `ClipLoader`, or what else numbers its steps."""

    steps_per_epoch: int

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]: ...


class Run:
    """A training run: its course from the first step to the last, the optimiser's step, its precision, its checkpoint.

    A task sets `loader`, hands what is trained to `equip`, and says in `advance` what a step is.
    weights: what is trained, by name. counted: clips or pairs of a step, by which its rate is shown.
    """

    loader: Batches
    method: nn.Module
    weights: Mapping[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    counted: int

    def __init__(self, config: RunConfig, folder: Path, device: torch.device) -> None:
        self.folder, self.device, self.optim, self.settings = folder, device, config.optim, config.train
        self.counted = config.optim.batch
        self.done = self.skipped = 0
        self.broken: dict[str, str] = {}
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.train.precision == "fp16")
        self.scaler.scale(torch.zeros((), device=device))  # makes its state

    def equip(
        self,
        method: nn.Module,
        weights: Mapping[str, nn.Parameter],
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        depth: Callable[[str], int] | None = None,
    ) -> bool:
        """Take what is trained, make its optimiser, and go on from the folder's checkpoint; whether there is one.

        method: what a checkpoint holds. weights: of it, those that are moved. betas, depth: as for `build_optimizer`.
        """
        self.method, self.weights = method, weights
        self.optimizer = build_optimizer(dict(weights), self.optim, betas=betas, depth=depth)
        state = checkpoint.load_state(self.folder)
        if state is not None:
            self.resume(state)
        return state is not None

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

    def move(self, values: Mapping[str, Tensor], *, averaged: bool = False) -> dict[str, float]:
        """Take an optimiser's step and return the numbers worth writing down.

        Gradients are of losses times `scaler.get_scale()`.
        values: this rank's, by the names they are logged under; one that is not finite ends the run.
        averaged: gradients are those of all ranks already.
        """
        rate = learning_rate(self.optim, self.done / self.steps_per_epoch)
        set_rate(self.optimizer, rate)
        if not averaged:
            distributed.average_([p.grad for p in self.weights.values() if p.grad is not None])
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.weights.values(), self.optim.clip or math.inf)
        means = torch.stack([*values.values(), norm]).float()
        distributed.average_([means])
        numbers = dict(zip([*values, "gradient_norm"], means.tolist(), strict=True))
        bad = [name for name, value in numbers.items() if not math.isfinite(value)]
        self.skipped = self.skipped + 1 if bad else 0
        if bad and not (self.scaler.is_enabled() and self.skipped <= _PATIENCE):
            raise self._not_finite(bad, rate)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.done += 1
        return numbers | {"lr": rate, "epoch": self.done / self.steps_per_epoch}

    def _not_finite(self, bad: list[str], rate: float) -> NonFiniteError:
        what = f"{', '.join(bad)} is not finite (learning rate {rate:.2g})"
        precision = ", or use --train.precision fp32" if self.settings.precision != "fp32" else ""
        advice = f"Lower --optim.lr or set --optim.clip 1{precision}"
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
        return {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from what a checkpoint holds."""
        if len(state["random"]) != distributed.world():
            raise StillmotionError(
                f"{self.folder} was trained on {len(state['random'])} processes and cannot go on with "
                f"{distributed.world()}; the same number resumes it bit for bit"
            )
        self.method.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        if "scaler" in state:  # runs in fp32 did not always write one
            self.scaler.load_state_dict(state["scaler"])
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
    return workers if workers >= 0 else max(1, cores() // distributed.world())
