"""Transfer recipes of the image-to-video paper, and `laptop-transfer` for your own videos and image model.

`mae-b16` … `dinov2-b16` are the rows of Tables 5 to 7, `dino-s8`, `dinov2-s14` and `dinov3-s16` those of Table 9b.
Kinetics is read at its original frame rate: a frame gap that is a fraction of the video's length is the same at the
paper's 2 frames per second.
"""

from dataclasses import replace
from functools import partial
from typing import Literal

from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.methods.image_to_video import PositionAugmentConfig, ProjectionConfig, TransferMethodConfig
from stillmotion.models.pretrained.frozen_image_model import ArchName, FamilyName, ImageModelConfig
from stillmotion.training.config import TrainConfig
from stillmotion.training.recipe_table import ADAMW_DEFAULTS, Recipe, RecipeTable, cite_tables
from stillmotion.training.transfer.config import TransferConfig, TransferDataConfig

_PAPER = "image-to-video transfer"
_TITLES: dict[FamilyName, str] = {
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
# Tables that contain each ViT-B/16.
_VIT_B_TABLES: dict[FamilyName, tuple[int, ...]] = {
    "mae": (7,),
    "ijepa": (7,),
    "clip": (5,),
    "blip": (5,),
    "mocov3": (7,),
    "dino": (6, 7),
    "ibot": (5, 6, 7),
    "dinov2": (5, 6, 7),
}
_VIT_S_MODELS: tuple[tuple[FamilyName, ArchName], ...] = (("dino", "s8"), ("dinov2", "s14"), ("dinov3", "s16"))


def _paper_config(family: FamilyName, arch: ArchName = "b16") -> TransferConfig:
    """A row of the paper, with the values of the authors' training code: Kinetics-400, 5 epochs.

    Args:
        family: Family of the image model.
        arch: Its architecture.
    """
    normalization: Literal["own", "imagenet"] = "imagenet" if family in ("clip", "blip") else "own"
    image_model = ImageModelConfig(family=family, arch=arch, normalization=normalization)
    if family == "ijepa":  # their tokens are those of the context encoder, before its last norm
        image_model = replace(image_model, family="ijepa-encoder", layer=12)
    return TransferConfig(
        image_model=image_model,
        data=TransferDataConfig(path="kinetics400", split="train", image_size=224, squash=True),
        method=TransferMethodConfig(separability_weight=3.0, convention="authors"),
        optim=replace(
            ADAMW_DEFAULTS,
            lr=1e-4,
            lr_batch_size=256,
            batch_size=512,
            epochs=5,
            warmup_start_lr=0.0,
            cosine_start="after-warmup",
        ),
        train=TrainConfig(checkpoint_every_steps=200, precision="fp16"),
    )


def make_debug_config(config: TransferConfig) -> TransferConfig:
    """Return the same losses on synthetic videos and a tiny image model of random weights: seconds on a CPU."""
    return replace(
        config,
        image_model=replace(config.image_model, arch="tiny", layer=None),
        data=TransferDataConfig(
            path="synthetic",
            image_size=48,
            squash=config.data.squash,
            num_workers=0,
            synthetic=SyntheticConfig(num_videos=32, image_size=48),
        ),
        optim=replace(config.optim, lr=1e-3, lr_batch_size=0, batch_size=16, epochs=4),
        train=TrainConfig(checkpoint_every_steps=4, log_every_steps=1),
    )


def _laptop_config() -> TransferConfig:
    """This library's settings for two CPU cores: the projection starts as the identity, tokens are cached."""
    return TransferConfig(
        image_model=ImageModelConfig(),
        data=TransferDataConfig(image_size=224, pairs_per_video=4, min_pairs_per_epoch=128, held_out_fraction=0.2),
        method=TransferMethodConfig(
            separability_weight=3.0,
            normalize_tokens=False,
            separability_reduction="mean",
            projection=ProjectionConfig(residual=True),
            positions=PositionAugmentConfig(fixed_windows=1),
        ),
        optim=replace(
            ADAMW_DEFAULTS, lr=1e-3, batch_size=32, epochs=20, warmup_start_lr=0.0, cosine_start="after-warmup"
        ),
        train=TrainConfig(checkpoint_every_steps=50),
    )


def _build_recipes() -> dict[str, Recipe[TransferConfig]]:
    rows = {"laptop-transfer": Recipe(_laptop_config, "your own image model and directory of videos, two CPU cores")}
    for family, tables in _VIT_B_TABLES.items():
        rows[f"{family}-b16"] = Recipe(
            partial(_paper_config, family),
            f"{_TITLES[family]} ViT-B/16 on K400, 5 epochs",
            cite_tables(_PAPER, *tables),
        )
    for family, arch in _VIT_S_MODELS:
        rows[f"{family}-{arch}"] = Recipe(
            partial(_paper_config, family, arch),
            f"{_TITLES[family]} ViT-S/{arch[1:]} on K400, 5 epochs",
            f"{_PAPER}, Table 9b",
        )
    return rows


TRANSFER_RECIPES: RecipeTable[TransferConfig] = RecipeTable("transfer", _build_recipes(), make_debug_config)
