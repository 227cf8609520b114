"""Two gloo processes, each with half of a batch, against one process with the whole batch; batch norms train.

Batch norms are synchronized for every objective. In training, MoCo does not synchronize those of the keys but shuffles
the keys over ranks, so that two processes differ from one by design; its keys are tested by themselves.
"""

import copy
import os
import subprocess
import sys
from typing import get_args

import pytest
import torch
from support import gloo
from support.tiny_method import OBJECTIVES, make_level_loss, tiny_clips, tiny_method

from stillmotion.distributed.collectives import all_gather, all_gather_no_grad, all_reduce_mean_, broadcast_
from stillmotion.distributed.process_group import all_gather_object, get_rank, get_world_size
from stillmotion.models.batch_norm import convert_sync_batchnorm
from stillmotion.optim.bilevel import SolverConfig, SolverName, hypergradient
from stillmotion.training.pretrain.batch_gradients import compute_gradients
from stillmotion.training.pretrain.config import PretrainConfig

pytestmark = pytest.mark.slow

SOLVERS = {
    "plain": SolverConfig("plain"),
    "single-level": SolverConfig("single-level"),
    "first-order": SolverConfig("first-order", inner_lr=0.01),
    "exact-last-stage": SolverConfig("exact-last-stage", inner_lr=0.1, inner_steps=2),
    "exact-projector": SolverConfig("exact-projector", inner_lr=0.1),
    "aid-fd": SolverConfig("aid-fd", inner_lr=0.01, inner_steps=2),
    "aid-cg": SolverConfig("aid-cg", inner_lr=0.01, solver_iterations=2),
    "aid-nmn": SolverConfig("aid-nmn", inner_lr=0.01, solver_iterations=2),
    "itd-rmad": SolverConfig("itd-rmad", inner_lr=0.01, inner_steps=2),
}
CASES = {
    f"{objective}, {decomposition}, {v} clips, {solver}": (objective, decomposition, v, solver)
    for objective in OBJECTIVES
    for decomposition in ("none", "slow")
    for v, names in ((2, SOLVERS), (3, ("plain",)))
    for solver in names
}
SEPARATE_CASES = {
    f"{objective}, {decomposition}, {v} clips, {solver}, sides apart": (objective, decomposition, v, solver)
    for objective, decomposition, v, solver in (
        *((objective, "none", 2, "plain") for objective in OBJECTIVES),
        ("byol", "slow", 3, "single-level"),
        ("simclr", "slow", 2, "exact-last-stage"),
        ("moco", "slow", 2, "exact-projector"),
        ("vicreg", "slow", 2, "aid-fd"),
    )
}


def joint_batch(v=2, *, seed=0):
    return tiny_clips(4, v, seed=seed)


def rank_share(batch, rank):
    """Return the videos of one rank, or all if the rank is None."""
    return batch if rank is None else batch[2 * rank : 2 * rank + 2]


def training_method(objective, decomposition="slow", **options):
    """Return a method in training mode with synchronized batch norms."""
    method = tiny_method(objective, decomposition, **options).train()
    convert_sync_batchnorm(method)
    return method


def gradients(rank):
    """The gradient of every case."""
    results = {}
    for case, (objective, decomposition, v, solver) in (CASES | SEPARATE_CASES).items():
        batch_norm = "separate" if case in SEPARATE_CASES else "joint"
        method, clips, config = (
            training_method(objective, decomposition, batch_norm=batch_norm),
            rank_share(joint_batch(v), rank),
            SOLVERS[solver],
        )
        results[case] = compute_gradients(method, clips, PretrainConfig(method=method.config, solver=config))[1]
    return results


def mean_losses(rank):
    """The losses of every method, averaged over ranks."""
    results = {}
    for objective in OBJECTIVES:
        losses = training_method(objective)(rank_share(joint_batch(), rank), level="both").losses
        losses = {name: value.detach() for name, value in losses.items()}
        all_reduce_mean_(losses.values())
        results[objective] = losses
    return results


