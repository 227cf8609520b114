"""Clips whose colours, blur and scale are made on the device, by whole batches."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import two_processes
from safetensors.torch import load_file
from small_run import one_core, small, stopping, trained

from stillmotion.config import Config
from stillmotion.errors import StillmotionError
from stillmotion.recipes import recipe
from stillmotion.tasks import pretrain as module
from stillmotion.train import checkpoint
from stillmotion.train.log import read_metrics

SLOWLY = {"data.augment": "slowfast", "optim.name": "sgd", "optim.lr": 0.01, "optim.lr_batch": 0}


def finishing(where: str) -> Config:
    return small(changes=SLOWLY | {"data.finish": where, "optim.epochs": 2})


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / checkpoint.WEIGHTS)


def on_two(rank: int, folder: str) -> None:
    with one_core():
        module.Pretraining(finishing("device"), Path(folder), torch.device("cpu")).train()


def test_a_run_on_either_setting_learns_from_the_same_clips_up_to_rounding(tmp_path: Path) -> None:
    there, here, auto = (trained(finishing(where), tmp_path / where) for where in ("device", "workers", "auto"))
    torch.testing.assert_close(weights(auto), weights(here), rtol=0, atol=0)  # on a CPU
    losses = [[value for _, value in read_metrics(run)["loss/whole"]] for run in (there, here)]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)
    assert losses[0] != losses[1]


def test_a_stopped_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    config = finishing("device")
    whole = trained(config, tmp_path / "whole")
    with stopping(3, 4):
        trained(config, tmp_path / "stopped")
    again = trained(config, tmp_path / "stopped")
    torch.testing.assert_close(weights(again), weights(whole), rtol=0, atol=0)


def test_two_processes_train_to_the_weights_of_one(tmp_path: Path) -> None:
    two_processes.run(on_two, str(tmp_path / "two"))
    on_two(0, str(tmp_path / "one"))
    torch.testing.assert_close(weights(tmp_path / "two"), weights(tmp_path / "one"), rtol=1e-4, atol=1e-6)


def test_tokens_leave_nothing_to_finish() -> None:
    config = recipe("tokens-simclr")
    with pytest.raises(StillmotionError, match=r"data\.finish is 'device', but tokens_cnn"):
        replace(config, data=replace(config.data, finish="device"))
