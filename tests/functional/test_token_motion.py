"""Motion by matches, against a literal version and on simple clips with known motion."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stillmotion.errors import StillmotionError
from stillmotion.functional.token_motion import (
    amplitude_spectrum,
    mirror_symmetrize,
    motion_embedding,
    motion_vector,
    subtract_camera_motion,
    token_displacements,
    token_matches,
)


def random_tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def literal_displacement(first, second, row, column, radius, temperature):
    """Displacement of a cell of one frame in another, by plain loops."""
    h, w, _ = first.shape
    total, weighted_sum = 0.0, [0.0, 0.0]
    for y in range(max(0, row - radius), min(h, row + radius + 1)):
        for x in range(max(0, column - radius), min(w, column + radius + 1)):
            a, b = first[row, column], second[y, x]
            weight = math.exp(float(a @ b / a.norm() / b.norm()) / temperature)
            total += weight
            weighted_sum = [weighted_sum[0] + weight * (y - row), weighted_sum[1] + weight * (x - column)]
    return torch.tensor([weighted_sum[0] / total, weighted_sum[1] / total], dtype=torch.float64)


def literal(tokens, radius, temperature):
    b, t, h, w, _ = tokens.shape
    result = torch.zeros(b, t - 1, h, w, 2, dtype=torch.float64)
    for i in range(b):
        for y in range(h):
            for x in range(w):
                self_motion = sum(literal_displacement(f, f, y, x, radius, temperature) for f in tokens[i, :-1]) / (
                    t - 1
                )
                for k in range(t - 1):
                    result[i, k, y, x] = (
                        literal_displacement(tokens[i, k], tokens[i, k + 1], y, x, radius, temperature) - self_motion
                    )
    return result


@pytest.mark.parametrize(("radius", "temperature"), [(1, 0.1), (2, 0.3), (5, 0.05)])
def test_displacements_are_those_of_plain_loops(radius, temperature):
    tokens = random_tokens(2, 3, 4, 5, 6)
    result = token_displacements(tokens, radius=radius, temperature=temperature)
    torch.testing.assert_close(result, literal(tokens, radius, temperature))


@given(seed=st.integers(0, 1000), frames=st.integers(2, 5))
def test_a_still_clip_has_no_motion(seed, frames):
    still = random_tokens(1, 1, 4, 4, 8, seed=seed).expand(-1, frames, -1, -1, -1)
    assert token_displacements(still).abs().max() < 1e-12
    assert motion_embedding(still).abs().max() == 0


@pytest.mark.parametrize("step", [(0, 1), (1, 0), (-1, 2)])
def test_a_shift_of_a_scene_is_that_displacement(step):
    scene = random_tokens(1, 9, 9, 64)
    tokens = torch.stack([torch.roll(scene, (step[0] * t, step[1] * t), (1, 2)) for t in range(3)], 1)
    inner = token_displacements(tokens, temperature=0.01)[:, :, 3:6, 3:6]
    torch.testing.assert_close(inner, torch.tensor(step, dtype=torch.float64).expand_as(inner), atol=1e-3, rtol=0)


def test_the_scale_of_tokens_does_not_matter():
    tokens = random_tokens(2, 3, 4, 4, 8)
    scale = random_tokens(2, 3, 4, 4, 1, seed=1).exp()
    torch.testing.assert_close(token_displacements(tokens * scale), token_displacements(tokens))


def test_motion_of_the_whole_frame_is_camera_motion():
    field = random_tokens(2, 5, 3, 3, 2)
    torch.testing.assert_close(
        subtract_camera_motion(field + random_tokens(2, 5, 1, 1, 2, seed=1)), subtract_camera_motion(field)
    )


def test_amplitudes_do_not_tell_when_a_rhythm_began():
    field = random_tokens(1, 12, 3, 3, 2)
    torch.testing.assert_close(amplitude_spectrum(torch.roll(field, 5, 1)), amplitude_spectrum(field))
    wave = torch.cos(2 * math.pi * 3 * torch.arange(12) / 12)[None, :, None, None, None].expand(1, 12, 2, 2, 2)
    assert (amplitude_spectrum(wave)[0, :, 0, 0, 0].argmax(), len(amplitude_spectrum(wave)[0])) == (3, 7)


@pytest.mark.parametrize("columns", [4, 5])
def test_half_of_a_mirrored_spectrum_has_the_cosines_of_the_whole(columns):
    spectrum = random_tokens(6, 4, 3, columns, 2).abs()
    full, half_spectrum = (spectrum + spectrum.flip(3)).flatten(1), mirror_symmetrize(spectrum).flatten(1)
    a, b = (torch.nn.functional.normalize(x, dim=1) for x in (full, half_spectrum))
    torch.testing.assert_close(a @ a.T, b @ b.T)
    torch.testing.assert_close(mirror_symmetrize(spectrum.flip(3)), mirror_symmetrize(spectrum))


def test_the_motion_vector_has_two_parts_of_unit_length():
    tokens = random_tokens(3, 6, 4, 5, 8)
    result = motion_embedding(tokens)
    field = 5 * 4 * 5 * 2
    assert result.shape == (3, field + 3 * 4 * 3 * 2)
    for section in (result[:, :field], result[:, field:]):
        torch.testing.assert_close(section.norm(dim=1), torch.ones(3, dtype=torch.float64))
    assert motion_embedding(tokens[:, :1]).shape == (3, 0)


def test_a_displacement_counts_half_at_half_saturation():
    field = torch.zeros(1, 2, 1, 5, 2)
    field[0, 0, 0, 0, 0], field[0, 1, 0, 1, 1] = 0.2, -1e6  # the median is zero
    result = motion_vector(field, half_saturation=0.2)[0, : field.numel()].view_as(field)
    torch.testing.assert_close(result[0, 0, 0, 0, 0] / result[0, 1, 0, 1, 1], torch.tensor(-0.5))


def test_motion_has_the_gradient_of_finite_differences():
    tokens = random_tokens(1, 3, 3, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: motion_vector(token_displacements(x)), tokens)


@pytest.mark.parametrize("options", [{"radius": 0}, {"temperature": 0.0}])
def test_what_finds_no_match_is_refused(options):
    with pytest.raises(StillmotionError, match=r"radius is .*; must be at least 1"):
        token_displacements(random_tokens(1, 2, 3, 3, 4), **options)


def test_matches_of_a_shifted_frame_are_its_shift_and_do_not_depend_on_appearance():
    generator = torch.Generator().manual_seed(0)
    frame = torch.randn(6, 6, 16, generator=generator)
    clip = torch.stack([frame, frame.roll(1, 1)])[None]  # everything moves one column to the right
    matches = token_matches(clip, radius=1, temperature=0.02)
    assert matches.shape == (1, 1, 6, 6, 9)
    inner = matches[0, 0, :, 1:5]
    assert (inner.argmax(-1) == 5).all()  # row 0, column +1
    assert (inner.argmin(-1) == 4).all()  # not at its old position
    assert token_matches(frame.expand(1, 3, 6, 6, 16)).abs().max() < 1e-6
    rotation = torch.linalg.qr(torch.randn(16, 16, generator=generator)).Q
    torch.testing.assert_close(token_matches(3 * clip @ rotation), token_matches(clip), atol=1e-5, rtol=0)
