from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support import small_detect, small_finetune, small_pretrain
from support.class_videos import write_class_folders
from support.tiny_transformers import save_model

from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.data.synthetic.untrimmed import SyntheticUntrimmedConfig
from stillmotion.models.backbones import create_backbone
from stillmotion.models.mstcn import MSTCNConfig
from stillmotion.training.segment.task import segment
from stillmotion.training.tasks import get_recipe
from stillmotion.training.transfer.task import transfer


@pytest.fixture(scope="session")
def encoder_specs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An encoder of every kind: the smallest runs of the five verbs, a recipe, and three models from elsewhere."""
    root = tmp_path_factory.mktemp("encoders")
    with small_pretrain.single_thread():
        pretrained = small_pretrain.train(small_pretrain.small_config("k400-bod-simclr"), root / "pretrain")
        runs = {
            "pretrain": pretrained,
            "transfer": _transfer_run(root / "transfer"),
            "finetune": small_finetune.finetune_once(small_finetune.small_config(epochs=1), root / "finetune"),
            "detect": small_detect.detect_once(small_detect.small_config(epochs=1), root / "detect"),
            "segment": _segment_run(root / "segment", pretrained),
        }
    return {kind: str(folder) for kind, folder in runs.items()} | {
        "recipe": "debug:k400-bod-simclr",
        "transformers": str(save_model("dinov2", root / "dinov2")),
        "dino": f"dino:{_write_dino(root / 'dino.pth')}",
        "i3d": f"i3d:{_write_i3d(root / 'i3d.safetensors')}@frames=24,size=32",
    }


@pytest.fixture(scope="session")
def class_videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of three videos."""
    return write_class_folders(tmp_path_factory.mktemp("videos") / "set", videos_per_class=3)


def _transfer_run(output_dir: Path) -> Path:
    config = get_recipe("dinov2-b16", verb="transfer", debug=True)
    drawn = replace(config.data.synthetic, num_videos=2, image_size=24, num_frames=8)
    data = replace(config.data, image_size=24, synthetic=drawn)
    return transfer(replace(config, data=data, optim=replace(config.optim, batch_size=2, epochs=1)), output_dir)


def _segment_run(output_dir: Path, encoder: Path) -> Path:
    config = get_recipe("breakfast", verb="segment", debug=True)
    drawn = SyntheticUntrimmedConfig(
        num_train=2,
        num_test=1,
        actions_per_video=(2, 2),
        frames_per_action=(4, 4),
        appearance=SyntheticConfig(image_size=16),
    )
    config = replace(
        config,
        encoder=str(encoder),
        data=replace(config.data, synthetic=drawn),
        head=MSTCNConfig(num_stages=1, num_layers=1, hidden_dim=4),
        optim=replace(config.optim, batch_size=2, epochs=1),
    )
    segment(config, output_dir)
    return output_dir


def _write_dino(path: Path, *, width: int = 64, patch_size: int = 8, num_patches: int = 16) -> Path:
    """A ViT of two blocks under DINO's names, with random weights."""
    shapes = {
        "cls_token": (1, 1, width),
        "pos_embed": (1, num_patches + 1, width),
        "patch_embed.proj.weight": (width, 3, patch_size, patch_size),
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
    torch.save({name: 0.1 * torch.randn(shape, generator=random) for name, shape in shapes.items()}, path)
    return path


def _write_i3d(path: Path) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        save_file(create_backbone("i3d", per_frame_features=False).state_dict(), path)
    return path
