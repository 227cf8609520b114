"""Motion by matches, against a literal version and against what is known of simple clips."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stillmotion.errors import StillmotionError
from stillmotion.functional.motion import amplitudes, bounded, displacements, mirrored, motion, motion_vector, steadied


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def matched(first, second, row, column, radius, temperature):
    """Where a cell of a frame lies in another, less its own place, by plain loops."""
    h, w, _ = first.shape
    total, moved = 0.0, [0.0, 0.0]
    for y in range(max(0, row - radius), min(h, row + radius + 1)):
        for x in range(max(0, column - radius), min(w, column + radius + 1)):
            a, b = first[row, column], second[y, x]
            weight = math.exp(float(a @ b / a.norm() / b.norm()) / temperature)
            total += weight
            moved = [moved[0] + weight * (y - row), moved[1] + weight * (x - column)]
    return torch.tensor([moved[0] / total, moved[1] / total], dtype=torch.float64)


def literal(tokens, radius, temperature):
    b, t, h, w, _ = tokens.shape
    found = torch.zeros(b, t - 1, h, w, 2, dtype=torch.float64)
    for i in range(b):
        for y in range(h):
            for x in range(w):
                own = sum(matched(f, f, y, x, radius, temperature) for f in tokens[i, :-1]) / (t - 1)
                for k in range(t - 1):
                    found[i, k, y, x] = matched(tokens[i, k], tokens[i, k + 1], y, x, radius, temperature) - own
    return found


@pytest.mark.parametrize(("radius", "temperature"), [(1, 0.1), (2, 0.3), (5, 0.05)])
def test_displacements_are_those_of_plain_loops(radius, temperature):
    tokens = drawn(2, 3, 4, 5, 6)
    found = displacements(tokens, radius=radius, temperature=temperature)
    torch.testing.assert_close(found, literal(tokens, radius, temperature))


@given(seed=st.integers(0, 1000), frames=st.integers(2, 5))
def test_a_still_clip_has_no_motion(seed, frames):
    still = drawn(1, 1, 4, 4, 8, seed=seed).expand(-1, frames, -1, -1, -1)
    assert displacements(still).abs().max() < 1e-12
    assert motion(still).abs().max() == 0


@pytest.mark.parametrize("step", [(0, 1), (1, 0), (-1, 2)])
def test_a_shift_of_a_scene_is_that_displacement(step):
    scene = drawn(1, 9, 9, 64)
    tokens = torch.stack([torch.roll(scene, (step[0] * t, step[1] * t), (1, 2)) for t in range(3)], 1)
    inner = displacements(tokens, temperature=0.01)[:, :, 3:6, 3:6]
    torch.testing.assert_close(inner, torch.tensor(step, dtype=torch.float64).expand_as(inner), atol=1e-3, rtol=0)


def test_the_scale_of_tokens_does_not_matter():
    tokens = drawn(2, 3, 4, 4, 8)
    scale = drawn(2, 3, 4, 4, 1, seed=1).exp()
    torch.testing.assert_close(displacements(tokens * scale), displacements(tokens))


def test_what_the_whole_frame_does_is_the_cameras():
    field = drawn(2, 5, 3, 3, 2)
    torch.testing.assert_close(steadied(field + drawn(2, 5, 1, 1, 2, seed=1)), steadied(field))


def test_amplitudes_do_not_tell_when_a_rhythm_began():
    field = drawn(1, 12, 3, 3, 2)
    torch.testing.assert_close(amplitudes(torch.roll(field, 5, 1)), amplitudes(field))
    wave = torch.cos(2 * math.pi * 3 * torch.arange(12) / 12)[None, :, None, None, None].expand(1, 12, 2, 2, 2)
    assert (amplitudes(wave)[0, :, 0, 0, 0].argmax(), len(amplitudes(wave)[0])) == (3, 7)


def reflected(field: torch.Tensor) -> torch.Tensor:
    """The displacements of a clip's mirror image, cell by cell."""
    image = torch.empty_like(field)
    w = field.shape[3]
    for x in range(w):
        image[:, :, :, x, 0], image[:, :, :, x, 1] = field[:, :, :, w - 1 - x, 0], -field[:, :, :, w - 1 - x, 1]
    return image


