"""Pretraining recipes of the BOD-VCL paper's tables: Kinetics-400, 8 frames at stride 8, 224 pixels, 200 epochs.

Embedding dimension, optimizer, batch size, temperature, decomposition, radius, ν and inner steps are the paper's.
Learning rates, schedule, momentum encoders and augmentation, which it takes from its predecessor, are those of the
predecessor's public code. `UNSTATED` holds what neither states and every row needs; it is the same with and without
BOD-VCL, so that two rows of a table differ in nothing but the method. Rows with BOD-VCL also choose the inner learning
rate γ (0.003) and the ridge of the pseudo-inverse (1e-3; without it the prediction loss is zero, see
docs/explanation/method.md); MoCo's learning rate under LARS and ViT-B's optimizer are chosen for both rows of a pair.
docs/reference/recipes.md lists every setting.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.embedding_network import ModelConfig
from stillmotion.methods.method import MethodConfig, PredictionLossConfig
from stillmotion.methods.moco import MoCoConfig
from stillmotion.methods.objective import ObjectiveConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.methods.swav import SwAVConfig
from stillmotion.methods.vicreg import VICRegConfig
from stillmotion.models.backbones import TemporalPadding
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.training.pretrain.config import PretrainConfig, PretrainDataConfig
from stillmotion.training.recipe_table import Recipe, cite_tables


class UnstatedOptions(NamedTuple):
    """What the paper does not state, in rows with and without BOD-VCL.

    Attributes:
        max_grad_norm: Gradient clipping. The derivative of the paper's decomposition is unbounded where an eigenvalue
            crosses the threshold, and LARS does not scale the gradients of norm layers.
        gradient_balance: Balance of the gradients of both components; none, because a whole embedding has nothing to
            balance.
        temporal_padding: Temporal padding: that of the paper's networks.
        fps: Frame rate at which strides are counted: that of Kinetics.
    """

    max_grad_norm: float = 1.0
    gradient_balance: float = 0.0
    temporal_padding: TemporalPadding = "zeros"
    fps: float = 30.0


UNSTATED = UnstatedOptions()
NO_DECOMPOSITION = StaticDynamicConfig(method="none")
PAPER_DECOMPOSITION = StaticDynamicConfig(method="eig", radius=0.1, pooling="eq21", ridge=1e-3)
PAPER_PREDICTION = PredictionLossConfig(orthogonality_weight=1e-4, ridge=1e-3, holdout=0, relative_error=False)
PAPER_SOLVER = SolverConfig(name="aid-fd", inner_steps=1, inner_lr=0.003, difference_step=0.01)


class Baseline(NamedTuple):
    """A V-CL method with its settings, and the tables that contain it with and without BOD-VCL."""

    title: str
    objective: ObjectiveConfig
    model: ModelConfig
    optim: OptimConfig
    tables: tuple[int, ...]


_LARS = OptimConfig(name="lars", lr=0.6, batch_size=64, max_grad_norm=UNSTATED.max_grad_norm)
# Settings of MoCo v3 for ViT-B, for a batch size of 256: LARS at a learning rate for convolutions does not suit it.
_VIT = replace(
    _LARS,
    name="adamw",
    lr=1.5e-4,
    lr_batch_size=256,
    weight_decay=0.1,
    epochs=800,
    warmup_epochs=40,
    warmup_start_lr=0.0,
)
_BYOL_HEAD = ModelConfig(projector_layers=2, projector_hidden_dim=4096, projector_batch_norm=True)

BASELINES = {
    "simclr": Baseline("V-SimCLR", SimCLRConfig(), ModelConfig(), replace(_LARS, lr=1.2), (2, 3, 5, 7, 10)),
    "moco": Baseline("V-MoCo", MoCoConfig(), ModelConfig(), _LARS, (2, 5, 7, 10)),
    "byol": Baseline("V-BYOL", BYOLConfig(), _BYOL_HEAD, _LARS, (2, 5, 7, 10)),
    "swav": Baseline("V-SwAV", SwAVConfig(), ModelConfig(projector_batch_norm=True), _LARS, (2, 3, 5, 7, 10)),
    "vicreg": Baseline("VICReg", VICRegConfig(), ModelConfig(projector_batch_norm=True), _LARS, ()),
}


def baseline_config(name: str) -> PretrainConfig:
    """V-CL baseline: the whole embedding, one level (Tables 2 and 5)."""
    baseline = BASELINES[name]
    return PretrainConfig(
        data=PretrainDataConfig(path="kinetics400", split="train", fps=UNSTATED.fps),
        method=MethodConfig(
            model=replace(baseline.model, temporal_padding=UNSTATED.temporal_padding),
            static_dynamic=NO_DECOMPOSITION,
            objective=baseline.objective,
            gradient_balance=UNSTATED.gradient_balance,
        ),
        solver=SolverConfig(name="plain"),
        optim=baseline.optim,
    )


def bod_vcl_config(name: str) -> PretrainConfig:
    """V-CL + BOD-VCL: static and dynamic component, inner level by AID-FD, M = 128 (Tables 2 and 5)."""
    config = baseline_config(name)
    split = replace(PAPER_DECOMPOSITION, normalize=name != "vicreg")
    method = replace(config.method, static_dynamic=split, prediction=PAPER_PREDICTION)
    return replace(config, method=method, solver=PAPER_SOLVER)


def with_prediction_loss(name: str) -> PretrainConfig:
    """V-CL with L_pred added to its loss, without decomposition (Table 7)."""
    config = baseline_config(name)
    return replace(
        config,
        method=replace(config.method, prediction=PAPER_PREDICTION),
        solver=SolverConfig(name="single-level"),
    )


def single_level(name: str) -> PretrainConfig:
    """All three losses minimized at once (Table 8)."""
    return replace(bod_vcl_config(name), solver=replace(PAPER_SOLVER, name="single-level"))


def with_inner_steps(steps: int) -> PretrainConfig:
    """Another number of inner steps (Table 9)."""
    return replace(bod_vcl_config("simclr"), solver=replace(PAPER_SOLVER, inner_steps=steps))


def with_per_frame_prediction(name: str) -> PretrainConfig:
    """L_pred with per-frame kernels (Table 10)."""
    config = bod_vcl_config(name)
    return replace(config, method=replace(config.method, prediction=replace(PAPER_PREDICTION, per_frame_kernels=True)))


def with_radius(value: float) -> PretrainConfig:
    """Another ξ (Table 11)."""
    config = bod_vcl_config("simclr")
    return replace(config, method=replace(config.method, static_dynamic=replace(PAPER_DECOMPOSITION, radius=value)))


def with_embedding_dim(value: int) -> PretrainConfig:
    """Another M (Table 12)."""
    config = bod_vcl_config("simclr")
    return replace(config, method=replace(config.method, model=replace(config.method.model, embedding_dim=value)))


def with_clips_per_video(config: PretrainConfig, count: int) -> PretrainConfig:
    """Another number of clips per video ϱ (Tables 3 and 5); BYOL's learning rate doubles with four.

    Args:
        config: Configuration to change.
        count: Clips per video.
    """
    byol = isinstance(config.method.objective, BYOLConfig)
    lr = 1.2 if byol and count == 4 else config.optim.lr
    return replace(config, data=replace(config.data, clips_per_video=count), optim=replace(config.optim, lr=lr))


def with_16x4_clips(config: PretrainConfig) -> PretrainConfig:
    """16 frames at stride 4 (Tables 3 and 5)."""
    return replace(config, data=replace(config.data, num_frames=16, frame_stride=4))


def with_backbone(config: PretrainConfig, name: str) -> PretrainConfig:
    """Another backbone, 16 frames at stride 4, 112 pixels (Table 3).

    Args:
        config: Configuration to change.
        name: Name of the backbone.
    """
    config = with_16x4_clips(config)
    model = replace(config.method.model, backbone=name)
    return replace(config, data=replace(config.data, image_size=112), method=replace(config.method, model=model))


def with_vit_b(config: PretrainConfig) -> PretrainConfig:
    """ViT-B, 16 frames at stride 4, 224 pixels, 800 epochs (Table 3)."""
    config = with_backbone(config, "vit_b")
    return replace(config, data=replace(config.data, image_size=224), optim=_VIT)


ConfigChange = Callable[[PretrainConfig], PretrainConfig]


def apply_changes(
    base: Callable[[str], PretrainConfig], name: str, changes: tuple[ConfigChange, ...]
) -> PretrainConfig:
    """A baseline or BOD-VCL with changes, applied in order (Tables 3 and 5).

    Args:
        base: Builds the configuration: `baseline_config` or `bod_vcl_config`.
        name: Name of the baseline.
        changes: Changes of the configuration.
    """
    config = base(name)
    for change in changes:
        config = change(config)
    return config


class _Variant(NamedTuple):
    method: str
    changes: tuple[ConfigChange, ...]
    description: str
    tables: tuple[int, ...]


_FOUR_CLIPS = partial(with_clips_per_video, count=4)
_NETWORKS: dict[str, tuple[str, ConfigChange]] = {
    "s3d_g": ("S3D-G", partial(with_backbone, name="s3d_g")),
    "r3d_18": ("R3D-18", partial(with_backbone, name="r3d_18")),
    "r2plus1d_18": ("R(2+1)D-18", partial(with_backbone, name="r2plus1d_18")),
    "vit_b": ("ViT-B", with_vit_b),
}
_VARIANTS = {
    "moco-rho4": _Variant("moco", (_FOUR_CLIPS,), "ϱ = 4", (3, 5)),
    "byol-rho4": _Variant("byol", (_FOUR_CLIPS,), "ϱ = 4", (3, 5)),
    "moco-16x4": _Variant("moco", (with_16x4_clips,), "16 frames at stride 4", (5,)),
    "byol-rho4-16x4": _Variant("byol", (_FOUR_CLIPS, with_16x4_clips), "ϱ = 4, 16 frames at stride 4", (3, 5)),
    **{
        f"byol-rho4-{name}": _Variant("byol", (_FOUR_CLIPS, change), f"ϱ = 4, {title}", (3,))
        for name, (title, change) in _NETWORKS.items()
    },
}


def _build_recipes() -> dict[str, Recipe[PretrainConfig]]:
    rows: dict[str, Recipe[PretrainConfig]] = {}

    def add(name: str, build: Callable[[], PretrainConfig], about: str, *tables: int) -> None:
        rows[f"k400-{name}"] = Recipe(build, about, cite_tables("BOD-VCL", *tables))

    for name, baseline in BASELINES.items():
        add(name, partial(baseline_config, name), baseline.title, *baseline.tables)
        add(f"bod-{name}", partial(bod_vcl_config, name), f"{baseline.title} + BOD-VCL", *baseline.tables)
    for name in ("simclr", "moco", "byol", "swav"):
        title = BASELINES[name].title
        add(f"{name}-pred", partial(with_prediction_loss, name), f"{title} + L_pred, no decomposition", 7)
        add(
            f"bod-{name}-single-level",
            partial(single_level, name),
            f"{title} + BOD-VCL, all losses at a single level",
            8,
        )
        add(
            f"bod-{name}-per-frame",
            partial(with_per_frame_prediction, name),
            f"{title} + BOD-VCL, L_pred on single frames",
            10,
        )
    for prefix, base, added in (("", baseline_config, ""), ("bod-", bod_vcl_config, " + BOD-VCL")):
        for name, v in _VARIANTS.items():
            about = f"{BASELINES[v.method].title}{added}, {v.description}"
            add(prefix + name, partial(apply_changes, base, v.method, v.changes), about, *v.tables)
    for steps in (1, 5, 10):
        about = f"V-SimCLR + BOD-VCL, {steps} inner step{'s' * (steps > 1)}"
        add(f"bod-simclr-inner{steps}", partial(with_inner_steps, steps), about, 9)
    for value in (0.4, 0.3, 0.2, 0.1, 0.01):
        add(f"bod-simclr-radius{value}", partial(with_radius, value), f"V-SimCLR + BOD-VCL, ξ = {value}", 11)
    for channels in (16, 32, 64, 128, 256, 512):
        add(
            f"bod-simclr-dim{channels}",
            partial(with_embedding_dim, channels),
            f"V-SimCLR + BOD-VCL, M = {channels}",
            12,
        )
    return rows


BOD_VCL_RECIPES = _build_recipes()
