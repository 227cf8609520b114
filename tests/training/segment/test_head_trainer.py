"""Heads trained for a second on made-up features: what is written, resuming, and what stops a run."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.diverging_run import make_lr_infinite_after
from support.small_pretrain import single_thread, stop_at_step

from stillmotion.errors import NonFiniteError, StillmotionError
from stillmotion.models.fact import FACTConfig
from stillmotion.models.mstcn import MSTCNConfig
from stillmotion.training.run_dir import load_config
from stillmotion.training.run_log import load_metrics
from stillmotion.training.segment.config import SegmentConfig, SegmentDataConfig
from stillmotion.training.segment.head_trainer import LabeledFrames, train_head
from stillmotion.training.segment.recipes import SEGMENT_RECIPES
from stillmotion.utils.typed_config import to_dict

SMALL = {
    "mstcn": MSTCNConfig(num_stages=2, num_layers=2, hidden_dim=4),
    "fact": FACTConfig(num_blocks=2, num_layers=2, hidden_dim=4, num_heads=2, num_tokens=4, dropout=0.2),
}
RECIPE = {"mstcn": "breakfast", "fact": "breakfast-fact"}


def small(head="mstcn", *, epochs=3, **optim):
    config = SEGMENT_RECIPES.get(RECIPE[head], debug=True)
    return replace(
        config,
        head=SMALL[head],
        optim=replace(config.optim, batch_size=2, epochs=epochs, **optim),
        train=replace(config.train, checkpoint_every_steps=1, log_every_steps=1),
    )


def videos(count=5, *, seed=0):
    """Of different lengths, so that the last batch of an epoch is smaller."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        labels = np.repeat(rng.permutation(3), 4 + i)
        made.append(
            LabeledFrames(
                torch.tensor(rng.standard_normal((len(labels), 6)) + 9, dtype=torch.float32), torch.tensor(labels)
            )
        )
    return made


def trained(config, folder, data=None):
    with single_thread():
        return train_head(config, folder, torch.device("cpu"), data or videos(), 3)


def assert_same(a, b):
    left, right = (load_file(folder / "checkpoint.safetensors") for folder in (a, b))
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert load_metrics(a) == load_metrics(b)


@pytest.mark.parametrize("head", SMALL)
def test_every_step_is_written_down(tmp_path, head):
    found = trained(small(head), tmp_path)
    assert not found.training
    curves = load_metrics(tmp_path)
    parts = {
        "mstcn": {"frame", "smoothing"},
        "fact": {"frame", "smoothing", "token", "frame_to_token", "token_to_frame"},
    }
    assert {*curves} == {*(f"loss/{part}" for part in parts[head]), "grad_norm", "lr", "epoch"}
    assert len(curves["lr"]) == 9
    assert curves["epoch"][-1] == (9, 3.0)


@pytest.mark.parametrize("stop", [1, 4])
@pytest.mark.parametrize("head", SMALL)
def test_a_stopped_run_resumes_bit_for_bit(tmp_path, head, stop):
    trained(small(head), tmp_path / "whole")

    with stop_at_step(stop, 9):
        trained(small(head), tmp_path / "stopped")
    trained(small(head), tmp_path / "stopped")
    assert_same(tmp_path / "whole", tmp_path / "stopped")


def test_a_step_takes_the_mean_gradient_of_its_videos(tmp_path):
    """With plain descent, one step on two videos moves the weights by the mean of what each alone would."""
    config = small(epochs=1, name="sgd", lr=0.1, max_grad_norm=0.0, warmup_epochs=0.0)
    config = replace(config, head=replace(SMALL["mstcn"], dropout=0.0))
    both = videos(2)
    head = trained(config, tmp_path / "both", both)
    with single_thread():
        torch.manual_seed(config.train.seed)
        start = config.head.build(6, 3)
        start.standardizer.load_state_dict(head.standardizer.state_dict())
        for features, labels in both:
            (sum(start.compute_losses(features, labels).values()) / 2).backward()
    for (name, weight), moved in zip(start.named_parameters(), head.parameters(), strict=True):
        # Nesterov's first step is 1.9 times the gradient; the debug recipe has no weight decay.
        torch.testing.assert_close(moved, weight - 0.1 * 1.9 * weight.grad, msg=name)


def test_features_are_standardised_by_the_training_frames(tmp_path):
    head = trained(small(epochs=1), tmp_path)
    every = torch.cat([video.features for video in videos()])
    torch.testing.assert_close(head.standardizer.mean, every.mean(0))
    torch.testing.assert_close(head.standardizer.std, every.std(0, correction=0))


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_weights(tmp_path, monkeypatch):
    for head in SMALL:
        make_lr_infinite_after(monkeypatch, num_steps=1)
        with pytest.raises(NonFiniteError, match=r"step 2: .*not finite.*Last good checkpoint.*\(step 1\)"):
            trained(small(head, max_grad_norm=0.0), tmp_path / head)


def test_features_that_are_not_finite_stop_the_run_at_once(tmp_path):
    data = videos()
    data[0].features[0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match=r"step 1: .*No checkpoint was written yet"):
        trained(small("fact"), tmp_path, data)


def test_another_run_in_the_folder_is_not_overwritten(tmp_path):
    trained(small(epochs=1), tmp_path)
    with pytest.raises(StillmotionError, match=r"contains a different run .*head\.hidden_dim"):
        trained(replace(small(epochs=1), head=replace(SMALL["mstcn"], hidden_dim=8)), tmp_path)
    with pytest.raises(StillmotionError, match=r"contains a different run .*head\.name"):
        trained(small("fact", epochs=1), tmp_path)


@pytest.mark.parametrize("name", SEGMENT_RECIPES.names())
def test_recipes_are_written_and_read_as_they_are(tmp_path, name):
    config = SEGMENT_RECIPES.get(name)
    (tmp_path / "config.json").write_text(json.dumps(to_dict(config)))
    assert load_config(tmp_path, SegmentConfig) == config
    assert (config.recipe, config.head.name) == (name, "fact" if name.endswith("-fact") else "mstcn")


def test_mistakes_are_named():
    with pytest.raises(StillmotionError, match="did you mean breakfast"):
        SEGMENT_RECIPES.get("brekfast")
    with pytest.raises(StillmotionError, match=r"data\.feature_stride is 0"):
        SegmentDataConfig(feature_stride=0)
    with pytest.raises(StillmotionError, match="in fp32"):
        replace(small(), train=replace(small().train, precision="bf16"))
