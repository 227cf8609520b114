"""InfoNCE, SimCLR, MoCo, BYOL, SwAV and VICReg losses on embeddings: no networks, no queues.

Shapes: b videos, v views (clips) of each, m channels; embeddings are (b, v, m). Every loss is a mean over this rank's
videos; averaging the gradients over ranks gives the gradient of the joint batch.
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

    Args:
        anchors: Embeddings of any scale, (a, m); the similarity is cosine.
        candidates: Embeddings of any scale, (c, m).
        positive: Mask of the positives, bool (a, c); each anchor needs at least one.
        ignore: Mask of candidates that do not count, such as the anchor itself, bool (a, c).
        temperature: Temperature τ.

    Returns:
        Mean loss over anchors.

    Example:
        >>> z, same = torch.eye(4), torch.eye(4, dtype=torch.bool)
        >>> print(f"{info_nce(z, z, same, temperature=1.0):.2f}")  # log(e + 3) - 1
        0.74
    """
    logits = F.normalize(anchors, dim=-1) @ F.normalize(candidates, dim=-1).mT / temperature
    if ignore is not None:
        logits = logits.masked_fill(ignore, -torch.inf)
    return (logits.logsumexp(1) - logits.masked_fill(~positive, -torch.inf).logsumexp(1)).mean()


def simclr_loss(z: Tensor, *, temperature: float = 0.1) -> Tensor:
    """SimCLR: positives are the other clips of a video, negatives all clips of other videos (BOD-VCL, Eq. 1–2).

    Args:
        z: Embeddings, (b, v, m).
        temperature: Temperature τ.

    Returns:
        Scalar loss.

    Example:
        >>> videos = torch.eye(4)[:, None].expand(4, 2, 4)  # 4 videos with 2 equal clips each
        >>> print(f"{simclr_loss(videos, temperature=1.0):.2f}")  # log(e + 6) - 1
        1.17
    """
    b, v = check_views(z).shape[:2]
    candidates = all_gather(z.flatten(0, 1))
    anchor = torch.arange(b * v, device=z.device) + get_rank() * b * v
    candidate = torch.arange(len(candidates), device=z.device)
    same_video = anchor[:, None] // v == candidate // v
    same_clip = anchor[:, None] == candidate
    return info_nce(z.flatten(0, 1), candidates, same_video & ~same_clip, ignore=same_clip, temperature=temperature)


def cross_view_loss(z: Tensor, *, temperature: float = 0.1) -> Tensor:
    """InfoNCE between pairs of views, symmetrized; clips of the same view are not negatives (ViDiDi, Eq. 1).

    Args:
        z: Embeddings, (b, v, m).
        temperature: Temperature τ.

    Returns:
        Scalar loss: the mean over ordered pairs of views.

    Example:
        >>> videos = torch.eye(4)[:, None].expand(4, 2, 4)  # 4 videos with 2 equal clips each
        >>> print(f"{cross_view_loss(videos, temperature=1.0):.2f}")  # log(e + 3) - 1
        0.74
    """
    b, v = check_views(z).shape[:2]
    candidates = all_gather(z)
    anchor = torch.arange(b, device=z.device) + get_rank() * b
    positive = anchor[:, None] == torch.arange(len(candidates), device=z.device)
    pairs = [(j, k) for j in range(v) for k in range(v) if j != k]
    losses = [info_nce(z[:, j], candidates[:, k], positive, temperature=temperature) for j, k in pairs]
    return torch.stack(losses).mean()


def moco_loss(z: Tensor, keys: Tensor, queue: Tensor, *, temperature: float = 0.1) -> Tensor:
    """MoCo: positives are momentum keys of the video's other clips, negatives the queue (BOD-VCL, Eq. 1, 3).

    Args:
        z: Embeddings, (b, v, m).
        keys: Embeddings of the momentum encoder, without gradient, (b, v, m).
        queue: Negatives, (q, m).
        temperature: Temperature τ.

    Returns:
        Scalar loss.

    Example:
        >>> videos, queue = torch.eye(8)[:4, None].expand(4, 2, 8), torch.eye(8)[4:]
        >>> print(f"{moco_loss(videos, videos, queue, temperature=1.0):.2f}")  # log(e + 4) - 1
        0.90
    """
    v = check_views(z).shape[1]
    z, keys = F.normalize(z, dim=-1), F.normalize(keys, dim=-1)
    same_view = torch.eye(v, dtype=torch.bool, device=z.device)
    positives = (z @ keys.mT / temperature).masked_fill(same_view, -torch.inf)
    negatives = z @ F.normalize(queue, dim=-1).mT / temperature
    logits = torch.cat([positives, negatives], -1)
    return (logits.logsumexp(-1) - positives.logsumexp(-1)).mean()


def byol_loss(predicted: Tensor, targets: Tensor) -> Tensor:
    """BYOL: one minus the cosine between each prediction and the targets of the other views (BOD-VCL, Eq. 4).

    Args:
        predicted: Predictions of the online network, (b, v, m).
        targets: Projections of the target network, without gradient, (b, v, m).

    Returns:
        Scalar loss.

    Example:
        >>> predicted, targets = torch.ones(4, 2, 8), torch.full((4, 2, 8), 3.0)
        >>> print(f"{byol_loss(predicted, -targets):.2f}")
        2.00
    """
    cosine = F.normalize(check_views(predicted), dim=-1) @ F.normalize(targets, dim=-1).mT
    return 1 - _mean_over_other_views(cosine)


