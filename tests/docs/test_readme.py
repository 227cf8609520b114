"""The README is short and plain, its verbs are those of the command line, and its Python runs."""

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.cached_run import cached_run

import stillmotion
from stillmotion.cli.verbs import VERBS
from stillmotion.data.video.writer import write_mp4

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def indented_block(first_line: str) -> str:
    """The indented code block that starts with this line."""
    (code,) = re.findall(rf"^    {re.escape(first_line)}\n(?:(?:    .*)?\n)*", README, re.M)
    return textwrap.dedent(code)


def test_no_sentence_has_more_than_30_words() -> None:
    prose = [line for line in README.splitlines() if not line.startswith(("    ", "#", "|---"))]
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", "\n".join(prose))
    cells = re.sub(r"^[|-].*$", lambda row: "\n\n" + row[0].replace("|", "\n\n") + "\n\n", text, flags=re.M)
    sentences = [s for part in cells.split("\n\n") for s in re.split(r"(?<=[.!?:])\s", part)]
    assert [s for s in sentences if len(s.split()) > 30] == []


def test_the_table_lists_every_verb_in_its_group() -> None:
    rows, group = {}, ""
    for cells in re.findall(r"^\| *(\w*) *\| `([^`]+)` \|", README, re.M):
        group = cells[0] or group
        rows[cells[1]] = group
    assert rows == {name: VERBS[name].group for name in VERBS.builtin}


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", README)
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []


def test_files_become_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (24, 32, 40, 3), np.uint8)
    for name in ("a.mp4", "b.mp4"):
        write_mp4(tmp_path / name, pixels, size=(32, 40), fps=8, gop_size=8)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(cached_run("k400-bod-simclr"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(indented_block("import stillmotion"), names)
    assert names["whole"].shape == names["static"].shape == names["dynamic"].shape == (2, 32)
    assert isinstance(names["encoder"], stillmotion.Encoder)


def test_the_losses_have_gradients() -> None:
    frames = torch.randn(8, 6, 16, requires_grad=True)
    names: dict[str, Any] = {"frames": frames}
    exec(indented_block("from stillmotion.losses import decompose, simclr_loss"), names)
    names["loss"].backward()
    assert frames.grad is not None
    assert frames.grad.abs().max() > 0


def test_the_training_loop_of_the_tutorial_moves_the_network() -> None:
    page = (ROOT / "docs" / "tutorials" / "losses-in-your-loop.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.S)[0]
    torch.manual_seed(0)
    linear = torch.nn.Linear(3 * 8 * 8, 16)

    def network(clips: torch.Tensor) -> torch.Tensor:
        frames: torch.Tensor = linear(clips.transpose(1, 2).flatten(2))
        return frames

    before = linear.weight.detach().clone()
    loader = [torch.randn(4, 2, 3, 6, 8, 8) for _ in range(3)]
    exec(code, {"network": network, "loader": loader, "optimizer": torch.optim.SGD(linear.parameters(), lr=0.1)})
    assert torch.isfinite(linear.weight).all()
    assert (linear.weight - before).abs().max() > 1e-5
