"""Action detection by name: the papers' protocols on AVA 2.2, and one that shows that it runs.

`slowfast` is how SlowFast's contrastive models, and BOD-VCL's Table 6, are tuned; `vididi` is ViDiDi's Table 3. `debug`
learns what drawn actors do. docs/detect.md says what is each paper's and what it leaves open.
"""

from dataclasses import replace

from stillmotion.models.detector import RoIHeadConfig
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


def slowfast_config() -> DetectConfig:
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


def vididi_config() -> DetectConfig:
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


def debug_config() -> DetectConfig:
    """Drawn actors who do two things at a time, from any encoder or from the debug recipes' small network."""
    return DetectConfig(
        encoder="debug-simclr",
        data=DetectDataConfig(
            path="synthetic",
            num_frames=8,
            frame_stride=1,
            image_size=48,
            train_short_side=(48, 54),
            test_short_side=48,
            num_workers=0,
        ),
        head=RoIHeadConfig(dropout=0.1),
        optim=replace(ADAMW_SMALL_MODEL, lr=5e-3, epochs=10),
        train=TrainConfig(checkpoint_every_steps=60, log_every_steps=20),
    )


DETECT_RECIPES: RecipeTable[DetectConfig] = RecipeTable(
    "detect",
    {
        "slowfast": Recipe(
            slowfast_config, "AVA by SlowFast's protocol: 32 epochs of SGD, 8×8 clips", cite_tables("BOD-VCL", 6)
        ),
        "vididi": Recipe(
            vididi_config, "AVA by ViDiDi's protocol: 20 epochs of AdamW, 8×4 clips", cite_tables("ViDiDi", 3)
        ),
        "debug": Recipe(debug_config, "drawn actors who do two things at a time, and a small network"),
    },
)
