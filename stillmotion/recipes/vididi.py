"""The rows of ViDiDi's tables at the paper's scale, and their baselines: 8 frames at stride 3, 112 px, 400 epochs.

`ucf101-vididi-vic-r3d_18` is ViDiDi-VIC and `ucf101-vicreg-r3d_18` is VICReg without derivatives; sets are UCF101,
K400 and K200-40k (`data/k200.py`). `ucf101-vididi-<schedule>` are the rows of Table 6. What the paper leaves open, and
what these recipes take: LARS with trust 1e-3 and Nesterov momentum 0.9, and a rate of 1.2 at every batch size.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import get_args

from stillmotion.config import Config, DataConfig
from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.method import AnyObjective, MethodConfig, ModelConfig, PredictionConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.vicreg import VICRegConfig
from stillmotion.methods.views import Schedule, ViewsConfig
from stillmotion.nn.encoder import SplitConfig
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.recipes.bod_vcl import WHOLE
from stillmotion.recipes.small import debug, demo

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
NETWORKS = ("r3d_18", "r2plus1d_18", "mc3_18", "s3d")
# By the name of ViDiDi's variant: the baseline's name, the objective and the projection head.
METHODS: dict[str, tuple[str, AnyObjective, ModelConfig]] = {
    "simclr": ("simclr", SimCLRConfig(negatives="side"), ModelConfig(layers=3, hidden=2048, width=128, norm=True)),
    "byol": ("byol", BYOLConfig(momentum=0.99), ModelConfig(layers=2, hidden=4096, width=256, norm=True)),
    "vic": (
        "vicreg",
        VICRegConfig(invariance=1.0, variance=1.0, covariance=0.05),
        ModelConfig(layers=3, hidden=2048, width=2048, norm=True),
    ),
}
# Path and kind of the videos, and the batch.
SETS = {"ucf101": ("ucf101", "auto", 64), "k400": ("kinetics400", "auto", 256), "k200": ("kinetics400", "k200", 64)}


def vididi(name: str, schedule: Schedule = "full", *, data: str = "ucf101", backbone: str = "r3d_18") -> Config:
    """ViDiDi-SimCLR, -BYOL or -VIC (Tables 1, 2 and 6); the schedule "base" is its baseline."""
    _, objective, model = METHODS[name]
    path, kind, batch = SETS[data]
    return Config(
        data=DataConfig(path=path, kind=kind, split="train", frames=8, stride=3, size=112, augment="vididi"),
        method=MethodConfig(
            views=ViewsConfig(schedule), model=replace(model, backbone=backbone), split=WHOLE, objective=objective
        ),
        solver=SolverConfig(how="plain"),
        optim=OptimConfig(lr=1.2, lr_batch=0, batch=batch, epochs=400, warmup_epochs=10 if name == "byol" else 0),
    )


def with_bod(name: str) -> Config:
    """Derivative views and a Koopman split with its inner level, which no paper has: this library's own settings."""
    config = vididi(name)
    method = replace(
        config.method,
        model=replace(config.method.model, width=128),
        split=SplitConfig(normalize=name != "vic"),
        prediction=PredictionConfig(clips=1),
    )
    return replace(config, method=method, solver=SolverConfig(how="first-order", inner_lr=0.003))


def debug_vididi(build: Callable[[], Config]) -> Config:
    """The same composition in seconds on a CPU, through all four steps of the schedule."""
    config = debug(build())
    model = replace(config.method.model, width=min(config.method.model.width, 128))
    return replace(
        config,
        method=replace(config.method, model=model),
        optim=replace(config.optim, epochs=4, warmup_epochs=min(build().optim.warmup_epochs, 1)),
    )


def demo_vididi(name: str) -> Config:
    """The demo's baseline of this variant with derivative views; nothing else differs."""
    config = demo(METHODS[name][0], split=False)
    return replace(config, method=replace(config.method, views=ViewsConfig("full")))


def _rows() -> dict[str, Callable[[], Config]]:
    rows: dict[str, Callable[[], Config]] = {}
    for data in SETS:
        for net in NETWORKS:
            for name, (baseline, *_) in METHODS.items():
                rows[f"{data}-vididi-{name}-{net}"] = partial(vididi, name, data=data, backbone=net)
                rows[f"{data}-{baseline}-{net}"] = partial(vididi, name, "base", data=data, backbone=net)
    for schedule in SCHEDULES:
        rows[f"ucf101-vididi-{schedule}"] = partial(vididi, "vic", schedule)
    for name in METHODS:
        rows[f"ucf101-vididi-bod-{name}"] = partial(with_bod, name)
    return rows


VIDIDI = _rows()
# The twins of the sets are one: in synthetic videos they do not differ.
VIDIDI_DEBUG = {
    **{f"debug-vididi-{name}": partial(debug_vididi, partial(vididi, name)) for name in METHODS},
    **{
        name.replace("ucf101-", "debug-"): partial(debug_vididi, build)
        for name, build in VIDIDI.items()
        if name.startswith("ucf101-")
    },
}
VIDIDI_DEMO = {f"demo-vididi-{name}": partial(demo_vididi, name) for name in METHODS}
