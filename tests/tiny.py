"""Methods small enough to be solved hundreds of times in a test, in float64."""

import torch
from torch.func import functional_call

from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.method import Method, MethodConfig, ModelConfig, PredictionConfig
from stillmotion.methods.moco import MoCoConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.swav import SwAVConfig
from stillmotion.methods.vicreg import VICRegConfig
from stillmotion.methods.views import ViewsConfig
from stillmotion.nn.split import SplitConfig

OBJECTIVES = {
    "simclr": SimCLRConfig(temperature=0.3),
    "moco": MoCoConfig(temperature=0.3, queue=10, momentum=0.9),
    "byol": BYOLConfig(hidden=6, momentum=0.9),
    "swav": SwAVConfig(prototypes=5, epsilon=0.3),
    "vicreg": VICRegConfig(),
}


def tiny_method(objective, how="slow", *, norm=True, sides="joint", seed=0, **prediction):
    """A method whose momentum encoder, if it has one, is not a copy any more and whose batch norms are not trivial."""
    torch.manual_seed(seed)
    method = Method(
        MethodConfig(
            views=ViewsConfig(norm=sides),
            model=ModelConfig(backbone="small_resnet3d", channels=(3, 4), width=6, layers=2, hidden=5, norm=norm),
            split=SplitConfig(how=how, radius=0.3),
            prediction=PredictionConfig(**{"orthogonality": 1e-2, "ridge": 1e-2, **prediction}),
            objective=OBJECTIVES[objective],
        )
    ).double()
    with torch.no_grad():
        for name, weight in method.named_parameters():
            if weight.ndim == 1 or name.startswith("target."):
                weight += 0.3 * torch.randn_like(weight)
    return method


def tiny_clips(b=4, v=2, *, t=5, seed=0):
    return torch.randn(b, v, 3, t, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def loss_of(method, clips, level):
    """The sum of a level's losses as a function of the weights."""
    return lambda weights: sum(functional_call(method, weights, (clips,), {"level": level}).parts.values())
