"""A run that is marked as trained has weights, even if its checkpoint files were damaged."""

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support.cached_run import cached_run
from support.run_comparison import assert_same_weights, load_weights

from stillmotion.errors import StillmotionError
from stillmotion.training import checkpoint
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.tasks import get_recipe
from stillmotion.utils.typed_config import apply_overrides

NAME = "debug:k400-bod-simclr"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(cached_run(NAME), tmp_path / "run"))


def weights_equal_state(run: Path) -> bool:
    state = checkpoint.load_training_state(run)
    weights = load_weights(run)
    return state is not None and all(torch.equal(weights[name], value) for name, value in state["model"].items())


@pytest.mark.parametrize("damage", ["missing", "torn", "of another step"])
def test_a_finished_run_whose_weights_are_lost_writes_them_again(
    run: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = run / checkpoint.WEIGHTS_FILE
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(content[: len(content) // 2] if damage == "torn" else content[:-4] + b"\0\0\0\0")
    pretrain(get_recipe(NAME), run)
    assert file.read_bytes() == content
    assert weights_equal_state(run)
    assert "restored from training_state.pt" in caplog.text


def test_weights_come_before_the_state_that_speaks_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write = checkpoint.files.write_atomic

    def recording_write(file: Path, do: Any, **options: Any) -> None:
        written.append(file.name)
        write(file, do, **options)

    monkeypatch.setattr(checkpoint.files, "write_atomic", recording_write)
    checkpoint.save_checkpoint(tmp_path, torch.nn.Linear(2, 2), {"step": 1})
    assert written == [checkpoint.WEIGHTS_FILE, checkpoint.STATE_FILE]


def test_a_full_disk_is_one_line_with_the_free_space_and_the_run_goes_on_with_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = apply_overrides(get_recipe(NAME), {"train.num_threads": 1})
    save, saves_left = torch.save, 1

    def full(state: Any, file: Path) -> None:
        nonlocal saves_left
        saves_left -= 1
        if saves_left < 0:
            file.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        save(state, file)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(
            StillmotionError, match=r"cannot write .*training_state.pt: No space left on device \(.* MiB free\)"
        ):
            pretrain(config, tmp_path / "run")
    assert not list((tmp_path / "run").glob(".*part*"))
    pretrain(config, tmp_path / "run")
    assert_same_weights(tmp_path / "run", cached_run(NAME))
