"""Configurations for a CPU: debug twins of the tables' rows, and pre-training on your own videos."""

from dataclasses import replace
from functools import partial

from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.method import MethodConfig, PredictionLossConfig
from stillmotion.methods.moco import MoCoConfig
from stillmotion.methods.network import ModelConfig
from stillmotion.methods.objective import ObjectiveConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.methods.swav import SwAVConfig
from stillmotion.methods.vicreg import VICRegConfig
from stillmotion.methods.views import ViewsConfig
from stillmotion.models.pretrained.frozen_image_model import ImageModelConfig
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.training.config import TrainConfig
from stillmotion.training.pretrain.config import PretrainConfig, PretrainDataConfig
from stillmotion.training.pretrain.recipes_bod_vcl import BASELINES, BOD_VCL_RECIPES
from stillmotion.training.pretrain.recipes_vididi import VIDIDI_RECIPES, VIDIDI_VARIANTS
from stillmotion.training.recipe_table import ADAMW_SMALL_MODEL, Recipe, RecipeTable


def shrink_for_debug(config: PretrainConfig) -> PretrainConfig:
    """The same composition on synthetic videos with a small network: seconds on a CPU."""
    model = config.method.model
    vit = model.backbone.startswith("vit")
    small = replace(
        model,
        backbone="small_vit" if vit else "small_resnet3d",
        stage_channels=() if vit else (8, 16, 32),
        projector_hidden_dim=64,
    )
    return replace(
        config,
        data=replace(
            config.data,
            path="synthetic",
            layout="auto",
            split=None,
            image_size=32,
            num_frames=8,
            frame_stride=2,
            fps=0.0,
            augment="synthetic",
            num_workers=0,
            synthetic=SyntheticConfig(num_videos=64),
        ),
        method=replace(config.method, model=small, objective=config.method.objective.debug_size()),
        # At the row's rate as it is: scaled to its small batch, the twin would learn nothing in seconds.
        optim=replace(config.optim, batch_size=16, lr_batch_size=0, epochs=2, warmup_epochs=1.0),
        train=TrainConfig(checkpoint_every_steps=4, log_every_steps=1),
    )


def laptop_config() -> PretrainConfig:
    """V-SimCLR + BOD-VCL with this library's own defaults, for a folder of videos and two cores."""
    return PretrainConfig(
        data=PretrainDataConfig(path="", num_frames=8, frame_stride=4, image_size=64, augment="weak"),
        method=MethodConfig(
            model=ModelConfig(
                backbone="small_resnet3d",
                stage_channels=(16, 32, 64, 128),
                projector_hidden_dim=256,
                projector_layers=2,
            ),
            prediction=PredictionLossConfig(clips_per_video=1),
        ),
        solver=SolverConfig(name="first-order", inner_lr=0.003),
        optim=replace(ADAMW_SMALL_MODEL, lr=2e-3, weight_decay=1e-4, batch_size=32, epochs=30, warmup_epochs=2),
        train=TrainConfig(checkpoint_every_steps=50),
    )


_DEMO_OBJECTIVES: dict[str, ObjectiveConfig] = {
    "simclr": SimCLRConfig(),
    "moco": MoCoConfig(queue_size=1024, momentum=0.98),
    "byol": BYOLConfig(predictor_hidden_dim=128, momentum=0.98),
    "swav": SwAVConfig(num_prototypes=32),
    "vicreg": VICRegConfig(),
}
# Said of every recipe of the demo, behind its method.
DEMO_DATA_DESCRIPTION = " on synthetic videos whose colour tells their motion"


