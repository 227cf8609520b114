"""The schedules of derivative views: Algorithm 1 and the rows of Table 6 of the ViDiDi paper."""

from collections import Counter
from itertools import pairwise
from typing import get_args

import pytest
import torch
from support.tiny_method import OBJECTIVES, tiny_clips, tiny_method

from stillmotion.functional.contrastive import byol_loss
from stillmotion.methods.views import DerivativeSchedule, ViewsConfig

STEPS = 400
# Algorithm 1, written out: without (ε ≥ 0.5) and with (ε < 0.5) the additional differentiation.
ALGORITHM_1 = {
    0: {(1, 1), (2, 2)},
    1: {(1, 0), (2, 1)},
    2: {(0, 1), (1, 2)},
    3: {(0, 0), (1, 1)},
    4: {(1, 1), (2, 2)},
    5: {(1, 0), (2, 1)},
    6: {(0, 1), (1, 2)},
    7: {(0, 0), (1, 1)},
}
ANY_1 = {(i, j) for i in (0, 1) for j in (0, 1)}
ANY_2 = {(i, j) for i in (0, 1, 2) for j in (0, 1, 2)}
# Table 6: pairs of orders that a batch may have, by epoch.
TABLE_6 = {
    "base": [{(0, 0)}],
    "random-1st": [ANY_1],
    "random-1st-2nd": [ANY_2],
    "reversed": [ALGORITHM_1[3], ALGORITHM_1[2], ALGORITHM_1[1], ALGORITHM_1[0]],
    "schedule-1st": [{(1, 1)}, {(0, 0)}],
    "schedule-1st-mix": [{(1, 1)}, {(1, 0)}, {(0, 0)}],
    "schedule-1st-2nd": [{(1, 1), (2, 2)}, {(0, 0), (1, 1)}],
    "schedule-1st-2nd-mix": [{(1, 1), (2, 2)}, {(1, 0), (2, 1)}, {(0, 0), (1, 1)}],
    "full": [ALGORITHM_1[epoch] for epoch in range(4)],
}


def draw_epoch(schedule, epoch, *, seed=0):
    views = ViewsConfig(schedule).build()
    return [views.draw_orders(seed=seed, epoch=epoch, step=step) for step in range(STEPS)]


def test_algorithm_1_is_replayed_for_eight_epochs():
    for epoch, expected in ALGORITHM_1.items():
        orders = draw_epoch("full", epoch)
        assert set(orders) == expected
        without_difference, _ = sorted(expected)
        # p = 0.5: five standard deviations of 400 draws are 0.125.
        assert abs(orders.count(without_difference) / STEPS - 0.5) < 0.125
    pairs = {pair for epoch in range(8) for pair in draw_epoch("full", epoch)}
    assert pairs == {(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2)}  # the seven pairs of §2.2


@pytest.mark.parametrize("schedule", TABLE_6)
def test_every_row_of_table_6_shows_what_it_says(schedule):
    rows = TABLE_6[schedule]
    for epoch in range(8):
        orders, expected = draw_epoch(schedule, epoch), rows[epoch % len(rows)]
        counts = Counter(orders)
        assert set(counts) == expected
        assert all(abs(n / STEPS - 1 / len(expected)) < 0.125 for n in counts.values())


def test_table_6_is_complete_and_turns_are_our_own():
    assert set(get_args(DerivativeSchedule)) - set(TABLE_6) == {"alternate"}


def test_turns_show_frames_and_first_derivatives_one_after_the_other():
    firsts = set()
    for epoch in range(8):
        orders = draw_epoch("alternate", epoch)
        assert orders[0] in {(0, 0), (1, 1)}
        assert all({a, b} == {(0, 0), (1, 1)} for a, b in pairwise(orders))
        assert orders == draw_epoch("alternate", epoch)
        firsts.add(orders[0])
    assert len(firsts) == 2  # an epoch may begin with either


def test_orders_depend_on_seed_epoch_and_step_alone_and_on_each():
    views = ViewsConfig("full").build()
    torch.manual_seed(1)
    first = draw_epoch("full", 0)
    torch.manual_seed(2)
    assert draw_epoch("full", 0) == first
    assert draw_epoch("full", 0, seed=1) != first
    assert draw_epoch("full", 4) != first
    assert views.draw_orders(seed=0, epoch=0, step=7) == first[7]


def test_only_derivatives_ask_for_more_frames_and_all_for_two():
    assert {name: ViewsConfig(name).extra_frames for name in TABLE_6} == {
        name: 2 * (name != "base") for name in TABLE_6
    }


def test_base_hands_clips_on_untouched():
    clips = tiny_clips()
    assert ViewsConfig().build()(clips, (0, 0)) is clips


def check_sides_take_turns_among_the_clips_of_a_video(v, orders):
    clips = tiny_clips(num_views=v, num_frames=7)
    views = ViewsConfig("full").build()(clips, orders)
    assert views.shape == (4, v, 3, 5, 6, 6)
    for i in range(v):
        t = [clips[:, i, :, k : k + 5] for k in range(3)]
        expected = (t[0], t[1] - t[0], t[2] - 2 * t[1] + t[0])[orders[i % 2]]
        torch.testing.assert_close(views[:, i], expected)


def test_sides_take_turns_among_the_clips_of_a_video():
    for v in [2, 3, 4]:
        for orders in sorted(ANY_2):
            check_sides_take_turns_among_the_clips_of_a_video(v, orders)


def check_any_objective_and_split_learns_from_any_pair_even_where_nothing_moves(objective, decomposition, is_still):
    clips = tiny_clips(num_frames=7)
    if is_still:
        clips = clips[..., :1, :, :].expand_as(clips)
    for orders in ((1, 0), (1, 2), (2, 2)):
        method = tiny_method(objective, decomposition).train()
        losses = method(ViewsConfig("full").build()(clips, orders), level="both").losses
        sum(losses.values()).backward()
        assert all(loss.isfinite() for loss in losses.values())
        assert all(w.grad.isfinite().all() for w in method.trainable_parameters().values())


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_any_objective_and_split_learns_from_any_pair_even_where_nothing_moves(objective):
    for decomposition in ["none", "slow", "eig"]:
        for is_still in [False, True]:
            check_any_objective_and_split_learns_from_any_pair_even_where_nothing_moves(
                objective, decomposition, is_still
            )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_sides_apart_are_two_passes_of_one_network(objective):
    clips = tiny_clips()
    clips[:, 1] *= 3  # a side of another scale, which a joint norm would see
    method = tiny_method(objective, "none", batch_norm="separate").train()
    network = method.target or method.online
    separate = [network.project(network.backbone(side).mean(1)) for side in clips.unbind(1)]
    if method.target is not None:
        torch.testing.assert_close(method._momentum_embeddings(clips)["whole"], torch.stack(separate, 1))
    loss = method(clips).losses["whole"]
    z = torch.stack([method.online.project(method.online.backbone(side).mean(1)) for side in clips.unbind(1)], 1)
    keys = None if method.target is None else torch.stack(separate, 1)
    if objective == "byol":
        predictor = method.objectives["whole"].predictor
        expected = byol_loss(torch.stack([predictor(side) for side in z.unbind(1)], 1), keys)
    else:
        expected = method.objectives["whole"](z, keys)
    torch.testing.assert_close(loss, expected)
    assert not torch.allclose(loss, tiny_method(objective, "none").train()(clips).losses["whole"])
