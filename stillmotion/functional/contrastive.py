"""The losses of video contrastive learning, on embeddings that are already there: no networks, no queues.

Shapes: b videos, v views (clips) of each, m channels; embeddings are (b, v, m). Every function returns a mean over
this rank's videos; averaging the gradients over ranks gives the gradient of the joined batch.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.distributed.collectives import all_gather, all_gather_no_grad
from stillmotion.distributed.process_group import get_rank
from stillmotion.errors import StillmotionError


def info_nce(
    anchors: Tensor,
    candidates: Tensor,
    positive: Tensor,
    *,
    ignore: Tensor | None = None,
    temperature: float = 0.1,
) -> Tensor:
    """InfoNCE with any number of positives per anchor (BOD-VCL, Eq. 1).

    anchors: (a, m) and candidates: (c, m), any scale: similarity is cosine.
    positive: (a, c) bool; a candidate that must not count (the anchor itself) is True in `ignore`.
    Returns the mean loss over anchors; each must have a positive.

    >>> z, same = torch.eye(4), torch.eye(4, dtype=torch.bool)
    >>> print(f"{info_nce(z, z, same, temperature=1.0):.2f}")  # log(e + 3) - 1
    0.74
    """
    logits = F.normalize(anchors, dim=-1) @ F.normalize(candidates, dim=-1).mT / temperature
    if ignore is not None:
        logits = logits.masked_fill(ignore, -torch.inf)
    return (logits.logsumexp(1) - logits.masked_fill(~positive, -torch.inf).logsumexp(1)).mean()


def simclr_loss(z: Tensor, *, temperature: float = 0.1) -> Tensor:
    """Every other clip of the same video is a positive, every clip of any other video a negative (Eq. 1–2).

    >>> videos = torch.eye(4)[:, None].expand(4, 2, 4)  # 4 videos with 2 equal clips each
    >>> print(f"{simclr_loss(videos, temperature=1.0):.2f}")  # log(e + 6) - 1
    1.17
    """
    b, v = check_views(z).shape[:2]
    candidates = all_gather(z.flatten(0, 1))
    own = torch.arange(b * v, device=z.device) + get_rank() * b * v
    every = torch.arange(len(candidates), device=z.device)
    same_video = own[:, None] // v == every // v
    itself = own[:, None] == every
    return info_nce(z.flatten(0, 1), candidates, same_video & ~itself, ignore=itself, temperature=temperature)


def cross_view_loss(z: Tensor, *, temperature: float = 0.1) -> Tensor:
    """Each clip finds its video among the clips of one other view, and these find theirs (ViDiDi, Eq. 1).

    The mean over ordered pairs of views. Unlike in `simclr_loss`, clips of an anchor's own view are no negatives.

    >>> videos = torch.eye(4)[:, None].expand(4, 2, 4)  # 4 videos with 2 equal clips each
    >>> print(f"{cross_view_loss(videos, temperature=1.0):.2f}")  # log(e + 3) - 1
    0.74
    """
    b, v = check_views(z).shape[:2]
    candidates = all_gather(z)
    own = torch.arange(b, device=z.device) + get_rank() * b
    positive = own[:, None] == torch.arange(len(candidates), device=z.device)
    pairs = [(j, k) for j in range(v) for k in range(v) if j != k]
    losses = [info_nce(z[:, j], candidates[:, k], positive, temperature=temperature) for j, k in pairs]
    return torch.stack(losses).mean()


def moco_loss(z: Tensor, keys: Tensor, queue: Tensor, *, temperature: float = 0.1) -> Tensor:
    """Positives are the momentum encoder's keys of the video's other clips, negatives the queue (Eq. 1, 3).

    keys: (b, v, m) without gradient; queue: (q, m).

    >>> videos, queue = torch.eye(8)[:4, None].expand(4, 2, 8), torch.eye(8)[4:]
    >>> print(f"{moco_loss(videos, videos, queue, temperature=1.0):.2f}")  # log(e + 4) - 1
    0.90
    """
    v = check_views(z).shape[1]
    z, keys = F.normalize(z, dim=-1), F.normalize(keys, dim=-1)
    own = torch.eye(v, dtype=torch.bool, device=z.device)
    positives = (z @ keys.mT / temperature).masked_fill(own, -torch.inf)
    negatives = z @ F.normalize(queue, dim=-1).mT / temperature
    every = torch.cat([positives, negatives], -1)
    return (every.logsumexp(-1) - positives.logsumexp(-1)).mean()


def byol_loss(predicted: Tensor, targets: Tensor) -> Tensor:
    """One minus the cosine between each predicted clip and the targets of the video's other clips (Eq. 4).

    >>> predicted, targets = torch.ones(4, 2, 8), torch.full((4, 2, 8), 3.0)
    >>> print(f"{byol_loss(predicted, -targets):.2f}")
    2.00
    """
    cosine = F.normalize(check_views(predicted), dim=-1) @ F.normalize(targets, dim=-1).mT
    return 1 - _mean_over_other_views(cosine)


@torch.no_grad()
def sinkhorn(scores: Tensor, *, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Soft assignments of n samples to k prototypes with equal use of every prototype; rows sum to 1 (SwAV).

    scores: (n, k) of this rank; the balance is over the samples of all ranks. Computed in log space: no overflow.

    >>> scores = torch.tensor([[0.9, 0.8], [0.9, 0.1]])  # both prefer prototype 0
    >>> sinkhorn(scores).argmax(1)
    tensor([1, 0])
    """
    logits = all_gather_no_grad(scores.float()) / epsilon
    n = len(scores)
    for _ in range(iterations):
        logits = logits - logits.logsumexp(0, keepdim=True)
        logits = logits - logits.logsumexp(1, keepdim=True)
    return logits[get_rank() * n : (get_rank() + 1) * n].exp()


