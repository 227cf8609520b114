"""Monitors of a training run: divergence, constant input, delayed metrics, and problems of its videos."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stillmotion.data.loading.collate import Batch, BatchWarnings
from stillmotion.distributed import collectives, process_group
from stillmotion.errors import NonFiniteError, StillmotionError
from stillmotion.utils import files

logger = logging.getLogger(__name__)
FAILED_VIDEOS_FILE = "failed_videos.json"
MAX_GRAD_NORM_RATIO = 1e4  # a gradient norm above this factor times the running norm is out of range
MAX_WEIGHT_NORM_RATIO = 1e3  # limit of the weight norm, as a factor of the initial one
_WARMUP_STEPS = 10  # before gradient norms are checked
_EMA_RATE = 0.02  # of the running gradient norm
# Smallest reference, as a fraction of the first norms: gradients may become small when a run has converged.
_MIN_REFERENCE_RATIO = 1e-2
_MAX_STEPS_OUT_OF_RANGE = 5  # consecutive steps that may be out of range
_INPUT_CHECK_STEPS = 3  # first steps of a run, one of which must learn something
_MIN_PIXEL_RANGE = 1e-3  # of normalized pixels: far below one level of 255
_MAX_SKIPPED_STEPS = 20  # consecutive steps that fp16 may skip while its scale settles


class DivergenceMonitor:
    """Detects divergence from the history of gradient norms and the initial weight norm.

    Attributes:
        steps_out_of_range: Consecutive steps, up to the last one, whose gradient norm is out of range.
    """

    def __init__(self) -> None:
        self.steps_out_of_range = 0
        self._steps, self._mean_log_norm, self._min_log_norm = 0, 0.0, -math.inf
        self._initial_weight_norm = math.nan

    def set_initial_weights(self, weights: Iterable[Tensor]) -> None:
        """Record the initial weight norm, unless a checkpoint has set it."""
        if math.isnan(self._initial_weight_norm):
            self._initial_weight_norm = max(float(global_norm(weights)), 1.0)

    def update(self, grad_norm: float) -> None:
        """Update the running gradient norm; norms out of range are counted instead."""
        log_norm = math.log(max(grad_norm, 1e-30))
        usual = max(self._mean_log_norm, self._min_log_norm)
        self.steps_out_of_range = (
            self.steps_out_of_range + 1
            if self._steps >= _WARMUP_STEPS and log_norm - usual > math.log(MAX_GRAD_NORM_RATIO)
            else 0
        )
        if self.steps_out_of_range:
            return
        self._steps += 1
        self._mean_log_norm += (log_norm - self._mean_log_norm) * max(_EMA_RATE, 1 / self._steps)
        if self._steps == _WARMUP_STEPS:
            self._min_log_norm = self._mean_log_norm + math.log(_MIN_REFERENCE_RATIO)

    def weight_norm_error(self, weight_norm: float) -> str | None:
        """Return an error text if the weight norm has grown too much, else None."""
        if weight_norm <= MAX_WEIGHT_NORM_RATIO * self._initial_weight_norm:
            return None
        return f"the weight norm grew from {self._initial_weight_norm:.3g} to {weight_norm:.3g}"

    def grad_norm_error(self, grad_norm: float) -> str | None:
        """Return an error text if the gradient norm has been out of range too often, else None."""
        return self.describe_grad_norm(grad_norm) if self.steps_out_of_range >= _MAX_STEPS_OUT_OF_RANGE else None

    def describe_grad_norm(self, grad_norm: float) -> str:
        """Describe the gradient norm next to its usual value."""
        usual = math.exp(max(self._mean_log_norm, self._min_log_norm))
        return f"gradient norm {grad_norm:.3g}, usually about {usual:.3g}"

    def state_dict(self) -> dict[str, Any]:
        """Return the history for a checkpoint."""
        return {
            "steps": self._steps,
            "mean_log_norm": self._mean_log_norm,
            "min_log_norm": self._min_log_norm,
            "initial_weight_norm": self._initial_weight_norm,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the history from a checkpoint."""
        self._steps, self._mean_log_norm = state["steps"], state["mean_log_norm"]
        self._min_log_norm, self._initial_weight_norm = state["min_log_norm"], state["initial_weight_norm"]


