"""Optimisers and the learning-rate schedule of the recipes."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from stillmotion.errors import StillmotionError
from stillmotion.optim.lars import LARS


@dataclass(frozen=True)
class OptimConfig:
    """How weights are moved.

    Attributes:
        name: lars, sgd (both with Nesterov momentum 0.9) or adamw.
        lr: for a batch of `lr_batch` videos, scaled in proportion to the batch.
        lr_batch: 0 takes `lr` as it is.
        weight_decay: not on biases and norms.
        batch: videos per step over all processes.
        epochs: passes through the data; the cosine schedule ends with the last.
        warmup_epochs: the rate rises linearly over these; the cosine is counted from epoch 0 all the same.
        warmup_lr: where the rise begins, scaled as `lr`.
        clip: largest gradient norm; 0 is no limit.
    """

    name: Literal["sgd", "lars", "adamw"] = "lars"
    lr: float = 1.2
    lr_batch: int = 64
    weight_decay: float = 1e-6
    batch: int = 512
    epochs: int = 200
    warmup_epochs: float = 35.0
    warmup_lr: float = 1e-3
    clip: float = 0.0

    def __post_init__(self) -> None:
        for name in ("batch", "epochs"):
            if getattr(self, name) < 1:
                raise StillmotionError(f"optim.{name} is {getattr(self, name)}; it must be at least 1")
        if not self.lr > 0:
            raise StillmotionError(f"optim.lr is {self.lr}; it must be positive")

    @property
    def scale(self) -> float:
        """What `lr` and `warmup_lr` are multiplied by."""
        return self.batch / self.lr_batch if self.lr_batch else 1.0


def build_optimizer(
    weights: dict[str, nn.Parameter], config: OptimConfig, *, betas: tuple[float, float] = (0.9, 0.999)
) -> torch.optim.Optimizer:
    """The optimiser for these weights; vectors are neither decayed nor adapted. betas: of AdamW."""
    matrices = [p for p in weights.values() if p.ndim > 1]
    vectors = [p for p in weights.values() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    if config.name == "lars":
        groups[1]["adapt"] = False
        return LARS(groups, lr=config.lr)
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=0.9, nesterov=True)
    return torch.optim.AdamW(groups, lr=config.lr, betas=betas)


def learning_rate(config: OptimConfig, epoch: float) -> float:
    """The rate at a fractional epoch: a linear warm-up into a cosine that is counted from epoch 0."""

    def cosine(at: float) -> float:
        return config.lr * 0.5 * (1 + math.cos(math.pi * at / config.epochs))

    rate = cosine(epoch)
    if epoch < config.warmup_epochs:
        start = min(config.warmup_lr, config.lr)
        rate = start + (cosine(config.warmup_epochs) - start) * epoch / config.warmup_epochs
    return rate * config.scale
