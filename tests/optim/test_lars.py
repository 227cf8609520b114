"""LARS against the loop that its header describes."""

import copy

import numpy as np
import pytest
import torch

from stillmotion.optim.lars import LARS


def literal_lars(w, gradients, *, lr, decay, momentum=0.9, trust=1e-3, nesterov=True, adapt=True):
    """Return the weights after each step, one tensor at a time, in NumPy."""
    w, speed = w.astype(np.float64).copy(), np.zeros_like(w, dtype=np.float64)
    for g in gradients:
        step = g + decay * w
        if adapt:
            size, slope = np.sqrt((w**2).sum()), np.sqrt((g**2).sum())
            if size > 0 and slope > 0:
                step = step * trust * size / (slope + decay * size)
        speed = momentum * speed + step
        w = w - lr * (step + momentum * speed if nesterov else speed)
        yield w


def steps(optimizer, parameter, gradients):
    for g in gradients:
        parameter.grad = torch.from_numpy(g.copy())
        optimizer.step()
        yield parameter.detach().numpy().copy()


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("decay", [0.0, 1e-6, 0.3])
def test_lars_is_the_literal_loop(decay, nesterov):
    rng = np.random.default_rng(0)
    start, gradients = rng.standard_normal((4, 3, 2)), [rng.standard_normal((4, 3, 2)) for _ in range(6)]
    p = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = LARS([p], lr=2.5, weight_decay=decay, nesterov=nesterov)
    result = steps(optimizer, p, gradients)
    expected = literal_lars(start, gradients, lr=2.5, decay=decay, nesterov=nesterov)
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_size_of_a_gradient_does_not_matter_but_its_direction_does():
    g = np.random.default_rng(1).standard_normal((3, 5))
    changes = []
    for scale in (1e-3, 1.0, 1e4):
        p = torch.nn.Parameter(torch.ones(3, 5, dtype=torch.float64))
        next(steps(LARS([p], lr=1.0), p, [scale * g]))
        changes.append(p.detach().numpy())
    np.testing.assert_allclose(changes[0], changes[1], rtol=1e-12)
    np.testing.assert_allclose(changes[0], changes[2], rtol=1e-12)


def test_excluded_vectors_take_steps_of_plain_sgd_without_decay():
    rng = np.random.default_rng(2)
    start, gradients = rng.standard_normal(7), [rng.standard_normal(7) for _ in range(4)]
    p = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = LARS([{"params": [p], "use_trust_ratio": False, "weight_decay": 0.0}], lr=0.1, weight_decay=0.5)
    q = torch.nn.Parameter(torch.from_numpy(start.copy()))
    sgd = torch.optim.SGD([q], lr=0.1, momentum=0.9, nesterov=True)
    for a, b in zip(steps(optimizer, p, gradients), steps(sgd, q, gradients), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_weights_or_gradients_of_zero_do_no_harm():
    for start, gradient in ((0.0, 1.0), (1.0, 0.0), (0.0, 0.0)):
        p = torch.nn.Parameter(torch.full((2, 2), start, dtype=torch.float64))
        before = p.detach().clone()
        next(steps(LARS([p], lr=0.1), p, [np.full((2, 2), gradient)]))
        assert p.isfinite().all()
        assert torch.equal(p.detach(), before) == (gradient == 0)


def test_weights_without_a_gradient_rest():
    p, q = (torch.nn.Parameter(torch.ones(2, 2)) for _ in range(2))
    optimizer = LARS([p, q], lr=1.0, weight_decay=0.1)
    p.grad = torch.ones(2, 2)
    optimizer.step()
    assert torch.equal(q, torch.ones(2, 2))
    assert not torch.equal(p, torch.ones(2, 2))


def test_a_saved_optimiser_goes_on_as_the_one_that_was_saved():
    rng = np.random.default_rng(3)
    start, gradients = rng.standard_normal((3, 2)), [rng.standard_normal((3, 2)) for _ in range(4)]
    p = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = LARS([p], lr=0.5)
    *_, halfway = steps(optimizer, p, gradients[:2])
    q = torch.nn.Parameter(torch.from_numpy(halfway))
    resumed = LARS([q], lr=9.0)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for a, b in zip(steps(optimizer, p, gradients[2:]), steps(resumed, q, gradients[2:]), strict=True):
        np.testing.assert_array_equal(a, b)