def swav_loss(scores: Tensor, *, temperature: float = 0.1, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Each clip predicts the prototype assignments of the video's other clips.

    scores: (b, v, k), cosines between embeddings and prototypes.

    >>> scores = torch.eye(4)[:, None].expand(4, 2, 4)  # each video has a prototype of its own
    >>> print(f"{swav_loss(scores, temperature=1.0):.2f}")  # log(e + 3) - 1
    0.74
    """
    v = check_views(scores).shape[1]
    codes = torch.stack([sinkhorn(scores[:, j], epsilon=epsilon, iterations=iterations) for j in range(v)], 1)
    log_p = (scores / temperature).log_softmax(-1)
    return -_mean_over_other_views(log_p @ codes.to(log_p.dtype).mT)


def vicreg_loss(z: Tensor, *, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0) -> Tensor:
    """Variance–invariance–covariance regularisation, the mean over pairs of views (ViDiDi, Eq. 3–6).

    As in VICReg's own code, the squared distance of Eq. 3 is a mean over channels, not their sum. The variance and
    covariance of a view are taken over the videos of all ranks.

    >>> collapsed = torch.ones(4, 2, 8)  # nothing varies: all that is left is the variance term of two views
    >>> print(f"{vicreg_loss(collapsed):.1f}")  # 2 · 25 · (1 - √1e-4)
    49.5
    """
    v = check_views(z).shape[1]
    joined = all_gather(z)
    n, m = joined.shape[0], joined.shape[2]
    if n < 2:
        raise StillmotionError("VICReg needs at least 2 videos in a batch (raise --optim.batch-size)")
    difference = (joined[:, :, None] - joined[:, None]).square().sum((0, 1, 2)).mean() / (n * v * (v - 1))
    centred = joined - joined.mean(0)
    deviation = (centred.square().sum(0) / (n - 1) + 1e-4).sqrt()
    spread = F.relu(1 - deviation).mean()
    cov = torch.einsum("bvi,bvj->vij", centred, centred) / (n - 1)
    off_diagonal = cov.square().sum((1, 2)) - cov.diagonal(dim1=1, dim2=2).square().sum(1)
    return invariance * difference + 2 * variance * spread + 2 * covariance * off_diagonal.mean() / m


def rescale_gradient(x: Tensor, reference: Tensor, *, power: float) -> Tensor:
    """`x` itself, with its gradient multiplied by (‖half‖ / ‖mean‖)^power, or by 1 where that is larger.

    x, reference: (b, m), of each clip. A loss of directions has a gradient in proportion to 1/‖half‖: with power 1 that
    is undone, and a short half moves the frames as hard as a long one.

    >>> half = torch.tensor([[0.03, 0.04]], requires_grad=True)
    >>> rescale_gradient(half, torch.tensor([[0.0, 0.2]]), power=1.0).sum().backward()
    >>> half.grad
    tensor([[0.2500, 0.2500]])
    """
    lengths = [x.detach().norm(dim=-1, keepdim=True) for x in (x, reference)]
    share = (lengths[0] / lengths[1].clamp_min(1e-12)).clamp_max(1).pow(power)
    return x.detach() + share * (x - x.detach())


def _mean_over_other_views(pairs: Tensor) -> Tensor:
    """The mean over pairs (b, v, v) of two different views."""
    b, v = pairs.shape[:2]
    own = pairs.diagonal(dim1=1, dim2=2)
    return (pairs.sum() - own.sum()) / (b * v * (v - 1))


def check_views(z: Tensor) -> Tensor:
    """z itself if it is (b, v, m) with at least two views."""
    if z.ndim != 3 or z.shape[1] < 2:
        raise StillmotionError(
            f"embeddings have shape {tuple(z.shape)}; a contrast needs (videos, views, channels) with at least 2 views "
            "(raise --data.clips-per-video)"
        )
    return z
