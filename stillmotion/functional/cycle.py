"""Cycle-consistency and separability losses of image-to-video transfer.

Jabri et al., "Space-Time Correspondence as a Contrastive Random Walk", NeurIPS 2020, with a return to the first frame
under other positions. Shapes: B videos, N = h·w tokens of a frame, D channels.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.errors import StillmotionError

SeparabilityMetric = Literal["kl", "mse"]
Similarity = Literal["cosine", "dot"]


def pool_tokens(tokens: Tensor, grid: tuple[int, int], *, factor: int = 2) -> Tensor:
    """Average-pool a grid of tokens; cells at an edge may be smaller.

    Args:
        tokens: Tokens, (B, N, D).
        grid: Rows h and columns w of the tokens.
        factor: Side of a pooling cell, in tokens.

    Returns:
        Tokens, (B, ⌈h/factor⌉·⌈w/factor⌉, D).

    Raises:
        StillmotionError: If N is not h·w.
    """
    if factor == 1:
        return tokens
    if grid[0] * grid[1] != tokens.shape[1]:
        raise StillmotionError(f"{tokens.shape[1]} tokens do not form a grid of {grid[0]}×{grid[1]}.")
    cells = tokens.transpose(1, 2).unflatten(2, grid)
    return F.avg_pool2d(cells, factor, ceil_mode=True, count_include_pad=False).flatten(2).transpose(1, 2)


def cycle_loss(
    tokens_t1: Tensor,
    tokens_t2: Tensor,
    tokens_t1_again: Tensor,
    *,
    temperature: float = 0.03,
    similarity: Similarity = "cosine",
    floor: float = 0.0,
) -> Tensor:
    """Negative log-probability that each token of the first frame returns to its position.

    The walk is A(t1→t2)·A(t2→t1'); only its diagonal is formed, in the log domain.

    Args:
        tokens_t1: Tokens of frame t1, (B, N, D); of any scale if the similarity is cosine.
        tokens_t2: Tokens of frame t2, (B, N, D).
        tokens_t1_again: Tokens of frame t1 under other positions, (B, N, D).
        temperature: Temperature τ of the affinities.
        similarity: "cosine" or "dot".
        floor: Added to every probability before they are normalized again; 1e-6 in the authors' training.

    Returns:
        Loss of each token, (B, N).

    Example:
        >>> tokens = torch.eye(16)[None]  # 16 patches that cannot be mistaken for each other
        >>> print(f"{cycle_loss(tokens, tokens.flip(1), tokens).mean():.2f}")
        0.00
    """
    forward, backward = log_affinities(
        tokens_t1, tokens_t2, tokens_t1_again, temperature=temperature, similarity=similarity
    )
    log_probability = torch.logsumexp(forward + backward.transpose(1, 2), dim=2)
    if not floor:
        return -log_probability
    raised = torch.logaddexp(log_probability, log_probability.new_tensor(floor).log())
    return math.log1p(backward.shape[2] * floor) - raised


@torch.no_grad()
def cycle_accuracy(
    tokens_t1: Tensor,
    tokens_t2: Tensor,
    tokens_t1_again: Tensor,
    *,
    temperature: float = 0.03,
    similarity: Similarity = "cosine",
) -> Tensor:
    """Fraction of tokens whose most likely end point is their own position (Eq. 55).

    Args:
        tokens_t1: Tokens of frame t1, (B, N, D).
        tokens_t2: Tokens of frame t2, (B, N, D).
        tokens_t1_again: Tokens of frame t1 under other positions, (B, N, D).
        temperature: Temperature τ of the affinities.
        similarity: "cosine" or "dot".

    Returns:
        Accuracy of each video, (B,).
    """
    forward, backward = log_affinities(
        tokens_t1, tokens_t2, tokens_t1_again, temperature=temperature, similarity=similarity
    )
    ends = torch.bmm(forward.exp(), backward.exp()).argmax(2)
    return (ends == torch.arange(ends.shape[1], device=ends.device)).to(tokens_t1.dtype).mean(1)


def log_affinities(
    tokens_t1: Tensor,
    tokens_t2: Tensor,
    tokens_t1_again: Tensor,
    *,
    temperature: float,
    similarity: Similarity = "cosine",
) -> tuple[Tensor, Tensor]:
    """Log of the transition probabilities A(t1→t2) and A(t2→t1').

    Args:
        tokens_t1: Tokens of frame t1, (B, N, D).
        tokens_t2: Tokens of frame t2, (B, N, D).
        tokens_t1_again: Tokens of frame t1 under other positions, (B, N, D).
        temperature: Temperature τ.
        similarity: "cosine" or "dot".

    Returns:
        Two tensors (B, N, N), whose exponentials have rows that sum to 1.

    Raises:
        StillmotionError: If the temperature is not positive or the similarity is unknown.
    """
    if not temperature > 0:
        raise StillmotionError(f"temperature is {temperature}; must be positive, such as 0.03.")
    if similarity not in ("cosine", "dot"):
        raise StillmotionError(f"similarity is {similarity!r}; must be cosine or dot.")
    a, b, c = (F.normalize(x, dim=-1) if similarity == "cosine" else x for x in (tokens_t1, tokens_t2, tokens_t1_again))
    # Products in half precision are too coarse for a small temperature.
    dtype = torch.promote_types(a.dtype, torch.float32)
    forward, backward = (torch.bmm(x, y.transpose(1, 2)).to(dtype) / temperature for x, y in ((a, b), (b, c)))
    return forward.log_softmax(2), backward.log_softmax(2)


def separability_loss(original: Tensor, projected: Tensor, *, metric: SeparabilityMetric = "kl") -> Tensor:
    """Distance of projected tokens from the original ones.

    Args:
        original: Tokens before the projection, (B, N, D).
        projected: Tokens after the projection, (B, N, D).
        metric: "kl", the divergence KL(softmax(original) ‖ softmax(projected)) over channels, or "mse".

    Returns:
        Loss of each token, (B, N).

    Raises:
        StillmotionError: If the metric is unknown.

    Example:
        >>> tokens = torch.eye(16)[None]
        >>> separability_loss(tokens, tokens + 1, metric="mse").mean()
        tensor(1.)
    """
    if metric == "mse":
        return (original - projected).square().mean(-1)
    if metric != "kl":
        raise StillmotionError(f"separability is {metric!r}; must be kl or mse.")
    log_p, log_q = original.log_softmax(-1), projected.log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1)
