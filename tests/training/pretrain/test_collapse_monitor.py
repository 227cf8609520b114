"""Embedding statistics and collapse warnings; computing them does not change the method."""

import copy
import math

import pytest
import torch
from support import gloo
from support.tiny_method import OBJECTIVES, tiny_clips, tiny_method

from stillmotion.functional import koopman
from stillmotion.training.pretrain.collapse_monitor import CollapseMonitor, embedding_stats

LABELS = {"class": torch.tensor([0, 1, 0, -1])}


def stats_by_objective(rank=None):
    """Return the statistics on a rank's share of the batch, or on all of it; without batch norm, which is per rank."""
    stats = {}
    for objective in ("simclr", "byol", "vicreg"):
        clips, labels = tiny_clips(), LABELS["class"]
        if rank is not None:
            clips, labels = clips.chunk(2)[rank], labels.chunk(2)[rank]
        stats[objective] = embedding_stats(tiny_method(objective, norm=False).eval(), clips, {"class": labels})
    return stats


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("decomposition", ["none", "slow", "eig"])
def test_embedding_stats_change_no_weight_no_statistic_and_no_generator(objective, decomposition):
    method = tiny_method(objective, decomposition).train()
    before, draws = copy.deepcopy(method.state_dict()), torch.get_rng_state()
    stats = embedding_stats(method, tiny_clips(), LABELS)
    torch.testing.assert_close(method.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), draws)
    assert all(p.grad is None for p in method.parameters())
    assert all(math.isfinite(value) for value in stats.values())
    assert ("health/whole/effective_rank" in stats) == (decomposition == "none")


def test_each_component_has_its_own_statistics():
    method, clips = tiny_method("simclr", norm=False).eval(), tiny_clips()
    stats = embedding_stats(method, clips, LABELS)
    frames = method.embed_clips(clips.flatten(0, 1)).detach().requires_grad_()
    static, dynamic = koopman.decompose(frames.detach(), radius=0.3)
    loss = method.objectives["static"](method.decompose(frames)["static"].unflatten(0, (4, 2)))
    (gradient,) = torch.autograd.grad(loss, frames)
    assert stats["health/static/loss_grad_norm"] == pytest.approx(float(gradient.norm()), rel=1e-5)
    assert stats["health/dynamic/embedding_norm"] == pytest.approx(float(dynamic.norm(dim=1).mean()), rel=1e-5)
    units = torch.nn.functional.normalize(static, dim=1)
    spread = units.std(0, correction=0).square().sum().sqrt()
    assert stats["health/static/embedding_std"] == pytest.approx(float(spread), rel=1e-5)
    is_static = (koopman.eigenvalues(frames.detach(), ridge=1e-3) - 1).abs() < 0.3
    assert stats["health/static_eigenvalue_fraction"] == pytest.approx(float(is_static.double().mean()))


def test_the_shuffled_key_loss_uses_keys_of_another_video():
    method, clips = tiny_method("byol", norm=False).eval(), tiny_clips()
    losses = method(clips)
    z = method.decompose(method.embed_clips(clips.flatten(0, 1)).detach())["dynamic"].unflatten(0, (4, 2))
    expected = method.objectives["dynamic"](z, losses.keys["dynamic"][[3, 0, 1, 2]])
    assert embedding_stats(method, clips)["health/dynamic/shuffled_key_loss"] == pytest.approx(
        expected.item(), rel=1e-5
    )
    assert not any("shuffled_key_loss" in name for name in embedding_stats(tiny_method("simclr"), clips))


def test_still_clips_have_no_dynamic_component():
    clips = tiny_clips(num_frames=1).expand(-1, -1, -1, 5, -1, -1)
    stats = embedding_stats(tiny_method("simclr", norm=False).eval(), clips)
    assert stats["health/still_clip_ratio"] == 0


def test_the_nearest_clip_is_of_another_video():
    clips = tiny_clips()
    clips[2] = clips[0] + 1e-3 * clips[2]  # nearly the same video, with another number and the same class
    clips[1] = clips[3] + 1e-3 * clips[1]  # nearly the same video; one of them has no label
    stats = embedding_stats(tiny_method("simclr", "none", norm=False).eval(), clips, LABELS)
    assert stats["health/whole/batch_knn_accuracy/class"] == 1.0


@pytest.mark.slow
def test_two_ranks_see_what_one_sees_of_the_joined_batch():
    expected = stats_by_objective()
    for stats_of_rank in gloo.run_on_ranks(stats_by_objective):
        for objective, stats in stats_of_rank.items():
            assert stats == pytest.approx(expected[objective], rel=1e-5)


def test_a_lasting_collapse_is_reported_once():
    monitor, low = CollapseMonitor(), {"health/static/embedding_std": 0.01, "health/still_clip_ratio": 0.9}
    high = {"health/static/embedding_std": 0.9, "health/still_clip_ratio": 0.1}
    warnings = [monitor.update(metrics) for metrics in (low, low, high, low, low, low, low, high, low, low, low)]
    assert [len(lines) for lines in warnings] == [0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0]
    collapsed, still = warnings[5]
    assert collapsed.startswith("The static embedding has collapsed (embedding_std 0.010")
    assert still.startswith("The dynamic embedding holds little motion: still clips have 0.90 of its norm")
