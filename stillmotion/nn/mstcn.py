"""MS-TCN: stages of dilated temporal convolutions over the features of a whole video (Farha and Gall, CVPR 2019).

Shapes: T frames, D channels of a feature, C actions. Videos come one at a time, whatever their length.
Beside the published network, features are standardised first, by the mean and deviation of the training frames, so
that encoders of any scale train at one learning rate.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_CUT = 4.0  # τ: a larger step of the log-probability from frame to frame is no worse


@dataclass(frozen=True)
class MSTCNConfig:
    """The multi-stage temporal convolutional network.

    Attributes:
        stages: the first reads features, the others refine the probabilities of the one before.
        layers: of a stage; the dilation doubles from each to the next.
        width: channels of a stage.
        dropout: after each layer.
        smooth: λ, weight of the truncated squared step of the log-probabilities from frame to frame.
    """

    name: ClassVar[str] = "mstcn"
    stages: int = 4
    layers: int = 10
    width: int = 64
    dropout: float = 0.5
    smooth: float = 0.15

    def build(self, features: int, actions: int) -> "MSTCN":
        """The head for features (T, D) and C actions."""
        return MSTCN(self, features, actions)


class MSTCN(nn.Module):
    """Features (T, D) to the action of each frame."""

    def __init__(self, config: MSTCNConfig, features: int, actions: int) -> None:
        super().__init__()
        self.config = config
        self.standard = Standardised(features)
        self.first = Stage(features, actions, config)
        self.others = nn.ModuleList(Stage(actions, actions, config) for _ in range(config.stages - 1))

    def forward(self, features: Tensor) -> list[Tensor]:
        """Logits (T, C) of every stage."""
        found = [self.first(self.standard(features).T)]
        for stage in self.others:
            found.append(stage(found[-1].softmax(0)))
        return [logits.T for logits in found]

    def losses(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The parts of a video's loss, summed over stages; their sum is to be minimised."""
        found = self(features)
        return {
            "frames": torch.stack([F.cross_entropy(logits, labels) for logits in found]).sum(),
            "smooth": self.config.smooth * torch.stack([roughness(logits) for logits in found]).sum(),
        }

    @torch.inference_mode()
    def predict(self, features: Tensor) -> Tensor:
        """The action of each frame (T,)."""
        return self(features)[-1].argmax(-1)


class Stage(nn.Module):
    """Inputs (D, T) to logits (C, T) by dilated layers between two maps of single frames."""

    def __init__(self, inputs: int, actions: int, config: MSTCNConfig) -> None:
        super().__init__()
        self.enter = nn.Conv1d(inputs, config.width, 1)
        self.layers = dilated(config.width, layers=config.layers, dropout=config.dropout)
        self.leave = nn.Conv1d(config.width, actions, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.layers(self.enter(x)))


class Dilated(nn.Module):
    """A residual layer that sees three frames, `dilation` apart: (W, T) to (W, T)."""

    def __init__(self, width: int, *, dilation: int, dropout: float) -> None:
        super().__init__()
        self.see = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.mix(self.see(x).relu()))


class Standardised(nn.Module):
    """Features less the mean of the training frames and over their deviation; `fit` learns both."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.mean: Tensor
        self.deviation: Tensor
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))

    def fit(self, mean: Tensor, deviation: Tensor) -> None:
        """A channel that never changes stays as it is, less its mean."""
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > 1e-6, deviation, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.deviation


def dilated(width: int, *, layers: int, dropout: float) -> nn.Sequential:
    """Layers whose dilation doubles from each to the next."""
    return nn.Sequential(*(Dilated(width, dilation=2**i, dropout=dropout) for i in range(layers)))


def roughness(logits: Tensor) -> Tensor:
    """The truncated mean squared step of log-probabilities (T, C) from each frame to the next.

    The earlier frame is a constant, as published; a single frame has no step.
    """
    logs = logits.log_softmax(-1)
    if len(logs) < 2:
        return logs.sum() * 0
    steps = logs[1:] - logs[:-1].detach()
    return steps.square().clamp(max=_CUT**2).mean()
