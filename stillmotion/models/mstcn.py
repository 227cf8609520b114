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

_TAU = 4.0  # τ: a larger step of the log-probability from frame to frame is no worse


@dataclass(frozen=True)
class MSTCNConfig:
    """The multi-stage temporal convolutional network.

    Attributes:
        num_stages: the first reads features, the others refine the probabilities of the one before.
        num_layers: of a stage; the dilation doubles from each to the next.
        hidden_dim: channels of a stage.
        dropout: after each layer.
        smoothing_weight: λ, weight of the truncated squared step of the log-probabilities from frame to frame.
    """

    name: ClassVar[str] = "mstcn"
    num_stages: int = 4
    num_layers: int = 10
    hidden_dim: int = 64
    dropout: float = 0.5
    smoothing_weight: float = 0.15

    def build(self, in_features: int, num_classes: int) -> "MSTCN":
        """The head for features (T, D) and C actions."""
        return MSTCN(self, in_features, num_classes)


class MSTCN(nn.Module):
    """Features (T, D) to the action of each frame."""

    def __init__(self, config: MSTCNConfig, in_features: int, num_classes: int) -> None:
        super().__init__()
        self.config = config
        self.standardizer = FeatureStandardizer(in_features)
        self.first_stage = MSTCNStage(in_features, num_classes, config)
        self.refinement_stages = nn.ModuleList(
            MSTCNStage(num_classes, num_classes, config) for _ in range(config.num_stages - 1)
        )

    def forward(self, features: Tensor) -> list[Tensor]:
        """Logits (T, C) of every stage."""
        found = [self.first_stage(self.standardizer(features).T)]
        for stage in self.refinement_stages:
            found.append(stage(found[-1].softmax(0)))
        return [logits.T for logits in found]

    def compute_losses(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The parts of a video's loss, summed over stages; their sum is to be minimised."""
        found = self(features)
        return {
            "frame": torch.stack([F.cross_entropy(logits, labels) for logits in found]).sum(),
            "smoothing": self.config.smoothing_weight * torch.stack([smoothing_loss(logits) for logits in found]).sum(),
        }

    @torch.inference_mode()
    def predict(self, features: Tensor) -> Tensor:
        """The action of each frame (T,)."""
        return self(features)[-1].argmax(-1)


class MSTCNStage(nn.Module):
    """Inputs (D, T) to logits (C, T) by dilated layers between two maps of single frames."""

    def __init__(self, in_channels: int, num_classes: int, config: MSTCNConfig) -> None:
        super().__init__()
        self.input_proj = nn.Conv1d(in_channels, config.hidden_dim, 1)
        self.layers = dilated_layers(config.hidden_dim, num_layers=config.num_layers, dropout=config.dropout)
        self.output_proj = nn.Conv1d(config.hidden_dim, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.output_proj(self.layers(self.input_proj(x)))


class DilatedResidualLayer(nn.Module):
    """A residual layer that sees three frames, `dilation` apart: (W, T) to (W, T)."""

    def __init__(self, channels: int, *, dilation: int, dropout: float) -> None:
        super().__init__()
        self.conv_dilated = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.conv_1x1 = nn.Conv1d(channels, channels, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.conv_1x1(self.conv_dilated(x).relu()))


class FeatureStandardizer(nn.Module):
    """Features less the mean of the training frames and over their deviation; `fit` learns both."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("std", torch.ones(num_features))

    def fit(self, mean: Tensor, std: Tensor) -> None:
        """A channel that never changes stays as it is, less its mean."""
        self.mean.copy_(mean)
        self.std.copy_(torch.where(std > 1e-6, std, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


def dilated_layers(channels: int, *, num_layers: int, dropout: float) -> nn.Sequential:
    """Layers whose dilation doubles from each to the next."""
    return nn.Sequential(*(DilatedResidualLayer(channels, dilation=2**i, dropout=dropout) for i in range(num_layers)))


def smoothing_loss(logits: Tensor) -> Tensor:
    """The truncated mean squared step of log-probabilities (T, C) from each frame to the next.

    The earlier frame is a constant, as published; a single frame has no step.
    """
    logs = logits.log_softmax(-1)
    if len(logs) < 2:
        return logs.sum() * 0
    steps = logs[1:] - logs[:-1].detach()
    return steps.square().clamp(max=_TAU**2).mean()
