"""The README's Python runs as it stands."""

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.cached_run import cached_run

import stillmotion
from stillmotion.data.video.writer import write_mp4

PAGE = (Path(__file__).parents[2] / "README.md").read_text()


def block(first_line: str) -> str:
    """The indented code that begins with this line."""
    (found,) = re.findall(rf"^    {re.escape(first_line)}\n(?:(?:    .*)?\n)*", PAGE, re.M)
    return textwrap.dedent(found)


def test_three_lines_from_files_to_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (24, 32, 40, 3), np.uint8)
    for name in ("a.mp4", "b.mp4"):
        write_mp4(tmp_path / name, pixels, size=(32, 40), fps=8, gop_size=8)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(cached_run("k400-bod-simclr"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(block("import stillmotion"), names)
    assert names["whole"].shape == names["static"].shape == names["dynamic"].shape == (2, 32)
    assert isinstance(names["encoder"], stillmotion.Encoder)


def test_the_training_loop_moves_the_network() -> None:
    code = block("import torch")
    assert len([line for line in code.splitlines() if line.strip()]) <= 11
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(2), torch.nn.LazyLinear(16))
    moved = torch.nn.Sequential(_FramesFirst(), network)
    loader = [torch.randn(4, 2, 3, 6, 8, 8) for _ in range(3)]
    moved(loader[0].flatten(0, 1))
    before = network[1].weight.detach().clone()
    names = {"network": moved, "loader": loader, "optimizer": torch.optim.SGD(moved.parameters(), lr=0.1)}
    exec(code, names)
    assert torch.isfinite(network[1].weight).all()
    assert (network[1].weight - before).abs().max() > 1e-5


class _FramesFirst(torch.nn.Module):
    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        return clips.transpose(1, 2)
