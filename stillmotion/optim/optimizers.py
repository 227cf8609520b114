"""`OptimConfig`, `build_optimizer` and the learning-rate schedule."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from stillmotion.errors import StillmotionError
from stillmotion.optim.lars import LARS
from stillmotion.utils.typed_config import check_ranges


@dataclass(frozen=True)
class OptimConfig:
    """Optimizer and learning-rate schedule.

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
        check_ranges(self, "optim", batch_size=(1, None), epochs=(1, None))
        if not self.lr > 0:
            raise StillmotionError(f"optim.lr is {self.lr}; it must be positive")
        if not 0 < self.layer_decay <= 1:
            raise StillmotionError(f"optim.layer_decay is {self.layer_decay}; it must be above 0 and at most 1")

    @property
    def lr_scale(self) -> float:
        """Factor of `lr` and `warmup_start_lr` for the batch size."""
        return self.batch_size / self.lr_batch_size if self.lr_batch_size else 1.0


def build_optimizer(
    named_params: dict[str, nn.Parameter],
    config: OptimConfig,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    layer_depth: Callable[[str], int] | None = None,
) -> torch.optim.Optimizer:
    """Build the optimizer. Vectors have no weight decay; LARS scales matrices and their biases, but not norm layers.

    Args:
        named_params: Parameters by name.
        config: Optimizer options.
        betas: Betas of AdamW.
        layer_depth: Number of stages above a parameter's, by its name; its learning rate is multiplied by `layer_decay`
            to this power.
    """
    matrices = {name for name, p in named_params.items() if p.ndim > 1}
    by_group: dict[tuple[int, bool, bool], list[nn.Parameter]] = {}
    for name, p in named_params.items():
        adapt = name in matrices or (name.endswith("bias") and f"{name.removesuffix('bias')}weight" in matrices)
        by_group.setdefault((layer_depth(name) if layer_depth else 0, name in matrices, adapt), []).append(p)
    groups: list[dict[str, Any]] = []
    for above, matrix, adapt in sorted(by_group, key=lambda key: (key[0], not key[1], not key[2])):
        group = {"params": by_group[above, matrix, adapt], "weight_decay": config.weight_decay if matrix else 0.0}
        groups.append(group | {"lr_scale": config.layer_decay**above})
        if config.name == "lars":
            groups[-1]["use_trust_ratio"] = adapt
    if config.name == "lars":
        return LARS(groups, lr=config.lr)
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=0.9, nesterov=True)
    return torch.optim.AdamW(groups, lr=config.lr, betas=betas)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of all parameter groups.

    Args:
        optimizer: Optimizer of `build_optimizer`.
        lr: Learning rate, which each group multiplies by its own scale.
    """
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"]


def lr_at_epoch(config: OptimConfig, epoch: float) -> float:
    """Return the learning rate at a fractional epoch: a linear warm-up, then a cosine or steps.

    Args:
        config: Optimizer options.
        epoch: Epochs done, with fraction.
    """
    start_epoch = config.warmup_epochs if config.cosine_start == "after-warmup" else 0.0

    def scheduled(at: float) -> float:
        if config.milestones:
            return config.lr * config.gamma ** sum(at >= milestone for milestone in config.milestones)
        progress = (at - start_epoch) / (config.epochs - start_epoch) if config.epochs > start_epoch else 0.0
        return config.lr * 0.5 * (1 + math.cos(math.pi * progress))

    lr = scheduled(epoch)
    if epoch < config.warmup_epochs:
        start = min(config.warmup_start_lr, config.lr)
        lr = start + (scheduled(config.warmup_epochs) - start) * epoch / config.warmup_epochs
    return lr * config.lr_scale
