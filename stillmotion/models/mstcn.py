"""MS-TCN for temporal action segmentation (Farha and Gall, CVPR 2019).

Shapes: T frames, D channels of a feature, C actions. Videos of any length are processed one at a time.
Unlike the published network, it standardizes features first, by the mean and standard deviation of the training frames,
so that encoders of any scale train at one learning rate.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_TAU = 4.0  # τ: larger changes of the log-probability between frames are truncated


@dataclass(frozen=True)
class MSTCNConfig:
    """MS-TCN, a multi-stage temporal convolutional network.

    Attributes:
        num_stages: Number of stages. The first reads the features; each later stage refines the prediction of the one
            before.
        num_layers: Number of dilated layers in a stage. The dilation doubles from layer to layer.
        hidden_dim: Number of channels in a stage.
        dropout: Dropout probability after each layer.
        smoothing_weight: Weight λ of the smoothing loss: truncated squared change of the log-probabilities between
            neighboring frames.
    """

    name: ClassVar[str] = "mstcn"
    num_stages: int = 4
    num_layers: int = 10
    hidden_dim: int = 64
    dropout: float = 0.5
    smoothing_weight: float = 0.15

    def build(self, in_features: int, num_classes: int) -> "MSTCN":
        """Build the network for features (T, `in_features`) and `num_classes` actions."""
        return MSTCN(self, in_features, num_classes)


class MSTCN(nn.Module):
    """MS-TCN: features (T, D) to the action of each frame.

    Args:
        config: Options of the network.
        in_features: D.
        num_classes: C.
    """

    def __init__(self, config: MSTCNConfig, in_features: int, num_classes: int) -> None:
        super().__init__()
        self.config = config
        self.standardizer = FeatureStandardizer(in_features)
        self.first_stage = MSTCNStage(in_features, num_classes, config)
        self.refinement_stages = nn.ModuleList(
            MSTCNStage(num_classes, num_classes, config) for _ in range(config.num_stages - 1)
        )

    def forward(self, features: Tensor) -> list[Tensor]:
        """Compute the logits (T, C) of every stage from features (T, D)."""
        outputs = [self.first_stage(self.standardizer(features).T)]
        for stage in self.refinement_stages:
            outputs.append(stage(outputs[-1].softmax(0)))
        return [logits.T for logits in outputs]

    def compute_losses(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Compute the terms of a video's loss, summed over stages.

        Args:
            features: Features, (T, D).
            labels: Action of each frame, (T,).

        Returns:
            Terms by name: frame and smoothing.
        """
        outputs = self(features)
        return {
            "frame": torch.stack([F.cross_entropy(logits, labels) for logits in outputs]).sum(),
            "smoothing": self.config.smoothing_weight
            * torch.stack([smoothing_loss(logits) for logits in outputs]).sum(),
        }

    @torch.inference_mode()
    def predict(self, features: Tensor) -> Tensor:
        """Predict the action of each frame, (T,), from features (T, D)."""
        return self(features)[-1].argmax(-1)


class MSTCNStage(nn.Module):
    """Inputs (D, T) to logits (C, T): dilated layers between two 1×1 convolutions."""

    def __init__(self, in_channels: int, num_classes: int, config: MSTCNConfig) -> None:
        super().__init__()
        self.input_proj = nn.Conv1d(in_channels, config.hidden_dim, 1)
        self.layers = dilated_layers(config.hidden_dim, num_layers=config.num_layers, dropout=config.dropout)
        self.output_proj = nn.Conv1d(config.hidden_dim, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.output_proj(self.layers(self.input_proj(x)))


class DilatedResidualLayer(nn.Module):
    """Residual layer of a convolution over three frames, `dilation` apart: (W, T) to (W, T)."""

    def __init__(self, channels: int, *, dilation: int, dropout: float) -> None:
        super().__init__()
        self.conv_dilated = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.conv_1x1 = nn.Conv1d(channels, channels, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.conv_1x1(self.conv_dilated(x).relu()))


class FeatureStandardizer(nn.Module):
    """Standardizes features (T, D) by the mean and standard deviation that `fit` sets."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("std", torch.ones(num_features))

    def fit(self, mean: Tensor, std: Tensor) -> None:
        """Set mean and standard deviation, each (D,); constant channels are only centered."""
        self.mean.copy_(mean)
        self.std.copy_(torch.where(std > 1e-6, std, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


def dilated_layers(channels: int, *, num_layers: int, dropout: float) -> nn.Sequential:
    """Stack residual layers whose dilation doubles from layer to layer.

    Args:
        channels: Channels W.
        num_layers: Number of layers.
        dropout: Dropout probability after each layer.

    Returns:
        Module from (W, T) to (W, T).
    """
    return nn.Sequential(*(DilatedResidualLayer(channels, dilation=2**i, dropout=dropout) for i in range(num_layers)))


def smoothing_loss(logits: Tensor) -> Tensor:
    """Truncated mean squared change of log-probabilities from each frame to the next.

    The earlier frame has no gradient, as published. The loss of a single frame is 0.

    Args:
        logits: Logits, (T, C).

    Returns:
        Scalar loss.
    """
    logs = logits.log_softmax(-1)
    if len(logs) < 2:
        return logs.sum() * 0
    steps = logs[1:] - logs[:-1].detach()
    return steps.square().clamp(max=_TAU**2).mean()
