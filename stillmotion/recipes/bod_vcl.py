"""The rows of BOD-VCL's tables at the paper's scale: Kinetics-400, 8 frames at stride 8, 224 px, 200 epochs.

Rates, heads and augmentation are those of the public contrastive code the rows were made with; split, weight, radius,
ν and inner steps are the paper's; borders in time are zeros, as in its networks. What the paper leaves open, and what
these recipes take: the inner rate γ (0.003) and the ridge of the pseudo-inverse (1e-3, without which its prediction
loss is zero: docs/method.md).
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
    """A V-CL method at its public settings, and the tables that hold it with and without BOD-VCL."""

    title: str
    objective: ObjectiveConfig
    model: ModelConfig
    optim: OptimConfig
    tables: tuple[int, ...]


_LARS = OptimConfig(name="lars", lr=0.6)
_SGD = OptimConfig(name="sgd", lr=0.1, weight_decay=1e-4)
_BYOL_HEAD = ModelConfig(layers=2, hidden=4096, width=256, norm=True)

BASELINES = {
    "simclr": Baseline("V-SimCLR", SimCLRConfig(), ModelConfig(), replace(_LARS, lr=1.2), (2, 3, 5, 7, 10)),
    "moco": Baseline("V-MoCo", MoCoConfig(), ModelConfig(), _SGD, (2, 5, 7, 10)),
    "byol": Baseline("V-BYOL", BYOLConfig(), _BYOL_HEAD, _LARS, (2, 5, 7, 10)),
    "swav": Baseline("V-SwAV", SwAVConfig(), ModelConfig(norm=True), _LARS, (2, 3, 5, 7, 10)),
    "vicreg": Baseline("VICReg", VICRegConfig(), ModelConfig(norm=True), _LARS, ()),
}


def plain(name: str) -> Config:
    """V-CL itself: the whole embedding, one level (Tables 2 and 5)."""
    baseline = BASELINES[name]
    return Config(
        data=DataConfig(path="kinetics400", split="train"),
        method=MethodConfig(model=replace(baseline.model, border="zeros"), split=WHOLE, objective=baseline.objective),
        solver=SolverConfig(how="plain"),
        optim=baseline.optim,
    )


def bod(name: str) -> Config:
    """V-CL + BOD-VCL: static and dynamic apart, the inner level by AID-FD (Tables 2 and 5); M = 128."""
    config = plain(name)
    split = replace(PAPER_SPLIT, normalize=name != "vicreg")
    model = replace(config.method.model, width=128)
    method = replace(config.method, model=model, split=split, prediction=PAPER_PREDICTION)
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


def backbone(config: Config, name: str, *, size: int = 112, epochs: int = 200) -> Config:
    """Another network, 16 frames at stride 4 (Table 3)."""
    config = longer(config)
    return replace(
        config,
        data=replace(config.data, size=size),
        method=replace(config.method, model=replace(config.method.model, backbone=name)),
        optim=replace(config.optim, epochs=epochs),
    )


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
_NETWORKS = {
    "s3d_g": ("S3D-G", partial(backbone, name="s3d_g")),
    "r3d_18": ("R3D-18", partial(backbone, name="r3d_18")),
    "r2plus1d_18": ("R(2+1)D-18", partial(backbone, name="r2plus1d_18")),
    "vit_b": ("ViT-B", partial(backbone, name="vit_b", size=224, epochs=800)),
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
