"""Whether a run still learns, or has left all bounds, by its own history."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stillmotion.distributed import collectives
from stillmotion.errors import NonFiniteError, StillmotionError

MAX_GRAD_NORM_RATIO = 1e4  # times its usual norm, beyond which a gradient is out of bounds
MAX_WEIGHT_NORM_RATIO = 1e3  # times their norm at the start, beyond which weights are
_WARMUP_STEPS = 10  # steps after which a gradient has a usual norm
_EMA_RATE = 0.02  # share of the last step in the usual norm
_MIN_REFERENCE_RATIO = (
    1e-2  # of its norm at first, below which a gradient's usual norm is not taken: what is learned, is small
)
_MAX_STEPS_OUT_OF_RANGE = 5  # gradients in a row that may be out of bounds
_INPUT_CHECK_STEPS = 3  # steps at the beginning of a run that may teach nothing
_MIN_PIXEL_RANGE = 1e-3  # of normalised pixels: far below one level of 255


class DivergenceMonitor:
    """The usual norm of a run's gradients, and the norm of its weights at the start.

    steps_out_of_range: gradients in a row, up to the last one, that are out of bounds.
    """

    def __init__(self) -> None:
        self.steps_out_of_range = 0
        self._steps, self._usual, self._least = 0, 0.0, -math.inf  # norms by their logarithms
        self._start = math.nan

    def set_initial_weights(self, weights: Iterable[Tensor]) -> None:
        """Take these weights as the start, where none is known."""
        if math.isnan(self._start):
            self._start = max(float(global_norm(weights)), 1.0)

    def update(self, grad_norm: float) -> None:
        """Take a step's gradient norm, which is finite, into the history, if it is within bounds."""
        height = math.log(max(grad_norm, 1e-30))
        usual = max(self._usual, self._least)
        self.steps_out_of_range = (
            self.steps_out_of_range + 1
            if self._steps >= _WARMUP_STEPS and height - usual > math.log(MAX_GRAD_NORM_RATIO)
            else 0
        )
        if self.steps_out_of_range:
            return
        self._steps += 1
        self._usual += (height - self._usual) * max(_EMA_RATE, 1 / self._steps)
        if self._steps == _WARMUP_STEPS:
            self._least = self._usual + math.log(_MIN_REFERENCE_RATIO)

    def weight_norm_error(self, weight_norm: float) -> str | None:
        """How much the weights, now of this norm, have grown, in words, if it is too much."""
        if weight_norm <= MAX_WEIGHT_NORM_RATIO * self._start:
            return None
        return f"the weights have grown from a norm of {self._start:.3g} to {weight_norm:.3g}"

    def grad_norm_error(self, grad_norm: float) -> str | None:
        """How far the gradient, now of this norm, is out of bounds, in words, if it was so too often."""
        return self.describe_grad_norm(grad_norm) if self.steps_out_of_range >= _MAX_STEPS_OUT_OF_RANGE else None

    def describe_grad_norm(self, grad_norm: float) -> str:
        """How far the gradient, now of this norm, is out of bounds, in words."""
        usual = math.exp(max(self._usual, self._least))
        return f"the gradient has a norm of {grad_norm:.3g}, where {usual:.3g} is usual"

    def state_dict(self) -> dict[str, Any]:
        return {
            "steps": self._steps,
            "mean_log_norm": self._usual,
            "min_log_norm": self._least,
            "initial_weight_norm": self._start,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._steps, self._usual = state["steps"], state["mean_log_norm"]
        self._least, self._start = state["min_log_norm"], state["initial_weight_norm"]


class InputCheck:
    """Whether the first steps of a run teach anything: its clips differ, its losses and gradients are not all 0.

    total_steps: steps of the run.
    """

    def __init__(self, total_steps: int) -> None:
        self._first = min(_INPUT_CHECK_STEPS, total_steps)
        self._looks: list[str | None] = []
        self._seen = self._idle = 0

    def is_active(self, step: int) -> bool:
        """Whether this step, from 1 on, is one of the first."""
        return step <= self._first

    def inspect(self, clips: Tensor, step: int) -> None:
        """See whether the clips (B, …, T, H, W) of a step, or of a part of it, show anything. step: from 1 on."""
        if self.is_active(step):
            self._looks.append(_constant_input_reason(clips))

    @property
    def is_constant(self) -> bool:
        """Whether nothing that was looked at in this step shows anything."""
        return bool(self._looks) and all(self._looks)

    def failure_reason(
        self, step: int, losses: Mapping[str, float], grad_norm: float, *, is_constant: bool
    ) -> str | None:
        """Why nothing is learned, in words, where no step up to now taught anything. blank: on all ranks."""
        if not self.is_active(step):
            return None
        reason = self._looks[0] if is_constant and self._looks else None
        if reason is None and losses and not any(losses.values()):
            reason = (
                "every loss is exactly 0: there is nothing to tell apart; raise --optim.batch-size, or look at --data"
            )
        if reason is None and grad_norm == 0:
            reason = "the gradient is exactly 0, and nothing is learned; look whether the videos differ at all (--data)"
        self._looks.clear()
        self._seen += 1
        self._idle += reason is not None
        return reason if step == self._first and self._idle == self._seen else None


def global_norm(tensors: Iterable[Tensor]) -> Tensor:
    return nn.utils.get_total_norm([t.detach() for t in tensors])


def _constant_input_reason(clips: Tensor) -> str | None:
    """In what way clips show nothing, if they do."""
    pixels = clips.float().flatten(-3)
    if float((pixels.amax(-1) - pixels.amin(-1)).max()) < _MIN_PIXEL_RANGE:
        return "every clip is of one colour throughout; look whether the videos show anything (--data)"
    videos = clips.flatten(1)
    if len(videos) > 1 and float((videos[1:] - videos[:1]).abs().max()) < _MIN_PIXEL_RANGE:
        return "all clips of a batch are the same; look whether the videos differ (--data)"
    return None


def nonfinite_names(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors that hold a NaN or an infinity."""
    return [name for name, t in tensors.items() if t.is_floating_point() and not torch.isfinite(t).all()]


_MAX_SKIPPED_STEPS = 20  # steps in a row that fp16 may skip while its scale settles


class _PendingStep(NamedTuple):
    """What a step left: values by name, then the gradient's norm, the weights' and a share of blanks."""

    step: int
    names: tuple[str, ...]
    values: Tensor


class DeferredMetrics:
    """The numbers of steps that nobody has looked at yet.

    divergence_monitor, input_check: what they are held against. skips: whether a step may be left out while a scale settles.
    make_error: makes the error of what is wrong, in words, and of the step it is wrong at.
    """

    def __init__(
        self,
        divergence_monitor: DivergenceMonitor,
        input_check: InputCheck,
        *,
        allow_skipped_steps: bool,
        make_error: Callable[[str, int], NonFiniteError],
    ) -> None:
        self._bounds, self._teaching, self._skips, self._diverged = (
            divergence_monitor,
            input_check,
            allow_skipped_steps,
            make_error,
        )
        self._skipped = 0
        self._rows: list[_PendingStep] = []

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, step: int, values: Mapping[str, Tensor], grad_norm: Tensor, weight_norm: Tensor) -> None:
        """Keep a step's values by name, its gradient's norm and its weights' before it; nothing is waited for."""
        blank = torch.full_like(grad_norm, float(self._teaching.is_constant))
        self._rows.append(
            _PendingStep(step, tuple(values), torch.stack([*values.values(), grad_norm, weight_norm, blank]).float())
        )

    def flush(self) -> dict[str, float]:
        """What the last step left, means over ranks; raises where it, or one before it, left its bounds."""
        rows, self._rows = self._rows, []
        means = torch.cat([row.values for row in rows])
        collectives.all_reduce_mean_([means])
        left = iter(means.tolist())
        for row in rows:
            *found, size, blank = (next(left) for _ in row.values)
            numbers = dict(zip([*row.names, "grad_norm"], found, strict=True))
            bad = [name for name, value in numbers.items() if not math.isfinite(value)]
            self._skipped = self._skipped + 1 if bad else 0
            if bad and not (self._skips and self._skipped <= _MAX_SKIPPED_STEPS):
                raise self._diverged(f"{', '.join(bad)} is not finite", row.step)
            if not bad:
                self._check(row.step, numbers, size, is_constant=blank == 1)
        return numbers

    def _check(self, step: int, metrics: Mapping[str, float], weight_norm: float, *, is_constant: bool) -> None:
        """Raises where the run learns nothing, or has left its bounds. size: of its weights before the step."""
        norm = metrics["grad_norm"]
        losses = {name: value for name, value in metrics.items() if name.startswith("loss/")}
        reason = self._teaching.failure_reason(step, losses, norm, is_constant=is_constant)
        if reason:
            raise StillmotionError(f"step {step}: {reason}")
        self._bounds.update(norm)
        if grown := self._bounds.weight_norm_error(weight_norm):
            raise self._diverged(grown, step - 1)
        if strayed := self._bounds.grad_norm_error(norm):
            raise self._diverged(strayed, step)
