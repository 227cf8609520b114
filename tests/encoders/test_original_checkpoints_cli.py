"""An original DINO file and a transformers folder of the same weights give the same results."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.class_videos import write_class_folders
from support.reference_networks import save_checkpoint
from support.small_pretrain import single_thread

import stillmotion.cli.main
from stillmotion.models.pretrained.checkpoint_conversion import load_original_checkpoint

pytestmark = pytest.mark.slow

SIZE = "32"


@pytest.fixture(scope="module")
def work_dir(tmp_path_factory):
    """Write the checkpoint file and the folder of one model, and videos."""
    root = tmp_path_factory.mktemp("originals")
    save_checkpoint("dino", root / "dino.pth")
    load_original_checkpoint(root / "dino.pth", "dino").save_pretrained(root / "folder")
    write_class_folders(root / "videos", videos_per_class=4, num_frames=10, image_size=40)
    return root


def specs(work_dir: Path) -> dict[str, str]:
    return {"file": f"dino:{work_dir / 'dino.pth'}", "folder": str(work_dir / "folder")}


def run_command(*words: object) -> None:
    with single_thread():
        stillmotion.cli.main.dispatch([str(word) for word in words])


def read_rows(file: Path):
    return json.loads(file.read_text())


def test_retrieve(work_dir, capsys):
    words = ("--data", work_dir / "videos", "--num-clips", "1", "--protocol", "leave-one-out")
    encoders = [f"{text}@size={SIZE},frames=4" for text in specs(work_dir).values()]
    run_command("retrieve", "--encoder", *encoders, *words)
    rows = [
        line.split()[1:]
        for line in capsys.readouterr().out.splitlines()
        if line.split()[1:2] in (["whole"], ["concat"])
    ]
    assert len(rows) == 4
    assert rows[:2] == rows[2:]


def test_geometry_before_and_after_transfer(work_dir, tmp_path):
    for name, text in specs(work_dir).items():
        words = ("--recipe", "debug:dino-b16", "--encoder", text, "--data.synthetic.num-videos", "4")
        words += ("--data.image-size", SIZE)
        run_command("transfer", *words, "--optim.epochs", "1", "--optim.batch-size", "2", "--out", tmp_path / name)
        words = ("--data", work_dir / "videos", "--num-frames", "3", "--n-resamples", "20", "--image-size", SIZE)
        run_command("geometry", *("--encoder", text, tmp_path / name, *words, "--out", tmp_path / f"{name}.json"))
    first, second = (read_rows(tmp_path / f"{name}.json")["rows"] for name in specs(work_dir))
    assert [*first] == ["frozen", "file"]  # the run and its frozen model are in one group
    for row, other_row in zip(first.values(), second.values(), strict=True):
        for metric, estimate in row["metrics"].items():
            assert estimate == pytest.approx(other_row["metrics"][metric], rel=1e-3)
    weights = [load_file(tmp_path / name / "checkpoint.safetensors") for name in specs(work_dir)]
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], atol=1e-4, rtol=1e-3)
