"""`koopman.decompose` against the literal M×M operator, and its invariances."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import koopman_reference as literal
from support.koopman_reference import difficult_clips
from torch.autograd import gradcheck

from stillmotion.errors import StillmotionError
from stillmotion.functional import koopman

METHODS = ("slow", "riesz", "eig")
POOLINGS = ("rms", "mean", "eq21")
SPLITS = [(method, pooling) for method in METHODS for pooling in POOLINGS]
every_method = pytest.mark.parametrize(("method", "pooling"), SPLITS)


def drifting_clips(b=3, t=6, m=12, *, seed=0, dtype=torch.float64):
    """Return clips that drift from random starts: some eigenvalues are near 1, some far from it."""
    draw = torch.Generator().manual_seed(seed)
    steps = torch.randn(b, t, m, generator=draw, dtype=torch.float64)
    return (0.4 * steps.cumsum(1) + 1.5 * torch.randn(b, 1, m, generator=draw, dtype=torch.float64)).to(dtype)


def linear_system(operator, *, m=12, t=6, seed=0):
    """Return a clip (1, t, m) with x_{t+1} = A x_t in the span of orthonormal directions."""
    draw = torch.Generator().manual_seed(seed)
    order = len(operator)
    basis = torch.linalg.qr(torch.randn(m, order, generator=draw, dtype=torch.float64)).Q
    x = torch.randn(order, generator=draw, dtype=torch.float64)
    frames = []
    for _ in range(t):
        frames.append(basis @ x)
        x = operator @ x
    return torch.stack(frames)[None]


def rotation(angle, size=1.0):
    angle = torch.tensor(angle, dtype=torch.float64)
    return size * torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).reshape(2, 2)


def stack_reference(reference, clips, **options):
    return [torch.stack(component) for component in zip(*(reference(clip, **options) for clip in clips), strict=True)]


@pytest.mark.parametrize("method", ["eig", "riesz"])
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("radius", [0.2, 0.4])
def test_hard_split_is_the_literal_one_as_the_ridge_vanishes(method, pooling, radius):
    clips = drifting_clips()
    is_static = (koopman.eigenvalues(clips, ridge=1e-12) - 1).abs() < radius
    assert is_static.any()
    assert not is_static.all()
    expected = stack_reference(literal.decompose, clips, radius=radius, pooling=pooling)
    errors = []
    for ridge in (1e-6, 1e-12):
        result = koopman.decompose(clips, radius=radius, method=method, pooling=pooling, ridge=ridge, nodes=128)
        errors.append(max((f - e).abs().max().item() for f, e in zip(result, expected, strict=True)))
    assert errors[1] < 1e-6 < 1e-2 * expected[0].abs().max()
    assert errors[0] < 1e-2


@pytest.mark.parametrize("method", ["eig", "riesz"])
def test_eq21_is_the_literal_split_of_the_ridge_operator_at_any_ridge(method):
    clips = drifting_clips()
    expected = stack_reference(literal.decompose, clips, radius=0.3, pooling="eq21", ridge=1e-2)
    result = koopman.decompose(clips, radius=0.3, method=method, pooling="eq21", ridge=1e-2, nodes=256)
    torch.testing.assert_close(result, tuple(expected), atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_slow_split_is_its_literal_formula(pooling, order):
    clips = drifting_clips()
    expected = stack_reference(literal.slow_decompose, clips, radius=0.3, filter_order=order, pooling=pooling)
    result = koopman.decompose(clips, radius=0.3, filter_order=order, pooling=pooling, ridge=1e-13)
    torch.testing.assert_close(result, tuple(expected), atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_slow_split_of_a_normal_operator_tends_to_the_threshold_as_power_grows(pooling):
    clip = linear_system(torch.block_diag(torch.ones(1, 1).double(), rotation(0.05), rotation(1.2)))
    hard = koopman.decompose(clip, radius=0.15, method="eig", pooling=pooling, ridge=1e-13)[0]
    errors = [
        (koopman.decompose(clip, radius=0.15, filter_order=order, pooling=pooling, ridge=1e-13)[0] - hard).norm().item()
        for order in (1, 2, 4, 8)
    ]
    assert all(after < before / 4 for before, after in pairwise(errors))
    assert errors[-1] < 1e-6 * hard.norm()


@pytest.mark.parametrize("nodes", [2, 3, 7, 32])
def test_riesz_weighs_an_eigenvalue_as_the_trapezoid_rule_does(nodes):
    decay, radius = 0.9, 0.3
    clip = linear_system(torch.diag(torch.tensor([1.0, decay], dtype=torch.float64)), t=3)
    one, other = literal.decompose(clip[0], radius=0.05, pooling="mean")
    static, _ = koopman.decompose(clip, radius=radius, method="riesz", nodes=nodes, ridge=1e-13)
    # Σ_k z_k / (z_k - c) / N over the N points where z^N = -ξ^N is ξ^N / (ξ^N + c^N).
    share = radius**nodes / (radius**nodes + (decay - 1) ** nodes)
    torch.testing.assert_close(static[0], one + share * other, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_components_sum_to_the_mean_frame_with_mean_pooling(method):
    clips = drifting_clips()
    static, dynamic = koopman.decompose(clips, method=method, pooling="mean")
    torch.testing.assert_close(static + dynamic, clips.mean(1))


@pytest.mark.parametrize("method", METHODS)
def test_components_sum_to_the_next_mean_frame_with_eq21_pooling(method):
    clips = drifting_clips()
    static, dynamic = koopman.decompose(clips, method=method, pooling="eq21", ridge=1e-12)
    expected = torch.stack([literal.operator(clip) @ clip.mean(0) for clip in clips])
    torch.testing.assert_close(static + dynamic, expected, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_a_constant_mode_is_static_and_a_rotation_dynamic(method):
    clip = linear_system(torch.block_diag(torch.ones(1, 1).double(), rotation(1.5), rotation(2.2, 0.8)))
    static, dynamic = koopman.decompose(clip, radius=0.1, method=method, pooling="mean", filter_order=8, ridge=1e-12)
    torch.testing.assert_close(koopman.decompose(static[:, None].expand(-1, 6, -1), ridge=1e-12)[0], static)
    assert (static @ dynamic.T).abs() < 1e-6 * static.norm() * dynamic.norm()


@pytest.mark.parametrize(("radius", "static_share"), [(0.05, 0.0), (0.6, 1.0)])
def test_the_radius_decides_which_decays_are_static(radius, static_share):
    clip = linear_system(torch.diag(torch.tensor([0.9, 0.7, 0.5], dtype=torch.float64)), t=4)
    static, _ = koopman.decompose(clip, radius=radius, method="eig", ridge=1e-13)
    torch.testing.assert_close(static, static_share * clip.mean(1), atol=1e-6, rtol=1e-6)


@every_method
@given(
    scale=st.floats(-1e6, 1e6).filter(lambda s: abs(s) > 1e-6),
    order=st.permutations(range(4)),
    seed=st.integers(0, 1000),
)
def test_components_follow_scale_order_of_clips_and_rotation_of_channels(method, pooling, scale, order, seed):
    draw = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(12, 12, generator=draw, dtype=torch.float64)).Q
    clips = drifting_clips(4)
    components = koopman.decompose(clips, method=method, pooling=pooling)
    moved = koopman.decompose(scale * clips[order] @ turn, method=method, pooling=pooling)
    torch.testing.assert_close(moved[0] / scale, components[0][order] @ turn, atol=1e-9, rtol=1e-9)
    if pooling != "rms":
        torch.testing.assert_close(moved[1] / scale, components[1][order] @ turn, atol=1e-9, rtol=1e-9)
        return
    # The rms is computed per channel: a rotation keeps its length, and a permutation permutes it.
    torch.testing.assert_close(moved[1].norm(dim=1) / abs(scale), components[1][order].norm(dim=1))
    permuted = koopman.decompose(scale * clips[order].flip(2), method=method, pooling=pooling)[1]
    torch.testing.assert_close(permuted / abs(scale), components[1][order].flip(1), atol=1e-9, rtol=1e-9)


@every_method
@pytest.mark.parametrize(("t", "m"), [(5, 7), (5, 3)])
def test_gradients_are_those_of_finite_differences(method, pooling, t, m):
    clips = drifting_clips(2, t, m).requires_grad_()
    distances = (koopman.eigenvalues(clips.detach(), ridge=1e-3) - 1).abs()
    radius = 0.3
    assert (distances < radius).any()
    assert (distances - radius).abs().min() > 0.005
    assert gradcheck(lambda x: koopman.decompose(x, radius=radius, method=method, pooling=pooling), clips)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_eig_has_a_gradient_where_eigenvalues_meet_on_one_side(pooling):
    clip = linear_system(torch.diag(torch.tensor([1.0, 0.5, 0.2], dtype=torch.float64)), t=6).requires_grad_()
    gradients = []
    for method in ("eig", "riesz"):
        # Two of the five eigenvalues are 0.
        static, _ = koopman.decompose(clip, radius=0.3, method=method, pooling=pooling, ridge=1e-4, nodes=128)
        gradients.append(torch.autograd.grad(static.sin().sum(), clip)[0])
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", difficult_clips())
def test_difficult_clips_have_finite_components_and_gradients(kind):
    for method, pooling in SPLITS:
        clips = difficult_clips()[kind].requires_grad_()
        static, dynamic = koopman.decompose(clips, method=method, pooling=pooling)
        assert static.isfinite().all()
        assert dynamic.isfinite().all()
        (static + 2 * dynamic).sum().backward()
        assert clips.grad.isfinite().all()


@every_method
def test_equal_frames_are_all_static(method, pooling):
    clips = difficult_clips()["equal frames"]
    static, dynamic = koopman.decompose(clips, method=method, pooling=pooling)
    torch.testing.assert_close(static, clips[:, 0], atol=1e-3, rtol=1e-3)
    assert (dynamic == 0).all()


@every_method
def test_a_nearly_still_clip_has_no_dynamic_component_and_a_zero_gradient_of_it(method, pooling):
    still = difficult_clips()["equal frames"].double()
    noise = torch.randn(still.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    clips = (still + 1e-5 * noise).requires_grad_()
    _, dynamic = koopman.decompose(clips, method=method, pooling=pooling)
    (gradient,) = torch.autograd.grad(torch.nn.functional.normalize(dynamic, dim=1).sum(), clips)
    assert (dynamic == 0).all()
    assert (gradient == 0).all()
    _, moving = koopman.decompose(still + 0.1 * noise, method=method, pooling=pooling)
    assert (moving.norm(dim=1) > koopman.STILL_THRESHOLD * still[:, 0].norm(dim=1)).all()


def rotating_systems(count=64, *, m=128, t=8, rotations=4):
    """Return two windows at random starts of exact linear systems, (count, 2, t, m): a constant of length 4 and
    rotations of 0.5 to 1.7 rad per frame with amplitudes of 0.5 to 1.5, in random orthonormal bases."""
    draw = torch.Generator().manual_seed(0)

    def uniform(low, high, *shape):
        return low + (high - low) * torch.rand(*shape, generator=draw, dtype=torch.float64)

    basis = torch.linalg.qr(torch.randn(count, m, 2 * rotations + 1, generator=draw, dtype=torch.float64)).Q
    speed, amplitude = uniform(0.5, 1.7, count, 1, 1, rotations), uniform(0.5, 1.5, count, 1, 1, rotations)
    start = torch.randint(100, (count, 2, 1, 1), generator=draw)
    angle = speed * (start + torch.arange(t)[:, None]) + uniform(0, 6.3, count, 1, 1, rotations)
    states = torch.cat([4 * torch.ones(count, 2, t, 1), amplitude * angle.cos(), amplitude * angle.sin()], 3)
    return torch.nn.functional.normalize(states @ basis.mT[:, None], dim=-1)


@pytest.mark.parametrize("method", METHODS)
def test_two_windows_of_one_motion_agree_in_rms_whatever_their_phase_and_not_in_eq21(method):
    systems = rotating_systems()
    agreement = {}
    for pooling in ("rms", "eq21"):
        dynamic = koopman.decompose(systems.flatten(0, 1), method=method, pooling=pooling)[1]
        first, second = torch.nn.functional.normalize(dynamic, dim=1).unflatten(0, (-1, 2)).unbind(1)
        cosines = first @ second.T
        retrieved = (cosines.argmax(1) == torch.arange(len(systems))).double().mean()
        agreement[pooling] = cosines.diagonal().mean().item(), retrieved.item()
    assert agreement["rms"][0] >= 0.85
    assert agreement["rms"][1] >= 0.65
    assert abs(agreement["eq21"][0]) < 0.1
    assert agreement["eq21"][1] < 0.5


@pytest.mark.parametrize("method", METHODS)
def test_a_passing_change_is_dynamic_where_frames_are_linearly_dependent(method):
    pace = torch.tensor([0.0, 0.1, 0.3, 0.6, 1.0, 0.2, 0.0, 0.0], dtype=torch.float64)
    clip = torch.stack([torch.ones(8, dtype=torch.float64), pace], -1)[None]
    dynamic = koopman.decompose(clip, method=method)[1][0]
    assert dynamic[1] > 0.9 * pace.std(correction=0)
    assert dynamic[0] < 0.4 * dynamic[1]


def test_the_order_of_frames_matters_to_the_dynamic_component():
    clips = rotating_systems(8)[:, 0]
    shuffled = clips[:, torch.randperm(clips.shape[1], generator=torch.Generator().manual_seed(0))]
    ordered, disordered = (koopman.decompose(c)[1] for c in (clips, shuffled))
    assert ((ordered - disordered).norm(dim=1) > 0.01 * ordered.norm(dim=1)).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_components_and_gradients_keep_the_frames_dtype(dtype):
    method, pooling = "slow", "rms"
    clips = drifting_clips(dtype=dtype).requires_grad_()
    components = koopman.decompose(clips, method=method, pooling=pooling)
    exact = koopman.decompose(clips.detach().double(), method=method, pooling=pooling)
    for component, value in zip(components, exact, strict=True):
        assert component.dtype == dtype
        # The weights are float64; only the weighted sums are in the dtype, or in float32 if that is more precise.
        torch.testing.assert_close(component.double(), value, atol=0, rtol=8 * torch.finfo(dtype).eps)
    sum(component.sum() for component in components).backward()
    assert clips.grad.dtype == dtype


@every_method
def test_autocast_leaves_values_and_gradients_alone(method, pooling):
    clips = drifting_clips(dtype=torch.float32).requires_grad_()
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            components = koopman.decompose(clips, method=method, pooling=pooling)
            loss = sum(component.sin().sum() for component in components)
        results.append((*components, *torch.autograd.grad(loss, clips)))
    torch.testing.assert_close(results[0], results[1], atol=0, rtol=0)


def test_spectrum_holds_the_eigenvalues_of_the_literal_operator_nearest_to_one_first():
    clips = drifting_clips()
    result = koopman.eigenvalues(clips, ridge=1e-12)
    assert result.shape == (3, 5)
    for values, clip in zip(result, clips, strict=True):
        expected = torch.linalg.eigvals(literal.operator(clip))
        expected = expected[expected.abs().argsort(descending=True)][:5]
        assert (values[:, None] - expected).abs().amin(0).max() < 1e-6
        distances = (values - 1).abs()
        assert (distances.diff() >= 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "hard"}, "'hard'; must be slow, riesz or eig"),
        ({"pooling": "half"}, "'half'; must be rms, mean or eq21"),
        ({"radius": 0.0}, "radius is 0.0; must be positive"),
        ({"radius": float("nan")}, "radius is nan; must be positive"),
        ({"radius": float("inf"), "method": "riesz"}, "radius is inf; must be positive and finite"),
        ({"ridge": 0.0}, "ridge is 0.0; must be positive"),
        ({"ridge": float("nan")}, "ridge is nan"),
        ({"filter_order": 0}, "filter_order is 0"),
        ({"nodes": 1}, "nodes is 1"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(StillmotionError, match=message):
        koopman.decompose(drifting_clips(), **options)


def test_wrong_frames_are_named():
    for function in (koopman.decompose, koopman.prediction_loss, koopman.eigenvalues):
        with pytest.raises(StillmotionError, match=r"2 time steps; .* at least 3"):
            function(torch.ones(1, 2, 4))
        for shape in ((3, 4), (0, 5, 4), (1, 5, 0)):
            with pytest.raises(StillmotionError, match=r"expected \(clips, frames, channels\)"):
                function(torch.ones(shape))


@pytest.mark.parametrize(
    ("method", "frame", "value"), [("slow", 0, torch.nan), ("riesz", 2, torch.inf), ("slow", 4, torch.inf)]
)
def test_nan_in_a_clip_is_nan_in_both_its_components_and_in_no_other(method, frame, value):
    clips = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    clips[0, frame, 1] = value
    for component in koopman.decompose(clips, method=method):
        assert not component[0].isfinite().any()
        assert component[1].isfinite().all()
    assert not any(loss.isfinite() for loss in koopman.prediction_loss(clips))
