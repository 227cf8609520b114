"""Gradients in buckets: the mean over ranks, whatever the buckets' size, and sent while the backward pass goes on."""

import pytest
import torch
import torch.distributed as dist
import two_processes
from torch import nn

from stillmotion.optim import reduce
from stillmotion.optim.reduce import mean_gradient

SIZES = (1, 300, 2**20)


def problem():
    """Weights by name, one of which no loss depends on and one of which has another dtype, and a loss of a batch."""
    torch.manual_seed(0)
    layers = [nn.Linear(6, 6).double() for _ in range(4)]
    weights = {f"{i}.{k}": p.detach().requires_grad_() for i, m in enumerate(layers) for k, p in m.named_parameters()}
    weights["unused"] = torch.ones(3, dtype=torch.float64, requires_grad=True)
    weights["scale"] = torch.ones(6, dtype=torch.float32, requires_grad=True)

    def loss(batch):
        for i in range(4):
            batch = torch.tanh(batch @ weights[f"{i}.weight"].mT + weights[f"{i}.bias"])
        return (batch * weights["scale"]).square().mean()

    return weights, loss, torch.randn(8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def on_a_rank(rank):
    found = {}
    for size in SIZES:
        weights, loss, batch = problem()
        found[size] = mean_gradient(loss(batch[4 * rank : 4 * rank + 4]), weights, bucket=size)
    weights, loss, batch = problem()
    kept = mean_gradient(loss(batch[4 * rank : 4 * rank + 4]), weights, own=frozenset({"scale"}))["scale"]
    return found, kept, sent_before_the_end(rank)


def sent_before_the_end(rank):
    """How many of the gradients had come when the first bucket was sent."""
    weights, loss, batch = problem()
    seen = []
    send = reduce._Buckets._send

    def watched(self):
        seen.append(len(self._came))
        send(self)

    reduce._Buckets._send = watched
    try:
        mean_gradient(loss(batch), weights, bucket=1)
    finally:
        reduce._Buckets._send = send
    return seen


@pytest.fixture(scope="module")
def ranks():
    return two_processes.run(on_a_rank)


@pytest.mark.parametrize("size", SIZES)
def test_the_mean_over_ranks_is_the_gradient_of_the_joined_batch(ranks, size):
    weights, loss, batch = problem()
    wanted = mean_gradient(loss(batch), weights)
    for found, _, _ in ranks:
        assert list(found[size]) == list(weights)
        for name, gradient in found[size].items():
            torch.testing.assert_close(gradient, wanted[name], rtol=1e-6, atol=1e-9)


def test_a_name_of_one_s_own_is_not_averaged(ranks):
    for rank, (_, kept, _) in enumerate(ranks):
        weights, loss, batch = problem()
        assert torch.equal(kept, mean_gradient(loss(batch[4 * rank : 4 * rank + 4]), weights)["scale"])


def test_a_full_bucket_does_not_wait_for_the_others(ranks):
    assert not dist.is_initialized()
    for _, _, seen in ranks:
        assert len(seen) == 10
        assert min(seen) < 3  # gradients at hand when one was sent: not all ten