def demo_config(name: str, *, decompose: bool) -> PretrainConfig:
    """A small network on synthetic videos whose colour tells their trajectory 19 times in 20."""
    return PretrainConfig(
        data=PretrainDataConfig(
            path="synthetic",
            num_frames=8,
            frame_stride=2,
            image_size=32,
            augment="light",
            num_workers=0,
            synthetic=SyntheticConfig(num_videos=1024, confound=("color=trajectory",)),
        ),
        method=MethodConfig(
            model=ModelConfig(
                backbone="small_resnet3d",
                stage_channels=(8, 16, 32, 64),
                embedding_dim=256 if name == "vicreg" else 64,
                projector_hidden_dim=128,
                projector_layers=2,
                projector_batch_norm=name in ("byol", "swav", "vicreg"),
            ),
            static_dynamic=StaticDynamicConfig(normalize=name != "vicreg")
            if decompose
            else StaticDynamicConfig(method="none"),
            prediction=PredictionLossConfig(clips_per_video=1),
            objective=_DEMO_OBJECTIVES[name],
        ),
        solver=SolverConfig(name="first-order", inner_lr=0.003) if decompose else SolverConfig(name="plain"),
        optim=replace(
            ADAMW_SMALL_MODEL,
            lr=2e-3 if name in ("swav", "vicreg") else 8e-3,
            weight_decay=1e-4,
            batch_size=48,
            epochs=10,
        ),
        train=TrainConfig(num_threads=1),
    )


def demo_routed_config() -> PretrainConfig:
    """The demo's V-SimCLR with halves, each of which is asked only where it is shown; no inner level, nothing eased."""
    config = demo_config("simclr", decompose=True)
    views = ViewsConfig("alternate", loss_routing="static-on-rgb", derivative_color="random-hue")
    method = replace(config.method, views=views, gradient_balance=0.0)
    return replace(config, method=method, solver=SolverConfig(name="plain"))


def token_config(
    *, static_dynamic: StaticDynamicConfig | None = None, views: ViewsConfig | None = None, bilevel: bool = False
) -> PretrainConfig:
    """SimCLR by a small 3D CNN on the tokens of a frozen DINOv2-S, whose path the run is to be given.

    bilevel: with the inner level of BOD-VCL, and its halves' gradients eased.
    """
    return PretrainConfig(
        data=PretrainDataConfig(
            path="", num_frames=16, frame_stride=0, image_size=126, cached_frames=32, num_workers=0
        ),
        method=MethodConfig(
            views=views or ViewsConfig(),
            model=ModelConfig(
                backbone="tokens_cnn",
                stage_channels=(16, 16),
                grid_size=5,
                image_model=ImageModelConfig(family="dinov2", arch="s14", layer=11),
                embedding_dim=64,
                projector_hidden_dim=128,
                projector_layers=2,
            ),
            static_dynamic=static_dynamic or StaticDynamicConfig(method="none"),
            prediction=PredictionLossConfig(clips_per_video=1),
            gradient_balance=0.5 if bilevel else 0.0,
        ),
        solver=SolverConfig(name="first-order", inner_lr=0.003) if bilevel else SolverConfig(name="plain"),
        optim=replace(ADAMW_SMALL_MODEL, lr=2e-3, weight_decay=1e-4, batch_size=32, epochs=12, warmup_epochs=2),
        train=TrainConfig(checkpoint_every_steps=100, num_threads=1),
    )


def shrink_tokens_for_debug(config: PretrainConfig) -> PretrainConfig:
    """The same composition on drawn videos and a tiny made-up transformer."""
    images = ImageModelConfig(family="dinov2", arch="tiny", layer=1)
    model = replace(
        config.method.model, stage_channels=(8, 16), grid_size=2, projector_hidden_dim=32, image_model=images
    )
    split = replace(config.method.static_dynamic, num_delays=min(config.method.static_dynamic.num_delays, 2))
    drawn = SyntheticConfig(num_videos=64)
    return replace(
        config,
        data=replace(
            config.data, path="synthetic", image_size=32, num_frames=8, cached_frames=12, num_workers=0, synthetic=drawn
        ),
        method=replace(config.method, model=model, static_dynamic=split),
        optim=replace(config.optim, batch_size=16, epochs=2, warmup_epochs=1.0),
        train=TrainConfig(checkpoint_every_steps=4, log_every_steps=1),
    )


