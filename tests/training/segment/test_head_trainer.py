"""Short training of heads on random features: log files, resuming, and errors."""

from dataclasses import replace

import pytest
import torch
from support.small_pretrain import single_thread
from support.small_segment import HEADS, random_videos, small_config, train_small_head

from stillmotion.errors import NonFiniteError
from stillmotion.training.run_log import load_metrics


@pytest.mark.parametrize("head", HEADS)
def test_every_step_is_written_down(tmp_path, head):
    model = train_small_head(small_config(head), tmp_path)
    assert not model.training
    curves = load_metrics(tmp_path)
    loss_names = {
        "mstcn": {"frame", "smoothing"},
        "fact": {"frame", "smoothing", "token", "frame_to_token", "token_to_frame"},
    }
    assert {*curves} == {*(f"loss/{name}" for name in loss_names[head]), "grad_norm", "lr", "epoch"}
    assert len(curves["lr"]) == 9
    assert curves["epoch"][-1] == (9, 3.0)


def test_a_step_takes_the_mean_gradient_of_its_videos(tmp_path):
    """One step of SGD on two videos changes the weights by the mean of the changes for each video."""
    config = small_config(epochs=1, name="sgd", lr=0.1, max_grad_norm=0.0, warmup_epochs=0.0)
    config = replace(config, head=replace(HEADS["mstcn"], dropout=0.0))
    videos = random_videos(2)
    head = train_small_head(config, tmp_path / "both", videos)
    with single_thread():
        torch.manual_seed(config.train.seed)
        start = config.head.build(6, 3)
        start.standardizer.load_state_dict(head.standardizer.state_dict())
        for features, labels in videos:
            (sum(start.compute_losses(features, labels).values()) / 2).backward()
    for (name, weight), updated in zip(start.named_parameters(), head.parameters(), strict=True):
        # Nesterov's first step is 1.9 times the gradient; the debug recipe has no weight decay.
        torch.testing.assert_close(updated, weight - 0.1 * 1.9 * weight.grad, msg=name)


def test_features_are_standardised_by_the_training_frames(tmp_path):
    head = train_small_head(small_config(epochs=1), tmp_path)
    all_features = torch.cat([video.features for video in random_videos()])
    torch.testing.assert_close(head.standardizer.mean, all_features.mean(0))
    torch.testing.assert_close(head.standardizer.std, all_features.std(0, correction=0))


def test_features_that_are_not_finite_stop_the_run_at_once(tmp_path):
    data = random_videos()
    data[0].features[0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match=r"step 1: .*No checkpoint was written yet"):
        train_small_head(small_config("fact"), tmp_path, data)
