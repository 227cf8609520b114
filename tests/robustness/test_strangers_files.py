"""Untrusted files are refused with one line before they take memory or time."""

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from support.tiny_transformers import save_model

from stillmotion.encoders import load
from stillmotion.errors import StillmotionError
from stillmotion.models.pretrained.weight_loading import read_state_dict


def check_refused(spec: str | Path, match: str) -> None:
    with pytest.raises(StillmotionError, match=match) as caught:
        load(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["model", "other"])
def test_a_checkpoint_that_holds_itself(key: str, tmp_path: Path) -> None:
    content: dict[str, Any] = {}
    content[key] = content
    torch.save(content, tmp_path / "ring.pt")
    check_refused(tmp_path / "ring.pt", r"ring\.pt")
    with pytest.raises(StillmotionError, match=r"ring\.pt holds no named tensors"):
        read_state_dict(tmp_path / "ring.pt")


def test_a_checkpoint_of_many_paths_to_few_entries(tmp_path: Path) -> None:
    content: dict[str, Any] = {}
    for _ in range(40):
        content = {"a": content, "b": content}
    torch.save(content, tmp_path / "many.pt")
    check_refused(tmp_path / "many.pt", r"many\.pt holds too many nested entries")


def test_a_config_of_nested_brackets(tmp_path: Path) -> None:
    folder = save_model("dinov2", tmp_path / "model")
    (folder / "config.json").write_text("[" * 200_000)
    check_refused(folder, "model")


def test_a_pipe_as_config(tmp_path: Path) -> None:
    folder = save_model("dinov2", tmp_path / "model")
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    check_refused(folder, "model")


@pytest.mark.parametrize(
    ("field", "value"), [("hidden_size", 10**9), ("num_hidden_layers", 10**6), ("image_size", 10**9)]
)
def test_a_config_of_a_giant_network(field: str, value: int, tmp_path: Path) -> None:
    folder = save_model("dinov2", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text()) | {field: value}
    (folder / "config.json").write_text(json.dumps(config))
    check_refused(folder, rf"config\.json has {field} {value}; at most")


def test_an_archive_that_unpacks_to_gigabytes(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("bomb/constants.pkl", b"")
        opened.writestr("bomb/data.pkl", b"")
        opened.writestr("bomb/data/0", bytes(2**29))
    check_refused(tmp_path / "bomb.pt", r"bomb\.pt has .*, but its content claims")


def test_a_tensor_of_repeated_values(tmp_path: Path) -> None:
    tensors = {"patch_embed.proj.weight": torch.zeros(1).expand(10**9, 3, 16, 16), "norm.weight": torch.zeros(3)}
    torch.save(tensors, tmp_path / "wide.pth")
    check_refused(f"dino:{tmp_path / 'wide.pth'}", r"wide\.pth has .*, but its tensor patch_embed.proj.weight claims")


def test_a_checkpoint_that_numbers_a_million_layers(tmp_path: Path) -> None:
    block = {"norm1.weight": (8,), "mlp.fc1.weight": (16, 8)}
    tensors = {"patch_embed.proj.weight": torch.zeros(8, 3, 4, 4), "pos_embed": torch.zeros(1, 5, 8)}
    tensors |= {f"blocks.999999.{name}": torch.zeros(shape) for name, shape in block.items()}
    torch.save(tensors, tmp_path / "deep.pth")
    check_refused(f"dino:{tmp_path / 'deep.pth'}", "it numbers 1000000 layers but has only 4 tensors")
