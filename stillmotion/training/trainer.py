"""The trainer: the loop and the optimizer step of all training verbs, in any precision, with checkpoints and resume.

Metrics of a step stay on the device (`DeferredMetrics`); the loop waits for them only when they are logged or weights
are saved.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from stillmotion.data.loading.collate import Batch
from stillmotion.data.loading.loader import ClipLoader
from stillmotion.distributed import process_group
from stillmotion.errors import Interrupted, NonFiniteError, StillmotionError
from stillmotion.optim.gradient_allreduce import all_reduced_gradients
from stillmotion.optim.optimizers import build_optimizer, lr_at_epoch, set_lr
from stillmotion.training import checkpoint
from stillmotion.training.checkpoint import CheckpointManager
from stillmotion.training.config import RunConfig
from stillmotion.training.dataset_fingerprint import NamedVideos, describe_changes, fingerprint_dataset
from stillmotion.training.loggers import check_loggers
from stillmotion.training.monitors import (
    DataWarnings,
    DeferredMetrics,
    DivergenceMonitor,
    InputCheck,
    global_norm,
    nonfinite_names,
)
from stillmotion.training.run_log import RunLog
from stillmotion.training.runtime import StopRequest, defer_stop_signals, raise_on_stop_signals


class BatchSource(Protocol):
    """Protocol of a batch source, such as `ClipLoader`: steps per epoch and an iterator per epoch."""

    steps_per_epoch: int

    def iter_epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]: ...


class Trainer:
    """Base class of all training runs: loop, optimizer step, precision, checkpoints, resume.

    A subclass sets `loader`, passes its model to `setup` and implements `train_step`.

    Args:
        config: Configuration of the run.
        run_dir: The run directory.
        device: Device to train on.

    Attributes:
        loader: Source of batches.
        model: The model, whose weights are saved.
        trainable_params: Its trainable parameters by name.
        optimizer: Optimizer of these parameters.
        clips_per_step: Clips or pairs per step, for the displayed speed.
        supports_online_eval: Whether the verb has an online evaluation.
        online_eval: Called on every rank before an epoch and after the last; it does not affect training.
        world_size_note: What changes if a run is resumed with another number of processes.
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
                f"--train.save-epochs contains epoch {late[0]}, but the run has only {config.optim.epochs} epochs "
                "(--optim.epochs)."
            )
        if config.train.eval_every_epochs and not self.supports_online_eval:
            raise StillmotionError(
                f"--train.eval-every-epochs is {config.train.eval_every_epochs}, but {config.verb} has no online "
                "evaluation. Remove the option."
            )
        process_group.run_on_main(lambda: check_loggers(config.train.loggers))
        self.global_step = 0
        self.data_warnings = DataWarnings()
        self.divergence_monitor = DivergenceMonitor()
        self.checkpoints = CheckpointManager(run_dir, self._check_weights)
        self._dataset_fingerprint: dict[str, Tensor] = {}
        self._resume_messages: list[str] = []
        self.grad_scaler = torch.amp.GradScaler(device.type, enabled=config.train.precision == "fp16")
        self.grad_scaler.scale(torch.zeros((), device=device))  # initializes its state

    def setup(
        self,
        model: nn.Module,
        trainable_params: Mapping[str, nn.Parameter],
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        layer_depth: Callable[[str], int] | None = None,
    ) -> bool:
        """Set the model, build its optimizer and load the last checkpoint.

        Args:
            model: The model, whose weights are saved.
            trainable_params: Its trainable parameters by name.
            betas: Betas of AdamW.
            layer_depth: Depth of a parameter's layer, for layer-wise learning rates.

        Returns:
            Whether there was a checkpoint.
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
        """Record a fingerprint of the training videos, so that a resumed run reports changes; call before `setup`.

        Args:
            videos: The training videos.
            root: Directory that names are relative to.
            labels: Labels of the videos, if known.
        """
        if process_group.get_rank() == 0:
            self._dataset_fingerprint = fingerprint_dataset(videos, root=root, labels=labels)

    def train_step(self, batches: Iterator[Batch], epoch: int, log: RunLog) -> dict[str, float]:
        """Run one optimizer step and return extra metrics. Implemented by subclasses.

        Args:
            batches: Iterator of the epoch's batches.
            epoch: Number of the epoch, counted from 0.
            log: Log of the run.
        """
        raise NotImplementedError

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps per epoch."""
        return self.loader.steps_per_epoch // self.train_config.grad_accum_steps

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.steps_per_epoch * self.optim_config.epochs

    def should_log(self, step: int) -> bool:
        """Return whether metrics of this step (counted from 1) are logged."""
        return step == self.total_steps or step % self.train_config.log_every_steps == 0

    def train(self) -> Path:
        """Train to the last step and return the run directory."""
        log = RunLog(
            self.run_dir,
            total_steps=self.total_steps,
            start_step=self.global_step,
            loggers=self.train_config.loggers,
            enabled=process_group.get_rank() == 0,
        )
        with log, defer_stop_signals() as request:
            if isinstance(self.loader, ClipLoader):
                self.loader.on_wait = lambda: self._stop_if_overdue(request)
            for message in self._resume_messages:
                log.info(message)
            if self.global_step:
                log.info(f"Resuming {self.run_dir} at step {self.global_step} of {self.total_steps}")
            self._report_missed_epochs(log)
            while self.global_step < self.total_steps:
                self._train_epoch(log, request)
            self._run_online_eval(log)
            self.data_warnings.write_report(self.run_dir)
        return self.run_dir

    def _train_epoch(self, log: RunLog, request: StopRequest) -> None:
        """Run the remaining steps of the current epoch."""
        epoch, first_step = divmod(self.global_step, self.steps_per_epoch)
        if first_step == 0:
            self._run_online_eval(log)
            if self.global_step >= self.total_steps:  # the evaluation ended the run
                return
        batches = self.loader.iter_epoch(epoch, start_step=first_step * self.train_config.grad_accum_steps)
        for _ in range(first_step, self.steps_per_epoch):
            try:
                metrics = self.train_step(batches, epoch, log)
            except torch.linalg.LinAlgError:  # because of NaN: raise the error of the step that it came from
                self.deferred_metrics.flush()
                raise
            self._after_step(metrics, log, request)
        if isinstance(self.loader, ClipLoader):
            self.data_warnings.report_short_videos(self.loader.num_videos)

    def _after_step(self, metrics: dict[str, float], log: RunLog, request: StopRequest) -> None:
        """Log and save what is due after a step; raise `Interrupted` if a stop was requested."""
        step, is_last = self.global_step, self.global_step == self.total_steps
        logs, stop = self.should_log(step), request.is_requested_on_any_rank()
        saves_epoch = step / self.steps_per_epoch in self.train_config.save_epochs
        saves = stop or is_last or step % self.train_config.checkpoint_every_steps == 0
        if logs or saves or saves_epoch or self.input_check.is_active(step):
            metrics |= self.deferred_metrics.flush()
        log.log_step(step, self.clips_per_step, metrics if logs else None)
        if saves_epoch:
            self._save_epoch_weights(log)
        saved = not saves or self._save_checkpoint(metrics["grad_norm"], is_last=is_last)
        if stop and not is_last:
            reason = "" if saved else f", with a gradient norm out of range. {self.checkpoints.describe_last()}"
            raise Interrupted(
                f"Stopped at step {step} of {self.total_steps}{reason}. Run the same command to resume.",
                request.exit_code,
            )

    def _run_online_eval(self, log: RunLog) -> None:
        """Call `online_eval`; a single process stops immediately on a signal, several stop after it."""
        if self.online_eval is None:
            return
        self.deferred_metrics.flush()
        try:
            with raise_on_stop_signals() if process_group.get_world_size() == 1 else nullcontext():
                self.online_eval(log)
        except Interrupted as stop:
            raise self._save_and_stop("during online evaluation", stop.exit_code) from None

    def _save_and_stop(self, when: str, exit_code: int, *, can_save: bool = True) -> Interrupted:
        """Save a checkpoint between two steps, if possible, and return the error that ends the run."""
        saved = can_save and self.global_step > 0 and self._save_checkpoint(0.0, is_last=False)
        resume = "resume" if saved else "resume from the last checkpoint"
        return Interrupted(
            f"Stopped at step {self.global_step} of {self.total_steps} {when}. Run the same command to {resume}.",
            exit_code,
        )

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of a micro-batch loss, averaged over ranks."""
        for name, gradient in all_reduced_gradients(self.grad_scaler.scale(loss), self.trainable_params).items():
            weight = self.trainable_params[name]
            weight.grad = gradient if weight.grad is None else weight.grad + gradient

    def optimizer_step(self, metrics: Mapping[str, Tensor]) -> dict[str, float]:
        """Run the optimizer step on gradients of all ranks, of losses times `grad_scaler.get_scale()`.

        Args:
            metrics: Metrics of this rank by name; one that is not finite ends the run when it is read.

        Returns:
            Learning rate and epoch.
        """
        lr = lr_at_epoch(self.optim_config, self.global_step / self.steps_per_epoch)
        set_lr(self.optimizer, lr)
        self.grad_scaler.unscale_(self.optimizer)
        grad_norm = nn.utils.clip_grad_norm_(
            self.trainable_params.values(), self.optim_config.max_grad_norm or math.inf
        )
        weight_norm = global_norm(self.trainable_params.values())
        self.grad_scaler.step(self.optimizer)
        self.grad_scaler.update()
        self.global_step += 1
        self.deferred_metrics.append(self.global_step, metrics, grad_norm, weight_norm)
        return {"lr": lr, "epoch": self.global_step / self.steps_per_epoch}

    def _divergence_error(self, reason: str, step: int) -> NonFiniteError:
        lr = lr_at_epoch(self.optim_config, max(0, step - 1) / self.steps_per_epoch)
        precision = ", or use --train.precision fp32" if self.train_config.precision != "fp32" else ""
        return NonFiniteError(
            f"Training diverged at step {step}: {reason} (learning rate {lr:.2g}). {self.checkpoints.describe_last()}. "
            f"Lower --optim.lr or set --optim.max-grad-norm 1{precision}; the same command then resumes from that "
            "checkpoint."
        )

    def check_batch(self, batch: Batch, *, check_clips: bool = True) -> None:
        """Report the unreadable videos of a batch, and check in the first steps that its clips are not constant.

        Args:
            batch: The batch, with clips (B, …, T, H, W).
            check_clips: Whether its clips are read.
        """
        self.data_warnings.update(batch)
        if check_clips:
            self.input_check.inspect(batch["clips"], self.global_step + 1)

    def _stop_if_overdue(self, request: StopRequest) -> None:
        """Stop while waiting for clips, if a stop was requested some time ago."""
        if not request.is_overdue:
            return
        # A single process that has not begun a step is where the last step ended.
        can_save = process_group.get_world_size() == 1 and self.train_config.grad_accum_steps == 1
        if can_save:
            self.deferred_metrics.flush()
        raise self._save_and_stop("while waiting for clips", request.exit_code, can_save=can_save)

    def state_dict(self) -> dict[str, Any]:
        """Return optimizer and grad-scaler state for the checkpoint."""
        return {"optimizer": self.optimizer.state_dict(), "grad_scaler": self.grad_scaler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore model, optimizer, step, failed videos and random generators from a checkpoint."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.grad_scaler.load_state_dict(state["grad_scaler"])
        self.global_step, self.data_warnings.failed_videos = state["step"], dict(state["failed_videos"])
        self.divergence_monitor.load_state_dict(state["divergence_monitor"])
        if change := self.checkpoints.restore_rng(state["rng_states"], self.train_config.seed, self.global_step):
            self._resume_messages.append(f"{change}; batches are unchanged up to rounding{self.world_size_note}.")
        if repaired := process_group.run_on_main(lambda: checkpoint.repair_weights(self.run_dir, state)):
            self._resume_messages.append(repaired)
        previous = state["dataset_fingerprint"]
        current = self._dataset_fingerprint
        if previous and current and (changes := describe_changes(previous, current)):
            self._resume_messages.append(f"The data set has changed since {self.run_dir} was started: {changes}")

    def _save_checkpoint(self, grad_norm: float, *, is_last: bool) -> bool:
        """Write a checkpoint, unless the gradient norm is out of range; return whether it was written."""
        if self.divergence_monitor.steps_out_of_range:
            if is_last:
                raise self._divergence_error(self.divergence_monitor.describe_grad_norm(grad_norm), self.global_step)
            return False
        self.data_warnings.merge_ranks()
        progress = {
            "step": self.global_step,
            "total_steps": self.total_steps,
            "failed_videos": self.data_warnings.failed_videos,
            "divergence_monitor": self.divergence_monitor.state_dict(),
            "dataset_fingerprint": self._dataset_fingerprint,
        }
        self.checkpoints.save(self.model, self.state_dict() | progress)
        return True

    def _check_weights(self) -> None:
        """Raise if the weights are not finite or have grown too much."""
        if names := nonfinite_names(self.model.state_dict()):
            raise self._divergence_error(f"{names[0]} is not finite", self.global_step)
        weight_norm = float(global_norm(self.trainable_params.values()))
        if reason := self.divergence_monitor.weight_norm_error(weight_norm):
            raise self._divergence_error(reason, self.global_step)

    def _save_epoch_weights(self, log: RunLog) -> None:
        """Save the weights of the epoch that ends here."""
        epoch = self.global_step // self.steps_per_epoch
        if self.divergence_monitor.steps_out_of_range:
            log.info(f"Weights of epoch {epoch} were not saved: the gradient norm is out of range.")
        else:
            self.checkpoints.save_epoch(self.model, epoch)

    def _report_missed_epochs(self, log: RunLog) -> None:
        past = [epoch for epoch in self.train_config.save_epochs if epoch * self.steps_per_epoch <= self.global_step]
        missed = ", ".join(map(str, self.checkpoints.missing_epochs(past)))
        if missed:
            log.info(
                f"Epochs {missed} of --train.save-epochs are already past and were not saved. Use another --out to "
                "train again."
            )
