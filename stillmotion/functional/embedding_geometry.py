"""Distances within and between videos, and effective rank (image-to-video transfer, Eq. 47–54).

In the paper, distances are means over tokens at the same position. The authors' published script uses the nearest
tokens within a video instead, and the largest distance of a single token as the radius.

Shapes: M videos, T frames of one video, N tokens of a frame, D channels.
"""

from itertools import pairwise

import torch
from torch import Tensor

_EPS = 1e-12


def inter_video_distances(tokens: Tensor) -> Tensor:
    """Distances d(u, v), (M, M), between the tokens (M, N, D) of any two videos (Eq. 47)."""
    total = tokens.new_zeros(len(tokens), len(tokens))
    for at_position in tokens.unbind(1):  # (N, M, M) would not fit into memory
        total += torch.cdist(at_position, at_position, compute_mode="donot_use_mm_for_euclid_dist")
    return total / tokens.shape[1]


def video_radii(tokens: Tensor) -> Tensor:
    """Radii r(u), (M,): mean distance of each video's tokens (M, N, D) from their mean over videos (Eq. 49)."""
    return (tokens - tokens.mean(0)).norm(dim=-1).mean(1)


def intra_video_distance(tokens: Tensor, *, step: int = 1) -> tuple[Tensor, Tensor]:
    """Mean distance of frames of one video, absolute and relative to the video's diameter (Eq. 51–53).

    Args:
        tokens: Tokens of the frames, (T, N, D).
        step: Frames between the two that are compared.

    Returns:
        Distance and relative distance; both are 0 if nothing changes.
    """
    distance = (tokens[step:] - tokens[:-step]).norm(dim=-1).mean(1).mean()
    radius = (tokens - tokens.mean(0)).norm(dim=-1).mean(1).max()
    return distance, distance / (2 * radius).clamp_min(_EPS)


def max_token_radii(tokens: Tensor) -> Tensor:
    """Radii as in the authors' script, (M,): largest distance of a video's tokens (M, N, D) from the mean token."""
    return (tokens - tokens.mean((0, 1))).norm(dim=-1).amax(1)


def intra_video_nearest_token_distance(tokens: Tensor, *, num_skipped: int = 3) -> tuple[Tensor, Tensor]:
    """`intra_video_distance` as in the authors' script: nearest tokens of neighboring frames, closest half only.

    Args:
        tokens: Tokens of the frames, (T, N, D).
        num_skipped: Frames that are skipped at either end.

    Returns:
        Distance, and distance relative to the diameter of all tokens around their mean.
    """
    distances = []
    for frame, next_frame in pairwise(tokens[num_skipped : len(tokens) - num_skipped]):
        match = torch.cdist(frame, next_frame).argmin(-1)
        distances.append((frame - next_frame[match]).norm(dim=-1))
    closest = torch.stack(distances).topk(max(1, tokens.shape[1] // 2), largest=False).values
    radius = (tokens - tokens.mean((0, 1))).norm(dim=-1).max()
    return closest.mean(), closest.mean() / (2 * radius).clamp_min(_EPS)


def effective_rank(singular_values: Tensor) -> Tensor:
    """Effective rank: the exponential of the entropy of normalized singular values, 1 to D.

    Roy and Vetterli, "The effective rank: a measure of effective dimensionality", EUSIPCO 2007.

    Args:
        singular_values: Non-negative values, (D,): of vectors, or square roots of a covariance's eigenvalues.

    Returns:
        Scalar.
    """
    shares = singular_values / singular_values.sum().clamp_min(_EPS)
    return torch.special.entr(shares).sum().exp()
