"""Class labels: soft targets, mixing of videos, and what is right among ranked classes.

Shapes: N videos, C classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.errors import StillmotionError


def smooth_one_hot(labels: Tensor, num_classes: int, *, smoothing: float = 0.0) -> Tensor:
    """Target probabilities (N, C): 1 - smoothing on the label, and smoothing shared by all classes."""
    return F.one_hot(labels, num_classes).float() * (1 - smoothing) + smoothing / num_classes


def mixup_pairs(x: Tensor, lam: Tensor) -> Tensor:
    """Neighbours mixed (mixup): of a pair (a, b) with share λ, λ·a + (1 - λ)·b and λ·b + (1 - λ)·a.

    x: (N, …), pairs are (0, 1), (2, 3), …; shares: (N/2,), one λ for each.
    Batches that are cut between pairs are mixed as the whole would be.
    """
    if len(x) != 2 * len(lam):
        raise StillmotionError(f"{len(x)} videos are not {len(lam)} pairs; mixup needs an even batch")
    pairs = x.unflatten(0, (-1, 2))
    share = lam.to(x).view(-1, 1, *[1] * (x.ndim - 1))
    return (share * pairs + (1 - share) * pairs.flip(1)).flatten(0, 1)


def soft_cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """The mean over videos of -Σ target · log softmax(score); scores and targets are (N, C)."""
    return -(targets * scores.log_softmax(1)).sum(1).mean()


def label_ranks(scores: Tensor, labels: Tensor) -> Tensor:
    """How many classes stand before each video's own (N,), among equals the first named; C where its label is none.

    scores: (N, C). labels: (N,), -1 for a class that has no score.
    """
    order = scores.argsort(dim=1, descending=True, stable=True)
    own = order == labels[:, None]
    return torch.where(own.any(1), own.int().argmax(1), scores.shape[1])


def topk_accuracy(scores: Tensor, labels: Tensor, k: int) -> float:
    """The share of videos whose class is among the k best scores."""
    right = label_ranks(scores, labels) < min(k, scores.shape[1])
    return float(right.double().mean())


def confusion_matrix(predictions: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Counts (C, C): row is the video's class, column what it was taken for. Labels of -1 are left out."""
    known = labels >= 0
    cells = labels[known] * num_classes + predictions[known]
    return torch.bincount(cells, minlength=num_classes * num_classes).view(num_classes, num_classes)
