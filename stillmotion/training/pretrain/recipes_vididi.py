"""Pretraining recipes of the ViDiDi paper's tables: 8 frames at stride 3, 112 pixels, 400 epochs.

`ucf101-vididi-vic-r3d_18` is ViDiDi-VIC and `ucf101-vicreg-r3d_18` is VICReg without derivatives; the data sets are
UCF101, K400 and K200-40k. `ucf101-vididi-<schedule>` are the rows of Table 6. The paper does not state some settings;
these recipes use LARS with trust coefficient 1e-3 and Nesterov momentum 0.9, and a learning rate of 1.2 at every batch
size.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple, get_args

from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.embedding_network import ModelConfig
from stillmotion.methods.method import MethodConfig
from stillmotion.methods.objective import ObjectiveConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.vicreg import VICRegConfig
from stillmotion.methods.views import DerivativeSchedule, ViewsConfig
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.training.pretrain.config import PretrainConfig, PretrainDataConfig
from stillmotion.training.pretrain.recipes_bod_vcl import NO_DECOMPOSITION
from stillmotion.training.recipe_table import Recipe, cite_tables

TABLE_6_SCHEDULES: tuple[DerivativeSchedule, ...] = tuple(s for s in get_args(DerivativeSchedule) if s != "alternate")
NETWORKS = {"r3d_18": "R3D-18", "r2plus1d_18": "R(2+1)D-18", "mc3_18": "MC3-18", "s3d": "S3D"}


class VididiVariant(NamedTuple):
    """A ViDiDi variant: its baseline, objective and projection head."""

    title: str
    baseline: str
    baseline_title: str
    objective: ObjectiveConfig
    model: ModelConfig


VIDIDI_VARIANTS = {
    "simclr": VididiVariant(
        "ViDiDi-SimCLR",
        "simclr",
        "SimCLR",
        SimCLRConfig(negatives="same-side"),
        ModelConfig(projector_layers=3, projector_hidden_dim=2048, embedding_dim=128, projector_batch_norm=True),
    ),
    "byol": VididiVariant(
        "ViDiDi-BYOL",
        "byol",
        "BYOL",
        BYOLConfig(momentum=0.99),
        ModelConfig(projector_layers=2, projector_hidden_dim=4096, embedding_dim=256, projector_batch_norm=True),
    ),
    "vic": VididiVariant(
        "ViDiDi-VIC",
        "vicreg",
        "VICReg",
        VICRegConfig(invariance_weight=1.0, variance_weight=1.0, covariance_weight=0.05),
        ModelConfig(projector_layers=3, projector_hidden_dim=2048, embedding_dim=2048, projector_batch_norm=True),
    ),
}


class PretrainSet(NamedTuple):
    """A pretraining data set and the batch size on it."""

    title: str
    path: str
    layout: str
    batch_size: int


PRETRAIN_SETS = {
    "ucf101": PretrainSet("UCF101", "ucf101", "auto", 64),
    "k400": PretrainSet("K400", "kinetics400", "auto", 256),
    "k200": PretrainSet("K200-40k", "kinetics400", "k200", 64),
}
# Rows of Tables 1 and 2: data set, variant, whether with derivatives, network and table.
_ROWS: tuple[tuple[str, str, bool, str, int], ...] = (
    *(("ucf101", name, views, "r3d_18", 1) for name in VIDIDI_VARIANTS for views in (False, True)),
    ("k400", "vic", False, "r3d_18", 1),
    ("k400", "vic", True, "r3d_18", 1),
    ("k200", "vic", True, "r3d_18", 1),
    *(("ucf101", "vic", views, net, 2) for net in ("r2plus1d_18", "mc3_18", "s3d") for views in (False, True)),
)


def vididi_config(
    name: str, schedule: DerivativeSchedule = "full", *, data: str = "ucf101", backbone: str = "r3d_18"
) -> PretrainConfig:
    """ViDiDi-SimCLR, -BYOL or -VIC (Tables 1, 2 and 6).

    Args:
        name: Variant: simclr, byol or vic.
        schedule: Derivative schedule; "base" is the baseline without derivatives.
        data: Data set: ucf101, k400 or k200.
        backbone: Name of the backbone.
    """
    variant, videos = VIDIDI_VARIANTS[name], PRETRAIN_SETS[data]
    # Networks keep their original temporal strides: there is no decomposition, and a clip has one feature.
    model = replace(variant.model, backbone=backbone, temporal_padding="zeros", per_frame_features=False)
    return PretrainConfig(
        data=PretrainDataConfig(
            path=videos.path,
            layout=videos.layout,
            split="train",
            num_frames=8,
            frame_stride=3,
            image_size=112,
            augment="vididi",
        ),
        method=MethodConfig(
            views=ViewsConfig(schedule, batch_norm="separate"),
            model=model,
            static_dynamic=NO_DECOMPOSITION,
            objective=variant.objective,
        ),
        solver=SolverConfig(name="plain"),
        optim=OptimConfig(
            lr=1.2, lr_batch_size=0, batch_size=videos.batch_size, epochs=400, warmup_epochs=10 if name == "byol" else 0
        ),
    )


def _build_recipes() -> dict[str, Recipe[PretrainConfig]]:
    recipes: dict[str, Recipe[PretrainConfig]] = {}
    for data, name, views, net, table in _ROWS:
        variant = VIDIDI_VARIANTS[name]
        method, title = (f"vididi-{name}", variant.title) if views else (variant.baseline, variant.baseline_title)
        recipes[f"{data}-{method}-{net}"] = Recipe(
            partial(vididi_config, name, "full" if views else "base", data=data, backbone=net),
            f"{title}, {NETWORKS[net]} on {PRETRAIN_SETS[data].title}",
            cite_tables("ViDiDi", table),
        )
    for schedule in TABLE_6_SCHEDULES:
        recipes[f"ucf101-vididi-{schedule}"] = Recipe(
            partial(vididi_config, "vic", schedule),
            f"VICReg with derivative views by schedule {schedule}",
            cite_tables("ViDiDi", 6),
        )
    return recipes


VIDIDI_RECIPES = _build_recipes()
