"""Weights that are saved at chosen epochs can be evaluated by the epoch."""

import pytest
import torch
from safetensors.torch import load_file
from support.run_comparison import assert_same_weights, load_weights
from support.small_pretrain import small_config, stop_at_step, train

from stillmotion.encoders import load
from stillmotion.encoders.run_weights import list_saved_epochs
from stillmotion.errors import StillmotionError

SAVED_EPOCHS = {"train.save_epochs": (1, 3), "optim.epochs": 3}


def saved_weights(run, epoch):
    return load_file(run / "checkpoints" / f"epoch-{epoch:04d}.safetensors")


def equal_weights(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(small_config(overrides=SAVED_EPOCHS), tmp_path_factory.mktemp("kept") / "run")


def test_the_epochs_that_are_asked_for_are_kept_and_no_others(run):
    assert list_saved_epochs(run) == [1, 3]
    assert equal_weights(saved_weights(run, 3), load_weights(run))
    assert not equal_weights(saved_weights(run, 1), saved_weights(run, 3))


def test_keeping_changes_nothing_of_the_run(run, tmp_path):
    without_saving = train(small_config(overrides=SAVED_EPOCHS | {"train.save_epochs": ()}), tmp_path / "plain")
    assert_same_weights(run, without_saving)
    assert not (without_saving / "checkpoints").exists()


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_run_that_was_stopped_keeps_the_same_weights(run, tmp_path, step):
    folder = tmp_path / "stopped"
    with stop_at_step(step, 6):
        train(small_config(overrides=SAVED_EPOCHS), folder)
    train(small_config(overrides=SAVED_EPOCHS), folder)
    assert all(equal_weights(saved_weights(run, epoch), saved_weights(folder, epoch)) for epoch in (1, 3))


def test_an_epoch_is_named_behind_the_run_and_has_results_of_its_own(run):
    encoder = load(f"{run}@epoch=1,frames=3")
    for name, weight in encoder.backbone.state_dict().items():
        assert torch.equal(weight, saved_weights(run, 1)[f"online.backbone.{name}"]), name
    assert encoder.run_dir == run / "checkpoints" / "epoch-0001"
    assert load(run).run_dir == run
    assert encoder.origin.spec.endswith("@epoch=1,frames=3")


def test_epochs_that_are_not_there_are_named(run):
    with pytest.raises(
        StillmotionError,
        match=r"no saved weights of epoch 2 \(saved epochs: 1, 3\). Train it with --train.save-epochs 2",
    ):
        load(f"{run}@epoch=2")
    with pytest.raises(StillmotionError, match="Option 'epoch' does not apply"):
        load("debug:k400-simclr@epoch=1")
    with pytest.raises(StillmotionError, match="Unknown option 'epoch=0'"):
        load(f"{run}@epoch=0")


def test_epochs_that_are_past_are_named(run, tmp_path, caplog):
    folder = tmp_path / "later"
    train(small_config(overrides=SAVED_EPOCHS | {"train.save_epochs": ()}), folder)
    train(small_config(overrides=SAVED_EPOCHS), folder)
    assert "Epochs 1, 3 of --train.save-epochs are already past" in caplog.text
