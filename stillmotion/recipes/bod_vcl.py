"""The rows of BOD-VCL's tables at the paper's scale: Kinetics-400, 8 frames at stride 8, 224 px, 200 epochs.

Rates, heads and augmentation are those of the public contrastive code the rows were made with; split, weight, radius,
ν and inner steps are the paper's. What the paper leaves open, and what these recipes take: the inner rate γ (0.1) and
the ridge of the pseudo-inverse (1e-3, without which its prediction loss is zero: docs/method.md).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from stillmotion.config import Config, DataConfig
from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.method import AnyObjective, MethodConfig, ModelConfig, PredictionConfig
from stillmotion.methods.moco import MoCoConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.swav import SwAVConfig
from stillmotion.methods.vicreg import VICRegConfig
from stillmotion.nn.encoder import SplitConfig
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.optim.optimizers import OptimConfig

WHOLE = SplitConfig(how="none")
PAPER_SPLIT = SplitConfig(how="eig", radius=0.1, weight="advance", ridge=1e-3)
PAPER_PREDICTION = PredictionConfig(orthogonality=1e-4, ridge=1e-3, hold_out=0, relative=False)
BILEVEL = SolverConfig(how="aid-fd", inner_steps=1, inner_lr=0.1)

OBJECTIVES: dict[str, tuple[AnyObjective, ModelConfig, OptimConfig]] = {
    "simclr": (SimCLRConfig(), ModelConfig(), OptimConfig(name="lars", lr=1.2)),
    "moco": (MoCoConfig(), ModelConfig(), OptimConfig(name="sgd", lr=0.1, weight_decay=1e-4)),
    "byol": (BYOLConfig(), ModelConfig(layers=2, hidden=4096, width=256, norm=True), OptimConfig(name="lars", lr=0.6)),
    "swav": (SwAVConfig(), ModelConfig(norm=True), OptimConfig(name="lars", lr=0.6)),
    "vicreg": (VICRegConfig(), ModelConfig(norm=True), OptimConfig(name="lars", lr=0.6)),
}


def plain(name: str) -> Config:
    """V-CL itself: the whole embedding, one level (Tables 2 and 5)."""
    objective, model, optim = OBJECTIVES[name]
    return Config(
        data=DataConfig(path="kinetics400", split="train"),
        method=MethodConfig(model=model, split=WHOLE, objective=objective),
        solver=SolverConfig(how="plain"),
        optim=optim,
    )


def bod(name: str) -> Config:
    """V-CL + BOD-VCL: static and dynamic apart, the inner level by AID-FD (Tables 2 and 5); M = 128."""
    config = plain(name)
    split = replace(PAPER_SPLIT, normalize=name != "vicreg")
    model = replace(config.method.model, width=128)
    method = replace(config.method, model=model, split=split, prediction=PAPER_PREDICTION)
    return replace(config, method=method, solver=BILEVEL)


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
    return replace(bod(name), solver=SolverConfig(how="single-level"))


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


def _rows() -> dict[str, Callable[[], Config]]:
    rows: dict[str, Callable[[], Config]] = {}
    for name in OBJECTIVES:
        rows[f"k400-{name}"] = partial(plain, name)
        rows[f"k400-bod-{name}"] = partial(bod, name)
    for name in ("simclr", "moco", "byol", "swav"):
        rows[f"k400-pred-{name}"] = partial(with_prediction, name)
        rows[f"k400-single-{name}"] = partial(single_level, name)
        rows[f"k400-bod-{name}-strict"] = partial(strict, name)
    for prefix, build in (("", plain), ("bod-", bod)):
        rows[f"k400-{prefix}moco-rho4"] = lambda b=build: clips(b("moco"), 4)  # type: ignore[misc]
        rows[f"k400-{prefix}byol-rho4"] = lambda b=build: clips(b("byol"), 4)  # type: ignore[misc]
        rows[f"k400-{prefix}moco-16x4"] = lambda b=build: longer(b("moco"))  # type: ignore[misc]
        rows[f"k400-{prefix}byol-rho4-16x4"] = lambda b=build: longer(clips(b("byol"), 4))  # type: ignore[misc]
        for net in ("s3d_g", "r3d_18", "r2plus1d_18"):
            rows[f"k400-{prefix}byol-rho4-{net}"] = lambda b=build, n=net: backbone(clips(b("byol"), 4), n)  # type: ignore[misc]
        rows[f"k400-{prefix}byol-rho4-vit_b"] = lambda b=build: backbone(  # type: ignore[misc]
            clips(b("byol"), 4), "vit_b", size=224, epochs=800
        )
    for steps in (1, 5, 10):
        rows[f"k400-bod-simclr-inner{steps}"] = partial(inner_steps, steps)
    for value in (0.4, 0.3, 0.2, 0.1, 0.01):
        rows[f"k400-bod-simclr-radius{value}"] = partial(radius, value)
    for channels in (16, 32, 64, 128, 256, 512):
        rows[f"k400-bod-simclr-width{channels}"] = partial(width, channels)
    return rows


BOD_VCL = _rows()
