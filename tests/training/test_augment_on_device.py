"""Clips whose colours, blur and scale are augmented on the device, in batches."""

from pathlib import Path

import pytest
import torch
from support import gloo
from support.run_comparison import load_weights
from support.small_pretrain import single_thread, small_config, train

from stillmotion.training.pretrain import task as module
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_log import load_metrics

SLOW_LEARNING = {"data.augment": "slowfast", "optim.name": "sgd", "optim.lr": 0.01, "optim.lr_batch_size": 0}


def make_config(augment_on: str) -> PretrainConfig:
    return small_config(overrides=SLOW_LEARNING | {"data.augment_on": augment_on, "optim.epochs": 2})


def train_on_rank(rank: int, folder: str) -> None:
    with single_thread():
        module.PretrainTrainer(make_config("device"), Path(folder), torch.device("cpu")).train()


def test_a_run_on_either_setting_learns_from_the_same_clips_up_to_rounding(tmp_path: Path) -> None:
    device_run, worker_run, auto_run = (
        train(make_config(augment_on), tmp_path / augment_on) for augment_on in ("device", "workers", "auto")
    )
    # "auto" means the workers on a CPU.
    torch.testing.assert_close(load_weights(auto_run), load_weights(worker_run), rtol=0, atol=0)
    losses = [[value for _, value in load_metrics(run)["loss/whole"]] for run in (device_run, worker_run)]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)
    assert losses[0] != losses[1]


@pytest.mark.slow
def test_two_processes_train_to_the_weights_of_one(tmp_path: Path) -> None:
    gloo.run_on_ranks(train_on_rank, str(tmp_path / "two"))
    train_on_rank(0, str(tmp_path / "one"))
    torch.testing.assert_close(load_weights(tmp_path / "two"), load_weights(tmp_path / "one"), rtol=1e-4, atol=1e-6)
