"""The rows of BOD-VCL's tables at the paper's scale: Kinetics-400, 8 frames at stride 8, 224 px, 200 epochs.

Width, optimiser, batch, temperature, split, radius, ν and inner steps are what the paper's text says; rates, schedule,
momentum encoders and augmentation, which it leaves to its predecessor, are those of that one's public code, and clips
are counted at Kinetics' 30 frames a second; borders in time are zeros, as in the networks it trained. What neither
says, and what these recipes take: the inner rate γ (0.003), the ridge of the pseudo-inverse (1e-3, without which its
prediction loss is zero: docs/method.md), MoCo's rate under LARS and ViT-B's optimiser. docs/recipes.md goes through
every setting.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from stillmotion.config import Config, DataConfig
from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.method import MethodConfig, ModelConfig, PredictionConfig
from stillmotion.methods.moco import MoCoConfig
from stillmotion.methods.objective import ObjectiveConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.swav import SwAVConfig
from stillmotion.methods.vicreg import VICRegConfig
from stillmotion.nn.split import SplitConfig
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.recipes.table import Recipe, cited

WHOLE = SplitConfig(how="none")
PAPER_SPLIT = SplitConfig(how="eig", radius=0.1, weight="advance", ridge=1e-3)
PAPER_PREDICTION = PredictionConfig(orthogonality=1e-4, ridge=1e-3, hold_out=0, relative=False)
BILEVEL = SolverConfig(how="aid-fd", inner_steps=1, inner_lr=0.003)


class Baseline(NamedTuple):
    """A V-CL method at its settings, and the tables that hold it with and without BOD-VCL."""

    title: str
    objective: ObjectiveConfig
    model: ModelConfig
    optim: OptimConfig
    tables: tuple[int, ...]


_LARS = OptimConfig(name="lars", lr=0.6, batch=64)
# MoCo v3's for ViT-B, for a batch of 256: LARS at a rate made for convolutions is none for layer norm.
_VIT = replace(
    _LARS, name="adamw", lr=1.5e-4, lr_batch=256, weight_decay=0.1, epochs=800, warmup_epochs=40, warmup_lr=0.0
)
_BYOL_HEAD = ModelConfig(layers=2, hidden=4096, norm=True)

BASELINES = {
    "simclr": Baseline("V-SimCLR", SimCLRConfig(), ModelConfig(), replace(_LARS, lr=1.2), (2, 3, 5, 7, 10)),
    "moco": Baseline("V-MoCo", MoCoConfig(), ModelConfig(), _LARS, (2, 5, 7, 10)),
    "byol": Baseline("V-BYOL", BYOLConfig(), _BYOL_HEAD, _LARS, (2, 5, 7, 10)),
    "swav": Baseline("V-SwAV", SwAVConfig(), ModelConfig(norm=True), _LARS, (2, 3, 5, 7, 10)),
    "vicreg": Baseline("VICReg", VICRegConfig(), ModelConfig(norm=True), _LARS, ()),
}


def plain(name: str) -> Config:
    """V-CL itself: the whole embedding, one level (Tables 2 and 5)."""
    baseline = BASELINES[name]
    return Config(
        data=DataConfig(path="kinetics400", split="train", fps=30),
        method=MethodConfig(model=replace(baseline.model, border="zeros"), split=WHOLE, objective=baseline.objective),
        solver=SolverConfig(how="plain"),
        optim=baseline.optim,
    )


def bod(name: str) -> Config:
    """V-CL + BOD-VCL: static and dynamic apart, the inner level by AID-FD (Tables 2 and 5); M = 128."""
    config = plain(name)
    split = replace(PAPER_SPLIT, normalize=name != "vicreg")
    method = replace(config.method, split=split, prediction=PAPER_PREDICTION)
    # Near a threshold the projector's derivative has no bound, and LARS leaves the rate of norms as it is.
    return replace(config, method=method, solver=BILEVEL, optim=replace(config.optim, clip=1.0))


def with_prediction(name: str) -> Config:
    """V-CL with L_pred added to its loss, nothing split (Table 7)."""
    config = plain(name)
    return replace(
        config,
        method=replace(config.method, prediction=PAPER_PREDICTION),
        solver=SolverConfig(how="single-level"),
    )


def single_level(name: str) -> Config:
    """All three losses minimised at once (Table 8)."""
    return replace(bod(name), solver=replace(BILEVEL, how="single-level"))


def inner_steps(steps: int) -> Config:
    """More steps of the inner level (Table 9)."""
    return replace(bod("simclr"), solver=replace(BILEVEL, inner_steps=steps))


def strict(name: str) -> Config:
    """L_pred sees one frame at a time (Table 10)."""
    config = bod(name)
    return replace(config, method=replace(config.method, prediction=replace(PAPER_PREDICTION, strict=True)))


def radius(value: float) -> Config:
    """Another ξ (Table 11)."""
    config = bod("simclr")
    return replace(config, method=replace(config.method, split=replace(PAPER_SPLIT, radius=value)))


def width(value: int) -> Config:
    """Another M (Table 12)."""
    config = bod("simclr")
    return replace(config, method=replace(config.method, model=replace(config.method.model, width=value)))


def clips(config: Config, count: int) -> Config:
    """ϱ clips of each video (Tables 3 and 5); BYOL's rate doubles with four."""
    byol = isinstance(config.method.objective, BYOLConfig)
    lr = 1.2 if byol and count == 4 else config.optim.lr
    return replace(config, data=replace(config.data, clips=count), optim=replace(config.optim, lr=lr))


