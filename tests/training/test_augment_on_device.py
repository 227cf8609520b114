"""Clips whose colours, blur and scale are made on the device, by whole batches."""

from pathlib import Path

import pytest
import torch
from support import gloo
from support.run_comparison import load_weights
from support.small_pretrain import single_thread, small_config, train

from stillmotion.training.pretrain import task as module
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_log import load_metrics

SLOWLY = {"data.augment": "slowfast", "optim.name": "sgd", "optim.lr": 0.01, "optim.lr_batch_size": 0}


def finishing(where: str) -> PretrainConfig:
    return small_config(overrides=SLOWLY | {"data.augment_on": where, "optim.epochs": 2})


def on_two(rank: int, folder: str) -> None:
    with single_thread():
        module.PretrainTrainer(finishing("device"), Path(folder), torch.device("cpu")).train()


def test_a_run_on_either_setting_learns_from_the_same_clips_up_to_rounding(tmp_path: Path) -> None:
    there, here, auto = (train(finishing(where), tmp_path / where) for where in ("device", "workers", "auto"))
    torch.testing.assert_close(load_weights(auto), load_weights(here), rtol=0, atol=0)  # on a CPU
    losses = [[value for _, value in load_metrics(run)["loss/whole"]] for run in (there, here)]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)
    assert losses[0] != losses[1]


@pytest.mark.slow
def test_two_processes_train_to_the_weights_of_one(tmp_path: Path) -> None:
    gloo.run_on_ranks(on_two, str(tmp_path / "two"))
    on_two(0, str(tmp_path / "one"))
    torch.testing.assert_close(load_weights(tmp_path / "two"), load_weights(tmp_path / "one"), rtol=1e-4, atol=1e-6)
