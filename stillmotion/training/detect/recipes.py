"""Action detection recipes (AVA 2.2): the papers' protocols.

`slowfast` is how SlowFast's contrastive models, and BOD-VCL's Table 6, are fine-tuned; `vididi` is ViDiDi's Table 3.
docs/guides/detect.md lists what each paper states and what it leaves open.
"""

from dataclasses import replace

from stillmotion.training.config import TrainConfig
from stillmotion.training.detect.config import DetectConfig, DetectDataConfig
from stillmotion.training.recipe_table import (
    ADAMW_DEFAULTS,
    ADAMW_SMALL_MODEL,
    SGD_DEFAULTS,
    Recipe,
    RecipeTable,
    cite_tables,
)

_AVA_DATA = DetectDataConfig(path="ava", num_frames=8, image_size=224, train_short_side=(256, 320), test_short_side=256)


def _slowfast_config() -> DetectConfig:
    """32 epochs of SGD, the rate ÷ 10 at 16, 24 and 28; clips of 8 at stride 8, 224 pixels, tested at 256."""
    return DetectConfig(
        data=replace(_AVA_DATA, frame_stride=8, fps=30),
        optim=replace(
            SGD_DEFAULTS,
            lr=0.3,
            weight_decay=1e-7,
            epochs=32,
            warmup_epochs=5.3,
            warmup_start_lr=5e-4,
            milestones=(16, 24, 28),
        ),
    )


def _vididi_config() -> DetectConfig:
    """20 epochs of AdamW, the rate halved after the fifth; clips of 8 at interval 4."""
    return DetectConfig(
        data=replace(_AVA_DATA, frame_stride=4, fps=0.0),
        optim=replace(
            ADAMW_DEFAULTS,
            lr=0.01,
            weight_decay=0.01,
            batch_size=64,
            epochs=20,
            warmup_epochs=0.0,
            milestones=(5,),
            gamma=0.5,
        ),
    )


def make_debug_config(config: DetectConfig) -> DetectConfig:
    """Return a run on synthetic actors who do two things at a time, with a small untrained network."""
    return replace(
        config,
        encoder="debug:k400-simclr",
        data=DetectDataConfig(
            path="synthetic",
            num_frames=8,
            frame_stride=1,
            image_size=48,
            train_short_side=(48, 54),
            test_short_side=48,
            num_workers=0,
        ),
        head=replace(config.head, dropout=0.1),
        optim=replace(ADAMW_SMALL_MODEL, lr=5e-3, epochs=10),
        train=TrainConfig(checkpoint_every_steps=60, log_every_steps=20),
    )


DETECT_RECIPES: RecipeTable[DetectConfig] = RecipeTable(
    "detect",
    {
        "slowfast": Recipe(
            _slowfast_config, "AVA by SlowFast's protocol: 32 epochs of SGD, 8×8 clips", cite_tables("BOD-VCL", 6)
        ),
        "vididi": Recipe(
            _vididi_config, "AVA by ViDiDi's protocol: 20 epochs of AdamW, 8×4 clips", cite_tables("ViDiDi", 3)
        ),
    },
    make_debug_config,
)
