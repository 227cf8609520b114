"""Linear classifiers trained by SGD on a stream of features, none of which are stored.

Shapes: n features of D channels, V views per video, C classes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

FEATURE_RMS_NORM = 2.0  # root mean square norm of the scaled features
_REFERENCE_BATCH_SIZE = 64  # batch size of the learning rate
_MIN_RELATIVE_STD = 1e-6  # relative to the mean: a smaller deviation is rounding error


@dataclass(frozen=True)
class SGDProbeConfig:
    """SGD of the Kinetics protocol: momentum 0.9, warm-up and cosine schedule, no weight decay.

    Args:
        epochs: Number of epochs.
        warmup_epochs: Epochs of linear warm-up.
        lr: Learning rate per 64 features of a step, on standardized features scaled to a root mean square norm of 2,
            about the largest at which 0.5 is stable however channels are correlated: the rate then means the same for
            any backbone.
        batch_size: Features of a step.
    """

    epochs: int = 60
    warmup_epochs: int = 8
    lr: float = 0.5
    batch_size: int = _REFERENCE_BATCH_SIZE

    def learning_rate_at(self, epoch: float) -> float:
        """Return the learning rate after a number of epochs."""
        full = self.lr * self.batch_size / _REFERENCE_BATCH_SIZE
        return full * min(1.0, epoch / self.warmup_epochs) * (math.cos(math.pi * epoch / self.epochs) + 1) / 2


class StreamingLinearClassifiers:
    """A linear classifier for each of several targets, on features of one kind.

    Channels are standardized by the mean and standard deviation of all features so far, over all processes: after the
    first epoch, which is warm-up, these are those of the training set, and test features get the same scale. Batch
    norm would use the statistics of a step instead.

    Args:
        in_features: Channels of a feature (D).
        num_classes: Number of classes of each target.
        sgd_config: Settings of SGD.
    """

    def __init__(self, in_features: int, num_classes: Sequence[int], sgd_config: SGDProbeConfig) -> None:
        self.sgd_config, self._num_classes = sgd_config, list(num_classes)
        self._mean, self._variance = torch.zeros(in_features).double(), torch.zeros(in_features).double()
        self._num_seen = 0
        self._weight = torch.zeros(sum(num_classes), in_features, requires_grad=True)
        self._bias = torch.zeros(sum(num_classes), requires_grad=True)
        self._optimizer = torch.optim.SGD([self._weight, self._bias], lr=sgd_config.lr, momentum=0.9, nesterov=True)

    def train_step(self, x: Tensor, y: Tensor, *, epoch: float) -> None:
        """Take one step of SGD.

        Args:
            x: Features, (n, D).
            y: Labels, (n, targets); -1 where a target is unknown.
            epoch: Epochs so far, as a fraction.
        """
        self._update_statistics(x.double())
        for group in self._optimizer.param_groups:
            group["lr"] = self.sgd_config.learning_rate_at(epoch)
        losses = [
            F.cross_entropy(scores, labels, ignore_index=-1, reduction="sum") / (labels >= 0).sum().clamp(min=1)
            for scores, labels in zip(self._scores(x), y.unbind(1), strict=True)
        ]
        self._optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        self._optimizer.step()

    @torch.no_grad()
    def predict_proba(self, x: Tensor) -> list[np.ndarray]:
        """Return the class probabilities (n, C) of each target, averaged over the views of x (n, V, D)."""
        return [scores.softmax(-1).mean(1).numpy() for scores in self._scores(x)]

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return weights, momentum and statistics."""
        momentum = [self._optimizer.state[p].get("momentum_buffer", torch.zeros_like(p)) for p in self._parameters()]
        statistics = (self._mean, self._variance, torch.tensor(self._num_seen))
        values = (*(p.detach() for p in self._parameters()), *momentum, *statistics)
        return {name: value.numpy().copy() for name, value in zip(STATE_KEYS, values, strict=True)}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Restore what `state_dict` returned."""
        weight, bias, *momentum, mean, variance, count = (torch.from_numpy(state[n].copy()) for n in STATE_KEYS)
        for p, value, buffer in zip(self._parameters(), (weight, bias), momentum, strict=True):
            p.copy_(value)
            self._optimizer.state[p]["momentum_buffer"] = buffer
        self._mean, self._variance, self._num_seen = mean, variance, int(count)

    def _parameters(self) -> tuple[Tensor, Tensor]:
        return self._weight, self._bias

    def _update_statistics(self, x: Tensor) -> None:
        """Update mean and variance by the formula for two joined groups."""
        fraction = len(x) / (self._num_seen + len(x))
        mean_change = x.mean(0) - self._mean
        variance_change = x.var(0, correction=0) - self._variance
        between = fraction * (1 - fraction) * mean_change.square()
        self._variance = self._variance + fraction * variance_change + between
        self._mean = self._mean + fraction * mean_change
        self._num_seen += len(x)

    def _scores(self, x: Tensor) -> tuple[Tensor, ...]:
        std = self._variance.sqrt()
        std = torch.where(std <= _MIN_RELATIVE_STD * self._mean.abs(), 1.0, std)  # also for channels of zeros
        scaled = (x - self._mean) / std * (FEATURE_RMS_NORM / math.sqrt(x.shape[-1]))
        return F.linear(scaled.float(), self._weight, self._bias).split(self._num_classes, -1)


STATE_KEYS = ("weight", "bias", "weight_momentum", "bias_momentum", "mean", "variance", "num_seen")
