"""Strict time (BOD-VCL, Table 10), and second derivatives, for each family of backbones."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.func import functional_call

from stillmotion.models.backbones import create_backbone, double_backward_mode, framewise_mode
from stillmotion.models.backbones.layers import Conv3d

FAMILIES = ("r2plus1d_18", "mc3_18", "slow_r50", "s3d", "s3d_g", "i3d", "c3d", "small_cnn3d", "small_vit")
SIZE = 32


@pytest.fixture(scope="module", params=FAMILIES)
def backbone(request):
    torch.manual_seed(0)
    module = create_backbone(request.param).eval()
    for layer in module.modules():
        # The blocks of a new Slow-R50 are identities, so that no gradient would reach their kernels.
        if isinstance(layer, nn.BatchNorm3d):
            nn.init.constant_(layer.weight, 0.7)
    return module


@pytest.fixture(scope="module")
def clip():
    return torch.randn(1, 3, 4, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


def changed_time_steps(module, clip, frame):
    changed_clip = clip.clone()
    changed_clip[:, :, frame] += 1
    with torch.no_grad():
        change = (module(changed_clip) - module(clip)).abs().amax((0, 2))
    return (change > 0).tolist()


def test_strict_features_depend_on_their_own_frame_only(backbone, clip):
    with framewise_mode(backbone):
        for frame in (0, 2):
            moved = changed_time_steps(backbone, clip, frame)
            step = frame * len(moved) // clip.shape[2]
            assert moved == [index == step for index in range(len(moved))]


def test_time_is_mixed_again_after_the_context_and_after_an_error_in_it(backbone, clip):
    with framewise_mode(backbone), framewise_mode(backbone):
        pass
    with pytest.raises(KeyError), framewise_mode(backbone):
        raise KeyError
    assert sum(changed_time_steps(backbone, clip, 1)) > 1


@pytest.mark.parametrize("name", ["mc3_18", "small_cnn3d"])
def test_strict_is_the_network_whose_other_slices_are_zero(name, clip):
    torch.manual_seed(0)
    module = create_backbone(name).eval()
    zeroed = {}
    for key, value in module.named_parameters():
        zeroed[key] = value.detach().clone()
        if value.ndim == 5 and value.shape[2] == 3:
            zeroed[key][:, :, [0, 2]] = 0
    with torch.no_grad():
        expected = functional_call(module, zeroed, (clip,))
        with framewise_mode(module):
            torch.testing.assert_close(module(clip), expected, atol=1e-4, rtol=1e-4)


def test_strict_gradients_reach_centre_slices_only_under_functional_call(backbone, clip):
    parameters = {name: value.detach().clone().requires_grad_() for name, value in backbone.named_parameters()}
    with framewise_mode(backbone):
        loss = functional_call(backbone, parameters, (clip,)).square().sum()
    loss.backward()
    for name, module in backbone.named_modules():
        if isinstance(module, Conv3d) and module.kernel_size[0] > 1:
            slices = parameters[f"{name}.weight"].grad.abs().sum((0, 1, 3, 4))
            assert slices.nonzero().flatten().tolist() == [module.kernel_size[0] // 2], name


def test_second_derivatives_exist_in_both_modes_under_functional_call(backbone, clip):
    parameters = {name: value.detach() for name, value in backbone.named_parameters()}
    names = list(parameters)
    ends = (names[0], names[len(names) // 2], names[-1])
    chosen = {name: parameters[name].clone().requires_grad_() for name in ends}
    small = clip[:, :, :2]
    for strict in (False, True):
        with double_backward_mode(backbone), framewise_mode(backbone) if strict else nullcontext():
            features = functional_call(backbone, parameters | chosen, (small,))
        first = torch.autograd.grad(features.square().sum(), list(chosen.values()), create_graph=True)
        second = torch.autograd.grad(sum(grad.square().sum() for grad in first), chosen[names[0]])[0]
        assert second.isfinite().all()
        assert second.abs().max() > 0


@pytest.mark.parametrize("name", ["small_cnn3d", "small_vit"])
@pytest.mark.parametrize("strict", [False, True])
def test_hessian_vector_products_agree_with_differences_of_gradients(name, strict):
    torch.manual_seed(0)
    module = create_backbone(name).double().eval()
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.2)
    clip = torch.randn(1, 3, 4, 16, 16, dtype=torch.float64)
    point = {key: value.detach() for key, value in module.named_parameters()}
    direction = {key: torch.randn_like(value) for key, value in point.items()}

    def gradient(scale, *, create_graph=False):
        moved = {key: (point[key] + scale * direction[key]).requires_grad_() for key in point}
        with double_backward_mode(module), framewise_mode(module) if strict else nullcontext():
            loss = functional_call(module, moved, (clip,)).square().sum()
        leaves = list(moved.values())
        return torch.autograd.grad(loss, leaves, create_graph=create_graph), leaves

    grads, leaves = gradient(0.0, create_graph=True)
    directional = sum((grad * d).sum() for grad, d in zip(grads, direction.values(), strict=True))
    exact = torch.autograd.grad(directional, leaves)
    step = 1e-9  # so small that no ReLU changes its sign
    ahead, behind = gradient(step)[0], gradient(-step)[0]
    size = max(value.abs().max() for value in exact)
    for value, after, before in zip(exact, ahead, behind, strict=True):
        assert (value - (after - before) / (2 * step)).abs().max() < 1e-4 * size


def test_fused_attention_is_used_unless_second_order_is_asked_for():
    backbone = create_backbone("small_vit")
    parameter = next(backbone.parameters())
    loss = backbone(torch.randn(1, 3, 4, SIZE, SIZE)).square().sum()
    (grad,) = torch.autograd.grad(loss, parameter, create_graph=True)
    with pytest.raises(RuntimeError, match="derivative"):
        torch.autograd.grad(grad.sum(), parameter)


def test_original_strides_are_strict_too():
    torch.manual_seed(0)
    backbone = create_backbone("small_cnn3d", per_frame_features=False).eval()
    clip = torch.randn(1, 3, 16, SIZE, SIZE)
    with framewise_mode(backbone):
        assert changed_time_steps(backbone, clip, 8) == [False, True]
        assert changed_time_steps(backbone, clip, 7) == [False, False]