def state_after_steps(rank, objective):
    """Return the state of a method after three steps, which give more keys than its queue holds."""
    method = training_method(objective)
    for step in range(3):
        method.after_step([method(rank_share(joint_batch(seed=step), rank)).keys], step / 3)
    return method.state_dict()


def shuffled_keys(rank):
    """Return MoCo's keys with the batch norm of each rank; the random generators of ranks differ."""
    method = tiny_method("moco").train()
    torch.manual_seed(rank)
    return method(rank_share(joint_batch(), rank)).keys


def autocast_gradient(rank):
    method, clips = training_method("simclr", "none", norm=False).float(), rank_share(joint_batch(), rank).float()
    losses = [make_level_loss(method, clips, level) for level in ("inner", "outer")]

    def cast(loss):
        def run(weights):
            with torch.autocast("cpu", torch.bfloat16):
                return loss(weights)

        return run

    inner, outer = map(cast, losses)
    return hypergradient(inner, outer, dict(method.trainable_parameters()), SolverConfig("aid-fd", inner_lr=0.1))


def all_results(rank):
    return {
        "gradients": gradients(rank),
        "losses": mean_losses(rank),
        "moco": state_after_steps(rank, "moco"),
        "byol": state_after_steps(rank, "byol"),
        "autocast": autocast_gradient(rank),
    }


def all_results_on_rank(rank):
    return all_results(rank) | {"keys": shuffled_keys(rank)} | collective_results(rank)


def collective_results(rank):
    """Return the results of the functions of `distributed` on this rank."""
    local = torch.arange(6.0).reshape(2, 3) + 10 * rank
    leaf = local.clone().requires_grad_()
    pattern = torch.arange(12.0).reshape(4, 3)
    gathered = all_gather(leaf.T.contiguous().T)  # not contiguous
    (gathered * pattern * (rank + 1)).sum().backward()
    averaged = [local.clone(), local.double()[0], local.clone().T]
    all_reduce_mean_(averaged)
    received = local.clone()
    broadcast_([received])
    expanded = hypergradient(
        lambda w: w["a"].square().sum(), lambda w: (rank + 1) * w["a"].sum(), {"a": local}, SolverConfig("plain")
    )
    return {
        "place": (get_rank(), get_world_size()),
        "gathered": gathered.detach(),
        "gathered gradient": leaf.grad,
        "gathered values": [
            all_gather_no_grad(local.to(dtype)) for dtype in (torch.float64, torch.bfloat16, torch.int64)
        ],
        "averaged": averaged,
        "broadcast": received,
        "objects": all_gather_object({"rank": rank}),
        "expanded": expanded["a"],
    }


def gradient_norm(gradient):
    return sum(g.square().sum() for g in gradient.values()).sqrt()


@pytest.fixture(scope="module")
def ranks():
    return gloo.run_on_ranks(all_results_on_rank)


@pytest.fixture(scope="module")
def single_process():
    return all_results(None)


def test_no_solver_is_left_out():
    assert {config.name for config in SOLVERS.values()} == set(get_args(SolverName))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_two_processes_give_the_gradient_of_one(ranks, single_process, objective):
    for case in (case for case in CASES | SEPARATE_CASES if case.startswith(objective)):
        exact = single_process["gradients"][case]
        for result in ranks:
            error = {name: result["gradients"][case][name] - gradient for name, gradient in exact.items()}
            assert gradient_norm(error) < 1e-5 * gradient_norm(exact), case
        first, second = (result["gradients"][case] for result in ranks)
        torch.testing.assert_close(first, second, atol=0, rtol=0)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_losses_averaged_over_two_processes_are_those_of_one(ranks, single_process, objective):
    for result in ranks:
        torch.testing.assert_close(
            result["losses"][objective], single_process["losses"][objective], atol=1e-7, rtol=1e-7
        )


