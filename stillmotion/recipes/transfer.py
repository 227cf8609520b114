"""The image models of the image-to-video paper at its settings, each with a debug twin.

`mae-b16` … `dinov2-b16` are the rows of Tables 5 to 7, `dino-s8`, `dinov2-s14` and `dinov3-s16` those of Table 9b;
`debug-mae` … `debug-dinov3` are the same losses on synthetic videos and a tiny model with random weights.
`laptop-transfer` is for a folder of your own videos and a model of your own. Kinetics is read at its own rate: a gap
that is a share of the video's length is the same at the paper's 2 frames a second.
"""

from dataclasses import replace
from functools import partial

from stillmotion.config import TrainConfig
from stillmotion.config.transfer import PairsConfig, TransferConfig
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.methods.transfer import PositionsConfig, ProjectionConfig, TransferMethodConfig
from stillmotion.nn.images import Arch, Family, ImagesConfig
from stillmotion.recipes.rates import ADAMW
from stillmotion.recipes.table import Recipe, Recipes, cited

_PAPER = "image-to-video transfer"
_TITLES: dict[Family, str] = {
    "mae": "MAE",
    "ijepa": "I-JEPA",
    "clip": "CLIP",
    "blip": "BLIP",
    "mocov3": "MoCo v3",
    "dino": "DINO",
    "ibot": "iBOT",
    "dinov2": "DINOv2",
    "dinov3": "DINOv3",
}
# The tables that each ViT-B/16 stands in.
_BASE: dict[Family, tuple[int, ...]] = {
    "mae": (7,),
    "ijepa": (7,),
    "clip": (5,),
    "blip": (5,),
    "mocov3": (7,),
    "dino": (6, 7),
    "ibot": (5, 6, 7),
    "dinov2": (5, 6, 7),
}
_SMALL: tuple[tuple[Family, Arch], ...] = (("dino", "s8"), ("dinov2", "s14"), ("dinov3", "s16"))
_SHRUNK: tuple[tuple[Family, Arch], ...] = (*((family, "b16") for family in _BASE), ("dinov3", "s16"))


def paper(family: Family, arch: Arch = "b16") -> TransferConfig:
    """A row of the paper: Kinetics-400, 5 epochs."""
    return TransferConfig(
        images=ImagesConfig(family=family, arch=arch),
        data=PairsConfig(path="kinetics400", split="train", size=224),
        method=TransferMethodConfig(weight=3.0),
        optim=replace(ADAMW, lr=1e-4, lr_batch=256, batch=512, epochs=5, warmup_lr=0.0, cosine_from="warmup"),
        train=TrainConfig(checkpoint_every=200),
    )


def debug(family: Family) -> TransferConfig:
    """The same losses in seconds on a CPU, from random weights."""
    config = paper(family, "tiny")
    return replace(
        config,
        data=PairsConfig(path="synthetic", size=48, workers=0, synthetic=SyntheticConfig(videos=32, size=48)),
        optim=replace(config.optim, lr=1e-3, lr_batch=0, batch=16, epochs=4),
        train=TrainConfig(checkpoint_every=4, log_every=1),
    )


def laptop() -> TransferConfig:
    """This library's own settings for two cores: g starts as the identity and tokens are computed once."""
    return TransferConfig(
        images=ImagesConfig(),
        data=PairsConfig(size=224, pairs=4),
        method=TransferMethodConfig(
            weight=3.0,
            scale="own",
            reduce="mean",
            projection=ProjectionConfig(residual=True),
            positions=PositionsConfig(fixed=1),
        ),
        optim=replace(ADAMW, lr=1e-3, batch=32, epochs=20, warmup_lr=0.0, cosine_from="warmup"),
        train=TrainConfig(checkpoint_every=50),
    )


def _rows() -> dict[str, Recipe[TransferConfig]]:
    rows = {"laptop-transfer": Recipe(laptop, "an image model and a folder of videos of your own, two cores")}
    for family, tables in _BASE.items():
        rows[f"{family}-b16"] = Recipe(
            partial(paper, family), f"{_TITLES[family]} ViT-B/16 on K400, 5 epochs", cited(_PAPER, *tables)
        )
    for family, arch in _SMALL:
        rows[f"{family}-{arch}"] = Recipe(
            partial(paper, family, arch), f"{_TITLES[family]} ViT-S/{arch[1:]} on K400, 5 epochs", f"{_PAPER}, Table 9b"
        )
    for family, arch in _SHRUNK:
        rows[f"debug-{family}"] = Recipe(partial(debug, family), f"debug twin of {family}-{arch}")
    return rows


TRANSFER: Recipes[TransferConfig] = Recipes("transfer", _rows())
