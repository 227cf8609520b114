"""Checkpointed blocks: the same gradients of any order, one update of the statistics, less memory."""

import copy

import pytest
import torch
from torch.func import functional_call

from stillmotion.methods.method import Method
from stillmotion.models.activation_checkpointing import apply_activation_checkpointing
from stillmotion.models.backbones import create_backbone, list_backbones
from stillmotion.planning.flop_counter import FlopMemoryCounter, build_on_fake_tensors, fake_tensor_mode
from stillmotion.training.pretrain.batch_gradients import compute_gradients
from stillmotion.training.tasks import get_recipe
from stillmotion.utils.typed_config import apply_overrides

NAMES = ("small_cnn3d", "small_vit", "mc3_18")


def pair(name):
    torch.manual_seed(0)
    network = create_backbone(name).double().train()
    light = copy.deepcopy(network)
    apply_activation_checkpointing(light)
    return network, light


@pytest.mark.parametrize("name", NAMES)
def test_gradients_and_statistics_are_those_of_the_plain_network(name):
    clips = torch.randn(2, 3, 4, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    plain, light = pair(name)
    for network in (plain, light):
        network(clips).square().sum().backward()
    for (key, p), q in zip(plain.named_parameters(), light.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-9, atol=1e-12, msg=key)
    for a, b in zip(plain.buffers(), light.buffers(), strict=True):
        torch.testing.assert_close(b, a, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in list_backbones() if name not in (*NAMES, "tokens_cnn")])
def test_the_blocks_of_every_backbone_forget_what_they_compute(name):
    peaks = []
    for light in (False, True):
        with fake_tensor_mode(), FlopMemoryCounter() as tally:
            backbone = build_on_fake_tensors(lambda: create_backbone(name).train())
            if light:
                apply_activation_checkpointing(backbone)
            weights = tally.current_bytes
            backbone(torch.empty(4, 3, 8, 112, 112)).sum().backward()
        peaks.append(tally.peak_bytes - 2 * weights)
    assert peaks[1] < (0.7 if "r50" in name or "18" in name or "vit" in name else 0.97) * peaks[0]


def test_weights_that_were_replaced_for_a_pass_are_those_it_is_computed_again_with():
    plain, light = pair("small_cnn3d")
    clips = torch.randn(2, 3, 4, 16, 16, dtype=torch.float64)
    result = []
    for network in (plain, light):
        moved = {k: (0.5 * p.detach()).requires_grad_() for k, p in network.named_parameters()}
        loss = functional_call(network, moved, (clips,)).square().sum()
        result.append(torch.autograd.grad(loss, list(moved.values())))
    for a, b in zip(*result, strict=True):
        torch.testing.assert_close(b, a)


@pytest.mark.parametrize(
    "solver", ["first-order", "exact-projector", "exact-last-stage", "aid-fd", "itd-rmad", "aid-cg"]
)
def test_every_solver_has_the_same_gradient(solver):
    config = apply_overrides(get_recipe("k400-bod-simclr", debug=True), {"solver.name": solver})
    torch.manual_seed(0)
    plain = Method(config.method).double().train()
    light = copy.deepcopy(plain)
    apply_activation_checkpointing(light.online.backbone)
    clips = torch.randn(3, 2, 3, config.data.num_frames, 16, 16, dtype=torch.float64)
    a, b = (compute_gradients(method, clips, config)[1] for method in (plain, light))
    for name in a:
        torch.testing.assert_close(b[name], a[name], rtol=1e-7, atol=1e-10, msg=name)