class InputCheck:
    """Checks the first steps of a run: clips must differ, losses and gradients must not all be 0.

    Args:
        total_steps: Steps of the run.
    """

    def __init__(self, total_steps: int) -> None:
        self._first = min(_INPUT_CHECK_STEPS, total_steps)
        self._reasons: list[str | None] = []
        self._num_steps = self._num_failures = 0

    def is_active(self, step: int) -> bool:
        """Return whether this step (counted from 1) is checked."""
        return step <= self._first

    def inspect(self, clips: Tensor, step: int) -> None:
        """Check the clips of a step or micro-batch for constant content.

        Args:
            clips: Clips (B, …, T, H, W).
            step: Number of the step, counted from 1.
        """
        if self.is_active(step):
            self._reasons.append(_constant_input_reason(clips))

    @property
    def is_constant(self) -> bool:
        """Whether all clips of this step were constant."""
        return bool(self._reasons) and all(self._reasons)

    def failure_reason(
        self, step: int, losses: Mapping[str, float], grad_norm: float, *, is_constant: bool
    ) -> str | None:
        """Return why nothing is learned, if all checked steps failed; else None.

        Args:
            step: Number of the step, counted from 1.
            losses: Losses by name.
            grad_norm: Norm of the gradient.
            is_constant: Whether clips were constant on all ranks.
        """
        if not self.is_active(step):
            return None
        reason = self._reasons[0] if is_constant and self._reasons else None
        if reason is None and losses and not any(losses.values()):
            reason = "All losses are exactly 0. Increase --optim.batch-size, or check the videos (--data)."
        if reason is None and grad_norm == 0:
            reason = "The gradient is exactly 0. Check that the videos differ (--data)."
        self._reasons.clear()
        self._num_steps += 1
        self._num_failures += reason is not None
        return reason if step == self._first and self._num_failures == self._num_steps else None


def global_norm(tensors: Iterable[Tensor]) -> Tensor:
    """Return the L2 norm of all tensors together."""
    return nn.utils.get_total_norm([t.detach() for t in tensors])


def _constant_input_reason(clips: Tensor) -> str | None:
    """Why clips are constant; None if they are not."""
    pixels = clips.float().flatten(-3)
    if float((pixels.amax(-1) - pixels.amin(-1)).max()) < _MIN_PIXEL_RANGE:
        return "All clips have a single constant color. Check the videos (--data)."
    videos = clips.flatten(1)
    if len(videos) > 1 and float((videos[1:] - videos[:1]).abs().max()) < _MIN_PIXEL_RANGE:
        return "All clips of a batch are identical. Check that the videos differ (--data)."
    return None