def longer(config: Config) -> Config:
    """16 frames at stride 4 (Tables 3 and 5)."""
    return replace(config, data=replace(config.data, frames=16, stride=4))


def backbone(config: Config, name: str) -> Config:
    """Another network, 16 frames at stride 4, 112 pixels (Table 3)."""
    config = longer(config)
    model = replace(config.method.model, backbone=name)
    return replace(config, data=replace(config.data, size=112), method=replace(config.method, model=model))


def vit(config: Config) -> Config:
    """ViT-B, 16 frames at stride 4, 224 pixels, 800 epochs (Table 3)."""
    config = backbone(config, "vit_b")
    return replace(config, data=replace(config.data, size=224), optim=_VIT)


Change = Callable[[Config], Config]


def varied(base: Callable[[str], Config], name: str, changes: tuple[Change, ...]) -> Config:
    """`plain` or `bod` with changes, one after another (Tables 3 and 5)."""
    config = base(name)
    for change in changes:
        config = change(config)
    return config


class _Variant(NamedTuple):
    method: str
    changes: tuple[Change, ...]
    about: str
    tables: tuple[int, ...]


_FOUR = partial(clips, count=4)
_NETWORKS: dict[str, tuple[str, Change]] = {
    "s3d_g": ("S3D-G", partial(backbone, name="s3d_g")),
    "r3d_18": ("R3D-18", partial(backbone, name="r3d_18")),
    "r2plus1d_18": ("R(2+1)D-18", partial(backbone, name="r2plus1d_18")),
    "vit_b": ("ViT-B", vit),
}
_VARIANTS = {
    "moco-rho4": _Variant("moco", (_FOUR,), "ϱ = 4", (3, 5)),
    "byol-rho4": _Variant("byol", (_FOUR,), "ϱ = 4", (3, 5)),
    "moco-16x4": _Variant("moco", (longer,), "16 frames at stride 4", (5,)),
    "byol-rho4-16x4": _Variant("byol", (_FOUR, longer), "ϱ = 4, 16 frames at stride 4", (3, 5)),
    **{
        f"byol-rho4-{name}": _Variant("byol", (_FOUR, change), f"ϱ = 4, {title}", (3,))
        for name, (title, change) in _NETWORKS.items()
    },
}


def _rows() -> dict[str, Recipe[Config]]:
    rows: dict[str, Recipe[Config]] = {}

    def add(name: str, build: Callable[[], Config], about: str, *tables: int) -> None:
        rows[f"k400-{name}"] = Recipe(build, about, cited("BOD-VCL", *tables))

    for name, baseline in BASELINES.items():
        add(name, partial(plain, name), baseline.title, *baseline.tables)
        add(f"bod-{name}", partial(bod, name), f"{baseline.title} + BOD-VCL", *baseline.tables)
    for name in ("simclr", "moco", "byol", "swav"):
        title = BASELINES[name].title
        add(f"pred-{name}", partial(with_prediction, name), f"{title} + L_pred, nothing split", 7)
        add(f"single-{name}", partial(single_level, name), f"{title} + BOD-VCL, all losses at a single level", 8)
        add(f"bod-{name}-strict", partial(strict, name), f"{title} + BOD-VCL, L_pred on single frames", 10)
    for prefix, base, added in (("", plain, ""), ("bod-", bod, " + BOD-VCL")):
        for name, v in _VARIANTS.items():
            about = f"{BASELINES[v.method].title}{added}, {v.about}"
            add(prefix + name, partial(varied, base, v.method, v.changes), about, *v.tables)
    for steps in (1, 5, 10):
        about = f"V-SimCLR + BOD-VCL, {steps} inner step{'s' * (steps > 1)}"
        add(f"bod-simclr-inner{steps}", partial(inner_steps, steps), about, 9)
    for value in (0.4, 0.3, 0.2, 0.1, 0.01):
        add(f"bod-simclr-radius{value}", partial(radius, value), f"V-SimCLR + BOD-VCL, ξ = {value}", 11)
    for channels in (16, 32, 64, 128, 256, 512):
        add(f"bod-simclr-width{channels}", partial(width, channels), f"V-SimCLR + BOD-VCL, M = {channels}", 12)
    return rows


BOD_VCL = _rows()
