"""The one training loop, for whatever is trained: steps in any precision, checkpoints, signals, unreadable videos.

A step leaves its numbers on the device (`train.readings`), which is waited for only where they are written down or
weights are saved.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from stillmotion import distributed, files
from stillmotion.config.base import RunConfig, TrainConfig
from stillmotion.data.loader import Batch, ClipDataset, ClipLoader
from stillmotion.data.notes import Notes, say
from stillmotion.data.order import Order
from stillmotion.data.reading import cores
from stillmotion.errors import Interrupted, NonFiniteError, StillmotionError
from stillmotion.optim.optimizers import OptimConfig, build_optimizer, learning_rate, set_rate
from stillmotion.optim.reduce import mean_gradient
from stillmotion.train import checkpoint
from stillmotion.train.bounds import Bounds, Teaching, not_finite, total_norm
from stillmotion.train.log import RunLog
from stillmotion.train.loggers import check_loggers
from stillmotion.train.process import StopRequest, stop_signals, stoppable
from stillmotion.train.readings import Readings
from stillmotion.train.seen import Named, changes, digest


class Batches(Protocol):
    """Where a run's batches come from: a `ClipLoader`, or what else numbers its steps."""

    steps_per_epoch: int

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]: ...


class Run:
    """A training run: its course from the first step to the last, the optimiser's step, its precision, its checkpoint.

    A task sets `loader`, hands what is trained to `equip`, and says in `advance` what a step is.
    weights: what is trained, by name. counted: clips or pairs of a step, by which its rate is shown.
    between: called where an epoch begins or the last has ended, on every rank, to look at what is trained; it changes
        nothing of it. None where a task has nothing to look at.
    by_process: what depends on how many processes there are, in words, where anything does.
    """

    loader: Batches
    method: nn.Module
    weights: Mapping[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    counted: int
    evaluates: ClassVar[bool] = False
    between: Callable[[RunLog], None] | None = None
    by_process: str = ""

    def __init__(self, config: RunConfig, folder: Path, device: torch.device) -> None:
        self.folder, self.device, self.optim, self.settings = folder, device, config.optim, config.train
        self.counted = config.optim.batch
        late = [epoch for epoch in config.train.keep if epoch > config.optim.epochs]
        if late:
            raise StillmotionError(
                f"train.keep has epoch {late[0]}; the run has {config.optim.epochs} (--optim.epochs)"
            )
        if config.train.evaluate_every and not self.evaluates:
            raise StillmotionError(
                f"train.evaluate_every is {config.train.evaluate_every}, but runs of {config.verb} are not evaluated "
                "in between; leave it out"
            )
        distributed.on_first(lambda: check_loggers(config.train.loggers))
        self.done = 0
        self.broken: dict[str, str] = {}
        self.notes = Notes()
        self.bounds = Bounds()
        self._seen: dict[str, Tensor] = {}
        self._told: list[str] = []
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
        self.teaching = Teaching(self.total)
        self.readings = Readings(self.bounds, self.teaching, skips=self.scaler.is_enabled(), diverged=self._diverged)
        self.optimizer = build_optimizer(dict(weights), self.optim, betas=betas, depth=depth)
        state = checkpoint.load_state(self.folder)
        if state is not None:
            self.resume(state)
        self.bounds.begin(weights.values())
        return state is not None

    def note_videos(self, videos: Named, *, root: str = "", labels: Sequence[str] = ()) -> None:
        """Take note of what is trained on, for what a resumed run says of it; before `equip`, as for `digest`."""
        if distributed.rank() == 0:
            self._seen = digest(videos, root=root, labels=labels)

    def advance(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        """Take a step from the next batches by `move`, and return what is worth writing down beside its values."""
        raise NotImplementedError

    def _advance(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        """`advance`; where NaN makes it stumble, the step that it came from is named."""
        try:
            return self.advance(batches, epoch, log)
        except torch.linalg.LinAlgError:
            if self.readings:
                self.readings.read()
            raise

    @property
    def steps_per_epoch(self) -> int:
        return self.loader.steps_per_epoch // self.settings.accumulate

    @property
    def total(self) -> int:
        return self.steps_per_epoch * self.optim.epochs

    def logs(self, step: int) -> bool:
        """Whether the numbers of this step, from 1 on, are written down."""
        return step == self.total or step % self.settings.log_every == 0

    def keeps(self, step: int) -> bool:
        """Whether an epoch ends with this step whose weights are kept."""
        epoch, inside = divmod(step, self.steps_per_epoch)
        return not inside and epoch in self.settings.keep

    def train(self) -> Path:
        """Take the steps that are left and return the run folder."""
        show, loggers = distributed.rank() == 0, self.settings.loggers
        log = RunLog(self.folder, total=self.total, start=self.done, loggers=loggers, show=show)
        with log, stop_signals() as request:
            if isinstance(self.loader, ClipLoader):
                self.loader.meanwhile = lambda: self._stop_waiting(request)
            for line in self._told:
                log.say(line)
            if self.done:
                log.say(f"resuming {self.folder} at step {self.done} of {self.total}")
            self._tell_past(log)
            while self.done < self.total:
                epoch, inside = divmod(self.done, self.steps_per_epoch)
                if inside == 0:
                    self._pause(log)
                batches = self.loader.epoch(epoch, start_step=inside * self.settings.accumulate)
                for _ in range(inside, self.steps_per_epoch):
                    numbers = self._advance(batches, epoch, log)
                    last, logs, stop = self.done == self.total, self.logs(self.done), request.agreed()
                    saves = stop or last or self.done % self.settings.checkpoint_every == 0
                    keeps = self.keeps(self.done)
                    if logs or saves or keeps or self.teaching.watches(self.done):
                        numbers |= self.readings.read()
                    log.step(self.done, self.counted, numbers if logs else None)
                    if keeps:
                        self._keep(log)
                    kept = True
                    if saves:
                        kept = self._save(numbers["gradient_norm"], last=last)
                    if stop and not last:
                        saved = "" if kept else f" with a gradient out of bounds; {self.last_good()}"
                        at = f"step {self.done} of {self.total}{saved}"
                        raise Interrupted(f"stopped at {at}; the same command resumes it", request.code)
                self._tell_short(log)
            self._pause(log)
            self._tell_broken(log)
        return self.folder

    def _pause(self, log: RunLog) -> None:
        """Call `between`. A run that is alone stops at once where it is asked to meanwhile; several do so after it."""
        if self.between is None:
            return
        if self.readings:
            self.readings.read()
        try:
            with stoppable() if distributed.world() == 1 else nullcontext():
                self.between(log)
        except Interrupted as stop:
            kept = self.done > 0 and self._save(0.0, last=False)
            goes_on = "resumes it" if kept else "goes on from the last checkpoint"
            raise Interrupted(
                f"stopped at step {self.done} of {self.total}, in an evaluation; the same command {goes_on}", stop.code
            ) from None

    def differentiate(self, loss: Tensor) -> None:
        """Add the gradient of a part of a step, its mean over ranks, to the gradients of the parts before."""
        for name, gradient in mean_gradient(self.scaler.scale(loss), self.weights).items():
            weight = self.weights[name]
            weight.grad = gradient if weight.grad is None else weight.grad + gradient

    def move(self, values: Mapping[str, Tensor]) -> dict[str, float]:
        """Take an optimiser's step and return its rate and epoch.

        Gradients are those of all ranks, of losses times `scaler.get_scale()`.
        values: this rank's, by the names they are logged under; one that is not finite ends the run when it is read.
        """
        rate = learning_rate(self.optim, self.done / self.steps_per_epoch)
        set_rate(self.optimizer, rate)
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.weights.values(), self.optim.clip or math.inf)
        size = total_norm(self.weights.values())
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.done += 1
        self.readings.note(self.done, values, norm, size)
        return {"lr": rate, "epoch": self.done / self.steps_per_epoch}

    def _diverged(self, what: str, step: int) -> NonFiniteError:
        rate = learning_rate(self.optim, max(0, step - 1) / self.steps_per_epoch)
        precision = ", or use --train.precision fp32" if self.settings.precision != "fp32" else ""
        advice = f"Lower --optim.lr or set --optim.clip 1{precision}; the same folder goes on from there"
        return NonFiniteError(f"step {step}: {what} (learning rate {rate:.2g}); {self.last_good()}. {advice}")

    def last_good(self) -> str:
        """Where the weights are that a failed run falls back on, in words."""
        state = checkpoint.load_state(self.folder)
        where = f"{self.folder / checkpoint.WEIGHTS} of step {state['step']}" if state else "none was written yet"
        return f"last good checkpoint: {where}"

    def look_at(self, clips: Tensor) -> None:
        """See whether the clips (B, …, T, H, W) of a step show anything; those of its first steps must."""
        self.teaching.look(clips, self.done + 1)

    def note_broken(self, batch: Batch, log: RunLog) -> None:
        """Name the videos of a batch that cannot be read, or only in part, each once."""
        for name, reason in batch["broken"]:
            if name not in self.broken:
                self.broken[name] = reason
                log.say(f"unreadable, skipped: {reason}")
        tell = log.say if log.show else say  # a rank's videos and decoders are its own
        for line in self.notes.take(batch):
            tell(line)

    def _tell_short(self, log: RunLog) -> None:
        """Say how many videos are too short, at the end of an epoch that showed them."""
        if isinstance(self.loader, ClipLoader):
            for part in distributed.gather_objects(self.notes):
                self.notes.join(part)
            for line in self.notes.short(self.loader.videos):
                log.say(line)

    def _stop_waiting(self, request: StopRequest) -> None:
        """End a run that was asked to stop and whose clips do not come."""
        if not request.overdue:
            return
        # Alone, and before a step has begun, this is where the last step ended.
        alone = distributed.world() == 1 and self.settings.accumulate == 1
        if alone and self.readings:
            self.readings.read()
        kept = alone and self.done > 0 and self._save(0.0, last=False)
        goes_on = "resumes it" if kept else "goes on from the last checkpoint"
        raise Interrupted(
            f"stopped at step {self.done} of {self.total}, while clips did not come; the same command {goes_on}",
            request.code,
        )

    def state(self) -> dict[str, Any]:
        """What goes on after a resume, beside the method and the generators."""
        return {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from what a checkpoint holds."""
        self.method.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        if "scaler" in state:  # runs in fp32 did not always write one
            self.scaler.load_state_dict(state["scaler"])
        self.done, self.broken = state["step"], dict(state["broken"])
        self._resume_draws(state["random"])
        if "bounds" in state:  # older runs have none
            self.bounds.resume(state["bounds"])
        mended = distributed.on_first(lambda: checkpoint.mend(self.folder, state))
        changed = changes(state["videos"], self._seen) if self._seen and state.get("videos") else None
        self._told += [mended] if mended else []
        if changed:
            self._told.append(f"the videos are not those that {self.folder} was trained on: {changed}")

    def _resume_draws(self, random: Sequence[dict[str, Any]]) -> None:
        """Go on with the generators that each rank had; of another number of processes, each has new ones."""
        world = distributed.world()
        if len(random) == world:
            checkpoint.set_random_state(random[distributed.rank()])
            return
        checkpoint.draw_by(self.settings.seed, self.done, distributed.rank())
        numbers = f"{_processes(world)} in place of {len(random)}"
        self._told.append(
            f"{self.folder} goes on with {numbers}: the same clips in the same batches, up to rounding{self.by_process}"
        )

    def _save(self, norm: float, *, last: bool) -> bool:
        """Write a checkpoint; whether it was, since none is where the gradient, of this norm, is out of bounds."""
        if self.bounds.wild:
            if last:
                raise self._diverged(self.bounds.wildness(norm), self.done)
            return False
        everyone = distributed.gather_objects((checkpoint.random_state(), self.broken))
        for _, broken in everyone:
            self.broken.update(broken)
        distributed.on_first(lambda: self._write([generators for generators, _ in everyone]))
        return True

    def _write(self, random: list[dict[str, Any]]) -> None:
        """Both files of a checkpoint, if its weights are good."""
        self._check_weights()
        course = {"step": self.done, "total": self.total, "broken": self.broken, "random": random}
        history = {"bounds": self.bounds.state(), "videos": self._seen}
        checkpoint.save(self.folder, self.method, self.state() | course | history)

    def _check_weights(self) -> None:
        bad = not_finite(self.method.state_dict())
        if bad:
            raise self._diverged(f"{bad[0]} is not finite", self.done)
        if grown := self.bounds.grown(float(total_norm(self.weights.values()))):
            raise self._diverged(grown, self.done)

    def _keep(self, log: RunLog) -> None:
        """Write the weights of the epoch that ends here: before a checkpoint, which is behind it."""
        epoch = self.done // self.steps_per_epoch
        if self.bounds.wild:
            log.say(f"epoch {epoch} is not kept: its gradient is out of bounds")
            return

        def write() -> None:
            self._check_weights()
            checkpoint.keep(self.folder, self.method, epoch)

        distributed.on_first(write)

    def _tell_past(self, log: RunLog) -> None:
        """Name the epochs that are asked for too late."""
        past = [epoch for epoch in self.settings.keep if epoch * self.steps_per_epoch <= self.done]
        lost = [str(epoch) for epoch in past if not checkpoint.kept_file(self.folder, epoch).exists()]
        if lost:
            log.say(f"not kept, since the run is beyond them: epochs {', '.join(lost)} (another --out trains anew)")

    def _tell_broken(self, log: RunLog) -> None:
        distributed.on_first(lambda: files.write_json(self.folder / "broken.json", self.broken))
        if self.broken:
            log.say(f"{len(self.broken)} unreadable videos were skipped (broken.json says why):")
            for name in sorted(self.broken):
                log.say(f"  {name}")


def _processes(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"


def shared_loader(
    dataset: ClipDataset,
    optim: OptimConfig,
    train: TrainConfig,
    *,
    workers: int,
    together: int = 1,
    order: Order | None = None,
) -> ClipLoader:
    """This process's share of the batches.

    together: videos that are not parted. workers: -1 is one per core. order: as for `ClipLoader`.
    """
    world = distributed.world()
    parts = world * train.accumulate
    if optim.batch % (parts * together):
        videos = f" of {together} videos at least" * (together > 1)
        raise StillmotionError(
            f"a batch of {optim.batch} cannot be shared by {world} processes × {train.accumulate} accumulated "
            f"parts{videos}; choose a multiple of {parts * together} (--optim.batch), or, for a run that goes on, a "
            "number of processes that divides its batch"
        )
    return ClipLoader(
        dataset,
        batch=optim.batch // parts,
        rank=distributed.rank(),
        world=world,
        seed=train.seed,
        workers=decoders(workers),
        order=order,
    )


def decoders(workers: int) -> int:
    """How many decoding processes this process starts; -1 is its share of one per core."""
    return workers if workers >= 0 else max(1, cores() // distributed.world())
