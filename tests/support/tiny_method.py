"""Methods small enough to be solved hundreds of times in a test, in float64."""

import torch
from torch.func import functional_call

from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.embedding_network import ModelConfig
from stillmotion.methods.method import Method, MethodConfig, PredictionLossConfig
from stillmotion.methods.moco import MoCoConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.methods.swav import SwAVConfig
from stillmotion.methods.vicreg import VICRegConfig
from stillmotion.methods.views import ViewsConfig

OBJECTIVES = {
    "simclr": SimCLRConfig(temperature=0.3),
    "moco": MoCoConfig(temperature=0.3, queue_size=10, momentum=0.9),
    "byol": BYOLConfig(predictor_hidden_dim=6, momentum=0.9),
    "swav": SwAVConfig(num_prototypes=5, sinkhorn_epsilon=0.3),
    "vicreg": VICRegConfig(),
}


def tiny_method(objective, decomposition="slow", *, norm=True, batch_norm="joint", seed=0, **prediction):
    """Return a method with random batch norms and a momentum encoder, if any, that differs from the online one."""
    torch.manual_seed(seed)
    method = Method(
        MethodConfig(
            views=ViewsConfig(batch_norm=batch_norm),
            model=ModelConfig(
                backbone="small_cnn3d",
                stage_channels=(3, 4),
                embedding_dim=6,
                projector_layers=2,
                projector_hidden_dim=5,
                projector_batch_norm=norm,
            ),
            static_dynamic=StaticDynamicConfig(method=decomposition, radius=0.3),
            prediction=PredictionLossConfig(**{"orthogonality_weight": 1e-2, "ridge": 1e-2, **prediction}),
            objective=OBJECTIVES[objective],
        )
    ).double()
    with torch.no_grad():
        for name, weight in method.named_parameters():
            if weight.ndim == 1 or name.startswith("target."):
                weight += 0.3 * torch.randn_like(weight)
    return method


def tiny_clips(batch_size=4, num_views=2, *, num_frames=5, seed=0):
    return torch.randn(
        batch_size, num_views, 3, num_frames, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def make_level_loss(method, clips, level):
    """The sum of a level's losses as a function of the weights."""
    return lambda weights: sum(functional_call(method, weights, (clips,), {"level": level}).losses.values())
