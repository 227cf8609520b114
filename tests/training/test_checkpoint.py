"""training_state.pt and checkpoint.safetensors are written completely or not at all, and never run code."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stillmotion.errors import StillmotionError
from stillmotion.training import checkpoint


class Code:
    """Run by a malicious pickle."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


@pytest.fixture
def module() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv3d(1, 2, 3), torch.nn.BatchNorm3d(2))


def test_both_files_hold_the_weights_and_the_state_all_that_was_given(tmp_path: Path, module: torch.nn.Module) -> None:
    assert checkpoint.load_training_state(tmp_path) is None
    checkpoint.save_checkpoint(
        tmp_path, module, {"step": 7, "failed_videos": {"a": "b"}, "rng_states": [checkpoint.get_rng_state()]}
    )
    state = checkpoint.load_training_state(tmp_path)
    assert state is not None
    assert (state["step"], state["failed_videos"]) == (7, {"a": "b"})
    weights = load_file(tmp_path / checkpoint.WEIGHTS_FILE)
    for result in (weights, state["model"]):
        torch.testing.assert_close(result, dict(module.state_dict()), rtol=0, atol=0)
    assert {file.name for file in tmp_path.iterdir()} == {checkpoint.WEIGHTS_FILE, checkpoint.STATE_FILE}


def test_a_write_that_fails_leaves_the_files_of_before(
    tmp_path: Path, module: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save_checkpoint(tmp_path, module, {"step": 1})
    before = (tmp_path / checkpoint.STATE_FILE).read_bytes()

    def write_partly(state: Any, file: Path) -> None:
        file.write_bytes(before[:100])
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", write_partly)
    with pytest.raises(StillmotionError, match=r"cannot write .*training_state.pt: disk full"):
        checkpoint.save_checkpoint(tmp_path, module, {"step": 2})
    monkeypatch.undo()
    assert (tmp_path / checkpoint.STATE_FILE).read_bytes() == before
    checkpoint.save_checkpoint(tmp_path, module, {"step": 3})
    state = checkpoint.load_training_state(tmp_path)
    assert state is not None
    assert state["step"] == 3


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "ran"
    with (tmp_path / checkpoint.STATE_FILE).open("wb") as file:
        pickle.dump({"step": 1, "module": Code(marker)}, file, protocol)
    with pytest.raises(
        StillmotionError, match=r"state\.pt cannot be read .*could execute code.*delete it to start over"
    ):
        checkpoint.load_training_state(tmp_path)
    torch.save({"step": 1, "module": Code(marker)}, tmp_path / checkpoint.STATE_FILE)
    with pytest.raises(StillmotionError, match="could execute code"):
        checkpoint.load_training_state(tmp_path)
    assert not marker.exists()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_damaged_files_are_one_clear_line(tmp_path: Path, module: torch.nn.Module) -> None:
    checkpoint.save_checkpoint(tmp_path, module, {"step": 1})
    file = tmp_path / checkpoint.STATE_FILE
    content = file.read_bytes()
    for bytes_ in (
        b"",
        b"x",
        b"\x80\x04\x95",
        content[:60],
        content[: len(content) // 2],
        content[:-1],
        b"(lp0\nI1\naR.",
    ):
        file.write_bytes(bytes_)
        with pytest.raises(StillmotionError, match=r"state\.pt cannot be read \(.+\); delete it") as caught:
            checkpoint.load_training_state(tmp_path)
        assert "\n" not in str(caught.value)
        assert "weights_only" not in str(caught.value)


def test_random_generators_go_on_where_they_were(tmp_path: Path, module: torch.nn.Module) -> None:
    checkpoint.save_checkpoint(tmp_path, module, {"rng_states": [checkpoint.get_rng_state()]})
    expected = torch.randn(5)
    torch.randn(100)
    state = checkpoint.load_training_state(tmp_path)
    assert state is not None
    checkpoint.set_rng_state(state["rng_states"][0])
    assert torch.equal(torch.randn(5), expected)
