"""`koopman.split` against the literal M×M operator, and the properties it promises."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import koopman_reference as literal
from torch.autograd import gradcheck

from stillmotion.errors import StillmotionError
from stillmotion.functional import koopman

HOWS = ("slow", "riesz", "eig")
WEIGHTS = ("project", "advance")
every_split = pytest.mark.parametrize(("how", "weight"), [(how, weight) for how in HOWS for weight in WEIGHTS])


def wandering(b=3, t=6, m=12, *, seed=0, dtype=torch.float64):
    """Clips that drift from a start of their own: some eigenvalues near 1, some far from it."""
    draw = torch.Generator().manual_seed(seed)
    steps = torch.randn(b, t, m, generator=draw, dtype=torch.float64)
    return (0.4 * steps.cumsum(1) + 1.5 * torch.randn(b, 1, m, generator=draw, dtype=torch.float64)).to(dtype)


def linear_system(operator, *, m=12, t=6, seed=0):
    """A clip (1, t, m) that follows x_{t+1} = A x_t in the span of orthonormal directions."""
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


def stacked(reference, clips, **options):
    return [torch.stack(half) for half in zip(*(reference(clip, **options) for clip in clips), strict=True)]


@pytest.mark.parametrize("how", ["eig", "riesz"])
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("radius", [0.2, 0.4])
def test_hard_split_is_the_literal_one_as_the_ridge_vanishes(how, weight, radius):
    clips = wandering()
    inside = (koopman.eigenvalues(clips, ridge=1e-12) - 1).abs() < radius
    assert inside.any()
    assert not inside.all()
    expected = stacked(literal.decompose, clips, radius=radius, weighting=weight)
    errors = []
    for ridge in (1e-6, 1e-12):
        found = koopman.decompose(clips, radius=radius, method=how, weighting=weight, ridge=ridge, nodes=128)
        errors.append(max((f - e).abs().max().item() for f, e in zip(found, expected, strict=True)))
    assert errors[1] < 1e-6 < 1e-2 * expected[0].abs().max()
    assert errors[0] < 1e-2


@pytest.mark.parametrize("how", ["eig", "riesz"])
def test_advance_is_the_literal_split_of_the_ridge_operator_at_any_ridge(how):
    clips = wandering()
    expected = stacked(literal.decompose, clips, radius=0.3, weighting="advance", ridge=1e-2)
    found = koopman.decompose(clips, radius=0.3, method=how, weighting="advance", ridge=1e-2, nodes=256)
    torch.testing.assert_close(found, tuple(expected), atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("power", [1, 2, 3, 4])
def test_slow_split_is_its_literal_formula(weight, power):
    clips = wandering()
    expected = stacked(literal.slow_decompose, clips, radius=0.3, filter_order=power, weighting=weight)
    found = koopman.decompose(clips, radius=0.3, filter_order=power, weighting=weight, ridge=1e-13)
    torch.testing.assert_close(found, tuple(expected), atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_slow_split_of_a_normal_operator_tends_to_the_threshold_as_power_grows(weight):
    clip = linear_system(torch.block_diag(torch.ones(1, 1).double(), rotation(0.05), rotation(1.2)))
    hard = koopman.decompose(clip, radius=0.15, method="eig", weighting=weight, ridge=1e-13)[0]
    errors = [
        (koopman.decompose(clip, radius=0.15, filter_order=power, weighting=weight, ridge=1e-13)[0] - hard)
        .norm()
        .item()
        for power in (1, 2, 4, 8)
    ]
    assert all(after < before / 4 for before, after in pairwise(errors))
    assert errors[-1] < 1e-6 * hard.norm()


@pytest.mark.parametrize("nodes", [2, 3, 7, 32])
def test_riesz_weighs_an_eigenvalue_as_the_trapezoid_rule_does(nodes):
    decay, radius = 0.9, 0.3
    clip = linear_system(torch.diag(torch.tensor([1.0, decay], dtype=torch.float64)), t=3)
    one, other = literal.decompose(clip[0], radius=0.05, weighting="project")
    static, _ = koopman.decompose(clip, radius=radius, method="riesz", nodes=nodes, ridge=1e-13)
    # Σ_k z_k / (z_k - c) / N over the N points where z^N = -ξ^N is ξ^N / (ξ^N + c^N).
    share = radius**nodes / (radius**nodes + (decay - 1) ** nodes)
    torch.testing.assert_close(static[0], one + share * other, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("how", HOWS)
def test_halves_sum_to_the_mean_frame_in_project_mode(how):
    clips = wandering()
    static, dynamic = koopman.decompose(clips, method=how)
    torch.testing.assert_close(static + dynamic, clips.mean(1))


@pytest.mark.parametrize("how", HOWS)
def test_halves_sum_to_the_next_mean_frame_in_advance_mode(how):
    clips = wandering()
    static, dynamic = koopman.decompose(clips, method=how, weighting="advance", ridge=1e-12)
    expected = torch.stack([literal.operator(clip) @ clip.mean(0) for clip in clips])
    torch.testing.assert_close(static + dynamic, expected, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("how", HOWS)
def test_a_constant_mode_is_static_and_a_rotation_dynamic(how):
    clip = linear_system(torch.block_diag(torch.ones(1, 1).double(), rotation(1.5), rotation(2.2, 0.8)))
    static, dynamic = koopman.decompose(clip, radius=0.1, method=how, filter_order=8, ridge=1e-12)
    torch.testing.assert_close(koopman.decompose(static[:, None].expand(-1, 6, -1), ridge=1e-12)[0], static)
    assert (static @ dynamic.T).abs() < 1e-6 * static.norm() * dynamic.norm()


@pytest.mark.parametrize(("radius", "static_share"), [(0.05, 0.0), (0.6, 1.0)])
def test_the_radius_says_which_decays_count_as_static(radius, static_share):
    clip = linear_system(torch.diag(torch.tensor([0.9, 0.7, 0.5], dtype=torch.float64)), t=4)
    static, _ = koopman.decompose(clip, radius=radius, method="eig", ridge=1e-13)
    torch.testing.assert_close(static, static_share * clip.mean(1), atol=1e-6, rtol=1e-6)


@every_split
@given(scale=st.floats(-1e6, 1e6).filter(lambda s: abs(s) > 1e-6))
def test_scaled_clips_have_scaled_halves(how, weight, scale):
    clips = wandering()
    halves = koopman.decompose(clips, method=how, weighting=weight)
    for scaled, half in zip(koopman.decompose(scale * clips, method=how, weighting=weight), halves, strict=True):
        torch.testing.assert_close(scaled / scale, half, atol=1e-9, rtol=1e-9)


@every_split
@given(order=st.permutations(range(4)))
def test_each_clip_is_split_by_itself(how, weight, order):
    clips = wandering(4)
    halves = koopman.decompose(clips, method=how, weighting=weight)
    for moved, half in zip(koopman.decompose(clips[order], method=how, weighting=weight), halves, strict=True):
        torch.testing.assert_close(moved, half[order], atol=1e-10, rtol=1e-10)


@every_split
@given(seed=st.integers(0, 1000))
def test_a_rotation_of_the_channels_rotates_the_halves(how, weight, seed):
    draw = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(12, 12, generator=draw, dtype=torch.float64)).Q
    clips = wandering()
    halves = koopman.decompose(clips, method=how, weighting=weight)
    for turned, half in zip(koopman.decompose(clips @ turn, method=how, weighting=weight), halves, strict=True):
        torch.testing.assert_close(turned, half @ turn, atol=1e-9, rtol=1e-9)


@every_split
@pytest.mark.parametrize(("t", "m"), [(5, 7), (5, 3)])
def test_gradients_are_those_of_finite_differences(how, weight, t, m):
    clips = wandering(2, t, m).requires_grad_()
    distances = (koopman.eigenvalues(clips.detach(), ridge=1e-3) - 1).abs()
    radius = 0.3
    assert (distances < radius).any()
    assert (distances - radius).abs().min() > 0.005
    assert gradcheck(lambda x: koopman.decompose(x, radius=radius, method=how, weighting=weight), clips)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_eig_has_a_gradient_where_eigenvalues_meet_on_one_side(weight):
    clip = linear_system(torch.diag(torch.tensor([1.0, 0.5, 0.2], dtype=torch.float64)), t=6).requires_grad_()
    gradients = []
    for how in ("eig", "riesz"):
        # Two of the five eigenvalues are 0.
        static, _ = koopman.decompose(clip, radius=0.3, method=how, weighting=weight, ridge=1e-4, nodes=128)
        gradients.append(torch.autograd.grad(static.sin().sum(), clip)[0])
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)


def difficult(t=8, m=16):
    draw = torch.Generator().manual_seed(0)
    some = torch.randn(2, t, m, generator=draw)
    return {
        "equal frames": some[:, :1].expand(-1, t, -1).clone(),
        "zeros": torch.zeros(2, t, m),
        "huge": 1e18 * some,
        "minute": 1e-30 * some,
        "one channel": some[..., :1].clone(),
        "fewer channels than transitions": some[..., :3].clone(),
        "zeros but for the first frame": torch.cat([some[:, :1], torch.zeros(2, t - 1, m)], 1),
        "zeros but for the last frame": torch.cat([torch.zeros(2, t - 1, m), some[:, -1:]], 1),
        "almost zeros but for the last frame": torch.cat([1e-10 * some[:, :-1], some[:, -1:]], 1),
        "three frames": some[:, :3].clone(),
        "two frames in turn": some[:, [0, 1] * (t // 2)].clone(),
        "one wild frame": some.index_fill(1, torch.tensor(3), 1e6),
    }


@every_split
@pytest.mark.parametrize("kind", difficult())
def test_difficult_clips_have_finite_halves_and_gradients(how, weight, kind):
    clips = difficult()[kind].requires_grad_()
    static, dynamic = koopman.decompose(clips, method=how, weighting=weight)
    assert static.isfinite().all()
    assert dynamic.isfinite().all()
    (static + 2 * dynamic).sum().backward()
    assert clips.grad.isfinite().all()


@every_split
def test_equal_frames_are_all_static(how, weight):
    clips = difficult()["equal frames"]
    static, dynamic = koopman.decompose(clips, method=how, weighting=weight)
    torch.testing.assert_close(static, clips[:, 0], atol=1e-3, rtol=1e-3)
    assert (dynamic.norm(dim=1) < 1e-6 * static.norm(dim=1)).all()


@every_split
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_halves_and_gradients_keep_the_frames_dtype(how, weight, dtype):
    clips = wandering(dtype=dtype).requires_grad_()
    halves = koopman.decompose(clips, method=how, weighting=weight)
    exact = koopman.decompose(clips.detach().double(), method=how, weighting=weight)
    for half, value in zip(halves, exact, strict=True):
        assert half.dtype == dtype
        # Only the last rounding is the dtype's own.
        torch.testing.assert_close(half.double(), value, atol=0, rtol=torch.finfo(dtype).eps)
    sum(half.sum() for half in halves).backward()
    assert clips.grad.dtype == dtype


@every_split
def test_autocast_leaves_values_and_gradients_alone(how, weight):
    clips = wandering(dtype=torch.float32).requires_grad_()
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            halves = koopman.decompose(clips, method=how, weighting=weight)
            loss = sum(half.sin().sum() for half in halves)
        results.append((*halves, *torch.autograd.grad(loss, clips)))
    torch.testing.assert_close(results[0], results[1], atol=0, rtol=0)


def test_spectrum_holds_the_eigenvalues_of_the_literal_operator_nearest_to_one_first():
    clips = wandering()
    found = koopman.eigenvalues(clips, ridge=1e-12)
    assert found.shape == (3, 5)
    for values, clip in zip(found, clips, strict=True):
        expected = torch.linalg.eigvals(literal.operator(clip))
        expected = expected[expected.abs().argsort(descending=True)][:5]
        assert (values[:, None] - expected).abs().amin(0).max() < 1e-6
        distances = (values - 1).abs()
        assert (distances.diff() >= 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "hard"}, "'hard'; choose slow, riesz or eig"),
        ({"weighting": "half"}, "'half'; choose project or advance"),
        ({"radius": 0.0}, "radius is 0.0; it must be positive"),
        ({"radius": float("nan")}, "radius is nan; it must be positive"),
        ({"radius": float("inf"), "method": "riesz"}, "radius is inf; it must be positive and finite"),
        ({"ridge": 0.0}, "ridge is 0.0; it must be positive"),
        ({"ridge": float("nan")}, "ridge is nan"),
        ({"filter_order": 0}, "power 0"),
        ({"nodes": 1}, "nodes 1"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(StillmotionError, match=message):
        koopman.decompose(wandering(), **options)


def test_wrong_frames_are_named():
    for function in (koopman.decompose, koopman.prediction_loss, koopman.eigenvalues):
        with pytest.raises(StillmotionError, match=r"clip has 2 time steps; .* at least 3"):
            function(torch.ones(1, 2, 4))
        for shape in ((3, 4), (0, 5, 4), (1, 5, 0)):
            with pytest.raises(StillmotionError, match=r"expected \(clips, frames, channels\)"):
                function(torch.ones(shape))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("how", ["slow", "riesz"])
def test_nan_in_a_clip_is_nan_in_both_its_halves_and_in_no_other(how, place, value):
    clips = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    clips[0, place, 1] = value
    for half in koopman.decompose(clips, method=how):
        assert not half[0].isfinite().any()
        assert half[1].isfinite().all()
    assert not any(part.isfinite() for part in koopman.prediction_loss(clips))
