"""Temporal action segmentation recipes (Breakfast), each head at its published settings.

`breakfast-fact` is the frame-level half of Table 5 of the image-to-video paper: trained on splits 2–4 and tested on
split 1, which are the published bundles train.split1 and test.split1; `breakfast` is the same with the lighter MS-TCN.
"""

from dataclasses import replace
from functools import partial
from typing import Literal

from stillmotion.data.synthetic.untrimmed import SyntheticUntrimmedConfig
from stillmotion.models.fact import FACTConfig
from stillmotion.models.mstcn import MSTCNConfig
from stillmotion.training.config import TrainConfig
from stillmotion.training.recipe_table import ADAMW_DEFAULTS, Recipe, RecipeTable, cite_tables
from stillmotion.training.segment.config import SegmentConfig, SegmentDataConfig

HeadName = Literal["mstcn", "fact"]


def _breakfast_config(head: HeadName) -> SegmentConfig:
    """MS-TCN at a constant rate, video by video; FACT in batches of 4, its rate a tenth from epoch 80 on."""
    optim = replace(ADAMW_DEFAULTS, weight_decay=0.0, warmup_epochs=0.0)
    train = TrainConfig(checkpoint_every_steps=500, log_every_steps=50)
    if head == "mstcn":
        optim = replace(optim, lr=5e-4, batch_size=1, epochs=50, milestones=(50.0,))
        return SegmentConfig(head=MSTCNConfig(), optim=optim, train=train)
    optim = replace(optim, lr=1e-4, batch_size=4, epochs=150, milestones=(80.0,), max_grad_norm=10.0)
    wide = FACTConfig(num_blocks=4, num_layers=10, hidden_dim=512, num_heads=8, dropout=0.0, smoothing_weight=5.0)
    return SegmentConfig(head=wide, optim=optim, train=train)


def make_debug_config(config: SegmentConfig) -> SegmentConfig:
    """Return a run on synthetic videos of four motions and the demo's untrained network: a minute on two cores."""
    head: MSTCNConfig | FACTConfig
    if isinstance(config.head, MSTCNConfig):
        head = MSTCNConfig(num_stages=3, num_layers=6, hidden_dim=32, dropout=0.3)
    else:
        head = FACTConfig(num_blocks=3, num_layers=5, hidden_dim=32, num_tokens=12)
    return replace(
        config,
        encoder="demo-bod-simclr",
        data=SegmentDataConfig(
            path="synthetic",
            feature_stride=2,
            num_workers=0,
            synthetic=SyntheticUntrimmedConfig(num_train=96, num_test=24),
        ),
        head=head,
        optim=replace(config.optim, lr=2e-3, batch_size=4, epochs=10, milestones=(), max_grad_norm=1.0),
        train=TrainConfig(checkpoint_every_steps=50, log_every_steps=10, num_threads=1),
    )


SEGMENT_RECIPES: RecipeTable[SegmentConfig] = RecipeTable(
    "segment",
    {
        "breakfast": Recipe(
            partial(_breakfast_config, "mstcn"), "MS-TCN on frozen frame features of Breakfast, split 1"
        ),
        "breakfast-fact": Recipe(
            partial(_breakfast_config, "fact"),
            "FACT on frozen frame features of Breakfast, split 1",
            cite_tables("image-to-video transfer", 5),
        ),
    },
    make_debug_config,
)
