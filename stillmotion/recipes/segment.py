"""Action localisation by name: `breakfast` at the heads' published settings, and its debug twin.

`breakfast` is the frame-level half of Table 5 of the image-to-video paper: trained on splits 2–4 and tested on split 1,
which are the published bundles train.split1 and test.split1. `debug` is the same on drawn videos and a tiny network.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from stillmotion.config import TrainConfig
from stillmotion.data.untrimmed import UntrimmedConfig
from stillmotion.errors import StillmotionError
from stillmotion.nn.fact import FACTConfig
from stillmotion.nn.mstcn import MSTCNConfig
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.recipes.choose import chosen
from stillmotion.train.segment_config import FramesConfig, SegmentConfig

HeadName = Literal["mstcn", "fact"]
HEADS: tuple[HeadName, ...] = ("mstcn", "fact")


def breakfast(head: HeadName) -> SegmentConfig:
    """MS-TCN at a constant rate, video by video; FACT in batches of 4, its rate a tenth from epoch 80 on."""
    optim = OptimConfig(name="adamw", lr_batch=0, weight_decay=0.0, warmup_epochs=0.0)
    train = TrainConfig(checkpoint_every=500, log_every=50)
    if head == "mstcn":
        optim = replace(optim, lr=5e-4, batch=1, epochs=50, milestones=(50.0,))
        return SegmentConfig(head=MSTCNConfig(), optim=optim, train=train)
    optim = replace(optim, lr=1e-4, batch=4, epochs=150, milestones=(80.0,), clip=10.0)
    wide = FACTConfig(blocks=4, layers=10, width=512, heads=8, dropout=0.0, smooth=5.0)
    return SegmentConfig(head=wide, optim=optim, train=train)


def debug(head: HeadName) -> SegmentConfig:
    """A minute on two cores: drawn videos of four motions, and the demo's network with random weights."""
    config = breakfast(head)
    data = FramesConfig(path="synthetic", hop=2, workers=0, untrimmed=UntrimmedConfig(videos=96, test=24))
    small: MSTCNConfig | FACTConfig
    if head == "mstcn":
        small = MSTCNConfig(stages=3, layers=6, width=32, dropout=0.3)
    else:
        small = FACTConfig(blocks=3, layers=5, width=32, tokens=12)
    return replace(
        config,
        encoder="demo-bod-simclr",
        data=data,
        head=small,
        optim=replace(config.optim, lr=2e-3, batch=4, epochs=10, milestones=(), clip=1.0),
        train=TrainConfig(checkpoint_every=50, log_every=10, threads=1),
    )


_RECIPES: dict[str, Callable[[HeadName], SegmentConfig]] = {"breakfast": breakfast, "debug": debug}


def segment_recipe_names() -> tuple[str, ...]:
    """All names that `segment_recipe` takes."""
    return tuple(_RECIPES)


def segment_recipe(name: str, head: str = "mstcn") -> SegmentConfig:
    """The configuration with this name, for one of the heads."""
    known = next((known for known in HEADS if known == head), None)
    if known is None:
        raise StillmotionError(f"there is no head {head!r}; choose one of {', '.join(HEADS)}")
    return replace(chosen(_RECIPES, name, verb="segment")(known), recipe=name)
