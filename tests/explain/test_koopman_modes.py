import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba

from stillmotion.errors import StillmotionError
from stillmotion.explain.koopman_modes import KoopmanModes, koopman_modes, plot_mode_amplitudes, plot_mode_eigenvalues
from stillmotion.functional import koopman
from stillmotion.report.plot_style import GRAY


def linear_system(frames=7):
    """Return frames (frames, 3) of equal length: a constant and a rotation by 0.5 rad per frame."""
    t = 0.5 * np.arange(frames)
    return np.stack([np.full(frames, 2.0), np.cos(t), np.sin(t)], 1)


def test_modes_have_the_eigenvalues_of_the_operator():
    frames = np.random.default_rng(0).standard_normal((6, 9))
    unit = torch.nn.functional.normalize(torch.from_numpy(frames), dim=-1)
    expected = koopman.eigenvalues(unit[None], ridge=1e-3)[0].numpy()
    result = koopman_modes(frames, ridge=1e-3).eigenvalues
    # Conjugates are equally far from 1, so their order is arbitrary.
    np.testing.assert_allclose(np.sort_complex(result), np.sort_complex(expected), atol=1e-9)
    np.testing.assert_allclose(np.abs(result - 1), np.abs(expected - 1), atol=1e-9)


def test_amplitudes_follow_their_eigenvalues_and_begin_real():
    result = koopman_modes(linear_system(), ridge=1e-9)
    moving = np.abs(result.amplitudes[:, 0]) > 1e-3
    assert moving.sum() == 3
    values, amplitudes = result.eigenvalues[moving], result.amplitudes[moving]
    np.testing.assert_allclose(np.sort(np.angle(values)), [-0.5, 0, 0.5], atol=1e-4)
    np.testing.assert_allclose(amplitudes[:, 1:], values[:, None] * amplitudes[:, :-1], atol=1e-4)
    np.testing.assert_allclose(amplitudes[:, 0].imag, 0, atol=1e-12)
    assert (amplitudes[:, 0].real > 0).all()


def test_a_still_clip_has_one_constant_mode_and_no_other():
    result = koopman_modes(np.ones((5, 4)))
    strong = result.strongest(1)[0]
    assert result.is_static(0.1)[strong]
    np.testing.assert_allclose(result.amplitudes[strong], result.amplitudes[strong, 0])
    assert np.abs(np.delete(result.amplitudes, strong, 0)).max() < 1e-6


def test_the_strongest_modes_are_drawn_in_the_same_colours_in_both_figures():
    values = np.array([0.98, 0.5 + 0.5j, 0.5 - 0.5j, 0.1])
    strength = np.array([1.0, 0.5, 0.5, 0.7])
    result = KoopmanModes(values, strength[:, None] * values[:, None] ** np.arange(4))
    assert result.strongest(5).tolist() == [0, 1, 3]
    lines = [line for line in plot_mode_amplitudes(result, radius=0.1).axes[0].lines if line.get_label()[0] == "λ"]
    assert [line.get_label() for line in lines] == ["λ = 0.98, static", "λ = 0.50 ± 0.50i", "λ = 0.10"]
    np.testing.assert_allclose(lines[2].get_ydata(), 0.7 * 0.1 ** np.arange(4))
    assert lines[0].get_linewidth() > lines[1].get_linewidth()
    axes = plot_mode_eigenvalues(result, radius=0.1).axes[0]
    assert axes.get_title(loc="left") == "1 of 4 eigenvalues within ξ of 1"
    dots = axes.collections[0]
    np.testing.assert_allclose(dots.get_offsets(), np.stack([values.real, values.imag], 1))
    colours = [tuple(colour) for colour in dots.get_facecolor()]
    assert colours[1] == colours[2]
    assert len(set(colours)) == 3
    assert colours == [to_rgba(lines[i].get_color()) for i in (0, 1, 1, 2)]
    assert to_rgba(GRAY) not in colours


def test_two_frames_have_no_modes():
    with pytest.raises(StillmotionError, match="at least 3 frames"):
        koopman_modes(np.ones((2, 4)))
