"""Layer-wise adaptive rate scaling (You et al. 2017), as in SlowFast's contrastive recipes.

A weight's step is lr · trust · ‖w‖ / (‖g‖ + wd·‖w‖) times (g + wd·w), through momentum. Norms get neither the scaling
nor weight decay, biases only the scaling: give each in a group with `weight_decay=0`, and norms with `adapt=False`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class LARS(torch.optim.Optimizer):
    """SGD with momentum whose rate is set for each tensor by its norm.

    trust_coefficient: the trust coefficient. nesterov: look-ahead momentum.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 1e-3,
        nesterov: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
            "nesterov": nesterov,
            "use_trust_ratio": True,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad.add(p, alpha=group["weight_decay"])
                if group["use_trust_ratio"]:
                    size, slope = p.norm(), p.grad.norm()
                    ratio = group["trust_coefficient"] * size / (slope + group["weight_decay"] * size)
                    g = g * torch.where((size > 0) & (slope > 0), ratio, 1.0)
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p)
                speed = state["momentum"].mul_(group["momentum"]).add_(g)
                p.add_(g.add(speed, alpha=group["momentum"]) if group["nesterov"] else speed, alpha=-group["lr"])
