"""Label smoothing, mixup, soft cross-entropy, top-k accuracy and confusion matrix.

Shapes: N videos, C classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.errors import StillmotionError


def smooth_one_hot(labels: Tensor, num_classes: int, *, smoothing: float = 0.0) -> Tensor:
    """One-hot targets with label smoothing.

    Args:
        labels: Class indices, (N,).
        num_classes: C.
        smoothing: Probability mass that is shared by all classes.

    Returns:
        Target probabilities, (N, C).
    """
    return F.one_hot(labels, num_classes).float() * (1 - smoothing) + smoothing / num_classes


def mixup_pairs(x: Tensor, lam: Tensor) -> Tensor:
    """Mix neighboring videos (mixup): a pair (a, b) becomes λ·a + (1 - λ)·b and λ·b + (1 - λ)·a.

    Batches that are split between pairs are mixed as the whole batch would be.

    Args:
        x: Inputs or targets, (N, …); the pairs are (0, 1), (2, 3), ….
        lam: λ of each pair, (N/2,).

    Returns:
        Mixed inputs, (N, …).

    Raises:
        StillmotionError: If N is not twice the number of λ.
    """
    if len(x) != 2 * len(lam):
        raise StillmotionError(f"mixup needs an even batch: {len(x)} videos are not {len(lam)} pairs.")
    pairs = x.unflatten(0, (-1, 2))
    weight = lam.to(x).view(-1, 1, *[1] * (x.ndim - 1))
    return (weight * pairs + (1 - weight) * pairs.flip(1)).flatten(0, 1)


def soft_cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy with target probabilities, averaged over videos.

    Args:
        scores: Logits, (N, C).
        targets: Target probabilities, (N, C).

    Returns:
        Scalar.
    """
    return -(targets * scores.log_softmax(1)).sum(1).mean()


def label_ranks(scores: Tensor, labels: Tensor) -> Tensor:
    """Rank of the correct class of each video, from 0; among equal scores the lower class index comes first.

    Args:
        scores: Scores, (N, C).
        labels: Class indices, (N,); -1 for a class without a score.

    Returns:
        Ranks, (N,); C where the label is -1.
    """
    order = scores.argsort(dim=1, descending=True, stable=True)
    is_label = order == labels[:, None]
    return torch.where(is_label.any(1), is_label.int().argmax(1), scores.shape[1])


def topk_accuracy(scores: Tensor, labels: Tensor, k: int) -> float:
    """Fraction of videos whose class is among the k highest scores.

    Args:
        scores: Scores, (N, C).
        labels: Class indices, (N,).
        k: Number of classes that count.

    Returns:
        Accuracy, 0 to 1.
    """
    is_correct = label_ranks(scores, labels) < min(k, scores.shape[1])
    return float(is_correct.double().mean())


def confusion_matrix(predictions: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Confusion matrix; labels of -1 are ignored.

    Args:
        predictions: Predicted class indices, (N,).
        labels: True class indices, (N,).
        num_classes: C.

    Returns:
        Counts, (C, C): rows are true classes, columns are predictions.
    """
    is_known = labels >= 0
    cells = labels[is_known] * num_classes + predictions[is_known]
    return torch.bincount(cells, minlength=num_classes * num_classes).view(num_classes, num_classes)
