"""Distances within and between videos, and how many directions features use (image-to-video transfer, Eq. 47–54).

As printed, distances are means over tokens of the same place. The authors' published script takes within a video the
nearest tokens instead, and the largest distance of a single token for a radius.

Shapes: M videos, T frames of one, N tokens of a frame, D channels.
"""

from itertools import pairwise

import torch
from torch import Tensor

_TINY = 1e-12


def inter_video_distances(tokens: Tensor) -> Tensor:
    """d(u, v) between any two videos' tokens (M, N, D): (M, M) (Eq. 47)."""
    total = tokens.new_zeros(len(tokens), len(tokens))
    for place in tokens.unbind(1):  # never (N, M, M) at a time
        total += torch.cdist(place, place, compute_mode="donot_use_mm_for_euclid_dist")
    return total / tokens.shape[1]


def video_radii(tokens: Tensor) -> Tensor:
    """r(u): how far each video's tokens (M, N, D) are from their mean over videos, (M,) (Eq. 49)."""
    return (tokens - tokens.mean(0)).norm(dim=-1).mean(1)


def intra_video_distance(tokens: Tensor, *, step: int = 1) -> tuple[Tensor, Tensor]:
    """Of one video's frames (T, N, D): the mean distance of those `step` apart, and that over its diameter (Eq. 51–53).

    A video that does not change at all has both at 0.
    """
    distance = (tokens[step:] - tokens[:-step]).norm(dim=-1).mean(1).mean()
    radius = (tokens - tokens.mean(0)).norm(dim=-1).mean(1).max()
    return distance, distance / (2 * radius).clamp_min(_TINY)


def max_token_radii(tokens: Tensor) -> Tensor:
    """How far the farthest of each video's tokens (M, N, D) is from the mean of all tokens, (M,): the authors' r(u)."""
    return (tokens - tokens.mean((0, 1))).norm(dim=-1).amax(1)


def intra_video_nearest_distance(tokens: Tensor, *, num_skipped: int = 3) -> tuple[Tensor, Tensor]:
    """`intra_distance` by the authors' script: of neighbours among one video's frames (T, N, D), without those skipped
    at either end, the mean distance of each token from the nearest in the next frame, over the closest half of tokens;
    and that over the diameter of all tokens around their mean.
    """
    near = []
    for one, other in pairwise(tokens[num_skipped : len(tokens) - num_skipped]):
        match = torch.cdist(one, other).argmin(-1)
        near.append((one - other[match]).norm(dim=-1))
    kept = torch.stack(near).topk(max(1, tokens.shape[1] // 2), largest=False).values
    radius = (tokens - tokens.mean((0, 1))).norm(dim=-1).max()
    return kept.mean(), kept.mean() / (2 * radius).clamp_min(_TINY)


def effective_rank(singular_values: Tensor) -> Tensor:
    """Effective rank: the exponential of the entropy of normalized singular values, 1 to D.

    Roy and Vetterli, "The effective rank: a measure of effective dimensionality", EUSIPCO 2007.

    Args:
        singular_values: Non-negative values, (D,): of vectors, or square roots of a covariance's eigenvalues.

    Returns:
        Scalar.
    """
    shares = singular_values / singular_values.sum().clamp_min(_TINY)
    return torch.special.entr(shares).sum().exp()
