"""Batch norm over all ranks that can be differentiated twice; running-statistics helpers."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from stillmotion.distributed.collectives import all_gather
from stillmotion.distributed.process_group import get_world_size
from stillmotion.errors import StillmotionError


class SyncBatchNorm(_BatchNorm):
    """Batch norm of inputs (B, C, …), whose statistics are those of the joint batch of all ranks.

    The ranks may have batches of different sizes, but not empty ones. Statistics are computed in float32 at least, and
    gradients of any order pass through them to every rank. In evaluation, and on one process, it is torch's batch norm.
    State, momentum and running statistics are those of torch's batch norms.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"inputs have shape {tuple(input.shape)}; expected (batch, channels, …)")

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or get_world_size() == 1:
            return super().forward(input)
        return self._sync_forward(input)

    @torch.compiler.disable  # collectives are not compiled
    def _sync_forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if not input.numel():
            raise StillmotionError(
                f"A rank has an empty batch ({tuple(input.shape)}), which SyncBatchNorm cannot handle. Increase "
                "--optim.batch-size."
            )
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        mean, variance, count = sync_statistics(x)
        self._update_running_stats(mean.detach(), variance.detach(), count)
        scale = (variance + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        shift = -mean * scale
        if self.bias is not None:
            shift = shift + self.bias
        return torch.addcmul(_broadcast(shift, x), x, _broadcast(scale, x)).to(input.dtype)

    @torch.no_grad()
    def _update_running_stats(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        momentum = 1 / self.num_batches_tracked.double() if self.momentum is None else self.momentum
        unbiased = variance * (count / (count - 1))
        for running, value in ((self.running_mean, mean), (self.running_var, unbiased)):
            running.copy_((1 - momentum) * running + momentum * value)


def sync_statistics(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the statistics of the joint batch of all ranks.

    Args:
        x: This rank's part of the batch, (B, C, …).

    Returns:
        Mean (C), biased variance (C), and the number of values of each channel.
    """
    variance, mean = torch.var_mean(x, [d for d in range(x.ndim) if d != 1], correction=0)
    statistics = torch.cat([mean, variance, mean.new_tensor([x.numel() // x.shape[1]])])
    means, variances, counts = all_gather(statistics.unsqueeze(0)).split([len(mean), len(mean), 1], dim=1)
    count = counts.sum()
    weights = counts / count
    mean = (weights * means).sum(0)
    return mean, (weights * (variances + (means - mean).square())).sum(0), count


def convert_sync_batchnorm(module: nn.Module) -> None:
    """Replace all batch norms in a module by `SyncBatchNorm`, keeping parameters and state-dict keys."""
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm):
                setattr(parent, name, _convert(child))


def forward_per_side(forward: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply `forward` separately to odd and even views, so that batch norm statistics are not shared between them.

    Args:
        forward: Function of a batch, (n, …).
        x: Views of each video, (b, v, …).

    Returns:
        Outputs, (b, v, …).
    """
    sides = [torch.arange(first, x.shape[1], 2, device=x.device) for first in range(min(2, x.shape[1]))]
    outputs = [forward(x[:, side].flatten(0, 1)).unflatten(0, (len(x), len(side))) for side in sides]
    return torch.cat(outputs, 1)[:, torch.cat(sides).argsort()]


def _convert(norm: _BatchNorm) -> SyncBatchNorm:
    joint = SyncBatchNorm(norm.num_features, eps=norm.eps, momentum=norm.momentum, affine=False)
    joint.affine, joint.track_running_stats = norm.affine, norm.track_running_stats
    joint.weight, joint.bias = norm.weight, norm.bias
    joint.running_mean, joint.running_var = norm.running_mean, norm.running_var
    joint.num_batches_tracked = norm.num_batches_tracked
    return joint.train(norm.training)


def _broadcast(values: Tensor, x: Tensor) -> Tensor:
    """Reshape values (C) to broadcast over x (B, C, …)."""
    return values.view(-1, *[1] * (x.ndim - 2))


def find_batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """Return the batch norms in a module."""
    return [m for m in module.modules() if isinstance(m, _BatchNorm)]


@contextlib.contextmanager
def freeze_running_stats(module: nn.Module) -> Iterator[None]:
    """Context manager: normalize by the batch without updating running statistics."""
    norms = find_batch_norms(module)
    before = [m.track_running_stats for m in norms]
    try:
        for m in norms:
            m.track_running_stats = False
        yield
    finally:
        for m, tracked in zip(norms, before, strict=True):
            m.track_running_stats = tracked
