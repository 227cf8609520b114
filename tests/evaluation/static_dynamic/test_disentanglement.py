"""Swap and DCI scores."""

import math

import numpy as np
import pytest
from support.cached_run import cached_run

from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.encoders import load
from stillmotion.evaluation.static_dynamic.disentanglement import (
    dci_from_importances,
    evaluate_disentanglement,
    score_disentanglement,
)


def draw_factors(num_videos: int = 600) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.random.Generator]:
    rng = np.random.default_rng(0)
    values = [rng.integers(3, size=num_videos) for _ in range(4)]
    return {"color": values[0], "shape": values[1]}, {"light": values[2], "path": values[3]}, rng


def one_hot(factors: dict[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    columns = np.hstack([np.eye(3)[values] for values in factors.values()])
    return columns + rng.normal(0, 0.05, columns.shape)


def test_separate_components_score_high() -> None:
    static, dynamic, rng = draw_factors()
    scores = score_disentanglement(one_hot(static, rng), one_hot(dynamic, rng), static, dynamic)
    assert scores.informativeness > 0.99
    assert min(scores.static_swap, scores.dynamic_swap) > 0.99


def test_components_that_both_hold_everything_swap_at_chance() -> None:
    static, dynamic, rng = draw_factors()
    everything = one_hot(static | dynamic, rng)
    scores = score_disentanglement(everything, everything, static, dynamic)
    assert scores.informativeness > 0.9
    assert scores.static_swap == pytest.approx(0.5, abs=0.1)
    assert scores.dynamic_swap == pytest.approx(0.5, abs=0.1)
    separate = score_disentanglement(one_hot(static, rng), one_hot(dynamic, rng), static, dynamic)
    assert separate.disentanglement > scores.disentanglement + 0.1


def test_exchanged_components_are_seen_as_the_other_video() -> None:
    static, dynamic, rng = draw_factors()
    scores = score_disentanglement(one_hot(dynamic, rng), one_hot(static, rng), static, dynamic)
    assert max(scores.static_swap, scores.dynamic_swap) < 0.01


def test_dci_is_that_of_its_definition() -> None:
    importances = np.array([[0.5, 0.1, 0.0], [0.2, 0.2, 0.2], [0.0, 0.0, 0.8], [0.0, 0.0, 0.0]])

    def literal(rows: list[list[float]]) -> float:
        total, score = sum(map(sum, rows)), 0.0
        for row in rows:
            shares = [x / sum(row) for x in row] if sum(row) else []
            score += sum(row) / total * (1 + sum(p * math.log(p, len(row)) for p in shares if p))
        return score

    expected = literal(importances.tolist()), literal(importances.T.tolist())
    assert dci_from_importances(importances) == pytest.approx(expected)
    assert dci_from_importances(np.eye(3)) == pytest.approx((1, 1))
    assert dci_from_importances(np.ones((3, 3))) == pytest.approx((0, 0), abs=1e-9)


def test_an_encoder_is_scored_on_synthetic_videos() -> None:
    encoder = load(cached_run("k400-bod-simclr"))
    scores = evaluate_disentanglement(encoder, SyntheticConfig(num_videos=48, num_frames=16))
    assert all(0 <= score <= 1 for score in vars(scores).values())
    assert scores.informativeness > 0.3