@pytest.mark.parametrize("objective", ["moco", "byol"])
def test_queues_and_momentum_encoders_are_those_of_one_process_in_the_order_of_the_joined_batch(
    ranks, single_process, objective
):
    for result in ranks:
        torch.testing.assert_close(result[objective], single_process[objective])
    torch.testing.assert_close(ranks[0][objective], ranks[1][objective], atol=0, rtol=0)


def test_keys_come_back_to_their_clips_from_batches_that_were_shuffled_over_ranks(ranks):
    clips, method = joint_batch().flatten(0, 1), tiny_method("moco").train()
    # The order of rank 0 holds for both ranks, although rank 1 has another seed.
    torch.manual_seed(0)
    order = torch.randperm(8)
    assert sorted(order[:4].tolist()) != [0, 1, 2, 3]
    halves = [
        copy.deepcopy(method)._momentum_embeddings(clips[indices].unflatten(0, (2, 2))) for indices in order.chunk(2)
    ]
    for name in ("static", "dynamic"):
        expected = torch.empty(8, 6, dtype=torch.float64)
        expected[order] = torch.cat([half[name] for half in halves]).flatten(0, 1)
        keys = torch.cat([rank["keys"][name] for rank in ranks]).flatten(0, 1)
        torch.testing.assert_close(keys, expected)


def test_autocast_works_on_two_processes(ranks, single_process):
    exact = single_process["autocast"]
    for result in ranks:
        error = {name: result["autocast"][name] - gradient for name, gradient in exact.items()}
        assert gradient_norm(error) < 0.15 * gradient_norm(exact)
    torch.testing.assert_close(ranks[0]["autocast"], ranks[1]["autocast"], atol=0, rtol=0)


def test_gathering_joins_in_rank_order_and_sums_what_all_ranks_ask_of_a_part(ranks):
    gathered = torch.cat([torch.arange(6.0), torch.arange(6.0) + 10]).reshape(4, 3)
    pattern = torch.arange(12.0).reshape(4, 3)
    for rank, result in enumerate(ranks):
        assert result["place"] == (rank, 2)
        assert torch.equal(result["gathered"], gathered)
        assert torch.equal(result["gathered gradient"], 3 * pattern[2 * rank : 2 * rank + 2])
        for values in result["gathered values"]:
            assert torch.equal(values, gathered.to(values.dtype))
        assert result["objects"] == [{"rank": 0}, {"rank": 1}]


def test_averages_and_broadcasts_are_the_same_on_all_ranks(ranks):
    mean = torch.arange(6.0).reshape(2, 3) + 5
    for result in ranks:
        assert all(torch.equal(a, b) for a, b in zip(result["averaged"], [mean, mean[0].double(), mean.T], strict=True))
        assert torch.equal(result["broadcast"], torch.arange(6.0).reshape(2, 3))
        assert torch.equal(result["expanded"], torch.full((2, 3), 1.5))


def test_the_threads_of_a_group_end_with_it_and_not_with_the_interpreter(tmp_path):
    code = f"""
import os
import torch.distributed as dist
from stillmotion.distributed.process_group import destroy_process_group, init_process_group
join = dist.init_process_group
dist.init_process_group = lambda kind, timeout: join(kind, init_method="file://{tmp_path}/f", rank=0, world_size=1)
os.environ["WORLD_SIZE"] = "2"
init_process_group("cpu")
import torch._dynamo  # what torch itself imports at an optimiser's first step
before = len(os.listdir("/proc/self/task"))
destroy_process_group()
print(before > 1, len(os.listdir("/proc/self/task")))
"""
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=one_thread, check=True)
    assert process.stdout.split() == ["True", "1"]


def test_on_one_process_every_function_is_the_identity():
    x = torch.arange(6.0, requires_grad=True)
    before = x.detach().clone()
    assert (get_rank(), get_world_size()) == (0, 1)
    assert all_gather(x) is x
    assert torch.equal(all_gather_no_grad(x), x)
    all_reduce_mean_([x])
    broadcast_([x])
    assert torch.equal(x, before)
    assert all_gather_object("a") == ["a"]
