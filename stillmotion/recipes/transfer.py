"""The image models of the image-to-video paper at its settings, each with a debug twin.

`mae-b16` … `dinov2-b16` are the rows of Tables 5 to 7, `dino-s8`, `dinov2-s14` and `dinov3-s16` those of Table 9b;
`debug-mae` … `debug-dinov3` are the same losses on synthetic videos and a tiny model with random weights.
`laptop-transfer` is for a folder of your own videos and a model of your own. Kinetics is read at its own rate: a gap
that is a share of the video's length is the same at the paper's 2 frames a second.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from stillmotion.config import TrainConfig
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.methods.transfer import PositionsConfig, ProjectionConfig, TransferMethodConfig
from stillmotion.nn.images import FAMILIES, Arch, Family, ImagesConfig
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.recipes.choose import chosen
from stillmotion.train.transfer_config import PairsConfig, TransferConfig

_BASE: tuple[Family, ...] = ("mae", "ijepa", "clip", "blip", "mocov3", "dino", "ibot", "dinov2")
_SMALL: tuple[tuple[Family, Arch], ...] = (("dino", "s8"), ("dinov2", "s14"), ("dinov3", "s16"))


def paper(family: Family, arch: Arch = "b16") -> TransferConfig:
    """A row of the paper: Kinetics-400, 5 epochs, the sum over tokens that its λ = 3 goes with."""
    return TransferConfig(
        images=ImagesConfig(family=family, arch=arch),
        data=PairsConfig(path="kinetics400", split="train", size=224),
        method=TransferMethodConfig(reduce="sum", weight=3.0),
        optim=OptimConfig(
            name="adamw", lr=1e-4, lr_batch=256, weight_decay=0.05, batch=512, epochs=5, warmup_epochs=1, warmup_lr=0.0
        ),
        train=TrainConfig(checkpoint_every=200),
    )


def debug(family: Family) -> TransferConfig:
    """The same losses in seconds on a CPU, from random weights."""
    config = paper(family, "tiny")
    return replace(
        config,
        data=PairsConfig(path="synthetic", size=48, workers=0, synthetic=SyntheticConfig(videos=32, size=48)),
        optim=replace(config.optim, lr=1e-3, lr_batch=0, batch=16, epochs=4),
        train=TrainConfig(checkpoint_every=4, log_every=1),
    )


def laptop() -> TransferConfig:
    """This library's own settings for two cores: g starts as the identity and tokens are computed once."""
    return TransferConfig(
        images=ImagesConfig(),
        data=PairsConfig(size=224, pairs=4),
        method=TransferMethodConfig(
            weight=3.0,
            projection=ProjectionConfig(residual=True),
            positions=PositionsConfig(fixed=1),
        ),
        optim=OptimConfig(
            name="adamw", lr=1e-3, lr_batch=0, weight_decay=0.05, batch=32, epochs=20, warmup_epochs=1, warmup_lr=0.0
        ),
        train=TrainConfig(checkpoint_every=50),
    )


_RECIPES: dict[str, Callable[[], TransferConfig]] = {
    "laptop-transfer": laptop,
    **{f"{family}-b16": partial(paper, family) for family in _BASE},
    **{f"{family}-{arch}": partial(paper, family, arch) for family, arch in _SMALL},
    **{f"debug-{family}": partial(debug, family) for family in FAMILIES},  # type: ignore[arg-type]
}


def transfer_recipe_names() -> tuple[str, ...]:
    """All names that `transfer_recipe` takes."""
    return tuple(_RECIPES)


def transfer_recipe(name: str) -> TransferConfig:
    """The transfer configuration with this name."""
    return replace(chosen(_RECIPES, name, verb="transfer")(), recipe=name)
