"""Gradients in buckets are averaged over ranks for any bucket size, and sent during the backward pass."""

from typing import get_args

import pytest
import torch
import torch.distributed as dist
from support import gloo
from support.tiny_method import tiny_clips, tiny_method
from torch import nn

from stillmotion.distributed.collectives import all_reduce_mean_
from stillmotion.models.batch_norm import convert_sync_batchnorm
from stillmotion.optim import bilevel, gradient_allreduce
from stillmotion.optim.bilevel import SolverConfig, SolverName
from stillmotion.optim.gradient_allreduce import all_reduced_gradients
from stillmotion.training.pretrain.batch_gradients import compute_gradients
from stillmotion.training.pretrain.config import PretrainConfig

pytestmark = pytest.mark.slow

SIZES = (1, 300, 2**20)
SOLVERS = get_args(SolverName)


def make_problem():
    """Return weights by name (one unused, one of another dtype), a loss, and a batch."""
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


def run_rank(rank):
    gradients = {}
    for size in SIZES:
        weights, loss, batch = make_problem()
        gradients[size] = all_reduced_gradients(loss(batch[4 * rank : 4 * rank + 4]), weights, bucket_bytes=size)
    weights, loss, batch = make_problem()
    local_gradient = all_reduced_gradients(
        loss(batch[4 * rank : 4 * rank + 4]), weights, local_names=frozenset({"scale"})
    )["scale"]
    return (
        gradients,
        local_gradient,
        num_ready_at_send(rank),
        [gradients_by_solver(rank, reduce) for reduce in (reduce_in_buckets, reduce_after_backward)],
    )


def reduce_in_buckets(loss, weights, *, local_names):
    """Reduce in many small buckets."""
    return all_reduced_gradients(loss, weights, local_names=local_names, bucket_bytes=200)


def reduce_after_backward(loss, weights, *, local_names):
    """Compute the whole gradient, then average it over ranks."""
    grads = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
    gradients = {name: gradient.clone() for name, gradient in zip(weights, grads, strict=True)}
    all_reduce_mean_([gradient for name, gradient in gradients.items() if name not in local_names])
    return gradients


def gradients_by_solver(rank, reduce):
    """Return the gradient of every solver on a rank's half of a batch, averaged over ranks by `reduce`."""
    bilevel.all_reduced_gradients = reduce
    try:
        gradients = {}
        for name in SOLVERS:
            method = tiny_method("simclr").train()
            convert_sync_batchnorm(method)
            config = PretrainConfig(
                method=method.config, solver=SolverConfig(name, inner_lr=0.01, inner_steps=2, solver_iterations=2)
            )
            gradients[name] = compute_gradients(method, tiny_clips(4, 2)[2 * rank : 2 * rank + 2], config)[1]
        return gradients
    finally:
        bilevel.all_reduced_gradients = all_reduced_gradients


def num_ready_at_send(rank):
    """Return the number of gradients that were ready at each send of a bucket."""
    weights, loss, batch = make_problem()
    counts = []
    send = gradient_allreduce._GradientBuckets._send

    def count_ready(self):
        counts.append(len(self._ready))
        send(self)

    gradient_allreduce._GradientBuckets._send = count_ready
    try:
        all_reduced_gradients(loss(batch), weights, bucket_bytes=1)
    finally:
        gradient_allreduce._GradientBuckets._send = send
    return counts


@pytest.fixture(scope="module")
def ranks():
    return gloo.run_on_ranks(run_rank)


@pytest.mark.parametrize("size", SIZES)
def test_the_mean_over_ranks_is_the_gradient_of_the_joined_batch(ranks, size):
    weights, loss, batch = make_problem()
    expected = all_reduced_gradients(loss(batch), weights)
    for gradients, *_ in ranks:
        assert list(gradients[size]) == list(weights)
        for name, gradient in gradients[size].items():
            torch.testing.assert_close(gradient, expected[name], rtol=1e-6, atol=1e-9)


def test_a_name_of_one_s_own_is_not_averaged(ranks):
    for rank, (_, local_gradient, *_) in enumerate(ranks):
        weights, loss, batch = make_problem()
        assert torch.equal(
            local_gradient, all_reduced_gradients(loss(batch[4 * rank : 4 * rank + 4]), weights)["scale"]
        )


def test_a_full_bucket_does_not_wait_for_the_others(ranks):
    assert not dist.is_initialized()
    for _, _, counts, _ in ranks:
        assert len(counts) == 10
        assert min(counts) < 3  # the first bucket was sent before all ten gradients were ready


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_has_in_buckets_the_gradient_that_it_has_without(ranks, name):
    for *_, (bucketed, plain) in ranks:
        assert any(gradient.any() for gradient in plain[name].values())
        torch.testing.assert_close(bucketed[name], plain[name], atol=0, rtol=0)
