"""Theorems 1 and 2 of the transfer paper, trained from random weights on data of known covariance."""

import pytest
import torch

from stillmotion.studies.spectrum.study import (
    measured_margin_gain,
    predicted_eigenvalues,
    predicted_margin_gain,
    sample_pairs,
    shrinkage_factors,
    train_projection,
    transfer_objective,
)

pytestmark = pytest.mark.slow

SCALE = 1e-3
VARIANCES = SCALE * torch.tensor([0.05, 0.3, 0.5, 0.8, 1.0, 1.35, 1.8, 2.2], dtype=torch.float64)


def test_pairs_have_exactly_the_covariance_they_are_made_with():
    pairs = sample_pairs(VARIANCES, num_pairs=60)
    difference = pairs.first - pairs.second
    expected = pairs.basis * VARIANCES @ pairs.basis.T
    torch.testing.assert_close(difference.T @ difference / 60, expected)


@pytest.mark.parametrize("strength", [0.3, 0.6, 1.3])
def test_a_linear_projection_shrinks_directions_as_theorem_1_says(strength):
    """The tolerance is 1e-3, and 0.01 for directions beyond 2λ, where the minimum at zero is flat."""
    pairs = sample_pairs(VARIANCES, num_pairs=100)
    trained = train_projection(pairs, strength * SCALE)
    expected = predicted_eigenvalues(VARIANCES, strength * SCALE)
    result = shrinkage_factors(trained, pairs.basis)
    is_positive = expected > 0
    torch.testing.assert_close(result[is_positive], expected[is_positive], atol=1e-3, rtol=0)
    assert (result[~is_positive] < 0.01).all()
    gram = pairs.basis.T @ trained.T @ trained @ pairs.basis  # W commutes with Σ, so it does not mix directions
    assert (gram - torch.diag(gram.diagonal())).abs().max() < 1e-3


@pytest.mark.parametrize("strength", [0.6, 1.3])
def test_a_two_layer_projection_shrinks_them_alike(strength):
    """The tolerance is 2e-3, because tanh is only approximately linear."""
    pairs = sample_pairs(VARIANCES, num_pairs=60)
    trained = train_projection(pairs, strength * SCALE, num_layers=2)
    result = shrinkage_factors(trained, pairs.basis)
    torch.testing.assert_close(result, predicted_eigenvalues(VARIANCES, strength * SCALE), atol=2e-3, rtol=0)


@pytest.mark.parametrize("strength", [0.2, 0.45, 1.3])
def test_the_margin_grows_as_theorem_2_says(strength):
    """The tolerance is 1e-3 τ, for λ below and above τ/2."""
    pairs = sample_pairs(VARIANCES, num_pairs=100)
    trained = train_projection(pairs, strength * SCALE)
    expected = predicted_margin_gain(VARIANCES, strength * SCALE)
    assert expected > 0
    tau = float(VARIANCES.mean())
    assert measured_margin_gain(trained, pairs) / tau == pytest.approx(expected / tau, abs=1e-3)


def test_the_objective_is_the_papers():
    pairs = sample_pairs(torch.tensor([0.5, 1.0, 2.0]), num_pairs=10)
    w = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    v = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    prediction_errors = [0.5 * float((w @ (a - b)).square().sum()) for a, b in zip(*pairs[:2], strict=True)]
    expected = sum(prediction_errors) / 10 + 0.5 * 0.7 * float((w @ w.T - torch.eye(3)).square().sum())
    assert 0.7 * float(transfer_objective([w], pairs, 0.7)) == pytest.approx(expected)

    def g(z):
        return v @ torch.tanh(w @ z)

    total = 0.0
    for a, b in zip(*pairs[:2], strict=True):
        jacobian = torch.autograd.functional.jacobian(g, a)
        penalty = float((jacobian @ jacobian.T - torch.eye(3)).square().sum())
        total += 0.5 * float((g(a) - g(b)).square().sum()) + 0.35 * penalty
    assert 0.7 * float(transfer_objective([w, v], pairs, 0.7)) == pytest.approx(total / 10)
