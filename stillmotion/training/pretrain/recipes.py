"""Pretraining recipes: laptop, demo and tokens; debug shrinking; the table of all pretraining recipes."""

from dataclasses import replace
from functools import partial

from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.functional.koopman import DynamicPooling
from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.embedding_network import ModelConfig
from stillmotion.methods.method import MethodConfig, PredictionLossConfig
from stillmotion.methods.moco import MoCoConfig
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


def make_debug_config(config: PretrainConfig) -> PretrainConfig:
    """Return the same composition on synthetic videos with a small network: seconds on a CPU."""
    if config.method.model.uses_tokens:
        return _shrink_tokens_for_debug(config)
    model = config.method.model
    is_vit = model.backbone.startswith("vit")
    is_vididi = config.data.augment == "vididi"
    small_model = replace(
        model,
        backbone="small_vit" if is_vit else "small_cnn3d",
        stage_channels=() if is_vit else (8, 16, 32),
        embedding_dim=min(model.embedding_dim, 128) if is_vididi else model.embedding_dim,
        projector_hidden_dim=64,
    )
    # ViDiDi's schedule has four epochs.
    epochs, warmup_epochs = (4, min(config.optim.warmup_epochs, 1)) if is_vididi else (2, 1.0)
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
        method=replace(config.method, model=small_model, objective=config.method.objective.debug_size()),
        # The recipe's learning rate without scaling: scaled to the small batch, nothing would be learned in seconds.
        optim=replace(config.optim, batch_size=16, lr_batch_size=0, epochs=epochs, warmup_epochs=warmup_epochs),
        train=TrainConfig(checkpoint_every_steps=4, log_every_steps=1),
    )


def _shrink_tokens_for_debug(config: PretrainConfig) -> PretrainConfig:
    """`make_debug_config` of a run on image-model tokens, with a tiny transformer of random weights."""
    image_model = ImageModelConfig(family="dinov2", arch="tiny", layer=1)
    model = replace(
        config.method.model, stage_channels=(8, 16), grid_size=2, projector_hidden_dim=32, image_model=image_model
    )
    decomposition = replace(config.method.static_dynamic, num_delays=min(config.method.static_dynamic.num_delays, 2))
    synthetic = SyntheticConfig(num_videos=64)
    return replace(
        config,
        data=replace(
            config.data,
            path="synthetic",
            image_size=32,
            num_frames=8,
            cached_frames=12,
            num_workers=0,
            synthetic=synthetic,
        ),
        method=replace(config.method, model=model, static_dynamic=decomposition),
        optim=replace(config.optim, batch_size=16, epochs=2, warmup_epochs=1.0),
        train=TrainConfig(checkpoint_every_steps=4, log_every_steps=1),
    )


def _laptop_config() -> PretrainConfig:
    """V-SimCLR + BOD-VCL with this library's defaults, for a directory of videos and two CPU cores."""
    return PretrainConfig(
        data=PretrainDataConfig(path="", num_frames=8, frame_stride=4, image_size=64, augment="weak"),
        method=MethodConfig(
            model=ModelConfig(
                backbone="small_cnn3d",
                stage_channels=(16, 32, 64, 128),
                projector_hidden_dim=256,
                projector_layers=2,
            ),
            prediction=PredictionLossConfig(clips_per_video=1),
        ),
        solver=SolverConfig(),
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
DEMO_DATA_DESCRIPTION = " on synthetic videos with color confounded with motion"


def demo_config(name: str, *, decompose: bool, pooling: DynamicPooling = "rms") -> PretrainConfig:
    """A small network on synthetic videos whose color agrees with their trajectory in 19 of 20.

    Args:
        name: Objective: simclr, moco, byol, swav or vicreg.
        decompose: Train with BOD-VCL: static and dynamic components, and an inner level.
        pooling: Pooling of the dynamic component over time. eq21 also decomposes projected frames, as in the paper;
            rms decomposes features and projects the components.
    """
    project_components = decompose and pooling == "rms"
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
                backbone="small_cnn3d",
                stage_channels=(8, 16, 32, 64),
                embedding_dim=256 if name == "vicreg" else 64,
                projector_hidden_dim=128,
                projector_layers=2,
                projector_batch_norm=name in ("byol", "swav", "vicreg"),
            ),
            static_dynamic=StaticDynamicConfig(pooling=pooling, normalize=name != "vicreg")
            if decompose
            else StaticDynamicConfig(method="none"),
            prediction=PredictionLossConfig(clips_per_video=1),
            objective=_DEMO_OBJECTIVES[name],
            gradient_balance=0.25 if project_components else 0.5,
            project_components=project_components,
        ),
        solver=SolverConfig() if decompose else SolverConfig(name="plain"),
        optim=replace(
            ADAMW_SMALL_MODEL,
            lr=2e-3 if name in ("swav", "vicreg") else 8e-3,
            weight_decay=1e-4,
            batch_size=48,
            epochs=10,
        ),
        train=TrainConfig(num_threads=1),
    )


