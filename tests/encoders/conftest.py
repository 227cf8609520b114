from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import save_file
from support import small_detect, small_finetune, small_pretrain
from support.class_videos import write_class_folders
from support.reference_networks import save_checkpoint
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
    """Specs of an encoder of every kind: small runs of five verbs, a recipe, and three external models."""
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
    save_checkpoint("dino", root / "dino.pth")
    save_file(create_backbone("i3d", per_frame_features=False).state_dict(), root / "i3d.safetensors")
    return {kind: str(folder) for kind, folder in runs.items()} | {
        "recipe": "debug:k400-bod-simclr",
        "transformers": str(save_model("dinov2", root / "dinov2")),
        "dino": f"dino:{root / 'dino.pth'}",
        "i3d": f"i3d:{root / 'i3d.safetensors'}@frames=24,size=32",
    }


@pytest.fixture(scope="session")
def class_videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two classes of three videos."""
    return write_class_folders(tmp_path_factory.mktemp("videos") / "set", videos_per_class=3)


def _transfer_run(output_dir: Path) -> Path:
    config = get_recipe("dinov2-b16", verb="transfer", debug=True)
    synthetic = replace(config.data.synthetic, num_videos=2, image_size=24, num_frames=8)
    data = replace(config.data, image_size=24, synthetic=synthetic)
    return transfer(replace(config, data=data, optim=replace(config.optim, batch_size=2, epochs=1)), output_dir)


def _segment_run(output_dir: Path, encoder: Path) -> Path:
    config = get_recipe("breakfast", verb="segment", debug=True)
    lengths = {"actions_per_video": (2, 2), "frames_per_action": (4, 4)}
    videos = SyntheticUntrimmedConfig(num_train=2, num_test=1, appearance=SyntheticConfig(image_size=16), **lengths)
    config = replace(
        config,
        encoder=str(encoder),
        data=replace(config.data, synthetic=videos),
        head=MSTCNConfig(num_stages=1, num_layers=1, hidden_dim=4),
        optim=replace(config.optim, batch_size=2, epochs=1),
    )
    segment(config, output_dir)
    return output_dir
