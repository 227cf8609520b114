"""`koopman.prediction_loss` against operators that are fitted one by one, M×M."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import koopman_reference as literal
from support.koopman_reference import difficult_clips
from torch.autograd import gradcheck, gradgradcheck

from stillmotion.errors import StillmotionError
from stillmotion.functional import koopman

HOLD_OUTS = (0, 1, 3, "leave-one-out")


def random_clips(b=3, t=6, m=12, *, seed=0, dtype=torch.float64):
    return torch.randn(b, t, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("hold_out", HOLD_OUTS)
@pytest.mark.parametrize(("m", "ridge"), [(12, 1e-3), (3, 0.1), (1, 1e-3)])
def test_prediction_is_that_of_operators_fitted_anew(hold_out, m, ridge):
    clips = random_clips(m=m)
    errors = torch.stack([literal.prediction_loss(clip, ridge=ridge, hold_out=hold_out) for clip in clips])
    plain = koopman.prediction_loss(clips, ridge=ridge, hold_out=hold_out, relative=False)
    torch.testing.assert_close(plain.prediction, (errors / m).mean())
    relative = koopman.prediction_loss(clips, ridge=ridge, hold_out=hold_out)
    sizes = clips[:, :-1].square().sum(2).mean(1)
    torch.testing.assert_close(relative.prediction, (errors / sizes).mean())


@pytest.mark.parametrize(("m", "ridge"), [(12, 1e-4), (5, 0.1), (3, 1e-4), (1, 0.1)])
def test_orthogonality_is_the_literal_norm_above_its_minimum(m, ridge):
    clips = random_clips(m=m)
    expected = torch.stack([literal.orthogonality_loss(clip, ridge=ridge) for clip in clips]).mean()
    result = koopman.prediction_loss(clips, ridge=ridge)
    torch.testing.assert_close(result.orthogonality, expected, atol=1e-6, rtol=1e-6)


@given(seed=st.integers(0, 1000))
def test_no_part_is_negative(seed):
    losses = koopman.prediction_loss(random_clips(seed=seed))
    assert losses.prediction >= 0
    assert losses.orthogonality >= 0


def test_total_is_the_weighted_sum_of_its_parts():
    losses = koopman.prediction_loss(random_clips(), orthogonality=0.3)
    torch.testing.assert_close(losses.total, losses.prediction + 0.3 * losses.orthogonality)


def test_without_a_ridge_only_held_out_frames_are_predicted_badly():
    clips = random_clips()
    assert koopman.prediction_loss(clips, hold_out=0, ridge=1e-10).prediction < 1e-12
    assert koopman.prediction_loss(clips, hold_out="leave-one-out", ridge=1e-10).prediction > 0.1


def test_a_rotation_is_predicted_and_orthogonal():
    angles = torch.arange(8, dtype=torch.float64)[None, :, None] * torch.tensor([0.5, 1.3], dtype=torch.float64)
    clip = torch.cat([angles.cos(), angles.sin()], 2)
    for hold_out in (0, 2, "leave-one-out"):
        losses = koopman.prediction_loss(clip, hold_out=hold_out, ridge=1e-9)
        assert losses.prediction < 1e-12
    # K is orthogonal on its 4 dimensions; the literal norm is 0, which lies n - M above M - n.
    torch.testing.assert_close(losses.orthogonality, torch.tensor(3.0, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("hold_out", HOLD_OUTS)
@given(scale=st.floats(1e-6, 1e6))
def test_scale_does_not_matter_to_the_relative_loss_and_squares_in_the_plain_one(hold_out, scale):
    clips = random_clips()
    torch.testing.assert_close(
        koopman.prediction_loss(scale * clips, hold_out=hold_out), koopman.prediction_loss(clips, hold_out=hold_out)
    )
    torch.testing.assert_close(
        koopman.prediction_loss(scale * clips, hold_out=hold_out, relative=False).prediction,
        scale**2 * koopman.prediction_loss(clips, hold_out=hold_out, relative=False).prediction,
    )


@pytest.mark.parametrize("hold_out", [0, 2, "leave-one-out"])
@pytest.mark.parametrize(("m", "relative"), [(7, True), (3, False)])
def test_first_and_second_derivatives_are_those_of_finite_differences(hold_out, m, relative):
    clips = random_clips(1, 5, m).requires_grad_()

    def loss(x):
        return koopman.prediction_loss(x, orthogonality=0.1, ridge=0.1, hold_out=hold_out, relative=relative).total

    assert gradcheck(loss, clips)
    assert gradgradcheck(loss, clips)


@pytest.mark.parametrize("kind", difficult_clips())
def test_difficult_clips_have_a_finite_loss_and_gradient(kind):
    for hold_out, relative in itertools.product((0, 1, "leave-one-out"), (True, False)):
        clips = difficult_clips()[kind].requires_grad_()
        losses = koopman.prediction_loss(clips, hold_out=hold_out, relative=relative)
        assert all(loss.isfinite() for loss in losses)
        losses.total.backward()
        assert clips.grad.isfinite().all()


def test_a_loss_that_does_not_fit_its_dtype_is_infinite_and_a_relative_one_fits():
    clips = 1e25 * random_clips(dtype=torch.float32)
    assert koopman.prediction_loss(clips, relative=False).prediction.isinf()
    assert koopman.prediction_loss(clips).prediction.isfinite()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_loss_and_gradient_keep_the_frames_dtype(dtype):
    clips = random_clips(dtype=dtype).requires_grad_()
    losses = koopman.prediction_loss(clips)
    exact = koopman.prediction_loss(clips.detach().double())
    for loss, value in zip(losses, exact, strict=True):
        assert loss.dtype == dtype
        torch.testing.assert_close(loss.double(), value, atol=0, rtol=2 * torch.finfo(dtype).eps)
    losses.total.backward()
    assert clips.grad.dtype == dtype


def test_autocast_leaves_loss_and_gradient_alone():
    clips = random_clips(dtype=torch.float32).requires_grad_()
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            losses = koopman.prediction_loss(clips)
        results.append((*losses, *torch.autograd.grad(losses.total, clips)))
    torch.testing.assert_close(results[0], results[1], atol=0, rtol=0)


def test_a_wrong_hold_out_is_named():
    for hold_out in (-1, 5, 1.5, "all"):
        with pytest.raises(StillmotionError, match=rf"hold_out is {hold_out!r}; with 5 transitions it must be 0 to 4"):
            koopman.prediction_loss(random_clips(), hold_out=hold_out)
