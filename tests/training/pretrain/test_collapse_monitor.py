"""What is logged of a method's health, and that asking for it changes nothing."""

import copy
import math

import pytest
import torch
from support import gloo
from support.tiny_method import OBJECTIVES, tiny_clips, tiny_method

from stillmotion.functional import koopman
from stillmotion.training.pretrain.collapse_monitor import CollapseMonitor, embedding_stats

LABELS = {"class": torch.tensor([0, 1, 0, -1])}


def numbers(of=None):
    """Of the joined batch, or of a rank's share of it; without batch norm, whose statistics are each rank's own."""
    found = {}
    for objective in ("simclr", "byol", "vicreg"):
        clips, labels = tiny_clips(), LABELS["class"]
        if of is not None:
            clips, labels = clips.chunk(2)[of], labels.chunk(2)[of]
        found[objective] = embedding_stats(tiny_method(objective, norm=False).eval(), clips, {"class": labels})
    return found


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("how", ["none", "slow", "eig"])
def test_asking_moves_no_weight_no_statistic_and_no_generator(objective, how):
    method = tiny_method(objective, how).train()
    before, draws = copy.deepcopy(method.state_dict()), torch.get_rng_state()
    found = embedding_stats(method, tiny_clips(), LABELS)
    torch.testing.assert_close(method.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), draws)
    assert all(p.grad is None for p in method.parameters())
    assert all(math.isfinite(value) for value in found.values())
    assert ("health/whole/effective_rank" in found) == (how == "none")


def test_halves_are_told_by_their_own_numbers():
    method, clips = tiny_method("simclr", norm=False).eval(), tiny_clips()
    found = embedding_stats(method, clips, LABELS)
    frames = method.embed_clips(clips.flatten(0, 1)).detach().requires_grad_()
    static, dynamic = koopman.decompose(frames.detach(), radius=0.3)
    loss = method.objectives["static"](method.decompose(frames)["static"].unflatten(0, (4, 2)))
    (slope,) = torch.autograd.grad(loss, frames)
    assert found["health/static/loss_grad_norm"] == pytest.approx(float(slope.norm()), rel=1e-5)
    assert found["health/dynamic/embedding_norm"] == pytest.approx(float(dynamic.norm(dim=1).mean()), rel=1e-5)
    units = torch.nn.functional.normalize(static, dim=1)
    spread = units.std(0, correction=0).square().sum().sqrt()
    assert found["health/static/embedding_std"] == pytest.approx(float(spread), rel=1e-5)
    inside = (koopman.eigenvalues(frames.detach(), ridge=1e-3) - 1).abs() < 0.3
    assert found["health/static_eigenvalue_fraction"] == pytest.approx(float(inside.double().mean()))


def test_strangers_are_asked_for_the_keys_of_another_video():
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
    clips[2] = clips[0] + 1e-3 * clips[2]  # the same video under another number, and the same class
    clips[1] = clips[3] + 1e-3 * clips[1]  # of which one has no label
    found = embedding_stats(tiny_method("simclr", "none", norm=False).eval(), clips, LABELS)
    assert found["health/whole/batch_knn_accuracy/class"] == 1.0


@pytest.mark.slow
def test_two_ranks_see_what_one_sees_of_the_joined_batch():
    alone = numbers()
    for of_a_rank in gloo.run_on_ranks(numbers):
        for objective, found in of_a_rank.items():
            assert found == pytest.approx(alone[objective], rel=1e-5)


def test_a_collapse_that_lasts_is_told_once():
    watch, low = CollapseMonitor(), {"health/static/embedding_std": 0.01, "health/still_clip_ratio": 0.9}
    high = {"health/static/embedding_std": 0.9, "health/still_clip_ratio": 0.1}
    found = [watch.update(numbers) for numbers in (low, low, high, low, low, low, low, high, low, low, low)]
    assert [len(lines) for lines in found] == [0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0]
    collapsed, still = found[5]
    assert collapsed.startswith("The static embedding has collapsed (embedding_std 0.010")
    assert still.startswith("The dynamic embedding holds little motion: still clips have 0.90 of its norm")
