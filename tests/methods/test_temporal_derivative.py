"""Forward differences in time: exact on polynomials, as long for every order."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stillmotion.errors import StillmotionError
from stillmotion.methods.views import temporal_derivative

ORDERS = (0, 1, 2)
whole_numbers = st.lists(st.integers(-9, 9), min_size=4, max_size=4)


def polynomial(coefficients, frames):
    """A clip (1, frames, 1, 1) whose only pixel is Σ c_k t^k."""
    values = [sum(c * t**k for k, c in enumerate(coefficients)) for t in range(frames)]
    return torch.tensor(values, dtype=torch.float64).reshape(1, -1, 1, 1)


@given(coefficients=whole_numbers, frames=st.integers(1, 9))
def test_a_derivative_of_a_polynomial_is_that_of_calculus_by_finite_differences(coefficients, frames):
    a, b, c, d = coefficients
    clip = polynomial(coefficients, frames + 2)
    # Δt² = 2t + 1, Δt³ = 3t² + 3t + 1; Δ²t² = 2, Δ²t³ = 6t + 6.
    expected = {0: (a, b, c, d), 1: (b + c + d, 2 * c + 3 * d, 3 * d), 2: (2 * c + 6 * d, 6 * d)}
    for order, change in expected.items():
        assert torch.equal(temporal_derivative(clip, order, num_frames=frames), polynomial(change, frames))


@given(degree=st.integers(0, 2), lead=st.integers(-9, 9), frames=st.integers(1, 6))
def test_the_order_of_the_degree_is_constant_and_the_next_is_zero(degree, lead, frames):
    clip = polynomial([*([3] * degree), lead], frames + 3)
    derivative = temporal_derivative(clip, degree, num_frames=frames)
    assert torch.equal(derivative, torch.full_like(derivative, lead * math.factorial(degree)))
    assert not temporal_derivative(clip, degree + 1, num_frames=frames).any()


@given(seed=st.integers(0, 1000), scale=st.floats(-3, 3))
def test_derivatives_are_linear_and_follow_each_other(seed, scale):
    x, y = torch.randn(2, 2, 3, 7, 2, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for order in ORDERS:
        combined = temporal_derivative(x + scale * y, order, num_frames=5)
        torch.testing.assert_close(
            combined, temporal_derivative(x, order, num_frames=5) + scale * temporal_derivative(y, order, num_frames=5)
        )
    torch.testing.assert_close(
        temporal_derivative(temporal_derivative(x, 1, num_frames=6), 1, num_frames=5),
        temporal_derivative(x, 2, num_frames=5),
    )


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_has_as_many_frames_and_starts_at_the_first(order):
    clip = torch.randn(4, 3, 10, 2, 2)
    derivative = temporal_derivative(clip, order, num_frames=8)
    assert derivative.shape == (4, 3, 8, 2, 2)
    first = sum((-1) ** (order - i) * math.comb(order, i) * clip[:, :, i] for i in range(order + 1))
    torch.testing.assert_close(derivative[:, :, 0], first)


@pytest.mark.parametrize("order", ORDERS)
def test_a_gradient_passes_through(order):
    clip = torch.randn(1, 4, 1, 1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: temporal_derivative(x, order, num_frames=2), clip)


def test_a_clip_that_is_too_short_is_named():
    with pytest.raises(StillmotionError, match="8 frames of the derivative of order 2 need a clip of 10 frames, got 9"):
        temporal_derivative(torch.zeros(3, 9, 2, 2), 2, num_frames=8)
