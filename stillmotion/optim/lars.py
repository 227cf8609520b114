"""Layer-wise adaptive rate scaling (You et al. 2017), as in SlowFast's contrastive recipes.

A weight's step is lr · trust · ‖w‖ / (‖g‖ + wd·‖w‖) times (g + wd·w), through momentum. Norms get neither the scaling
nor weight decay, biases only the scaling: use groups with `weight_decay=0`, and norms with `use_trust_ratio=False`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class LARS(torch.optim.Optimizer):
    """LARS: SGD with momentum and a learning rate per tensor, set by the norms of weight and gradient.

    Args:
        params: Parameters or parameter groups; a group may set `use_trust_ratio` to False.
        lr: Learning rate.
        momentum: Momentum.
        weight_decay: Weight decay.
        trust_coefficient: Trust coefficient.
        nesterov: Use Nesterov momentum.
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
        """Run an optimizer step; closures are not supported."""
        assert closure is None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad.add(p, alpha=group["weight_decay"])
                if group["use_trust_ratio"]:
                    weight_norm, grad_norm = p.norm(), p.grad.norm()
                    denominator = grad_norm + group["weight_decay"] * weight_norm
                    ratio = group["trust_coefficient"] * weight_norm / denominator
                    g = g * torch.where((weight_norm > 0) & (grad_norm > 0), ratio, 1.0)
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p)
                velocity = state["momentum"].mul_(group["momentum"]).add_(g)
                p.add_(g.add(velocity, alpha=group["momentum"]) if group["nesterov"] else velocity, alpha=-group["lr"])
