"""Optimisers and the learning-rate schedule of the recipes."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from stillmotion.errors import StillmotionError
from stillmotion.optim.lars import LARS


@dataclass(frozen=True)
class OptimConfig:
    """How weights are moved.

    Attributes:
        name: Optimizer: lars, sgd (both with Nesterov momentum 0.9) or adamw.
        lr: Learning rate for a batch of --optim.lr-batch-size videos; scaled linearly with the batch size.
        lr_batch_size: Batch size that --optim.lr refers to. 0 disables linear scaling.
        weight_decay: Weight decay; not applied to biases and norm layers.
        batch_size: Videos per optimizer step, over all processes.
        epochs: Passes over the data set.
        warmup_epochs: Epochs of linear warm-up.
        warmup_start_lr: Learning rate at the start of warm-up; scaled like --optim.lr.
        max_grad_norm: Maximum gradient norm. 0 disables clipping.
        milestones: Epochs at which the learning rate is multiplied by --optim.gamma. Replaces the cosine schedule.
        gamma: Factor of each milestone.
        layer_decay: Learning-rate factor from each backbone stage to the one before it, in fine-tuning.
        cosine_start: Where the cosine schedule starts: epoch-0 (warm-up ends on the cosine, below lr) or after-warmup
            (warm-up ends at lr).
    """

    name: Literal["sgd", "lars", "adamw"] = "lars"
    lr: float = 1.2
    lr_batch_size: int = 64
    weight_decay: float = 1e-6
    batch_size: int = 512
    epochs: int = 200
    warmup_epochs: float = 35.0
    warmup_start_lr: float = 1e-3
    max_grad_norm: float = 0.0
    milestones: tuple[float, ...] = ()
    gamma: float = 0.1
    layer_decay: float = 1.0
    cosine_start: Literal["epoch-0", "after-warmup"] = "epoch-0"

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs"):
            if getattr(self, name) < 1:
                raise StillmotionError(f"optim.{name} is {getattr(self, name)}; it must be at least 1")
        if not self.lr > 0:
            raise StillmotionError(f"optim.lr is {self.lr}; it must be positive")
        if not 0 < self.layer_decay <= 1:
            raise StillmotionError(f"optim.layer_decay is {self.layer_decay}; it must lie above 0 and at most at 1")

    @property
    def lr_scale(self) -> float:
        """What `lr` and `warmup_start_lr` are multiplied by."""
        return self.batch_size / self.lr_batch_size if self.lr_batch_size else 1.0


def build_optimizer(
    named_params: dict[str, nn.Parameter],
    config: OptimConfig,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    layer_depth: Callable[[str], int] | None = None,
) -> torch.optim.Optimizer:
    """The optimiser for these weights; vectors are not decayed, and LARS adapts of them the biases of matrices only.

    betas: of AdamW.
    layer_depth: how many stages lie above the weight of this name; its rate is `layer_decay` to that power.
    """
    matrices = {name for name, p in named_params.items() if p.ndim > 1}
    parted: dict[tuple[int, bool, bool], list[nn.Parameter]] = {}
    for name, p in named_params.items():
        # Norms and their biases are what is left: the rate is theirs as it is.
        adapt = name in matrices or (name.endswith("bias") and f"{name.removesuffix('bias')}weight" in matrices)
        parted.setdefault((layer_depth(name) if layer_depth else 0, name in matrices, adapt), []).append(p)
    groups: list[dict[str, Any]] = []
    for above, matrix, adapt in sorted(parted, key=lambda key: (key[0], not key[1], not key[2])):
        group = {"params": parted[above, matrix, adapt], "weight_decay": config.weight_decay if matrix else 0.0}
        groups.append(group | {"lr_scale": config.layer_decay**above})
        if config.name == "lars":
            groups[-1]["use_trust_ratio"] = adapt
    if config.name == "lars":
        return LARS(groups, lr=config.lr)
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=0.9, nesterov=True)
    return torch.optim.AdamW(groups, lr=config.lr, betas=betas)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group its share of this rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)  # checkpoints of older versions have no shares


def lr_at_epoch(config: OptimConfig, epoch: float) -> float:
    """The rate at a fractional epoch: a linear warm-up into a cosine, or into steps."""
    rise = config.warmup_epochs if config.cosine_start == "after-warmup" else 0.0

    def course(at: float) -> float:
        if config.milestones:
            return config.lr * config.gamma ** sum(at >= milestone for milestone in config.milestones)
        share = (at - rise) / (config.epochs - rise) if config.epochs > rise else 0.0
        return config.lr * 0.5 * (1 + math.cos(math.pi * share))

    rate = course(epoch)
    if epoch < config.warmup_epochs:
        start = min(config.warmup_start_lr, config.lr)
        rate = start + (course(config.warmup_epochs) - start) * epoch / config.warmup_epochs
    return rate * config.lr_scale