def demo_best_config() -> PretrainConfig:
    """The demo's V-SimCLR + BOD-VCL, every second batch on temporal derivatives of random hue."""
    config = demo_config("simclr", decompose=True)
    views = ViewsConfig("alternate", derivative_color="random-hue")
    return replace(config, method=replace(config.method, views=views))


def token_config(
    *, static_dynamic: StaticDynamicConfig | None = None, views: ViewsConfig | None = None, bilevel: bool = False
) -> PretrainConfig:
    """SimCLR by a small 3D CNN on the tokens of a frozen DINOv2-S; the model's path is given on the command line.

    Args:
        static_dynamic: Decomposition of the embedding; none if left out.
        views: Temporal-derivative views; none if left out.
        bilevel: Train with the inner level of BOD-VCL and balanced gradients.
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
        solver=SolverConfig() if bilevel else SolverConfig(name="plain"),
        optim=replace(ADAMW_SMALL_MODEL, lr=2e-3, weight_decay=1e-4, batch_size=32, epochs=12, warmup_epochs=2),
        train=TrainConfig(checkpoint_every_steps=100, num_threads=1),
    )


def token_motion_config() -> PretrainConfig:
    """SimCLR on the matches of tokens between frames, with views that differ in time, speed, side and mirror image."""
    config = token_config(static_dynamic=StaticDynamicConfig())
    return replace(
        config,
        data=replace(config.data, num_frames=12, image_size=112, cached_frames=24, token_shift=1, token_window=9 / 16),
        method=replace(
            config.method,
            model=replace(config.method.model, match_radius=2, grid_size=4),
            objective=SimCLRConfig(temperature=0.3),
            project_components=True,
        ),
        optim=replace(config.optim, epochs=92),
    )


TOKEN_RECIPES: dict[str, Recipe[PretrainConfig]] = {
    "tokens-simclr": Recipe(
        partial(token_config), "V-SimCLR on frozen image-model tokens, for a directory of your own videos"
    ),
    "tokens-bod": Recipe(
        partial(token_config, static_dynamic=StaticDynamicConfig(), bilevel=True), "V-SimCLR + BOD-VCL on frozen tokens"
    ),
    "tokens-vididi": Recipe(partial(token_config, views=ViewsConfig("full")), "ViDiDi-SimCLR on frozen tokens"),
    "tokens-motion": Recipe(
        token_motion_config,
        "V-SimCLR on components of matches between frozen tokens, to search by motion",
    ),
}


def demo_vididi_config(name: str) -> PretrainConfig:
    """The demo's baseline of a ViDiDi variant, with derivative views and nothing else changed."""
    config = demo_config(VIDIDI_VARIANTS[name].baseline, decompose=False)
    return replace(config, method=replace(config.method, views=ViewsConfig("full")))


VIDIDI_DEMO_RECIPES = {
    f"demo-vididi-{name}": Recipe(partial(demo_vididi_config, name), f"{variant.title}{DEMO_DATA_DESCRIPTION}")
    for name, variant in VIDIDI_VARIANTS.items()
}
PRETRAIN_RECIPES: RecipeTable[PretrainConfig] = RecipeTable(
    "pretrain",
    {
        "laptop": Recipe(_laptop_config, "V-SimCLR + BOD-VCL for a directory of your own videos, two CPU cores"),
        **{
            f"demo-{prefix}{name}": Recipe(
                partial(demo_config, name, decompose=bool(prefix)), f"{b.title}{added}{DEMO_DATA_DESCRIPTION}"
            )
            for prefix, added in (("", ""), ("bod-", " + BOD-VCL"))
            for name, b in BASELINES.items()
        },
        "demo-bod-eq21-simclr": Recipe(
            partial(demo_config, "simclr", decompose=True, pooling="eq21"),
            "V-SimCLR + BOD-VCL with the paper's Eq. 21 on the demo's synthetic videos",
        ),
        **VIDIDI_DEMO_RECIPES,
        "demo-best": Recipe(
            demo_best_config, "V-SimCLR + BOD-VCL with derivatives of random hue on the demo's synthetic videos"
        ),
        **TOKEN_RECIPES,
        **BOD_VCL_RECIPES,
        **VIDIDI_RECIPES,
    },
    make_debug_config,
)
