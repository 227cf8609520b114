"""What `stillmotion order --recipe debug` trains before it asks."""

from dataclasses import replace

from stillmotion.config import Config
from stillmotion.recipes import recipe

SEEDS = (0, 1, 2)


def order_debug(seed: int) -> Config:
    """V-SimCLR + BOD-VCL with a small network on synthetic videos, half of which darken: seconds on a CPU."""
    config = recipe("demo-bod-simclr")
    model = replace(config.method.model, channels=(8, 16, 32))
    return replace(
        config,
        data=replace(
            config.data, augment="synthetic", synthetic=replace(config.data.synthetic, videos=256, confound=())
        ),
        method=replace(config.method, model=model),
        optim=replace(config.optim, batch=32, epochs=6),
        train=replace(config.train, seed=seed),
    )
