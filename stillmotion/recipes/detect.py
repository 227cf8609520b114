"""Action detection by name: the papers' protocols on AVA 2.2, and one that shows that it runs.

`slowfast` is how SlowFast's contrastive models, and BOD-VCL's Table 6, are tuned; `vididi` is ViDiDi's Table 3. `debug`
learns what drawn actors do. docs/detect.md says what is each paper's and what it leaves open.
"""

from dataclasses import replace

from stillmotion.config import TrainConfig
from stillmotion.config.detect import ActionsConfig, DetectConfig
from stillmotion.nn.detector import HeadConfig
from stillmotion.recipes.rates import ADAMW, SGD, SMALL_ADAMW
from stillmotion.recipes.table import Recipe, Recipes, cited

_AVA = ActionsConfig(path="ava", frames=8, size=224, short_side=(256, 320), test_size=256)


def slowfast() -> DetectConfig:
    """32 epochs of SGD, the rate ÷ 10 at 16, 24 and 28; clips of 8 at stride 8, 224 pixels, tested at 256."""
    return DetectConfig(
        data=replace(_AVA, stride=8, fps=30),
        optim=replace(
            SGD,
            lr=0.3,
            weight_decay=1e-7,
            epochs=32,
            warmup_epochs=5.3,
            warmup_lr=5e-4,
            milestones=(16, 24, 28),
        ),
    )


def vididi() -> DetectConfig:
    """20 epochs of AdamW, the rate halved after the fifth; clips of 8 at interval 4."""
    return DetectConfig(
        data=replace(_AVA, stride=4, fps=0.0),
        optim=replace(
            ADAMW, lr=0.01, weight_decay=0.01, batch=64, epochs=20, warmup_epochs=0.0, milestones=(5,), gamma=0.5
        ),
    )


def debug() -> DetectConfig:
    """Drawn actors who do two things at a time, from any encoder or from the debug recipes' small network."""
    return DetectConfig(
        encoder="debug-simclr",
        data=ActionsConfig(path="acting", frames=8, stride=1, size=48, short_side=(48, 54), test_size=48, workers=0),
        head=HeadConfig(dropout=0.1),
        optim=replace(SMALL_ADAMW, lr=5e-3, epochs=10),
        train=TrainConfig(checkpoint_every=60, log_every=20),
    )


DETECT: Recipes[DetectConfig] = Recipes(
    "detect",
    {
        "slowfast": Recipe(slowfast, "AVA by SlowFast's protocol: 32 epochs of SGD, 8×8 clips", cited("BOD-VCL", 6)),
        "vididi": Recipe(vididi, "AVA by ViDiDi's protocol: 20 epochs of AdamW, 8×4 clips", cited("ViDiDi", 3)),
        "debug": Recipe(debug, "drawn actors who do two things at a time, and a small network"),
    },
)