TOKEN_RECIPES: dict[str, Recipe[PretrainConfig]] = {
    "tokens-simclr": Recipe(partial(token_config), "V-SimCLR on frozen tokens, for a folder of your own videos"),
    "tokens-bod": Recipe(
        partial(token_config, static_dynamic=StaticDynamicConfig(), bilevel=True), "V-SimCLR + BOD-VCL on frozen tokens"
    ),
    "tokens-vididi": Recipe(partial(token_config, views=ViewsConfig("full")), "ViDiDi-SimCLR on frozen tokens"),
    "tokens-routed": Recipe(
        partial(
            token_config,
            static_dynamic=StaticDynamicConfig(num_delays=8),
            views=ViewsConfig("alternate", loss_routing="static-on-rgb"),
        ),
        "V-SimCLR on halves asked where views show them, on frozen tokens",
    ),
}


def shrink_vididi_for_debug(row: PretrainConfig) -> PretrainConfig:
    """The same composition in seconds on a CPU, through all four steps of the schedule."""
    config = shrink_for_debug(row)
    model = replace(config.method.model, embedding_dim=min(config.method.model.embedding_dim, 128))
    return replace(
        config,
        method=replace(config.method, model=model),
        optim=replace(config.optim, epochs=4, warmup_epochs=min(row.optim.warmup_epochs, 1)),
    )


def demo_vididi_config(name: str) -> PretrainConfig:
    """The demo's baseline of this variant with derivative views; nothing else differs."""
    config = demo_config(VIDIDI_VARIANTS[name].baseline, decompose=False)
    return replace(config, method=replace(config.method, views=ViewsConfig("full")))


# The twins of the sets are one: in synthetic videos they do not differ.
VIDIDI_DEBUG_RECIPES = {
    f"debug-{short}": VIDIDI_RECIPES[name].debug_variant(name, shrink_vididi_for_debug)
    for short, name in (
        *((f"vididi-{name}", f"ucf101-vididi-{name}-r3d_18") for name in VIDIDI_VARIANTS),
        *((name.removeprefix("ucf101-"), name) for name in VIDIDI_RECIPES if name.startswith("ucf101-")),
    )
}
VIDIDI_DEMO_RECIPES = {
    f"demo-vididi-{name}": Recipe(partial(demo_vididi_config, name), f"{variant.title}{DEMO_DATA_DESCRIPTION}")
    for name, variant in VIDIDI_VARIANTS.items()
}
PRETRAIN_RECIPES: RecipeTable[PretrainConfig] = RecipeTable(
    "pretrain",
    {
        "laptop": Recipe(laptop_config, "V-SimCLR + BOD-VCL for a folder of your own videos, two cores"),
        **{
            f"demo-{prefix}{name}": Recipe(
                partial(demo_config, name, decompose=bool(prefix)), f"{b.title}{added}{DEMO_DATA_DESCRIPTION}"
            )
            for prefix, added in (("", ""), ("bod-", " + BOD-VCL"))
            for name, b in BASELINES.items()
        },
        **VIDIDI_DEMO_RECIPES,
        "demo-routed": Recipe(demo_routed_config, f"Routed halves{DEMO_DATA_DESCRIPTION}"),
        **TOKEN_RECIPES,
        **{f"debug-{name}": row.debug_variant(name, shrink_tokens_for_debug) for name, row in TOKEN_RECIPES.items()},
        **BOD_VCL_RECIPES,
        **{
            name.replace("k400-", "debug-"): row.debug_variant(name, shrink_for_debug)
            for name, row in BOD_VCL_RECIPES.items()
        },
        **VIDIDI_RECIPES,
        **VIDIDI_DEBUG_RECIPES,
    },
)
