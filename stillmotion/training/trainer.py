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

from stillmotion.data.loading.clip_dataset import TrainClipDataset
from stillmotion.data.loading.collate import Batch, BatchWarnings, print_message
from stillmotion.data.loading.loader import ClipLoader
from stillmotion.data.loading.loader_config import num_cores
from stillmotion.data.loading.sampler import EpochOrder
from stillmotion.distributed import process_group
from stillmotion.errors import Interrupted, NonFiniteError, StillmotionError
from stillmotion.optim.gradient_allreduce import all_reduced_gradients
from stillmotion.optim.optimizers import OptimConfig, build_optimizer, lr_at_epoch, set_lr
from stillmotion.training import checkpoint
from stillmotion.training.config import RunConfig, TrainConfig
from stillmotion.training.dataset_fingerprint import NamedVideos, describe_changes, fingerprint_dataset
from stillmotion.training.loggers import check_loggers
from stillmotion.training.monitors import DeferredMetrics, DivergenceMonitor, InputCheck, global_norm, nonfinite_names
from stillmotion.training.run_log import RunLog
from stillmotion.training.runtime import StopRequest, defer_stop_signals, raise_on_stop_signals
from stillmotion.utils import files


class BatchSource(Protocol):
    """Where a run's batches come from: a `ClipLoader`, or what else numbers its steps."""

    steps_per_epoch: int

    def iter_epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]: ...