@torch.no_grad()
def sinkhorn(scores: Tensor, *, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Soft assignments of samples to prototypes with equal use of every prototype (SwAV), in log space.

    Args:
        scores: Scores of this rank's samples, (n, k); the balance is over the samples of all ranks.
        epsilon: Entropy regularization ε.
        iterations: Sinkhorn-Knopp iterations.

    Returns:
        Assignments, (n, k), with rows that sum to 1.

    Example:
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
    """SwAV: each clip predicts the prototype assignments of the video's other clips.

    Args:
        scores: Cosines between embeddings and prototypes, (b, v, k).
        temperature: Temperature τ of the predictions.
        epsilon: Entropy regularization of `sinkhorn`.
        iterations: Iterations of `sinkhorn`.

    Returns:
        Scalar loss.

    Example:
        >>> scores = torch.eye(4)[:, None].expand(4, 2, 4)  # each video has its own prototype
        >>> print(f"{swav_loss(scores, temperature=1.0):.2f}")  # log(e + 3) - 1
        0.74
    """
    v = check_views(scores).shape[1]
    codes = torch.stack([sinkhorn(scores[:, j], epsilon=epsilon, iterations=iterations) for j in range(v)], 1)
    log_p = (scores / temperature).log_softmax(-1)
    return -_mean_over_other_views(log_p @ codes.to(log_p.dtype).mT)


def vicreg_loss(z: Tensor, *, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0) -> Tensor:
    """VICReg: variance-invariance-covariance regularization, averaged over pairs of views (ViDiDi, Eq. 3–6).

    As in VICReg's published code, the squared distance of Eq. 3 is a mean over channels, not their sum. The variance
    and covariance of a view are taken over the videos of all ranks.

    Args:
        z: Embeddings, (b, v, m).
        invariance: Weight of the distance between views.
        variance: Weight of the variance term.
        covariance: Weight of the covariance term.

    Returns:
        Scalar loss.

    Raises:
        StillmotionError: If the joint batch has fewer than 2 videos.

    Example:
        >>> collapsed = torch.ones(4, 2, 8)  # nothing varies: only the variance term of two views is left
        >>> print(f"{vicreg_loss(collapsed):.1f}")  # 2 · 25 · (1 - √1e-4)
        49.5
    """
    v = check_views(z).shape[1]
    joint = all_gather(z)
    n, m = joint.shape[0], joint.shape[2]
    if n < 2:
        raise StillmotionError(f"VICReg needs at least 2 videos per batch, got {n}. Increase --optim.batch-size.")
    distance = (joint[:, :, None] - joint[:, None]).square().sum((0, 1, 2)).mean() / (n * v * (v - 1))
    centered = joint - joint.mean(0)
    std = (centered.square().sum(0) / (n - 1) + 1e-4).sqrt()
    hinge = F.relu(1 - std).mean()
    cov = torch.einsum("bvi,bvj->vij", centered, centered) / (n - 1)
    off_diagonal = cov.square().sum((1, 2)) - cov.diagonal(dim1=1, dim2=2).square().sum(1)
    return invariance * distance + 2 * variance * hinge + 2 * covariance * off_diagonal.mean() / m


def rescale_gradient(x: Tensor, reference: Tensor, *, power: float) -> Tensor:
    """Identity in the forward pass; scales the gradient by min(1, ‖x‖/‖reference‖)^power.

    A loss of directions has a gradient proportional to 1/‖x‖. With power 1 that is undone, so that a short component
    moves the frames as strongly as a long one.

    Args:
        x: Component of each clip, (b, m).
        reference: Mean frame of each clip, (b, m).
        power: Exponent of the ratio of norms.

    Returns:
        `x` with the rescaled gradient.

    Example:
        >>> x = torch.tensor([[0.03, 0.04]], requires_grad=True)
        >>> rescale_gradient(x, torch.tensor([[0.0, 0.2]]), power=1.0).sum().backward()
        >>> x.grad
        tensor([[0.2500, 0.2500]])
    """
    norm, reference_norm = (y.detach().norm(dim=-1, keepdim=True) for y in (x, reference))
    scale = (norm / reference_norm.clamp_min(1e-12)).clamp_max(1).pow(power)
    return x.detach() + scale * (x - x.detach())


def _mean_over_other_views(pairs: Tensor) -> Tensor:
    """Mean over pairs (b, v, v) of two different views."""
    b, v = pairs.shape[:2]
    same_view = pairs.diagonal(dim1=1, dim2=2)
    return (pairs.sum() - same_view.sum()) / (b * v * (v - 1))


def check_views(z: Tensor) -> Tensor:
    """Return embeddings unchanged; raise StillmotionError unless they are (b, v, m) with at least 2 views."""
    if z.ndim != 3 or z.shape[1] < 2:
        raise StillmotionError(
            f"Embeddings have shape {tuple(z.shape)}; expected (videos, views, channels) with at least 2 views. "
            "Increase --data.clips-per-video."
        )
    return z
