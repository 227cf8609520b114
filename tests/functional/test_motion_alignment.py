"""Motion fields and their similarity under alignment."""

import numpy as np
import pytest
import torch

from stillmotion.functional.motion_alignment import (
    ALIGNMENTS,
    FAST_SPEED,
    Alignment,
    aligned_similarity,
    field_spectrum,
    motion_field,
)

MIRROR = torch.tensor([1.0, -1.0, 1.0])


def random_fields(n, seed=0, shape=(15, 8, 10)):
    return torch.randn(n, *shape, 3, generator=torch.Generator().manual_seed(seed))


def inner_fields(n, seed=0):
    """Return smooth motion away from the border, so that shifts lose nothing and changes of speed lose little."""
    fields = torch.zeros(n, 15, 8, 10, 3)
    time = torch.linspace(0, torch.pi, 7)
    patterns = random_fields(n, seed, (2, 8, 4))
    fields[:, 4:11, :, 3:7] = (time.sin()[:, None, None, None] * patterns[:, :1]) + (
        (2 * time).sin()[:, None, None, None] * patterns[:, 1:]
    )
    return fields


def shift_field(field, steps=0, columns=0, mirrored=False):
    field = field.flip(-2) * MIRROR if mirrored else field
    return field.roll((steps, columns), (-4, -2))


def stretch_field(field):
    """The middle of a field (T-1, h, w, 3), FAST_SPEED times as long, by NumPy's interpolation."""
    steps = np.arange(len(field))
    positions = (len(field) - 1) / 2 + (steps - (len(field) - 1) / 2) / FAST_SPEED
    flat = field.reshape(len(field), -1).numpy()
    columns = [np.interp(positions, steps, column) for column in flat.T]
    return torch.tensor(np.stack(columns, 1), dtype=field.dtype).view_as(field)


