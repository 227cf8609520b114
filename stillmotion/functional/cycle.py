"""The palindrome's loss: patches of a frame must find their way to another frame and back (image-to-video transfer).

Jabri et al., "Space-Time Correspondence as a Contrastive Random Walk", NeurIPS 2020, with a return to the first frame
under other positions. Shapes: B videos, N = h·w tokens of a frame, D channels.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.errors import StillmotionError

SeparabilityMetric = Literal["kl", "mse"]
Similarity = Literal["cosine", "dot"]


def pool_tokens(tokens: Tensor, grid: tuple[int, int], *, factor: int = 2) -> Tensor:
    """Means over by×by cells of the token grid: (B, N, D) to (B, ⌈h/by⌉·⌈w/by⌉, D); cells at an edge may be smaller."""
    if factor == 1:
        return tokens
    if grid[0] * grid[1] != tokens.shape[1]:
        raise StillmotionError(f"{tokens.shape[1]} tokens are no grid of {grid[0]}×{grid[1]}; give the grid they have")
    cells = tokens.transpose(1, 2).unflatten(2, grid)
    return F.avg_pool2d(cells, factor, ceil_mode=True, count_include_pad=False).flatten(2).transpose(1, 2)


def cycle_loss(
    tokens_t1: Tensor,
    tokens_t2: Tensor,
    tokens_t1_again: Tensor,
    *,
    temperature: float = 0.03,
    similarity: Similarity = "cosine",
) -> Tensor:
    """Minus the log-probability that each token of the first frame comes back to its place, (B, N).

    tokens_t1, tokens_t2, tokens_t1_again: (B, N, D) of frames t1, t2 and t1 again; of any scale, unless similarity is dot. The walk is
    A(t1→t2)·A(t2→t1'); only its diagonal is ever formed, in the log domain.

    >>> tokens = torch.eye(16)[None]  # 16 patches that nobody can mistake for each other
    >>> print(f"{cycle_loss(tokens, tokens.flip(1), tokens).mean():.2f}")
    0.00
    """
    there, home = log_affinities(tokens_t1, tokens_t2, tokens_t1_again, temperature=temperature, similarity=similarity)
    return -torch.logsumexp(there + home.transpose(1, 2), dim=2)


@torch.no_grad()
def cycle_accuracy(
    tokens_t1: Tensor,
    tokens_t2: Tensor,
    tokens_t1_again: Tensor,
    *,
    temperature: float = 0.03,
    similarity: Similarity = "cosine",
) -> Tensor:
    """The share of tokens whose likeliest end is their own place, (B,) (Eq. 55)."""
    there, home = log_affinities(tokens_t1, tokens_t2, tokens_t1_again, temperature=temperature, similarity=similarity)
    ends = torch.bmm(there.exp(), home.exp()).argmax(2)
    return (ends == torch.arange(ends.shape[1], device=ends.device)).to(tokens_t1.dtype).mean(1)


def log_affinities(
    tokens_t1: Tensor,
    tokens_t2: Tensor,
    tokens_t1_again: Tensor,
    *,
    temperature: float,
    similarity: Similarity = "cosine",
) -> tuple[Tensor, Tensor]:
    """The log of A(t1→t2) and of A(t2→t1'), each (B, N, N) with rows that sum to 1."""
    if not temperature > 0:
        raise StillmotionError(f"temperature is {temperature}; it must be positive, such as 0.03")
    if similarity not in ("cosine", "dot"):
        raise StillmotionError(f"similarity is {similarity!r}; choose cosine or dot")
    a, b, c = (F.normalize(x, dim=-1) if similarity == "cosine" else x for x in (tokens_t1, tokens_t2, tokens_t1_again))
    there = torch.bmm(a, b.transpose(1, 2)) / temperature
    home = torch.bmm(b, c.transpose(1, 2)) / temperature
    return there.log_softmax(2), home.log_softmax(2)


def separability_loss(original: Tensor, projected: Tensor, *, metric: SeparabilityMetric = "kl") -> Tensor:
    """How far projected tokens are from those they come from, (B, N).

    kl: KL(softmax over channels of the original ‖ that of the projected). mse: the mean square over channels.

    >>> tokens = torch.eye(16)[None]
    >>> separability_loss(tokens, tokens + 1, metric="mse").mean()
    tensor(1.)
    """
    if metric == "mse":
        return (original - projected).square().mean(-1)
    if metric != "kl":
        raise StillmotionError(f"separability is {metric!r}; choose kl or mse")
    wanted, found = original.log_softmax(-1), projected.log_softmax(-1)
    return (wanted.exp() * (wanted - found)).sum(-1)
