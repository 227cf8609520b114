"""No step asks its device for a number, but those that are written down."""

from pathlib import Path

import pytest
import torch
from support.small_pretrain import single_thread, small_config
from torch.utils._python_dispatch import TorchDispatchMode

from stillmotion.methods.simclr import SimCLR
from stillmotion.training.pretrain.task import PretrainTrainer
from stillmotion.training.run_log import RunLog

# What cannot go on before the device has answered: a number, or a shape that depends on numbers.
_aten = torch.ops.aten
ASKING = {
    _aten._local_scalar_dense,
    _aten.equal,
    _aten.is_nonzero,
    _aten.nonzero,
    _aten.masked_select,
    _aten._unique2,
    _aten.unique_dim,
}
FIRST = 3  # steps whose numbers are looked at at once


class Questions(TorchDispatchMode):
    """Counts what would wait for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function._overloadpacket in ASKING:
            self.asked.append(str(function))
        return function(*args, **(kwargs or {}))


def asked(name: str, folder: Path) -> list[str]:
    """What the step after the first ones asks, where none is written down."""
    changes = {"train.log_every_steps": 100, "optim.epochs": 4, "train.checkpoint_every_steps": 100}
    with single_thread(), RunLog(folder, total_steps=8, enabled=False) as log:
        run = PretrainTrainer(small_config(name, changes), folder, torch.device("cpu"))
        batches = run.loader.iter_epoch(0)
        run.global_step = FIRST  # as if they were behind it: nothing of the first steps is looked at
        with Questions() as questions:
            run.train_step(batches, 0, log)
    return questions.asked


@pytest.mark.parametrize(
    "name",
    [
        "debug:k400-bod-simclr",
        "debug:k400-bod-moco",
        "debug:k400-bod-byol",
        "debug:k400-bod-swav",
        "debug:k400-bod-vicreg",
        "debug:k400-bod-simclr-single-level",
        "debug:ucf101-vididi-simclr-r3d_18",
        "debug:k400-bod-simclr-per-frame",
    ],
)
def test_a_step_between_two_lines_of_the_log_asks_for_no_number(name: str, tmp_path: Path) -> None:
    assert asked(name, tmp_path) == []


def test_a_number_that_is_asked_for_in_a_step_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = SimCLR.forward

    def asking(self, z, keys=None):
        result = forward(self, z, keys)
        assert result.item() > 0
        return result

    monkeypatch.setattr(SimCLR, "forward", asking)
    assert asked("debug:k400-bod-simclr", tmp_path)
