"""A training step does not synchronize with its device, except for steps that are logged."""

from pathlib import Path

import pytest
import torch
from support.small_pretrain import single_thread, small_config
from torch.utils._python_dispatch import TorchDispatchMode

from stillmotion.methods.simclr import SimCLR
from stillmotion.training.pretrain.task import PretrainTrainer
from stillmotion.training.run_log import RunLog

# Operations that wait for the device: they return a number, or a shape that depends on numbers.
_aten = torch.ops.aten
SYNC_OPS = {
    _aten._local_scalar_dense,
    _aten.equal,
    _aten.is_nonzero,
    _aten.nonzero,
    _aten.masked_select,
    _aten._unique2,
    _aten.unique_dim,
}
NUM_FIRST_STEPS = 3  # steps whose metrics are checked at once


class SyncRecorder(TorchDispatchMode):
    """Records operations that would wait for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function._overloadpacket in SYNC_OPS:
            self.syncs.append(str(function))
        return function(*args, **(kwargs or {}))


def syncs_in_step(name: str, folder: Path) -> list[str]:
    """Return the synchronizations of a step that is neither among the first ones nor logged."""
    changes = {"train.log_every_steps": 100, "optim.epochs": 4, "train.checkpoint_every_steps": 100}
    with single_thread(), RunLog(folder, total_steps=8, enabled=False) as log:
        run = PretrainTrainer(small_config(name, changes), folder, torch.device("cpu"))
        batches = run.loader.iter_epoch(0)
        run.global_step = NUM_FIRST_STEPS  # as if the first steps, whose metrics are checked, were done
        with SyncRecorder() as recorder:
            run.train_step(batches, 0, log)
    return recorder.syncs


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
    assert syncs_in_step(name, tmp_path) == []


def test_a_synchronization_in_a_step_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = SimCLR.forward

    def forward_with_sync(self, z, keys=None):
        result = forward(self, z, keys)
        assert result.item() > 0
        return result

    monkeypatch.setattr(SimCLR, "forward", forward_with_sync)
    assert syncs_in_step("debug:k400-bod-simclr", tmp_path)
