"""C2, C5: a run that says "trained" has weights, whatever befell its two files."""

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from debug_run import debug_run
from safetensors.torch import load_file

from stillmotion.errors import StillmotionError
from stillmotion.recipes import recipe
from stillmotion.study.overrides import overridden
from stillmotion.tasks.pretrain import pretrain
from stillmotion.train import checkpoint

NAME = "debug-bod-simclr"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(debug_run(NAME), tmp_path / "run"))


def same_as_state(run: Path) -> bool:
    state = checkpoint.load_state(run)
    found = load_file(run / checkpoint.WEIGHTS)
    return state is not None and all(torch.equal(found[name], value) for name, value in state["module"].items())


@pytest.mark.parametrize("damage", ["missing", "torn", "of another step"])
def test_a_finished_run_whose_weights_are_lost_writes_them_again(
    run: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / checkpoint.WEIGHTS
    whole = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(whole[: len(whole) // 2] if damage == "torn" else whole[:-4] + b"\0\0\0\0")
    pretrain(recipe(NAME), run)
    assert file.read_bytes() == whole
    assert same_as_state(run)
    assert "written again from state.pt" in capsys.readouterr().err


def test_weights_come_before_the_state_that_speaks_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write = checkpoint.files.write

    def noted(file: Path, do: Any, **options: Any) -> None:
        written.append(file.name)
        write(file, do, **options)

    monkeypatch.setattr(checkpoint.files, "write", noted)
    checkpoint.save(tmp_path, torch.nn.Linear(2, 2), {"step": 1})
    assert written == [checkpoint.WEIGHTS, checkpoint.STATE]


def test_a_full_disk_is_one_line_with_the_free_space_and_the_run_goes_on_with_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = overridden(recipe(NAME), {"train.threads": 1})
    save, left = torch.save, 1

    def full(state: Any, file: Path) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            file.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        save(state, file)

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", full)
        with pytest.raises(StillmotionError, match=r"cannot write .*state.pt: No space left on device \(.* MiB free\)"):
            pretrain(config, tmp_path / "run")
    assert not list((tmp_path / "run").glob(".*part*"))
    pretrain(config, tmp_path / "run")
    whole = load_file(debug_run(NAME) / checkpoint.WEIGHTS)
    found = load_file(tmp_path / "run" / checkpoint.WEIGHTS)
    assert all(torch.equal(found[name], value) for name, value in whole.items())
