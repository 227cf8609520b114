"""A step in any precision: autocast, the scale that keeps float16 from underflow, and what is done about overflow."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stillmotion import distributed
from stillmotion.config import TrainConfig
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.train.run import Run, bad_numbers

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_PATIENCE = 20  # steps in a row that fp16 may skip while its scale settles


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The context in which a forward pass has this precision."""
    dtype = PRECISIONS[precision]
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)


class ScaledRun(Run):
    """A run whose weights are moved by gradients of losses times `scaler.get_scale()`.

    weights: what is trained, by name.
    """

    weights: Mapping[str, nn.Parameter]

    def __init__(self, folder: Path, device: torch.device, optim: OptimConfig, train: TrainConfig) -> None:
        super().__init__(folder, device, optim, train)
        self.scaler = torch.amp.GradScaler(device.type, enabled=train.precision == "fp16")
        self.scaler.scale(torch.zeros((), device=device))  # makes its state
        self.skipped = 0

    def move(self, values: Mapping[str, Tensor]) -> dict[str, float]:
        """Take an optimiser's step by the gradients of all ranks; the numbers worth writing down.

        values: this rank's, by the names they are logged under; one that is not finite ends the run.
        """
        rate = self.set_rate()
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.weights.values(), self.optim.clip or math.inf)
        means = torch.stack([*values.values(), norm]).float()
        distributed.average_([means])
        numbers = dict(zip([*values, "gradient_norm"], means.tolist(), strict=True))
        bad = bad_numbers(numbers)
        self.skipped = self.skipped + 1 if bad else 0
        if bad and not (self.scaler.is_enabled() and self.skipped <= _PATIENCE):
            raise self.not_finite(bad, rate, "Lower --optim.lr, set --optim.clip 1, or use --train.precision fp32")
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.done += 1
        return numbers | {"lr": rate, "epoch": self.done / self.steps_per_epoch}

    def state(self) -> dict[str, Any]:
        return super().state() | {"scaler": self.scaler.state_dict()}

    def resume(self, state: Mapping[str, Any]) -> None:
        super().resume(state)
        self.scaler.load_state_dict(state["scaler"])
