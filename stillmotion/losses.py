"""All losses as plain functions, for your own training loop.

They have no weights and no state. The static/dynamic split, a contrastive loss of each component and the prediction
loss, on any network that gives one embedding per frame:

    >>> import torch
    >>> from stillmotion.losses import prediction_loss, simclr_loss, decompose
    >>> network = torch.nn.Linear(48, 16)
    >>> optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    >>> for clips in torch.randn(3, 8, 2, 10, 48):  # 8 videos, 2 clips of each, 10 frames, 48 values
    ...     frames = torch.nn.functional.normalize(network(clips), dim=-1).flatten(0, 1)
    ...     static, dynamic = (component.unflatten(0, (8, 2)) for component in decompose(frames))
    ...     loss = simclr_loss(static) + simclr_loss(dynamic) + prediction_loss(frames).total
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()

On several processes the contrastive losses use the clips of all ranks; average the gradients, as
DistributedDataParallel does.
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
