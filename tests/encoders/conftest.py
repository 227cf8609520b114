from dataclasses import replace
from pathlib import Path

import pytest
import small_detection
import small_finetuning
import small_run
import torch
from debug_videos import write_classes
from safetensors.torch import save_file
from tiny_models import save_model

from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.data.untrimmed import UntrimmedConfig
from stillmotion.nn.backbones import create_backbone
from stillmotion.nn.mstcn import MSTCNConfig
from stillmotion.recipes import RECIPES
from stillmotion.tasks.segment import segment
from stillmotion.tasks.transfer import transfer


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An encoder of every kind: the smallest runs of the five verbs, a recipe, and three models from elsewhere."""
    root = tmp_path_factory.mktemp("encoders")
    with small_run.one_core():
        pretrained = small_run.trained(small_run.small("debug-bod-simclr"), root / "pretrain")
        runs = {
            "pretrain": pretrained,
            "transfer": _transferred(root / "transfer"),
            "finetune": small_finetuning.tuned(small_finetuning.small(epochs=1), root / "finetune"),
            "detect": small_detection.detected(small_detection.small(epochs=1), root / "detect"),
            "segment": _segmented(root / "segment", pretrained),
        }
    return {kind: str(folder) for kind, folder in runs.items()} | {
        "recipe": "debug-bod-simclr",
        "transformers": str(save_model("dinov2", root / "dinov2")),
        "dino": f"dino:{_dino(root / 'dino.pth')}",
        "i3d": f"i3d:{_i3d(root / 'i3d.safetensors')}@frames=24,size=32",
    }


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of three videos."""
    return write_classes(tmp_path_factory.mktemp("videos") / "set", videos=3)


def _transferred(folder: Path) -> Path:
    config = RECIPES["transfer"].named("debug-dinov2")
    drawn = replace(config.data.synthetic, videos=2, size=24, length=8)
    data = replace(config.data, size=24, synthetic=drawn)
    return transfer(replace(config, data=data, optim=replace(config.optim, batch=2, epochs=1)), folder)


def _segmented(folder: Path, encoder: Path) -> Path:
    config = RECIPES["segment"].named("debug")
    drawn = UntrimmedConfig(videos=2, test=1, segments=(2, 2), length=(4, 4), look=SyntheticConfig(size=16))
    config = replace(
        config,
        encoder=str(encoder),
        data=replace(config.data, untrimmed=drawn),
        head=MSTCNConfig(stages=1, layers=1, width=4),
        optim=replace(config.optim, batch=2, epochs=1),
    )
    segment(config, folder)
    return folder


def _dino(file: Path, *, width: int = 64, patch: int = 8, cells: int = 16) -> Path:
    """A ViT of two blocks under DINO's names, with random weights."""
    shapes = {
        "cls_token": (1, 1, width),
        "pos_embed": (1, cells + 1, width),
        "patch_embed.proj.weight": (width, 3, patch, patch),
        "patch_embed.proj.bias": (width,),
        "norm.weight": (width,),
        "norm.bias": (width,),
    }
    for block in ("blocks.0", "blocks.1"):
        for name, (outer, inner) in {
            "attn.qkv": (3 * width, width),
            "attn.proj": (width, width),
            "mlp.fc1": (2 * width, width),
            "mlp.fc2": (width, 2 * width),
        }.items():
            shapes |= {f"{block}.{name}.weight": (outer, inner), f"{block}.{name}.bias": (outer,)}
        shapes |= {f"{block}.norm{i}.{part}": (width,) for i in (1, 2) for part in ("weight", "bias")}
    random = torch.Generator().manual_seed(0)
    torch.save({name: 0.1 * torch.randn(shape, generator=random) for name, shape in shapes.items()}, file)
    return file


def _i3d(file: Path) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        save_file(create_backbone("i3d", keep_time=False).state_dict(), file)
    return file
