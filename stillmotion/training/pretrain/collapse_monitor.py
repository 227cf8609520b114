"""Whether a method still tells its clips apart, seen in the numbers of a step that is written down.

Nothing here has a say in what is computed: no generator, statistic or weight moves.
Shapes: b videos, v clips of each, T frames, M channels."""

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

MIN_EMBEDDING_STD = 0.1  # of the deviation of evenly spread embeddings, below which a component has collapsed
MAX_STILL_CLIP_RATIO = 0.5  # of the dynamic half, above which it is not motion that fills it
_CONSECUTIVE_CHECKS = 3  # in a row, before a person is told


def embedding_stats(
    method: Method, clips: Tensor, labels: Mapping[str, Tensor] | None = None, *, precision: str = "fp32"
) -> dict[str, float]:
    """What `clips` (b, v, 3, T, H, W) say of a method, over all ranks; every rank must ask.

    labels: (b,) by target, -1 where unknown.

    For each component, `deviation` is that of its unit embeddings, 1 where they are spread evenly and 0 where all are
    alike; `rank` is how many directions they fill, exp of the entropy of their singular values; `norm` is their mean
    length; `gradient` is the norm of its loss's gradient by the frames (by the embeddings, where nothing is
    split); `nearest/<target>` is how often the nearest clip of another video in the batch shares the label. Where there
    is a momentum encoder, `stranger` is the loss that is left where each video is given the keys of another.
    Of a split, `inside` is the share of eigenvalues within ξ of 1, and `still` is how long the dynamic halves are of
    clips that stand still at their middle frame, as a share of the moving clips'. What is not finite is left out.
    """
    b, v, t = clips.shape[0], clips.shape[1], clips.shape[3]
    split = method.config.static_dynamic
    whole = split.method == "none"
    # One clip of each video stands still; in the same pass, so that both are normalised alike.
    still = clips[:, 0, :, t // 2, None].expand_as(clips[:, 0])
    inputs = clips.flatten(0, 1) if whole else torch.cat([clips.flatten(0, 1), still])
    numbers: dict[str, float] = {}
    with freeze_running_stats(method), preserve_rng(clips.device):
        with torch.no_grad(), autocast(clips.device, precision):
            found, keys = method.embed_clips(inputs), method._momentum_embeddings(clips)
        if not torch.isfinite(_all_gather_float32(found)).all():
            return {}  # the step itself says so
        moving = found[: b * v].requires_grad_()
        components = method.decompose(moving)
        for name, z in components.items():
            here, everyone = f"health/{name}", _all_gather_float32(z)
            objective, pairs = method.objectives[name], z.unflatten(0, (b, v))
            (slope,) = torch.autograd.grad(objective(pairs, keys.get(name)), moving, retain_graph=True)
            units = F.normalize(everyone, dim=-1)
            numbers[f"{here}/embedding_std"] = float(_embedding_std(units))
            numbers[f"{here}/effective_rank"] = float(effective_rank(torch.linalg.svdvals(units.float())))
            numbers[f"{here}/embedding_norm"] = float(everyone.norm(dim=-1).mean())
            numbers[f"{here}/loss_grad_norm"] = float(_all_gather_float32(slope).norm()) / get_world_size()
            if name in keys:
                others = all_gather_no_grad(keys[name]).roll(1, 0).chunk(get_world_size())[get_rank()]
                numbers[f"{here}/shuffled_key_loss"] = float(_all_gather_float32(objective(pairs, others)[None]).mean())
            for target, shared in _batch_knn_accuracy(units.unflatten(0, (-1, v)), labels or {}).items():
                numbers[f"{here}/batch_knn_accuracy/{target}"] = shared
        if not whole:
            values = koopman.eigenvalues(_all_gather_float32(moving), ridge=split.ridge)
            numbers["health/static_eigenvalue_fraction"] = float(((values - 1).abs() < split.radius).float().mean())
            held, moved = decompose(found[b * v :], split)[1], components["dynamic"].unflatten(0, (b, v))[:, 0]
            lengths = [_all_gather_float32(x).norm(dim=-1).mean() for x in (held, moved)]
            numbers["health/still_clip_ratio"] = float(lengths[0] / lengths[1].clamp_min(1e-12))
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


class CollapseMonitor:
    """Says once of each component that it has collapsed, and once that the dynamic half holds no motion."""

    def __init__(self) -> None:
        self._low: dict[str, int] = {}

    def update(self, metrics: Mapping[str, float]) -> list[str]:
        """What is to be told of a step's `health`, in lines."""
        lines = []
        for name, value in metrics.items():
            part = name.removeprefix("health/").removesuffix("/embedding_std")
            if name.endswith("/embedding_std") and self._has_persisted(name, value < MIN_EMBEDDING_STD):
                what = "embedding" if part == "whole" else f"{part} half"
                lines.append(
                    f"the {what} has collapsed: clips differ by {value:.3f} of what they could; lower --optim.lr, or "
                    "set --optim.max-grad-norm 1"
                )
            elif name == "health/still_clip_ratio" and self._has_persisted(name, value > MAX_STILL_CLIP_RATIO):
                lines.append(
                    f"the dynamic half holds little motion: clips that stand still have {value:.2f} of it "
                    "(--method.model.temporal-padding replicate leaves them none)"
                )
        return lines

    def _has_persisted(self, name: str, is_abnormal: bool) -> bool:
        """Whether it is so for the first time that this number is low at so many looks in a row."""
        count = self._low.get(name, 0)
        self._low[name] = count if count == _CONSECUTIVE_CHECKS else count + 1 if is_abnormal else 0
        return count < self._low[name] == _CONSECUTIVE_CHECKS


def _embedding_std(units: Tensor) -> Tensor:
    """The standard deviation of the channels of unit vectors (n, m), times √m: 1 at most."""
    return (units - units.mean(0)).square().sum(1).mean().sqrt()


def _batch_knn_accuracy(units: Tensor, labels: Mapping[str, Tensor]) -> dict[str, float]:
    """How often the nearest clip of another video has the label of a clip's own, for units (b, v, m) of all ranks."""
    b, v = units.shape[:2]
    if b < 2 or not labels:
        return {}
    cosines = units.flatten(0, 1) @ units.flatten(0, 1).mT
    video = torch.arange(b, device=units.device).repeat_interleave(v)
    nearest = video[cosines.masked_fill(video[:, None] == video, -torch.inf).argmax(1)]
    shared = {}
    for target, own in labels.items():
        y = all_gather_no_grad(own.to(units.device))
        known = (y[video] >= 0) & (y[nearest] >= 0)
        if known.any():
            shared[target] = float((y[video] == y[nearest])[known].float().mean())
    return shared


def _all_gather_float32(x: Tensor) -> Tensor:
    """The values of all ranks, at least in float32."""
    return all_gather_no_grad(x).to(torch.promote_types(x.dtype, torch.float32))
