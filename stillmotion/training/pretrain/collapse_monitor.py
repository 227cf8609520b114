"""Embedding statistics of a method in training, and a monitor that warns of collapse.

Nothing here affects training: no random generator, statistic or weight changes.
Shapes: b videos with v clips each, T frames, M dimensions.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.distributed.collectives import all_gather_no_grad
from stillmotion.distributed.process_group import get_rank, get_world_size
from stillmotion.functional import koopman
from stillmotion.functional.embedding_geometry import effective_rank
from stillmotion.methods.method import Method
from stillmotion.methods.static_dynamic import decompose
from stillmotion.models.batch_norm import freeze_running_stats
from stillmotion.utils.device import autocast, preserve_rng

MIN_EMBEDDING_STD = 0.1  # below which a component has collapsed; 1 is uniform on the sphere
MAX_STILL_CLIP_RATIO = 0.5  # above which the dynamic component does not hold motion
_CONSECUTIVE_CHECKS = 3  # before a warning


def embedding_stats(
    method: Method, clips: Tensor, labels: Mapping[str, Tensor] | None = None, *, precision: str = "fp32"
) -> dict[str, float]:
    """Compute embedding statistics of a method over all ranks. Collective: every rank must call it.

    For each component: `embedding_std` (1 if unit embeddings are uniform on the sphere, 0 if they are equal),
    `effective_rank` (exp of the entropy of singular values), `embedding_norm` (mean norm), `loss_grad_norm` (norm of
    the loss gradient by the frame embeddings), `batch_knn_accuracy/<target>` (how often the nearest clip of another
    video in the batch has the same label) and, with a momentum encoder, `shuffled_key_loss` (loss with the keys of
    another video). With a decomposition: `static_eigenvalue_fraction` (eigenvalues within the radius of 1) and
    `still_clip_ratio` (dynamic norm of still clips over moving clips). Values that are not finite are left out.

    Args:
        method: The method.
        clips: Clips (b, v, 3, T, H, W).
        labels: Labels (b,) by target, -1 if unknown.
        precision: Autocast precision.

    Returns:
        Statistics by metric name.
    """
    b, v, t = clips.shape[0], clips.shape[1], clips.shape[3]
    config = method.config.static_dynamic
    is_whole = config.method == "none"
    # One clip of each video stands still; in the same pass, so that both are normalized alike.
    still = clips[:, 0, :, t // 2, None].expand_as(clips[:, 0])
    inputs = clips.flatten(0, 1) if is_whole else torch.cat([clips.flatten(0, 1), still])
    stats: dict[str, float] = {}
    with freeze_running_stats(method), preserve_rng(clips.device):
        with torch.no_grad(), autocast(clips.device, precision):
            embeddings, keys = method.embed_clips(inputs), method._momentum_embeddings(clips)
        if not torch.isfinite(_all_gather_float32(embeddings)).all():
            return {}  # the step itself raises
        moving = embeddings[: b * v].requires_grad_()
        components = method.decompose(moving)
        for name, z in components.items():
            prefix, all_z = f"health/{name}", _all_gather_float32(z)
            objective, pairs = method.objectives[name], z.unflatten(0, (b, v))
            (gradient,) = torch.autograd.grad(objective(pairs, keys.get(name)), moving, retain_graph=True)
            units = F.normalize(all_z, dim=-1)
            stats[f"{prefix}/embedding_std"] = float(_embedding_std(units))
            stats[f"{prefix}/effective_rank"] = float(effective_rank(torch.linalg.svdvals(units.float())))
            stats[f"{prefix}/embedding_norm"] = float(all_z.norm(dim=-1).mean())
            stats[f"{prefix}/loss_grad_norm"] = float(_all_gather_float32(gradient).norm()) / get_world_size()
            if name in keys:
                others = all_gather_no_grad(keys[name]).roll(1, 0).chunk(get_world_size())[get_rank()]
                stats[f"{prefix}/shuffled_key_loss"] = float(_all_gather_float32(objective(pairs, others)[None]).mean())
            for target, accuracy in _batch_knn_accuracy(units.unflatten(0, (-1, v)), labels or {}).items():
                stats[f"{prefix}/batch_knn_accuracy/{target}"] = accuracy
        if not is_whole:
            eigenvalues = koopman.eigenvalues(_all_gather_float32(moving), ridge=config.ridge)
            stats["health/static_eigenvalue_fraction"] = float(((eigenvalues - 1).abs() < config.radius).float().mean())
            still_dynamic = decompose(embeddings[b * v :], config)[1]
            moving_dynamic = components["dynamic"].unflatten(0, (b, v))[:, 0]
            norms = [_all_gather_float32(z).norm(dim=-1).mean() for z in (still_dynamic, moving_dynamic)]
            stats["health/still_clip_ratio"] = float(norms[0] / norms[1].clamp_min(1e-12))
    return {name: value for name, value in stats.items() if math.isfinite(value)}


class CollapseMonitor:
    """Warns once per component when its embedding collapses or the dynamic embedding holds no motion."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def update(self, metrics: Mapping[str, float]) -> list[str]:
        """Update with the statistics of one step and return warnings."""
        warnings = []
        for name, value in metrics.items():
            component = name.removeprefix("health/").removesuffix("/embedding_std")
            if name.endswith("/embedding_std") and self._has_persisted(name, value < MIN_EMBEDDING_STD):
                warnings.append(
                    f"The {component} embedding has collapsed (embedding_std {value:.3f}; 1 is uniform). Lower "
                    "--optim.lr or set --optim.max-grad-norm 1."
                )
            elif name == "health/still_clip_ratio" and self._has_persisted(name, value > MAX_STILL_CLIP_RATIO):
                warnings.append(
                    f"The dynamic embedding holds little motion: still clips have {value:.2f} of its norm. "
                    "--method.model.temporal-padding replicate removes it for still clips."
                )
        return warnings

    def _has_persisted(self, name: str, is_abnormal: bool) -> bool:
        """Whether a metric is abnormal in enough consecutive checks, for the first time."""
        count = self._counts.get(name, 0)
        self._counts[name] = count if count == _CONSECUTIVE_CHECKS else count + 1 if is_abnormal else 0
        return count < self._counts[name] == _CONSECUTIVE_CHECKS


def _embedding_std(units: Tensor) -> Tensor:
    """Standard deviation of the channels of unit vectors (n, m), times √m: at most 1."""
    return (units - units.mean(0)).square().sum(1).mean().sqrt()


def _batch_knn_accuracy(units: Tensor, labels: Mapping[str, Tensor]) -> dict[str, float]:
    """How often the nearest clip of another video has the same label, for unit embeddings (b, v, m) of all ranks."""
    b, v = units.shape[:2]
    if b < 2 or not labels:
        return {}
    cosines = units.flatten(0, 1) @ units.flatten(0, 1).mT
    video = torch.arange(b, device=units.device).repeat_interleave(v)
    nearest = video[cosines.masked_fill(video[:, None] == video, -torch.inf).argmax(1)]
    accuracy = {}
    for target, local in labels.items():
        y = all_gather_no_grad(local.to(units.device))
        known = (y[video] >= 0) & (y[nearest] >= 0)
        if known.any():
            accuracy[target] = float((y[video] == y[nearest])[known].float().mean())
    return accuracy


def _all_gather_float32(x: Tensor) -> Tensor:
    """Values of all ranks, in float32 at least."""
    return all_gather_no_grad(x).to(torch.promote_types(x.dtype, torch.float32))