@pytest.mark.parametrize("columns", [4, 5])
def test_half_of_what_is_mirrored_has_the_cosines_of_the_whole(columns):
    field = drawn(6, 4, 3, columns, 2)
    for found, image, turned in (
        (field, reflected(field), True),
        (amplitudes(field), amplitudes(reflected(field)), False),
    ):
        whole, half = (found + image).flatten(1), mirrored(found, turned=turned).flatten(1)
        a, b = (torch.nn.functional.normalize(x, dim=1) for x in (whole, half))
        torch.testing.assert_close(a @ a.T, b @ b.T)


@pytest.mark.parametrize("columns", [4, 5])
def test_motion_vectors_have_the_cosines_of_plain_loops(columns):
    field = drawn(4, 6, 3, columns, 2)
    vectors = []
    for one in field:
        parts = [torch.zeros(6, 3, columns, 2), torch.zeros(4, 3, columns, 2)]
        bent = torch.zeros(6, 3, columns, 2, dtype=torch.float64)
        for t, frame in enumerate(one):
            camera = [sorted(frame[..., k].flatten().tolist())[(frame[..., k].numel() - 1) // 2] for k in (0, 1)]
            for y, x in itertools.product(range(3), range(columns)):
                dy, dx = (float(frame[y, x, k]) - camera[k] for k in (0, 1))
                bent[t, y, x] = torch.tensor([dy, dx], dtype=torch.float64) / (math.hypot(dy, dx) + 1)
        for y, x, k in itertools.product(range(3), range(columns), range(2)):
            here, there = (bent[:, y, c, k].numpy() for c in (x, columns - 1 - x))
            parts[0][:, y, x, k] = torch.from_numpy(here + (there if k == 0 else -there))
            parts[1][:, y, x, k] = torch.from_numpy(abs(np.fft.rfft(here)) + abs(np.fft.rfft(there)))
        vectors.append(torch.cat([length * part.flatten() / part.norm() for length, part in enumerate(parts, 1)]))
    found = motion_vector(field).float()
    wanted = torch.stack(vectors)
    torch.testing.assert_close(found @ found.T, wanted @ wanted.T)


def test_a_clip_and_its_mirror_image_move_alike():
    """But for the camera's median, which is one of two middle numbers where cells are even in number."""
    field = drawn(2, 5, 3, 5, 2)
    torch.testing.assert_close(motion_vector(reflected(field)), motion_vector(field))


def test_the_spectrum_is_twice_as_long_as_the_displacements():
    tokens = drawn(3, 6, 4, 5, 8)
    found = motion(tokens)
    field = 5 * 4 * 3 * 2
    assert found.shape == (3, field + 3 * 4 * 3 * 2)
    for part, length in ((found[:, :field], 1.0), (found[:, field:], 2.0)):
        torch.testing.assert_close(part.norm(dim=1), torch.full((3,), length, dtype=torch.float64))
    assert motion(tokens[:, :1]).shape == (3, 0)


def test_a_displacement_of_a_cell_counts_half_of_one_without_end():
    field = torch.tensor([[0.0, 1.0], [-1e9, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(bounded(field), torch.tensor([[0.0, 0.5], [-1.0, 0.0], [0.0, 0.0]]))


def test_motion_has_the_gradient_of_finite_differences():
    tokens = drawn(1, 3, 3, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: motion_vector(displacements(x)), tokens)


@pytest.mark.parametrize("options", [{"radius": 0}, {"temperature": 0.0}])
def test_what_finds_no_match_is_refused(options):
    with pytest.raises(StillmotionError, match=r"radius is .* and temperature .*; choose at least 1, and above 0"):
        displacements(drawn(1, 2, 3, 3, 4), **options)
