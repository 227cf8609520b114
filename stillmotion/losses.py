"""The losses as plain functions, for a training loop of your own.

Nothing here has weights or state: embeddings go in and a number comes out. The Koopman split, a contrast of each half
and the prediction loss on any network that gives one embedding per frame:

    >>> import torch
    >>> from stillmotion.losses import prediction_loss, simclr_loss, decompose
    >>> network = torch.nn.Linear(48, 16)
    >>> optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    >>> for clips in torch.randn(3, 8, 2, 10, 48):  # 8 videos, 2 clips of each, 10 frames, 48 values
    ...     frames = torch.nn.functional.normalize(network(clips), dim=-1).flatten(0, 1)
    ...     static, dynamic = (half.unflatten(0, (8, 2)) for half in decompose(frames))
    ...     loss = simclr_loss(static) + simclr_loss(dynamic) + prediction_loss(frames).total
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()

On several processes the contrasts see the clips of all of them; average the gradients, as DistributedDataParallel does.
"""

from stillmotion.functional.contrastive import (
    byol_loss,
    cross_view_loss,
    info_nce,
    moco_loss,
    simclr_loss,
    sinkhorn,
    swav_loss,
    vicreg_loss,
)
from stillmotion.functional.cycle import cycle_loss, separability_loss
from stillmotion.functional.koopman import PredictionLoss, decompose, prediction_loss

__all__ = [
    "PredictionLoss",
    "byol_loss",
    "cross_view_loss",
    "cycle_loss",
    "decompose",
    "info_nce",
    "moco_loss",
    "prediction_loss",
    "separability_loss",
    "simclr_loss",
    "sinkhorn",
    "swav_loss",
    "vicreg_loss",
]