def nonfinite_names(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return names of the tensors that contain NaN or infinity."""
    return [name for name, t in tensors.items() if t.is_floating_point() and not torch.isfinite(t).all()]


class _PendingStep(NamedTuple):
    """Metrics of a step: values by name, then gradient norm, weight norm and fraction of constant input."""

    step: int
    names: tuple[str, ...]
    values: Tensor


class DeferredMetrics:
    """Keeps step metrics on the device and checks them when they are read, to avoid synchronization.

    Args:
        divergence_monitor: Checks gradient and weight norms.
        input_check: Checks the first steps.
        allow_skipped_steps: Whether steps may have metrics that are not finite, while the scale of fp16 settles.
        make_error: Builds the error from a reason and the number of the step.
    """

    def __init__(
        self,
        divergence_monitor: DivergenceMonitor,
        input_check: InputCheck,
        *,
        allow_skipped_steps: bool,
        make_error: Callable[[str, int], NonFiniteError],
    ) -> None:
        self._monitor, self._input_check = divergence_monitor, input_check
        self._allow_skipped_steps, self._make_error = allow_skipped_steps, make_error
        self._skipped = 0
        self._rows: list[_PendingStep] = []

    def append(self, step: int, values: Mapping[str, Tensor], grad_norm: Tensor, weight_norm: Tensor) -> None:
        """Queue a step's metrics without synchronizing.

        Args:
            step: Number of the step, counted from 1.
            values: Metrics by name, on the device.
            grad_norm: Norm of the gradient.
            weight_norm: Norm of the weights before the step.
        """
        constant = torch.full_like(grad_norm, float(self._input_check.is_constant))
        stacked = torch.stack([*values.values(), grad_norm, weight_norm, constant]).float()
        self._rows.append(_PendingStep(step, tuple(values), stacked))

    def flush(self) -> dict[str, float]:
        """Average queued metrics over ranks, check every step, and return the last step's metrics. Collective."""
        rows, self._rows = self._rows, []
        if not rows:
            return {}
        means = torch.cat([row.values for row in rows])
        collectives.all_reduce_mean_([means])
        values = iter(means.tolist())
        for row in rows:
            *step_values, weight_norm, constant = (next(values) for _ in row.values)
            metrics = dict(zip([*row.names, "grad_norm"], step_values, strict=True))
            nonfinite = [name for name, value in metrics.items() if not math.isfinite(value)]
            self._skipped = self._skipped + 1 if nonfinite else 0
            if nonfinite and not (self._allow_skipped_steps and self._skipped <= _MAX_SKIPPED_STEPS):
                raise self._make_error(f"{', '.join(nonfinite)} is not finite", row.step)
            if not nonfinite:
                self._check(row.step, metrics, weight_norm, is_constant=constant == 1)
        return metrics

    def _check(self, step: int, metrics: Mapping[str, float], weight_norm: float, *, is_constant: bool) -> None:
        """Raise if the run learns nothing or has diverged; weight_norm is that before the step."""
        grad_norm = metrics["grad_norm"]
        losses = {name: value for name, value in metrics.items() if name.startswith("loss/")}
        reason = self._input_check.failure_reason(step, losses, grad_norm, is_constant=is_constant)
        if reason:
            raise StillmotionError(f"Nothing is learned at step {step}: {reason}")
        self._monitor.update(grad_norm)
        if error := self._monitor.weight_norm_error(weight_norm):
            raise self._make_error(error, step - 1)
        if error := self._monitor.grad_norm_error(grad_norm):
            raise self._make_error(error, step)


class DataWarnings:
    """Collects what is wrong with the videos of a run and logs each problem once.

    Attributes:
        failed_videos: Reasons by name of videos that could not be read.
    """

    def __init__(self) -> None:
        self.failed_videos: dict[str, str] = {}
        self._batch_warnings = BatchWarnings()

    def update(self, batch: Batch) -> None:
        """Record and log the problems of a batch's videos."""
        for name, reason in batch["failed"]:
            if name not in self.failed_videos:
                self.failed_videos[name] = reason
                if process_group.get_rank() == 0:
                    logger.warning("Skipped unreadable video: %s", reason)
        for message in self._batch_warnings.collect(batch):
            logger.warning(message)

    def merge_ranks(self) -> None:
        """Include the failed videos of all ranks. Collective."""
        for failed_videos in process_group.all_gather_object(self.failed_videos):
            self.failed_videos.update(failed_videos)

    def report_short_videos(self, num_videos: int) -> None:
        """Log how many videos are shorter than a clip, the first time that there are some. Collective."""
        for other in process_group.all_gather_object(self._batch_warnings):
            self._batch_warnings.merge(other)
        for message in self._batch_warnings.short_videos(num_videos):
            if process_group.get_rank() == 0:
                logger.warning(message)

    def write_report(self, run_dir: Path) -> None:
        """Write failed_videos.json and log the names of failed videos. Collective."""
        process_group.run_on_main(lambda: files.write_json(run_dir / FAILED_VIDEOS_FILE, self.failed_videos))
        if self.failed_videos and process_group.get_rank() == 0:
            names = "\n".join(f"  {name}" for name in sorted(self.failed_videos))
            logger.warning(
                "Skipped %d unreadable videos; reasons are in %s:\n%s",
                len(self.failed_videos),
                FAILED_VIDEOS_FILE,
                names,
            )
