"""The rows of ViDiDi's tables at the paper's scale, and their baselines: 8 frames at stride 3, 112 px, 400 epochs.

`ucf101-vididi-vic-r3d_18` is ViDiDi-VIC and `ucf101-vicreg-r3d_18` is VICReg without derivatives; sets are UCF101,
K400 and K200-40k (`data/k200.py`). `ucf101-vididi-<schedule>` are the rows of Table 6. What the paper leaves open, and
what these recipes take: LARS with trust 1e-3 and Nesterov momentum 0.9, and a rate of 1.2 at every batch size.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, get_args

from stillmotion.config import Config, DataConfig
from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.method import MethodConfig, ModelConfig, PredictionConfig
from stillmotion.methods.objective import ObjectiveConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.vicreg import VICRegConfig
from stillmotion.methods.views import Schedule, ViewsConfig
from stillmotion.nn.split import SplitConfig
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.recipes.bod_vcl import WHOLE
from stillmotion.recipes.small import DEMO_VIDEOS, debug, demo
from stillmotion.recipes.table import Recipe, cited

SCHEDULES: tuple[Schedule, ...] = tuple(s for s in get_args(Schedule) if s != "turns")  # of Table 6
NETWORKS = {"r3d_18": "R3D-18", "r2plus1d_18": "R(2+1)D-18", "mc3_18": "MC3-18", "s3d": "S3D"}


class Variant(NamedTuple):
    """What ViDiDi is built upon: a baseline, its objective and its projection head."""

    title: str
    baseline: str
    baseline_title: str
    objective: ObjectiveConfig
    model: ModelConfig


METHODS = {
    "simclr": Variant(
        "ViDiDi-SimCLR",
        "simclr",
        "SimCLR",
        SimCLRConfig(negatives="side"),
        ModelConfig(layers=3, hidden=2048, width=128, norm=True),
    ),
    "byol": Variant(
        "ViDiDi-BYOL",
        "byol",
        "BYOL",
        BYOLConfig(momentum=0.99),
        ModelConfig(layers=2, hidden=4096, width=256, norm=True),
    ),
    "vic": Variant(
        "ViDiDi-VIC",
        "vicreg",
        "VICReg",
        VICRegConfig(invariance=1.0, variance=1.0, covariance=0.05),
        ModelConfig(layers=3, hidden=2048, width=2048, norm=True),
    ),
}


class Pretrained(NamedTuple):
    """The videos that a row is pre-trained on, and its batch."""

    title: str
    path: str
    layout: str
    batch: int


SETS = {
    "ucf101": Pretrained("UCF101", "ucf101", "auto", 64),
    "k400": Pretrained("K400", "kinetics400", "auto", 256),
    "k200": Pretrained("K200-40k", "kinetics400", "k200", 64),
}
_VIC = ("vicreg", "vididi-vic")
# Other combinations of set, method and network are in no table.
_TABLES = {
    **{f"ucf101-{row}-r3d_18": (1,) for row in ("simclr", "vididi-simclr", "byol", "vididi-byol", *_VIC)},
    **dict.fromkeys(("k400-vicreg-r3d_18", "k400-vididi-vic-r3d_18", "k200-vididi-vic-r3d_18"), (1,)),
    **{f"ucf101-{row}-{net}": (2,) for row in _VIC for net in ("r2plus1d_18", "mc3_18", "s3d")},
    **{f"ucf101-vididi-{schedule}": (6,) for schedule in SCHEDULES},
}


def vididi(name: str, schedule: Schedule = "full", *, data: str = "ucf101", backbone: str = "r3d_18") -> Config:
    """ViDiDi-SimCLR, -BYOL or -VIC (Tables 1, 2 and 6); the schedule "base" is its baseline."""
    variant, videos = METHODS[name], SETS[data]
    # Networks have their original strides in time: nothing is split, and all of a clip is one feature.
    model = replace(variant.model, backbone=backbone, border="zeros", keep_time=False)
    return Config(
        data=DataConfig(
            path=videos.path, layout=videos.layout, split="train", frames=8, stride=3, size=112, augment="vididi"
        ),
        method=MethodConfig(views=ViewsConfig(schedule), model=model, split=WHOLE, objective=variant.objective),
        solver=SolverConfig(how="plain"),
        optim=OptimConfig(
            lr=1.2, lr_batch=0, batch=videos.batch, epochs=400, warmup_epochs=10 if name == "byol" else 0
        ),
    )


def with_bod(name: str) -> Config:
    """Derivative views and a Koopman split with its inner level, which no paper has: this library's own settings.

    The networks keep time, without which there is nothing to split.
    """
    config = vididi(name)
    method = replace(
        config.method,
        model=replace(config.method.model, width=128, keep_time=True),
        split=SplitConfig(normalize=name != "vic"),
        prediction=PredictionConfig(clips=1),
    )
    return replace(config, method=method, solver=SolverConfig(how="first-order", inner_lr=0.003))


def debug_vididi(row: Config) -> Config:
    """The same composition in seconds on a CPU, through all four steps of the schedule."""
    config = debug(row)
    model = replace(config.method.model, width=min(config.method.model.width, 128))
    return replace(
        config,
        method=replace(config.method, model=model),
        optim=replace(config.optim, epochs=4, warmup_epochs=min(row.optim.warmup_epochs, 1)),
    )


def demo_vididi(name: str) -> Config:
    """The demo's baseline of this variant with derivative views; nothing else differs."""
    config = demo(METHODS[name].baseline, split=False)
    return replace(config, method=replace(config.method, views=ViewsConfig("full")))


def _rows() -> dict[str, Recipe[Config]]:
    rows: dict[str, Recipe[Config]] = {}

    def add(name: str, build: Callable[[], Config], about: str) -> None:
        rows[name] = Recipe(build, about, cited("ViDiDi", *_TABLES.get(name, ())))

    for data, videos in SETS.items():
        for net, network in NETWORKS.items():
            for name, variant in METHODS.items():
                build = partial(vididi, name, data=data, backbone=net)
                where = f"{network} on {videos.title}"
                add(f"{data}-vididi-{name}-{net}", build, f"{variant.title}, {where}")
                base = partial(build, schedule="base")
                add(f"{data}-{variant.baseline}-{net}", base, f"{variant.baseline_title}, {where}")
    for schedule in SCHEDULES:
        add(f"ucf101-vididi-{schedule}", partial(vididi, "vic", schedule), f"VICReg, views by schedule {schedule}")
    for name, variant in METHODS.items():
        about = f"{variant.title} + BOD-VCL at this library's own settings"
        add(f"ucf101-vididi-bod-{name}", partial(with_bod, name), about)
    return rows


VIDIDI = _rows()
# The twins of the sets are one: in synthetic videos they do not differ.
VIDIDI_DEBUG = {
    f"debug-{short}": VIDIDI[name].twin(name, debug_vididi)
    for short, name in (
        *((f"vididi-{name}", f"ucf101-vididi-{name}-r3d_18") for name in METHODS),
        *((name.removeprefix("ucf101-"), name) for name in VIDIDI if name.startswith("ucf101-")),
    )
}
VIDIDI_DEMO = {
    f"demo-vididi-{name}": Recipe(partial(demo_vididi, name), f"{variant.title}{DEMO_VIDEOS}")
    for name, variant in METHODS.items()
}
