"""Configurations for a CPU: debug twins of the tables' rows, and pre-training on your own videos."""

from dataclasses import replace
from functools import partial

from stillmotion.config import Config, DataConfig, TrainConfig
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.method import MethodConfig, ModelConfig, PredictionConfig
from stillmotion.methods.moco import MoCoConfig
from stillmotion.methods.objective import ObjectiveConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.swav import SwAVConfig
from stillmotion.methods.vicreg import VICRegConfig
from stillmotion.methods.views import ViewsConfig
from stillmotion.nn.images import ImagesConfig
from stillmotion.nn.split import SplitConfig
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.recipes.rates import SMALL_ADAMW
from stillmotion.recipes.table import Recipe


def debug(config: Config) -> Config:
    """The same composition on synthetic videos with a small network: seconds on a CPU."""
    model = config.method.model
    vit = model.backbone.startswith("vit")
    small = replace(
        model,
        backbone="small_vit" if vit else "small_resnet3d",
        channels=() if vit else (8, 16, 32),
        hidden=64,
    )
    return replace(
        config,
        data=replace(
            config.data,
            path="synthetic",
            layout="auto",
            split=None,
            size=32,
            frames=8,
            stride=2,
            fps=0.0,
            augment="synthetic",
            workers=0,
            synthetic=SyntheticConfig(videos=64),
        ),
        method=replace(config.method, model=small, objective=config.method.objective.small()),
        # At the row's rate as it is: scaled to its small batch, the twin would learn nothing in seconds.
        optim=replace(config.optim, batch=16, lr_batch=0, epochs=2, warmup_epochs=1.0),
        train=TrainConfig(checkpoint_every=4, log_every=1),
    )


def laptop() -> Config:
    """V-SimCLR + BOD-VCL with this library's own defaults, for a folder of videos and two cores."""
    return Config(
        data=DataConfig(path="", frames=8, stride=4, size=64, augment="weak"),
        method=MethodConfig(
            model=ModelConfig(backbone="small_resnet3d", channels=(16, 32, 64, 128), hidden=256, layers=2),
            prediction=PredictionConfig(clips=1),
        ),
        solver=SolverConfig(how="first-order", inner_lr=0.003),
        optim=replace(SMALL_ADAMW, lr=2e-3, weight_decay=1e-4, batch=32, epochs=30, warmup_epochs=2),
        train=TrainConfig(checkpoint_every=50),
    )


_DEMO_OBJECTIVES: dict[str, ObjectiveConfig] = {
    "simclr": SimCLRConfig(),
    "moco": MoCoConfig(queue=1024, momentum=0.98),
    "byol": BYOLConfig(hidden=128, momentum=0.98),
    "swav": SwAVConfig(prototypes=32),
    "vicreg": VICRegConfig(),
}
# Said of every recipe of the demo, behind its method.
DEMO_VIDEOS = " on synthetic videos whose colour tells their motion"


def demo(name: str, *, split: bool) -> Config:
    """A small network on synthetic videos whose colour tells their trajectory 19 times in 20."""
    return Config(
        data=DataConfig(
            path="synthetic",
            frames=8,
            stride=2,
            size=32,
            augment="natural",
            workers=0,
            synthetic=SyntheticConfig(videos=1024, confound=("color=trajectory",)),
        ),
        method=MethodConfig(
            model=ModelConfig(
                backbone="small_resnet3d",
                channels=(8, 16, 32, 64),
                width=256 if name == "vicreg" else 64,
                hidden=128,
                layers=2,
                norm=name in ("byol", "swav", "vicreg"),
            ),
            split=SplitConfig(normalize=name != "vicreg") if split else SplitConfig(how="none"),
            prediction=PredictionConfig(clips=1),
            objective=_DEMO_OBJECTIVES[name],
        ),
        solver=SolverConfig(how="first-order", inner_lr=0.003) if split else SolverConfig(how="plain"),
        optim=replace(
            SMALL_ADAMW,
            lr=2e-3 if name in ("swav", "vicreg") else 8e-3,
            weight_decay=1e-4,
            batch=48,
            epochs=10,
        ),
        train=TrainConfig(threads=1),
    )


def ours() -> Config:
    """The demo's V-SimCLR with halves, each of which is asked only where it is shown; no inner level, nothing eased."""
    config = demo("simclr", split=True)
    views = ViewsConfig("turns", route="shown", colour="turned")
    method = replace(config.method, views=views, balance=0.0)
    return replace(config, method=method, solver=SolverConfig(how="plain"))


def tokens(*, split: SplitConfig | None = None, views: ViewsConfig | None = None, inner: bool = False) -> Config:
    """SimCLR by a small 3D CNN on the tokens of a frozen DINOv2-S, whose path the run is to be given.

    inner: with the inner level of BOD-VCL, and its halves' gradients eased.
    """
    return Config(
        data=DataConfig(path="", frames=16, stride=0, size=126, kept=32, workers=0),
        method=MethodConfig(
            views=views or ViewsConfig(),
            model=ModelConfig(
                backbone="tokens_cnn",
                channels=(16, 16),
                cells=5,
                images=ImagesConfig(family="dinov2", arch="s14", layer=11),
                width=64,
                hidden=128,
                layers=2,
            ),
            split=split or SplitConfig(how="none"),
            prediction=PredictionConfig(clips=1),
            balance=0.5 if inner else 0.0,
        ),
        solver=SolverConfig(how="first-order", inner_lr=0.003) if inner else SolverConfig(how="plain"),
        optim=replace(SMALL_ADAMW, lr=2e-3, weight_decay=1e-4, batch=32, epochs=12, warmup_epochs=2),
        train=TrainConfig(checkpoint_every=100, threads=1),
    )


def debug_tokens(config: Config) -> Config:
    """The same composition on drawn videos and a tiny made-up transformer."""
    images = ImagesConfig(family="dinov2", arch="tiny", layer=1)
    model = replace(config.method.model, channels=(8, 16), cells=2, hidden=32, images=images)
    split = replace(config.method.split, delays=min(config.method.split.delays, 2))
    drawn = SyntheticConfig(videos=64)
    return replace(
        config,
        data=replace(config.data, path="synthetic", size=32, frames=8, kept=12, workers=0, synthetic=drawn),
        method=replace(config.method, model=model, split=split),
        optim=replace(config.optim, batch=16, epochs=2, warmup_epochs=1.0),
        train=TrainConfig(checkpoint_every=4, log_every=1),
    )


TOKENS: dict[str, Recipe[Config]] = {
    "tokens-simclr": Recipe(partial(tokens), "V-SimCLR on frozen tokens, for a folder of your own videos"),
    "tokens-bod": Recipe(partial(tokens, split=SplitConfig(), inner=True), "V-SimCLR + BOD-VCL on frozen tokens"),
    "tokens-vididi": Recipe(partial(tokens, views=ViewsConfig("full")), "ViDiDi-SimCLR on frozen tokens"),
    "tokens-ours": Recipe(
        partial(tokens, split=SplitConfig(delays=8), views=ViewsConfig("turns", route="shown")),
        "V-SimCLR on halves asked where views show them, on frozen tokens",
    ),
}