def literal_spectrum(field):
    """Amplitudes of the left half of a field and its mirror image."""
    amplitudes = torch.fft.rfft(field, dim=0).abs()
    return (amplitudes + amplitudes.flip(2))[:, :, : field.shape[2] // 2]


def literal_similarity(x, y):
    """Compare two fields (T-1, h, w, 3) by loops over alignments and cells."""
    cosines = []
    for alignment in ALIGNMENTS:
        a = stretch_field(x) if alignment.speed < 1 else x
        b = stretch_field(y) if alignment.speed > 1 else y
        total = 0.0
        for t in range(a.shape[0]):
            for c in range(a.shape[2]):
                s, d = t - alignment.steps, c - alignment.columns
                if 0 <= s < a.shape[0] and 0 <= d < a.shape[2]:
                    source = a[s, :, a.shape[2] - 1 - d if alignment.mirrored else d]
                    factor = MIRROR if alignment.mirrored else 1.0
                    total += (source * factor * b[t, :, c]).sum().item()
        cosines.append(total / (a.norm() * b.norm()).item())
    best = int(np.argmax(cosines))
    u, v = literal_spectrum(x), literal_spectrum(y)
    spectral = ((u * v).sum() / (u.norm() * v.norm())).item()
    return max(cosines[best], (cosines[best] + spectral) / 2), best


def test_it_equals_the_literal_version():
    queries, fields = random_fields(2), random_fields(3, seed=1)
    similarity, best = aligned_similarity(queries, fields)
    for i, j in np.ndindex(2, 3):
        expected, position = literal_similarity(queries[i], fields[j])
        assert similarity[i, j].item() == pytest.approx(expected, abs=1e-5)
        assert best[i, j] == position


@pytest.mark.parametrize("steps", [0, 3, -4])
@pytest.mark.parametrize("columns", [0, 2, -1])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_shifted_or_mirrored_copy_has_similarity_one(steps, columns, mirrored):
    fields = inner_fields(3)
    similarity, best = aligned_similarity(fields, shift_field(fields, steps, columns, mirrored))
    torch.testing.assert_close(similarity.diagonal(), torch.ones(3))
    assert {ALIGNMENTS[i] for i in best.diagonal()} == {Alignment(steps, columns, mirrored)}


def test_a_retimed_copy_has_similarity_one():
    fields = inner_fields(3)
    slower = torch.stack([stretch_field(field) for field in fields])
    for x, y, speed in ((fields, slower, 1 / FAST_SPEED), (slower, fields, FAST_SPEED)):
        similarity, best = aligned_similarity(x, y)
        torch.testing.assert_close(similarity.diagonal(), torch.ones(3))
        assert {ALIGNMENTS[i] for i in best.diagonal()} == {Alignment(speed=speed)}


def test_at_the_border_a_copy_loses_only_what_leaves_the_field():
    fields = random_fields(3)
    copies = torch.zeros_like(fields)
    copies[:, 2:] = fields[:, :-2]
    similarity, best = aligned_similarity(fields, copies)
    cosine = copies.flatten(1).norm(dim=1) / fields.flatten(1).norm(dim=1)
    spectra = (torch.stack([literal_spectrum(field).flatten() for field in x]) for x in (fields, copies))
    expected = torch.maximum(cosine, (cosine + torch.cosine_similarity(*spectra)) / 2)
    torch.testing.assert_close(similarity.diagonal(), expected)
    assert {ALIGNMENTS[i] for i in best.diagonal()} == {Alignment(2)}


def test_it_is_symmetric_and_at_most_one():
    x, y = random_fields(4), torch.cat([random_fields(3, seed=1), inner_fields(2)])
    forward, backward = aligned_similarity(x, y)[0], aligned_similarity(y, x)[0]
    torch.testing.assert_close(forward, backward.mT)
    assert (forward > 0).all()
    assert (forward <= 1).all()


def test_the_scale_of_a_field_does_not_matter():
    x, y = random_fields(2), random_fields(2, seed=1)
    torch.testing.assert_close(aligned_similarity(x, 5 * y)[0], aligned_similarity(x, y)[0])


def test_a_still_clip_matches_nothing():
    fields = random_fields(3)
    fields[1] = 0
    similarity, best = aligned_similarity(fields, fields)
    assert (similarity[1] == 0).all()
    assert (similarity[:, 1] == 0).all()
    assert (best[1] == 0).all()
    assert ALIGNMENTS[0] == Alignment()
    assert (field_spectrum(fields)[1] == 0).all()


def test_a_field_is_the_signed_root_of_motion_and_change_relative_to_the_frame():
    motion, camera = random_fields(2), random_fields(2, seed=1, shape=(15, 1, 1))
    field = motion_field((motion + camera)[..., :2], (motion + camera)[..., 2])
    relative = motion - motion.flatten(2, 3).median(2).values[:, :, None, None]
    for channels in (slice(2), slice(2, 3)):
        root = (relative.sign() * relative.abs().sqrt())[..., channels]
        expected = torch.nn.functional.normalize(root.flatten(1), dim=1).view_as(root)
        torch.testing.assert_close(field[..., channels], expected, atol=1e-4, rtol=1e-4)


def test_the_field_of_an_almost_still_clip_is_zero_whatever_changes():
    motion = random_fields(2)
    assert (motion_field(0.001 * motion[..., :2] + 3, motion[..., 2]) == 0).all()


def test_without_changes_the_third_channel_is_zero():
    motion = random_fields(2)
    field = motion_field(motion[..., :2])
    torch.testing.assert_close(field[..., :2], motion_field(motion[..., :2], motion[..., 2])[..., :2])
    assert (field[..., 2] == 0).all()


def test_a_field_has_a_fixed_grid_in_its_own_cells():
    displacements = torch.zeros(1, 7, 16, 20, 2)
    displacements[:, :, 4:8, 4:8] = torch.tensor([2.0, -8.0])
    field = motion_field(displacements, displacements[..., 0])
    assert field.shape == (1, 15, 8, 10, 3)
    scale = (15 * 4 * (1 + 4)) ** 0.5
    torch.testing.assert_close(field[0, 3, 2, 2], torch.tensor([1 / scale, -2 / scale, 1 / (15 * 4) ** 0.5]))


def test_spectra_find_shifted_and_mirrored_copies():
    fields = inner_fields(5)
    copies = shift_field(fields, steps=4, mirrored=True)
    cosines = field_spectrum(fields) @ field_spectrum(copies).mT
    torch.testing.assert_close(cosines.diagonal(), torch.ones(5))
    assert (cosines.argmax(1) == torch.arange(5)).all()


@pytest.mark.parametrize(
    ("alignment", "text"),
    [
        (Alignment(), ""),
        (Alignment(2, 0, True, FAST_SPEED), "mirrored, 0.4 s later, 1.3× faster"),
        (Alignment(-1, 2, False, 1 / FAST_SPEED), "0.2 s earlier, further right, 1.3× slower"),
        (Alignment(columns=-1), "further left"),
    ],
)
def test_an_alignment_is_described(alignment, text):
    assert alignment.describe(step_seconds=0.2) == text
