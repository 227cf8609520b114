"""Action localisation by name: each head at its published settings, and its debug twin.

`breakfast-fact` is the frame-level half of Table 5 of the image-to-video paper: trained on splits 2–4 and tested on
split 1, which are the published bundles train.split1 and test.split1; `breakfast` is the same with the lighter MS-TCN.
`debug` and `debug-fact` are these on drawn videos and a tiny network.
"""

from dataclasses import replace
from functools import partial
from typing import Literal

from stillmotion.config import TrainConfig
from stillmotion.config.segment import FramesConfig, SegmentConfig
from stillmotion.data.untrimmed import UntrimmedConfig
from stillmotion.nn.fact import FACTConfig
from stillmotion.nn.mstcn import MSTCNConfig
from stillmotion.recipes.rates import ADAMW
from stillmotion.recipes.table import Recipe, Recipes, cited

HeadName = Literal["mstcn", "fact"]


def breakfast(head: HeadName) -> SegmentConfig:
    """MS-TCN at a constant rate, video by video; FACT in batches of 4, its rate a tenth from epoch 80 on."""
    optim = replace(ADAMW, weight_decay=0.0, warmup_epochs=0.0)
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


SEGMENT: Recipes[SegmentConfig] = Recipes(
    "segment",
    {
        "breakfast": Recipe(partial(breakfast, "mstcn"), "MS-TCN on frozen frame features of Breakfast, split 1"),
        "breakfast-fact": Recipe(
            partial(breakfast, "fact"),
            "FACT on frozen frame features of Breakfast, split 1",
            cited("image-to-video transfer", 5),
        ),
        "debug": Recipe(partial(debug, "mstcn"), "debug twin of breakfast"),
        "debug-fact": Recipe(partial(debug, "fact"), "debug twin of breakfast-fact"),
    },
)