class Trainer:
    """A training run: its course from the first step to the last, the optimiser's step, its precision, its checkpoint.

    A task sets `loader`, hands what is trained to `setup`, and says in `train_step` what a step is.
    trainable_params: what is trained, by name. counted: clips or pairs of a step, by which its rate is shown.
    online_eval: called where an epoch begins or the last has ended, on every rank, to look at what is trained; it changes
        nothing of it. None where a task has nothing to look at.
    world_size_note: what depends on how many processes there are, in words, where anything does.
    """

    loader: BatchSource
    model: nn.Module
    trainable_params: Mapping[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    clips_per_step: int
    supports_online_eval: ClassVar[bool] = False
    online_eval: Callable[[RunLog], None] | None = None
    world_size_note: str = ""

    def __init__(self, config: RunConfig, run_dir: Path, device: torch.device) -> None:
        self.run_dir, self.device, self.optim_config, self.train_config = run_dir, device, config.optim, config.train
        self.clips_per_step = config.optim.batch_size
        late = [epoch for epoch in config.train.save_epochs if epoch > config.optim.epochs]
        if late:
            raise StillmotionError(
                f"train.save_epochs has epoch {late[0]}; the run has {config.optim.epochs} (--optim.epochs)"
            )
        if config.train.eval_every_epochs and not self.supports_online_eval:
            raise StillmotionError(
                f"train.eval_every_epochs is {config.train.eval_every_epochs}, but runs of {config.verb} are not evaluated "
                "in between; leave it out"
            )
        process_group.run_on_main(lambda: check_loggers(config.train.loggers))
        self.global_step = 0
        self.failed_videos: dict[str, str] = {}
        self.data_warnings = BatchWarnings()
        self.divergence_monitor = DivergenceMonitor()
        self._dataset_fingerprint: dict[str, Tensor] = {}
        self._resume_messages: list[str] = []
        self.grad_scaler = torch.amp.GradScaler(device.type, enabled=config.train.precision == "fp16")
        self.grad_scaler.scale(torch.zeros((), device=device))  # makes its state

    def setup(
        self,
        model: nn.Module,
        trainable_params: Mapping[str, nn.Parameter],
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        layer_depth: Callable[[str], int] | None = None,
    ) -> bool:
        """Take what is trained, make its optimiser, and go on from the folder's checkpoint; whether there is one.

        model: what a checkpoint holds. weights: of it, those that are moved. betas, depth: as for `build_optimizer`.
        """
        self.model, self.trainable_params = model, trainable_params
        self.input_check = InputCheck(self.total_steps)
        self.deferred_metrics = DeferredMetrics(
            self.divergence_monitor,
            self.input_check,
            allow_skipped_steps=self.grad_scaler.is_enabled(),
            make_error=self._divergence_error,
        )
        self.optimizer = build_optimizer(
            dict(trainable_params), self.optim_config, betas=betas, layer_depth=layer_depth
        )
        state = checkpoint.load_training_state(self.run_dir)
        if state is not None:
            self.load_state_dict(state)
        self.divergence_monitor.set_initial_weights(trainable_params.values())
        return state is not None

    def record_dataset(self, videos: NamedVideos, *, root: str = "", labels: Sequence[str] = ()) -> None:
        """Take note of what is trained on, for what a resumed run says of it; before `setup`, as for `digest`."""
        if process_group.get_rank() == 0:
            self._dataset_fingerprint = fingerprint_dataset(videos, root=root, labels=labels)

    def train_step(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        """Take a step from the next batches by `optimizer_step`, and return what is worth writing down beside its values."""
        raise NotImplementedError

    def _train_step_checked(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        """`train_step`; where NaN makes it stumble, the step that it came from is named."""
        try:
            return self.train_step(batches, epoch, log)
        except torch.linalg.LinAlgError:
            if self.deferred_metrics:
                self.deferred_metrics.flush()
            raise

    @property
    def steps_per_epoch(self) -> int:
        return self.loader.steps_per_epoch // self.train_config.grad_accum_steps

    @property
    def total_steps(self) -> int:
        return self.steps_per_epoch * self.optim_config.epochs

    def should_log(self, step: int) -> bool:
        """Whether the numbers of this step, from 1 on, are written down."""
        return step == self.total_steps or step % self.train_config.log_every_steps == 0

    def should_save_epoch(self, step: int) -> bool:
        """Whether an epoch ends with this step whose weights are kept."""
        epoch, inside = divmod(step, self.steps_per_epoch)
        return not inside and epoch in self.train_config.save_epochs

    def train(self) -> Path:
        """Take the steps that are left and return the run folder."""
        show, loggers = process_group.get_rank() == 0, self.train_config.loggers
        log = RunLog(
            self.run_dir, total_steps=self.total_steps, start_step=self.global_step, loggers=loggers, enabled=show
        )
        with log, defer_stop_signals() as request:
            if isinstance(self.loader, ClipLoader):
                self.loader.on_wait = lambda: self._stop_if_overdue(request)
            for line in self._resume_messages:
                log.info(line)
            if self.global_step:
                log.info(f"resuming {self.run_dir} at step {self.global_step} of {self.total_steps}")
            self._report_missed_epochs(log)
            while self.global_step < self.total_steps:
                epoch, inside = divmod(self.global_step, self.steps_per_epoch)
                if inside == 0:
                    self._run_online_eval(log)
                batches = self.loader.iter_epoch(epoch, start_step=inside * self.train_config.grad_accum_steps)
                for _ in range(inside, self.steps_per_epoch):
                    numbers = self._train_step_checked(batches, epoch, log)
                    last, logs, stop = (
                        self.global_step == self.total_steps,
                        self.should_log(self.global_step),
                        request.is_requested_on_any_rank(),
                    )
                    saves = stop or last or self.global_step % self.train_config.checkpoint_every_steps == 0
                    keeps = self.should_save_epoch(self.global_step)
                    if logs or saves or keeps or self.input_check.is_active(self.global_step):
                        numbers |= self.deferred_metrics.flush()
                    log.log_step(self.global_step, self.clips_per_step, numbers if logs else None)
                    if keeps:
                        self._save_epoch_weights(log)
                    kept = True
                    if saves:
                        kept = self._save_checkpoint(numbers["grad_norm"], last=last)
                    if stop and not last:
                        saved = "" if kept else f" with a gradient out of bounds; {self.describe_last_checkpoint()}"
                        at = f"step {self.global_step} of {self.total_steps}{saved}"
                        raise Interrupted(f"stopped at {at}; the same command resumes it", request.exit_code)
                self._report_short_videos(log)
            self._run_online_eval(log)
            self._report_failed_videos(log)
        return self.run_dir

    def _run_online_eval(self, log: RunLog) -> None:
        """Call `online_eval`. A run that is alone stops at once where it is asked to meanwhile; several do so after it."""
        if self.online_eval is None:
            return
        if self.deferred_metrics:
            self.deferred_metrics.flush()
        try:
            with raise_on_stop_signals() if process_group.get_world_size() == 1 else nullcontext():
                self.online_eval(log)
        except Interrupted as stop:
            kept = self.global_step > 0 and self._save_checkpoint(0.0, last=False)
            goes_on = "resumes it" if kept else "goes on from the last checkpoint"
            raise Interrupted(
                f"stopped at step {self.global_step} of {self.total_steps}, in an evaluation; the same command {goes_on}",
                stop.exit_code,
            ) from None

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a part of a step, its mean over ranks, to the gradients of the parts before."""
        for name, gradient in all_reduced_gradients(self.grad_scaler.scale(loss), self.trainable_params).items():
            weight = self.trainable_params[name]
            weight.grad = gradient if weight.grad is None else weight.grad + gradient

    def optimizer_step(self, metrics: Mapping[str, Tensor]) -> dict[str, float]:
        """Take an optimiser's step and return its rate and epoch.

        Gradients are those of all ranks, of losses times `scaler.get_scale()`.
        metrics: this rank's, by the names they are logged under; one that is not finite ends the run when it is read.
        """
        rate = lr_at_epoch(self.optim_config, self.global_step / self.steps_per_epoch)
        set_lr(self.optimizer, rate)
        self.grad_scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.trainable_params.values(), self.optim_config.max_grad_norm or math.inf)
        size = global_norm(self.trainable_params.values())
        self.grad_scaler.step(self.optimizer)
        self.grad_scaler.update()
        self.global_step += 1
        self.deferred_metrics.append(self.global_step, metrics, norm, size)
        return {"lr": rate, "epoch": self.global_step / self.steps_per_epoch}

    def _divergence_error(self, reason: str, step: int) -> NonFiniteError:
        rate = lr_at_epoch(self.optim_config, max(0, step - 1) / self.steps_per_epoch)
        precision = ", or use --train.precision fp32" if self.train_config.precision != "fp32" else ""
        advice = f"Lower --optim.lr or set --optim.max-grad-norm 1{precision}; the same folder goes on from there"
        return NonFiniteError(
            f"step {step}: {reason} (learning rate {rate:.2g}); {self.describe_last_checkpoint()}. {advice}"
        )

    def describe_last_checkpoint(self) -> str:
        """Where the weights are that a failed run falls back on, in words."""
        state = checkpoint.load_training_state(self.run_dir)
        where = f"{self.run_dir / checkpoint.WEIGHTS_FILE} of step {state['step']}" if state else "none was written yet"
        return f"last good checkpoint: {where}"

    def check_input(self, clips: Tensor) -> None:
        """See whether the clips (B, …, T, H, W) of a step show anything; those of its first steps must."""
        self.input_check.inspect(clips, self.global_step + 1)

    def record_failed_videos(self, batch: Batch, log: RunLog) -> None:
        """Name the videos of a batch that cannot be read, or only in part, each once."""
        for name, reason in batch["failed"]:
            if name not in self.failed_videos:
                self.failed_videos[name] = reason
                log.info(f"unreadable, skipped: {reason}")
        tell = log.info if log.enabled else print_message  # a rank's videos and decoders are its own
        for line in self.data_warnings.collect(batch):
            tell(line)

    def _report_short_videos(self, log: RunLog) -> None:
        """Say how many videos are too short, at the end of an epoch that showed them."""
        if isinstance(self.loader, ClipLoader):
            for part in process_group.all_gather_object(self.data_warnings):
                self.data_warnings.merge(part)
            for line in self.data_warnings.short_videos(self.loader.num_videos):
                log.info(line)

    def _stop_if_overdue(self, request: StopRequest) -> None:
        """End a run that was asked to stop and whose clips do not come."""
        if not request.is_overdue:
            return
        # Alone, and before a step has begun, this is where the last step ended.
        alone = process_group.get_world_size() == 1 and self.train_config.grad_accum_steps == 1
        if alone and self.deferred_metrics:
            self.deferred_metrics.flush()
        kept = alone and self.global_step > 0 and self._save_checkpoint(0.0, last=False)
        goes_on = "resumes it" if kept else "goes on from the last checkpoint"
        raise Interrupted(
            f"stopped at step {self.global_step} of {self.total_steps}, while clips did not come; the same command {goes_on}",
            request.exit_code,
        )

    def state_dict(self) -> dict[str, Any]:
        """What goes on after a resume, beside the method and the generators."""
        return {"optimizer": self.optimizer.state_dict(), "grad_scaler": self.grad_scaler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what a checkpoint holds."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if "grad_scaler" in state:  # runs in fp32 did not always write one
            self.grad_scaler.load_state_dict(state["grad_scaler"])
        self.global_step, self.failed_videos = state["step"], dict(state["failed_videos"])
        self._restore_rng(state["rng_states"])
        if "divergence_monitor" in state:  # older runs have none
            self.divergence_monitor.load_state_dict(state["divergence_monitor"])
        mended = process_group.run_on_main(lambda: checkpoint.repair_weights(self.run_dir, state))
        changed = (
            describe_changes(state["dataset_fingerprint"], self._dataset_fingerprint)
            if self._dataset_fingerprint and state.get("dataset_fingerprint")
            else None
        )
        self._resume_messages += [mended] if mended else []
        if changed:
            self._resume_messages.append(f"the videos are not those that {self.run_dir} was trained on: {changed}")

    def _restore_rng(self, rng_states: Sequence[dict[str, Any]]) -> None:
        """Go on with the generators that each rank had; of another number of processes, each has new ones."""
        world = process_group.get_world_size()
        if len(rng_states) == world:
            checkpoint.set_rng_state(rng_states[process_group.get_rank()])
            return
        checkpoint.seed_from(self.train_config.seed, self.global_step, process_group.get_rank())
        numbers = f"{_format_processes(world)} in place of {len(rng_states)}"
        self._resume_messages.append(
            f"{self.run_dir} goes on with {numbers}: the same clips in the same batches, up to rounding{self.world_size_note}"
        )

    def _save_checkpoint(self, grad_norm: float, *, last: bool) -> bool:
        """Write a checkpoint; whether it was, since none is where the gradient, of this norm, is out of bounds."""
        if self.divergence_monitor.steps_out_of_range:
            if last:
                raise self._divergence_error(self.divergence_monitor.describe_grad_norm(grad_norm), self.global_step)
            return False
        everyone = process_group.all_gather_object((checkpoint.get_rng_state(), self.failed_videos))
        for _, broken in everyone:
            self.failed_videos.update(broken)
        process_group.run_on_main(lambda: self._write_checkpoint([generators for generators, _ in everyone]))
        return True

    def _write_checkpoint(self, rng_states: list[dict[str, Any]]) -> None:
        """Both files of a checkpoint, if its weights are good."""
        self._check_weights_finite()
        course = {
            "step": self.global_step,
            "total_steps": self.total_steps,
            "failed_videos": self.failed_videos,
            "rng_states": rng_states,
        }
        history = {
            "divergence_monitor": self.divergence_monitor.state_dict(),
            "dataset_fingerprint": self._dataset_fingerprint,
        }
        checkpoint.save_checkpoint(self.run_dir, self.model, self.state_dict() | course | history)

    def _check_weights_finite(self) -> None:
        bad = nonfinite_names(self.model.state_dict())
        if bad:
            raise self._divergence_error(f"{bad[0]} is not finite", self.global_step)
        if grown := self.divergence_monitor.weight_norm_error(float(global_norm(self.trainable_params.values()))):
            raise self._divergence_error(grown, self.global_step)

    def _save_epoch_weights(self, log: RunLog) -> None:
        """Write the weights of the epoch that ends here: before a checkpoint, which is behind it."""
        epoch = self.global_step // self.steps_per_epoch
        if self.divergence_monitor.steps_out_of_range:
            log.info(f"epoch {epoch} is not kept: its gradient is out of bounds")
            return

        def write() -> None:
            self._check_weights_finite()
            checkpoint.save_epoch_weights(self.run_dir, self.model, epoch)

        process_group.run_on_main(write)

    def _report_missed_epochs(self, log: RunLog) -> None:
        """Name the epochs that are asked for too late."""
        past = [epoch for epoch in self.train_config.save_epochs if epoch * self.steps_per_epoch <= self.global_step]
        lost = [str(epoch) for epoch in past if not checkpoint.epoch_weights_path(self.run_dir, epoch).exists()]
        if lost:
            log.info(f"not kept, since the run is beyond them: epochs {', '.join(lost)} (another --out trains anew)")

    def _report_failed_videos(self, log: RunLog) -> None:
        process_group.run_on_main(lambda: files.write_json(self.run_dir / "failed_videos.json", self.failed_videos))
        if self.failed_videos:
            log.info(f"{len(self.failed_videos)} unreadable videos were skipped (failed_videos.json says why):")
            for name in sorted(self.failed_videos):
                log.info(f"  {name}")


def _format_processes(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"


def build_train_loader(
    dataset: TrainClipDataset,
    optim: OptimConfig,
    train: TrainConfig,
    *,
    num_workers: int,
    group_size: int = 1,
    sampler: EpochOrder | None = None,
) -> ClipLoader:
    """This process's share of the batches.

    group_size: videos that are not parted. workers: -1 is one per core. order: as for `ClipLoader`.
    """
    world = process_group.get_world_size()
    parts = world * train.grad_accum_steps
    if optim.batch_size % (parts * group_size):
        videos = f" of {group_size} videos at least" * (group_size > 1)
        raise StillmotionError(
            f"a batch of {optim.batch_size} cannot be shared by {world} processes × {train.grad_accum_steps} accumulated "
            f"parts{videos}; choose a multiple of {parts * group_size} (--optim.batch-size), or, for a run that goes on, a "
            "number of processes that divides its batch"
        )
    return ClipLoader(
        dataset,
        batch_size=optim.batch_size // parts,
        rank=process_group.get_rank(),
        world_size=world,
        seed=train.seed,
        num_workers=num_decode_workers(num_workers),
        epoch_order=sampler,
    )


def num_decode_workers(num_workers: int) -> int:
    """How many decoding processes this process starts; -1 is its share of one per core."""
    return num_workers if num_workers >= 0 else max(1, num_cores() // process_group.get_world_size())
