"""Action detection by name: the papers' protocols on AVA 2.2, and one that shows that it runs.

`slowfast` is how SlowFast's contrastive models, and BOD-VCL's Table 6, are tuned; `vididi` is ViDiDi's Table 3. `debug`
learns what drawn actors do. docs/detect.md says what is each paper's and what it leaves open.
"""

from collections.abc import Callable
from dataclasses import replace

from stillmotion.config import TrainConfig
from stillmotion.nn.detector import HeadConfig
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.recipes.choose import chosen
from stillmotion.train.detect_config import ActionsConfig, DetectConfig


def slowfast() -> DetectConfig:
    """32 epochs of SGD, the rate ÷ 10 at 16, 24 and 28; clips of 8 at stride 8, 224 pixels, tested at 256."""
    return DetectConfig(
        data=ActionsConfig(path="ava", frames=8, stride=8, size=224, short_side=(256, 320), test_size=256),
        optim=OptimConfig(
            name="sgd",
            lr=0.3,
            lr_batch=64,
            weight_decay=1e-7,
            batch=64,
            epochs=32,
            warmup_epochs=5.3,
            warmup_lr=5e-4,
            milestones=(16, 24, 28),
        ),
    )


def vididi() -> DetectConfig:
    """20 epochs of AdamW, the rate halved after the fifth; clips of 8 at interval 4."""
    return DetectConfig(
        data=ActionsConfig(path="ava", frames=8, stride=4, size=224, short_side=(256, 320), test_size=256),
        optim=OptimConfig(
            name="adamw",
            lr=0.01,
            lr_batch=0,
            weight_decay=0.01,
            batch=64,
            epochs=20,
            warmup_epochs=0.0,
            milestones=(5,),
            gamma=0.5,
        ),
    )


def debug() -> DetectConfig:
    """Drawn actors who do two things at a time, from any encoder or from the debug recipes' small network."""
    return DetectConfig(
        encoder="debug-simclr",
        data=ActionsConfig(path="acting", frames=8, stride=1, size=48, short_side=(48, 54), test_size=48, workers=0),
        head=HeadConfig(dropout=0.1),
        optim=OptimConfig(
            name="adamw", lr=5e-3, lr_batch=0, weight_decay=0.05, batch=16, epochs=10, warmup_epochs=1, clip=1.0
        ),
        train=TrainConfig(checkpoint_every=60, log_every=20),
    )


_RECIPES: dict[str, Callable[[], DetectConfig]] = {"slowfast": slowfast, "vididi": vididi, "debug": debug}


def detect_recipe_names() -> tuple[str, ...]:
    """All names that `detect_recipe` takes."""
    return tuple(_RECIPES)


def detect_recipe(name: str) -> DetectConfig:
    """The detection configuration with this name."""
    return replace(chosen(_RECIPES, name, verb="detect")(), recipe=name)
