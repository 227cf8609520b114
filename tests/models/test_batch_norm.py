"""Joint batch norm on two processes against torch's own on the joined batch."""

import pytest
import torch
from support import gloo
from torch import nn

from stillmotion.errors import StillmotionError
from stillmotion.models.batch_norm import SyncBatchNorm, convert_sync_batchnorm, forward_per_side, freeze_running_stats

pytestmark = pytest.mark.slow

KINDS = {
    "1d": (nn.BatchNorm1d, (7, 3), {}),
    "2d": (nn.BatchNorm2d, (5, 3, 2, 4), {"momentum": None}),
    "3d": (nn.BatchNorm3d, (4, 3, 2, 3, 5), {"eps": 0.1}),
    "not affine": (nn.BatchNorm1d, (6, 3, 4), {"affine": False}),
    "no running statistics": (nn.BatchNorm2d, (4, 3, 2, 2), {"track_running_stats": False}),
}
SHARES = {0: slice(3), 1: slice(3, None), None: slice(None)}  # unequal shares


def build_module(kind):
    """Return a module with a batch norm with random weights, and a joint batch far from zero."""
    norm, shape, options = KINDS[kind]
    draw = torch.Generator().manual_seed(0)
    module = nn.Sequential(norm(3, **options).double())
    for weight in module.parameters():
        weight.data = torch.randn(3, generator=draw, dtype=torch.float64)
    return module, torch.randn(shape, generator=draw, dtype=torch.float64) * 2 + 30


def derivatives(kind, rank):
    """Output, gradient and Hessian product of a loss that couples all values, and the state after two batches."""
    module, batch = build_module(kind)
    if rank is not None:
        convert_sync_batchnorm(module)
    x = batch[SHARES[rank]].clone().requires_grad_()
    leaves = [x, *module.parameters()]
    y = module(x)
    gradient = torch.autograd.grad(y.sin().square().sum(), leaves, create_graph=True)
    direction = [torch.cos(3 * leaf).detach() for leaf in leaves]
    product = torch.autograd.grad(gradient, leaves, direction)
    module(x.detach() + 1)
    return {"y": y, "gradient": gradient, "product": product, "state": module.state_dict()}


def output_in_low_precision(rank):
    module, batch = build_module("3d")
    convert_sync_batchnorm(module.float())
    with torch.autocast("cpu", torch.bfloat16):
        return module(batch[SHARES[rank]].bfloat16())


def results_with_frozen_statistics(rank):
    module, batch = build_module("3d")
    convert_sync_batchnorm(module)
    with freeze_running_stats(module):
        y = module(batch[SHARES[rank]])
    return {"y": y, "state": module.state_dict(), "tracks": module[0].track_running_stats}


def output_in_evaluation(rank):
    module, batch = build_module("3d")
    convert_sync_batchnorm(module.eval())
    return module(batch[SHARES[rank]])


def error_of_empty_share(rank):
    module, batch = build_module("1d")
    convert_sync_batchnorm(module)
    try:
        module(batch[:0])
    except StillmotionError as error:
        return str(error)
    return "taken"


def results_on_rank(rank):
    return {
        "derivatives": {kind: derivatives(kind, rank) for kind in KINDS},
        "low": output_in_low_precision(rank),
        "frozen": results_with_frozen_statistics(rank),
        "evaluated": output_in_evaluation(rank),
        "empty": error_of_empty_share(rank),
    }


@pytest.fixture(scope="module")
def ranks():
    return gloo.run_on_ranks(results_on_rank)


def close(result, expected):
    torch.testing.assert_close(result, expected, atol=1e-10, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_unequal_shares_are_normalised_and_differentiated_twice_as_the_joined_batch(ranks, kind):
    single, rank_results = derivatives(kind, None), [result["derivatives"][kind] for result in ranks]
    close(torch.cat([result["y"] for result in rank_results]), single["y"])
    for name in ("gradient", "product"):
        joint_value, *shared = zip(*(result[name] for result in rank_results), strict=True)
        close(torch.cat(joint_value), single[name][0])
        for rank_values, expected in zip(shared, single[name][1:], strict=True):
            close(sum(rank_values), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_running_statistics_have_the_names_and_values_of_torch(ranks, kind):
    expected = derivatives(kind, None)["state"]
    for result in ranks:
        assert list(result["derivatives"][kind]["state"]) == list(expected)
        close(result["derivatives"][kind]["state"], expected)


def test_low_precision_comes_back_and_has_the_statistics_of_float32(ranks):
    module, batch = build_module("3d")
    expected = module.float()(batch.bfloat16().float())
    result = torch.cat([rank["low"] for rank in ranks])
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.float(), expected, atol=2e-2, rtol=1e-2)


def test_frozen_statistics_are_those_of_the_joined_batch_and_are_not_kept(ranks):
    module, batch = build_module("3d")
    before = {name: value.clone() for name, value in module.state_dict().items()}
    close(torch.cat([rank["frozen"]["y"] for rank in ranks]), module(batch))
    for rank in ranks:
        assert rank["frozen"]["tracks"]
        torch.testing.assert_close(rank["frozen"]["state"], before, atol=0, rtol=0)


def test_in_evaluation_the_running_statistics_are_used(ranks):
    module, batch = build_module("3d")
    close(torch.cat([rank["evaluated"] for rank in ranks]), module.eval()(batch))


def test_an_empty_share_is_refused(ranks):
    for rank in ranks:
        assert "empty batch ((0, 3))" in rank["empty"]


def test_joining_keeps_names_weights_and_mode_and_on_one_process_the_function():
    module = nn.Sequential(nn.Conv3d(3, 4, 1), nn.Sequential(nn.BatchNorm3d(4).eval(), nn.ReLU(), nn.BatchNorm3d(4)))
    module[1][0].weight.requires_grad_(False)
    x = torch.randn(2, 3, 2, 4, 4)
    before, expected = module.state_dict(keep_vars=True), module(x)
    convert_sync_batchnorm(module)
    assert [type(layer) for layer in module[1].children()] == [SyncBatchNorm, nn.ReLU, SyncBatchNorm]
    after = module.state_dict(keep_vars=True)
    assert list(after) == list(before)
    assert all(after[name] is value for name, value in before.items())
    assert [layer.training for layer in module[1].children()] == [False, True, True]
    assert torch.equal(module(x), expected)


@pytest.mark.parametrize("clips", [1, 2, 3, 4])
def test_sides_that_pass_by_themselves_are_normalised_by_their_own_statistics_and_keep_their_places(clips):
    x = torch.randn(5, clips, 3, 2, dtype=torch.float64) * torch.arange(1, clips + 1)[:, None, None]
    result = forward_per_side(nn.BatchNorm1d(3).double(), x)
    assert result.shape == x.shape
    for side in {0, 1} & set(range(clips)):
        mean = x[:, side::2].mean((0, 1, 3))[:, None]
        variance = (x[:, side::2] - mean).square().mean((0, 1, 3))[:, None]
        torch.testing.assert_close(result[:, side::2], (x[:, side::2] - mean) / (variance + 1e-5).sqrt())
