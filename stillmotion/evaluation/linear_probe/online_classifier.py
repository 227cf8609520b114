"""Linear classifiers that are shown features once, as they are made: nothing is kept of a feature but what it taught.

Shapes: n features of D channels, V views of a video, C classes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

FEATURE_RMS_NORM = 2.0  # root mean square norm of the features that a classifier is shown
_REFERENCE_BATCH_SIZE = 64  # features of a step that the rate is for
_MIN_RELATIVE_STD = 1e-6  # of its mean: a channel that deviates less does so by rounding


@dataclass(frozen=True)
class SGDProbeConfig:
    """The Kinetics protocol: momentum 0.9, warm-up and cosine, no weight decay.

    lr: for each 64 features of a step, on standardised features scaled to a root mean square norm of 2, about the
        largest at which 0.5 is stable however channels are correlated: the rate then means the same for any backbone.
    batch_size: features of a step.
    """

    epochs: int = 60
    warmup_epochs: int = 8
    lr: float = 0.5
    batch_size: int = _REFERENCE_BATCH_SIZE

    def learning_rate_at(self, epoch: float) -> float:
        """The rate after so many epochs."""
        full = self.lr * self.batch_size / _REFERENCE_BATCH_SIZE
        return full * min(1.0, epoch / self.warmup_epochs) * (math.cos(math.pi * epoch / self.epochs) + 1) / 2


class OnlineLinearClassifiers:
    """A linear classifier for each of several targets, of features of one kind.

    in_features (D): channels of a feature. classes: how many each target has.

    Channels are standardised by the mean and the deviation of all features seen so far, over all ranks: after the
    first epoch, which is warm-up, these are the set's own, and a test feature is seen on the very scale of the
    training features. Batch norm would have the statistics of a step in place of them.
    """

    def __init__(self, in_features: int, num_classes: Sequence[int], sgd_config: SGDProbeConfig) -> None:
        self.sgd_config, self._num_classes = sgd_config, list(num_classes)
        self._mean, self._variance, self._num_seen = (
            torch.zeros(in_features).double(),
            torch.zeros(in_features).double(),
            0,
        )
        self._weight = torch.zeros(sum(num_classes), in_features, requires_grad=True)
        self._bias = torch.zeros(sum(num_classes), requires_grad=True)
        self._optimizer = torch.optim.SGD([self._weight, self._bias], lr=sgd_config.lr, momentum=0.9, nesterov=True)

    def train_step(self, x: Tensor, y: Tensor, *, epoch: float) -> None:
        """One step. x: (n, D). y: (n, targets), -1 where a target is unknown. epoch: how many were seen before."""
        self._update_statistics(x.double())
        for group in self._optimizer.param_groups:
            group["lr"] = self.sgd_config.learning_rate_at(epoch)
        losses = [
            F.cross_entropy(scores, own, ignore_index=-1, reduction="sum") / (own >= 0).sum().clamp(min=1)
            for scores, own in zip(self._scores(x), y.unbind(1), strict=True)
        ]
        self._optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        self._optimizer.step()

    @torch.no_grad()
    def predict_proba(self, x: Tensor) -> list[np.ndarray]:
        """Of each target the classes' probabilities (n, C), the mean over the views of x (n, V, D)."""
        return [scores.softmax(-1).mean(1).numpy() for scores in self._scores(x)]

    def state_dict(self) -> dict[str, np.ndarray]:
        """Everything that was learned."""
        pace = [self._optimizer.state[p].get("momentum_buffer", torch.zeros_like(p)) for p in self._parameters()]
        told = (
            *(p.detach() for p in self._parameters()),
            *pace,
            self._mean,
            self._variance,
            torch.tensor(self._num_seen),
        )
        return {name: value.numpy().copy() for name, value in zip(STATE_KEYS, told, strict=True)}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Go on from what `state_dict` returned."""
        weight, bias, *pace, mean, variance, seen = (torch.from_numpy(state[name].copy()) for name in STATE_KEYS)
        for p, value, moved in zip(self._parameters(), (weight, bias), pace, strict=True):
            p.copy_(value)
            self._optimizer.state[p]["momentum_buffer"] = moved
        self._mean, self._variance, self._num_seen = mean, variance, int(seen)

    def _parameters(self) -> tuple[Tensor, Tensor]:
        return self._weight, self._bias

    def _update_statistics(self, x: Tensor) -> None:
        """Count features in: the mean and the variance of two groups joined, the larger of which is known by these."""
        share = len(x) / (self._num_seen + len(x))
        apart = x.mean(0) - self._mean
        within = x.var(0, correction=0) - self._variance
        self._variance = self._variance + share * within + share * (1 - share) * apart.square()
        self._mean = self._mean + share * apart
        self._num_seen += len(x)

    def _scores(self, x: Tensor) -> tuple[Tensor, ...]:
        spread = self._variance.sqrt()
        spread = torch.where(spread <= _MIN_RELATIVE_STD * self._mean.abs(), 1.0, spread)  # of zeros, too
        scaled = (x - self._mean) / spread * (FEATURE_RMS_NORM / math.sqrt(x.shape[-1]))
        return F.linear(scaled.float(), self._weight, self._bias).split(self._num_classes, -1)


STATE_KEYS = ("weight", "bias", "weight_momentum", "bias_momentum", "mean", "variance", "num_seen")
