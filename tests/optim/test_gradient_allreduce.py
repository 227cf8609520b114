"""Gradients in buckets: the mean over ranks, whatever the buckets' size, and sent while the backward pass goes on."""

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
        found[size] = all_reduced_gradients(loss(batch[4 * rank : 4 * rank + 4]), weights, bucket_bytes=size)
    weights, loss, batch = problem()
    kept = all_reduced_gradients(loss(batch[4 * rank : 4 * rank + 4]), weights, local_names=frozenset({"scale"}))[
        "scale"
    ]
    return found, kept, sent_before_the_end(rank), [by_solvers(rank, one) for one in (in_buckets, plainly)]


def in_buckets(loss, weights, *, local_names):
    """Many small ones."""
    return all_reduced_gradients(loss, weights, local_names=local_names, bucket_bytes=200)


def plainly(loss, weights, *, local_names):
    """The whole gradient first, its mean over ranks after."""
    grads = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
    found = {name: gradient.clone() for name, gradient in zip(weights, grads, strict=True)}
    all_reduce_mean_([gradient for name, gradient in found.items() if name not in local_names])
    return found


def by_solvers(rank, reduced):
    """The gradient of a rank's half of a batch by every solver, where gradients are averaged by this function."""
    bilevel.all_reduced_gradients = reduced
    try:
        found = {}
        for name in SOLVERS:
            method = tiny_method("simclr").train()
            convert_sync_batchnorm(method)
            config = PretrainConfig(
                method=method.config, solver=SolverConfig(name, inner_lr=0.01, inner_steps=2, solver_iterations=2)
            )
            found[name] = compute_gradients(method, tiny_clips(4, 2)[2 * rank : 2 * rank + 2], config)[1]
        return found
    finally:
        bilevel.all_reduced_gradients = all_reduced_gradients


def sent_before_the_end(rank):
    """How many of the gradients had come when the first bucket was sent."""
    weights, loss, batch = problem()
    seen = []
    send = gradient_allreduce._GradientBuckets._send

    def watched(self):
        seen.append(len(self._ready))
        send(self)

    gradient_allreduce._GradientBuckets._send = watched
    try:
        all_reduced_gradients(loss(batch), weights, bucket_bytes=1)
    finally:
        gradient_allreduce._GradientBuckets._send = send
    return seen


@pytest.fixture(scope="module")
def ranks():
    return gloo.run_on_ranks(on_a_rank)


@pytest.mark.parametrize("size", SIZES)
def test_the_mean_over_ranks_is_the_gradient_of_the_joined_batch(ranks, size):
    weights, loss, batch = problem()
    wanted = all_reduced_gradients(loss(batch), weights)
    for found, *_ in ranks:
        assert list(found[size]) == list(weights)
        for name, gradient in found[size].items():
            torch.testing.assert_close(gradient, wanted[name], rtol=1e-6, atol=1e-9)


def test_a_name_of_one_s_own_is_not_averaged(ranks):
    for rank, (_, kept, *_) in enumerate(ranks):
        weights, loss, batch = problem()
        assert torch.equal(kept, all_reduced_gradients(loss(batch[4 * rank : 4 * rank + 4]), weights)["scale"])


def test_a_full_bucket_does_not_wait_for_the_others(ranks):
    assert not dist.is_initialized()
    for _, _, seen, _ in ranks:
        assert len(seen) == 10
        assert min(seen) < 3  # gradients at hand when one was sent: not all ten


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_has_in_buckets_the_gradient_that_it_has_without(ranks, name):
    for *_, (bucketed, plain) in ranks:
        assert any(gradient.any() for gradient in plain[name].values())
        torch.testing.assert_close(bucketed[name], plain[name], atol=0, rtol=0)
