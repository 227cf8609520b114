"""Two gloo processes, each with half of a batch, against one with the whole of it; batch norms train.

Those of the two are joint for every objective. MoCo's are not when it is trained: it shuffles keys over ranks, whose
statistics stay their own, and two processes are then not one by design; its keys are asked for by themselves.
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
    f"{objective}, {how}, {v} clips, {solver}": (objective, how, v, solver)
    for objective in OBJECTIVES
    for how in ("none", "slow")
    for v, names in ((2, SOLVERS), (3, ("plain",)))
    for solver in names
}
APART = {
    f"{objective}, {how}, {v} clips, {solver}, sides apart": (objective, how, v, solver)
    for objective, how, v, solver in (
        *((objective, "none", 2, "plain") for objective in OBJECTIVES),
        ("byol", "slow", 3, "single-level"),
        ("simclr", "slow", 2, "exact-last-stage"),
        ("moco", "slow", 2, "exact-projector"),
        ("vicreg", "slow", 2, "aid-fd"),
    )
}


def joined(v=2, *, seed=0):
    return tiny_clips(4, v, seed=seed)


def share(batch, of):
    """The videos of one rank, or all where there is but one."""
    return batch if of is None else batch[2 * of : 2 * of + 2]


def trained(objective, how="slow", **options):
    """A method in training, whose batch norms see what all ranks have."""
    method = tiny_method(objective, how, **options).train()
    convert_sync_batchnorm(method)
    return method


def gradients(of):
    """The gradient of every case."""
    found = {}
    for case, (objective, how, v, solver) in (CASES | APART).items():
        batch_norm = "separate" if case in APART else "joint"
        method, clips, config = trained(objective, how, batch_norm=batch_norm), share(joined(v), of), SOLVERS[solver]
        found[case] = compute_gradients(method, clips, PretrainConfig(method=method.config, solver=config))[1]
    return found


def mean_losses(of):
    """The losses of every method, averaged over ranks."""
    found = {}
    for objective in OBJECTIVES:
        losses = trained(objective)(share(joined(), of), level="both").losses
        losses = {name: value.detach() for name, value in losses.items()}
        all_reduce_mean_(losses.values())
        found[objective] = losses
    return found


def state_after_steps(of, objective):
    """State of a method after three steps of committing, more keys than its queue holds."""
    method = trained(objective)
    for step in range(3):
        method.after_step([method(share(joined(seed=step), of)).keys], step / 3)
    return method.state_dict()


def shuffled_keys(of):
    """MoCo's keys with each rank's own batch norm; ranks draw differently."""
    method = tiny_method("moco").train()
    torch.manual_seed(of)
    return method(share(joined(), of)).keys


def autocast_gradient(of):
    method, clips = trained("simclr", "none", norm=False).float(), share(joined(), of).float()
    losses = [make_level_loss(method, clips, level) for level in ("inner", "outer")]

    def cast(loss):
        def run(weights):
            with torch.autocast("cpu", torch.bfloat16):
                return loss(weights)

        return run

    inner, outer = map(cast, losses)
    return hypergradient(inner, outer, dict(method.trainable_parameters()), SolverConfig("aid-fd", inner_lr=0.1))


def one_and_only(of):
    return {
        "gradients": gradients(of),
        "losses": mean_losses(of),
        "moco": state_after_steps(of, "moco"),
        "byol": state_after_steps(of, "byol"),
        "autocast": autocast_gradient(of),
    }


def on_a_rank(of):
    return one_and_only(of) | {"keys": shuffled_keys(of)} | messages(of)


def messages(of):
    """What the functions of `distributed` return here."""
    own = torch.arange(6.0).reshape(2, 3) + 10 * of
    leaf = own.clone().requires_grad_()
    pattern = torch.arange(12.0).reshape(4, 3)
    everyone = all_gather(leaf.T.contiguous().T)  # not contiguous
    (everyone * pattern * (of + 1)).sum().backward()
    averaged = [own.clone(), own.double()[0], own.clone().T]
    all_reduce_mean_(averaged)
    told = own.clone()
    broadcast_([told])
    expanded = hypergradient(
        lambda w: w["a"].square().sum(), lambda w: (of + 1) * w["a"].sum(), {"a": own}, SolverConfig("plain")
    )
    return {
        "place": (get_rank(), get_world_size()),
        "gathered": everyone.detach(),
        "gathered gradient": leaf.grad,
        "gathered values": [
            all_gather_no_grad(own.to(dtype)) for dtype in (torch.float64, torch.bfloat16, torch.int64)
        ],
        "averaged": averaged,
        "broadcast": told,
        "objects": all_gather_object({"rank": of}),
        "expanded": expanded["a"],
    }


def norm(gradient):
    return sum(g.square().sum() for g in gradient.values()).sqrt()


@pytest.fixture(scope="module")
def ranks():
    return gloo.run_on_ranks(on_a_rank)


@pytest.fixture(scope="module")
def one():
    return one_and_only(None)


def test_no_solver_is_left_out():
    assert {config.name for config in SOLVERS.values()} == set(get_args(SolverName))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_two_processes_give_the_gradient_of_one(ranks, one, objective):
    for case in (case for case in CASES | APART if case.startswith(objective)):
        exact = one["gradients"][case]
        for found in ranks:
            error = {name: found["gradients"][case][name] - gradient for name, gradient in exact.items()}
            assert norm(error) < 1e-5 * norm(exact), case
        first, second = (found["gradients"][case] for found in ranks)
        torch.testing.assert_close(first, second, atol=0, rtol=0)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_losses_averaged_over_two_processes_are_those_of_one(ranks, one, objective):
    for found in ranks:
        torch.testing.assert_close(found["losses"][objective], one["losses"][objective], atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("objective", ["moco", "byol"])
def test_queues_and_momentum_encoders_are_those_of_one_process_in_the_order_of_the_joined_batch(ranks, one, objective):
    for found in ranks:
        torch.testing.assert_close(found[objective], one[objective])
    torch.testing.assert_close(ranks[0][objective], ranks[1][objective], atol=0, rtol=0)


def test_keys_come_back_to_their_clips_from_batches_that_were_shuffled_over_ranks(ranks):
    clips, method = joined().flatten(0, 1), tiny_method("moco").train()
    # The first rank's order holds for both, though the second one's seed is another.
    torch.manual_seed(0)
    order = torch.randperm(8)
    assert sorted(order[:4].tolist()) != [0, 1, 2, 3]
    halves = [copy.deepcopy(method)._momentum_embeddings(clips[part].unflatten(0, (2, 2))) for part in order.chunk(2)]
    for name in ("static", "dynamic"):
        expected = torch.empty(8, 6, dtype=torch.float64)
        expected[order] = torch.cat([half[name] for half in halves]).flatten(0, 1)
        found = torch.cat([rank["keys"][name] for rank in ranks]).flatten(0, 1)
        torch.testing.assert_close(found, expected)


def test_autocast_works_on_two_processes(ranks, one):
    exact = one["autocast"]
    for found in ranks:
        error = {name: found["autocast"][name] - gradient for name, gradient in exact.items()}
        assert norm(error) < 0.15 * norm(exact)
    torch.testing.assert_close(ranks[0]["autocast"], ranks[1]["autocast"], atol=0, rtol=0)


def test_gathering_joins_in_rank_order_and_sums_what_all_ranks_ask_of_a_part(ranks):
    everyone = torch.cat([torch.arange(6.0), torch.arange(6.0) + 10]).reshape(4, 3)
    pattern = torch.arange(12.0).reshape(4, 3)
    for of, found in enumerate(ranks):
        assert found["place"] == (of, 2)
        assert torch.equal(found["gathered"], everyone)
        assert torch.equal(found["gathered gradient"], 3 * pattern[2 * of : 2 * of + 2])
        for values in found["gathered values"]:
            assert torch.equal(values, everyone.to(values.dtype))
        assert found["objects"] == [{"rank": 0}, {"rank": 1}]


def test_averages_and_broadcasts_are_the_same_on_all_ranks(ranks):
    mean = torch.arange(6.0).reshape(2, 3) + 5
    for found in ranks:
        assert all(torch.equal(a, b) for a, b in zip(found["averaged"], [mean, mean[0].double(), mean.T], strict=True))
        assert torch.equal(found["broadcast"], torch.arange(6.0).reshape(2, 3))
        assert torch.equal(found["expanded"], torch.full((2, 3), 1.5))


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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=one_thread, check=True)
    assert done.stdout.split() == ["True", "1"]


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
