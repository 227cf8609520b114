"""Weights and images that are the same on every machine, for comparing RAFT with results of torchvision."""

import math

import torch
from torch import Tensor, nn


def fill_weights(network: nn.Module) -> None:
    """Give every weight a value that follows from its name and place alone."""
    for name, weight in network.state_dict().items():
        if not weight.is_floating_point():
            continue
        phase = sum(map(ord, name)) % 1009
        wave = torch.sin(0.73 * torch.arange(weight.numel(), dtype=torch.float64) ** 1.3 + phase)
        scale = math.sqrt(2 / (weight.numel() / weight.shape[0])) if weight.ndim > 1 else 0.1
        offset = 1.0 if name.endswith("running_var") or (weight.ndim == 1 and name.endswith(".1.weight")) else 0.0
        weight.copy_((offset + scale * wave).reshape(weight.shape))


def image_pair(height: int = 128, width: int = 136) -> tuple[Tensor, Tensor]:
    """A smooth picture in [-1, 1], and the same moved by (3, -2) pixels."""
    y, x = torch.meshgrid(torch.arange(height + 4.0), torch.arange(width + 4.0), indexing="ij")
    channels = [torch.sin(x / (5 + c)) * torch.cos(y / (7 - c)) + 0.3 * torch.sin((x + y) / 3) for c in range(3)]
    picture = torch.stack(channels)[None] / 1.3
    return picture[..., :height, 4 : width + 4], picture[..., 2 : height + 2, 1 : width + 1]
