"""The rows of ViDiDi's tables at the paper's scale, and their baselines: 8 frames at stride 3, 112 px, 400 epochs.

`ucf101-vididi-vic-r3d_18` is ViDiDi-VIC and `ucf101-vicreg-r3d_18` is VICReg without derivatives; sets are UCF101,
K400 and K200-40k (`data/k200.py`). `ucf101-vididi-<schedule>` are the rows of Table 6. What the paper leaves open, and
what these recipes take: LARS with trust 1e-3 and Nesterov momentum 0.9, and a rate of 1.2 at every batch size."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, get_args

from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.method import MethodConfig, PredictionLossConfig
from stillmotion.methods.network import ModelConfig
from stillmotion.methods.objective import ObjectiveConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.methods.vicreg import VICRegConfig
from stillmotion.methods.views import DerivativeSchedule, ViewsConfig
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.training.pretrain.config import PretrainConfig, PretrainDataConfig
from stillmotion.training.pretrain.recipes_bod_vcl import NO_DECOMPOSITION
from stillmotion.training.recipe_table import Recipe, cite_tables

TABLE_6_SCHEDULES: tuple[DerivativeSchedule, ...] = tuple(
    s for s in get_args(DerivativeSchedule) if s != "alternate"
)  # of Table 6
NETWORKS = {"r3d_18": "R3D-18", "r2plus1d_18": "R(2+1)D-18", "mc3_18": "MC3-18", "s3d": "S3D"}


class VididiVariant(NamedTuple):
    """What ViDiDi is built upon: a baseline, its objective and its projection head."""

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
    """The videos that a row is pre-trained on, and its batch."""

    title: str
    path: str
    layout: str
    batch_size: int


PRETRAIN_SETS = {
    "ucf101": PretrainSet("UCF101", "ucf101", "auto", 64),
    "k400": PretrainSet("K400", "kinetics400", "auto", 256),
    "k200": PretrainSet("K200-40k", "kinetics400", "k200", 64),
}
_VIC = ("vicreg", "vididi-vic")
# Other combinations of set, method and network are in no table.
_PAPER_TABLES = {
    **{f"ucf101-{row}-r3d_18": (1,) for row in ("simclr", "vididi-simclr", "byol", "vididi-byol", *_VIC)},
    **dict.fromkeys(("k400-vicreg-r3d_18", "k400-vididi-vic-r3d_18", "k200-vididi-vic-r3d_18"), (1,)),
    **{f"ucf101-{row}-{net}": (2,) for row in _VIC for net in ("r2plus1d_18", "mc3_18", "s3d")},
    **{f"ucf101-vididi-{schedule}": (6,) for schedule in TABLE_6_SCHEDULES},
}


def vididi_config(
    name: str, schedule: DerivativeSchedule = "full", *, data: str = "ucf101", backbone: str = "r3d_18"
) -> PretrainConfig:
    """ViDiDi-SimCLR, -BYOL or -VIC (Tables 1, 2 and 6); the schedule "base" is its baseline."""
    variant, videos = VIDIDI_VARIANTS[name], PRETRAIN_SETS[data]
    # Networks have their original strides in time: nothing is split, and all of a clip is one feature.
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
            views=ViewsConfig(schedule), model=model, static_dynamic=NO_DECOMPOSITION, objective=variant.objective
        ),
        solver=SolverConfig(name="plain"),
        optim=OptimConfig(
            lr=1.2, lr_batch_size=0, batch_size=videos.batch_size, epochs=400, warmup_epochs=10 if name == "byol" else 0
        ),
    )


def vididi_bod_vcl_config(name: str) -> PretrainConfig:
    """Derivative views and a Koopman split with its inner level, which no paper has: this library's own settings.

    The networks keep time, without which there is nothing to split.
    """
    config = vididi_config(name)
    method = replace(
        config.method,
        model=replace(config.method.model, embedding_dim=128, per_frame_features=True),
        static_dynamic=StaticDynamicConfig(normalize=name != "vic"),
        prediction=PredictionLossConfig(clips_per_video=1),
    )
    return replace(config, method=method, solver=SolverConfig(name="first-order", inner_lr=0.003))


def _build_recipes() -> dict[str, Recipe[PretrainConfig]]:
    rows: dict[str, Recipe[PretrainConfig]] = {}

    def add(name: str, build: Callable[[], PretrainConfig], about: str) -> None:
        rows[name] = Recipe(build, about, cite_tables("ViDiDi", *_PAPER_TABLES.get(name, ())))

    for data, videos in PRETRAIN_SETS.items():
        for net, network in NETWORKS.items():
            for name, variant in VIDIDI_VARIANTS.items():
                build = partial(vididi_config, name, data=data, backbone=net)
                where = f"{network} on {videos.title}"
                add(f"{data}-vididi-{name}-{net}", build, f"{variant.title}, {where}")
                base = partial(build, schedule="base")
                add(f"{data}-{variant.baseline}-{net}", base, f"{variant.baseline_title}, {where}")
    for schedule in TABLE_6_SCHEDULES:
        add(
            f"ucf101-vididi-{schedule}",
            partial(vididi_config, "vic", schedule),
            f"VICReg, views by schedule {schedule}",
        )
    for name, variant in VIDIDI_VARIANTS.items():
        about = f"{variant.title} + BOD-VCL at this library's own settings"
        add(f"ucf101-vididi-bod-{name}", partial(vididi_bod_vcl_config, name), about)
    return rows


VIDIDI_RECIPES = _build_recipes()
