"""Similarity of motion under the best alignment: shifts in time and along the columns, mirror images and other speeds.

Two clips of the same action rarely begin at the same moment, at the same place and in the same direction. One cosine of
their motion vectors counts all of that as a difference; here the first clip is aligned with the second in each of
`ALIGNMENTS`, and the most similar one counts.

Shapes: B clips, q queries, n fields, T-1 steps, h×w cells, a alignments; a displacement is (rows, columns), in cells.
The three channels of a field are how a cell moves along the rows and the columns, and how much it changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.functional.token_motion import STILL_RMS, mirror_symmetrize, subtract_camera_motion

FIELD_GRID = (15, 8, 10)  # steps, rows and columns of a motion field
FIELD_SHAPE = (*FIELD_GRID, 3)
_MIRROR_SIGNS = (1.0, -1.0, 1.0)  # of the channels in a mirror image
MAX_STEPS, MAX_COLUMNS = 4, 2  # largest shifts
FAST_SPEED = 4 / 3
NUM_NEIGHBORS = 10  # nearest fields whose mean similarity is a neighborhood's
_NEIGHBOR_CANDIDATES = 100  # fields that are compared under alignment to find them
_STEP_SHIFTS, _COLUMN_SHIFTS = (sorted(range(-most, most + 1), key=abs) for most in (MAX_STEPS, MAX_COLUMNS))


@dataclass(frozen=True)
class Alignment:
    """How the motion of a query becomes most similar to that of a result.

    Attributes:
        steps: Steps of the field by which the motion is later in the result.
        columns: Columns of the field by which it is further right in the result.
        mirrored: Whether the result shows the mirror image.
        speed: How many times as fast the motion is in the result, relative to the lengths of both clips.
    """

    steps: int = 0
    columns: int = 0
    mirrored: bool = False
    speed: float = 1.0

    def describe(self, step_seconds: float) -> str:
        """Return a text such as "mirrored, 0.4 s later, 1.3× faster"; empty if nothing is changed.

        Args:
            step_seconds: Seconds of a step in the result.
        """
        parts = ["mirrored"] * self.mirrored
        if self.steps:
            parts.append(f"{abs(self.steps) * step_seconds:.1f} s {'later' if self.steps > 0 else 'earlier'}")
        if self.columns:
            parts.append("further right" if self.columns > 0 else "further left")
        if self.speed != 1:
            parts.append(f"{max(self.speed, 1 / self.speed):.1f}× {'faster' if self.speed > 1 else 'slower'}")
        return ", ".join(parts)


ALIGNMENTS: tuple[Alignment, ...] = tuple(
    Alignment(steps, columns, mirrored, speed)
    for speed, mirrored, columns, steps in product(
        (1.0, 1 / FAST_SPEED, FAST_SPEED),
        (False, True),
        _COLUMN_SHIFTS,
        _STEP_SHIFTS,
    )
)
"""All alignments; `aligned_similarity` gives positions in this list. The first one changes nothing."""


def motion_field(
    displacements: Tensor, changes: Tensor | None = None, grid: tuple[int, int, int] = FIELD_GRID
) -> Tensor:
    """Motion field of a clip: how far each cell moves and how much it changes, relative to its frame, on a fixed grid.

    Changes show also what moves too fast to be followed; both parts have the same norm. Signed square roots keep a few
    large values from outweighing all others.

    Args:
        displacements: Displacements, (B, T-1, h, w, 2), in cells.
        changes: How much each cell changes, (B, T-1, h, w), in any unit; None makes the third channel zero.
        grid: Steps, rows and columns of the field.

    Returns:
        Fields, (B, *grid, 3), of displacements and changes less the median of their frame; zero for a clip that is
        almost still.
    """
    changes = displacements.new_zeros(displacements.shape[:-1]) if changes is None else changes
    x = subtract_camera_motion(torch.cat([displacements, changes[..., None]], -1))
    moving = x[..., :2].square().mean((1, 2, 3, 4)).sqrt() >= STILL_RMS
    x = x * x.new_tensor([grid[1] / x.shape[2], grid[2] / x.shape[3], 1.0])
    x = F.adaptive_avg_pool3d((x.sign() * x.abs().sqrt()).movedim(-1, 1), grid).movedim(1, -1)
    parts = torch.cat([_unit(x[..., :2]), _unit(x[..., 2:])], -1)
    return torch.where(moving[:, None, None, None, None], parts, 0.0)


def field_spectrum(fields: Tensor) -> Tensor:
    """Amplitude spectra of fields (n, T-1, h, w, 3) and their mirror images as unit vectors, zero for still clips.

    A cosine of two is a quick estimate of their aligned similarity.
    """
    x = fields.float()
    # Faster than an FFT of so few steps.
    waves = torch.fft.rfft(torch.eye(x.shape[1], device=x.device), dim=0)
    real, imaginary = (torch.cat([waves.real, waves.imag]) @ x.flatten(2)).chunk(2, 1)
    amplitudes = torch.hypot(real, imaginary).unflatten(2, x.shape[2:])
    return F.normalize(mirror_symmetrize(amplitudes).flatten(1), dim=-1)


@torch.no_grad()
def aligned_similarity(queries: Tensor, fields: Tensor) -> tuple[Tensor, Tensor]:
    """Similarity of motion fields under the best of `ALIGNMENTS`.

    The cosine of the fields under the best alignment is averaged with that of their amplitude spectra over time, which
    do not depend on when a motion starts, where the latter is higher. Motion that a shift moves out of the field is
    lost but still counts in the norm. For a slower result the query is stretched, for a faster one the result, so that
    the similarity is symmetric.

    Args:
        queries: Motion fields, (q, T-1, h, w, 3).
        fields: Motion fields to compare with, (n, T-1, h, w, 3).

    Returns:
        Similarities, float32 (q, n), at most 1, and 0 for still clips; positions of the best alignments in
        `ALIGNMENTS`, (q, n).
    """
    x, y = queries.float(), fields.float()
    moved = [_mirror_and_shift(_unit(z)) for z in (x, _stretch(x))]
    fixed = [_unit(z).flatten(1).mT for z in (y, _stretch(y))]
    pairs = ((moved[0], fixed[0]), (moved[1], fixed[0]), (moved[0], fixed[1]))  # in the order of the speeds
    cosine, best = torch.cat([a @ b for a, b in pairs], 1).max(1)
    spectral = field_spectrum(x) @ field_spectrum(y).mT
    return torch.maximum(cosine, (cosine + spectral) / 2), best


@torch.no_grad()
def neighborhood_similarity(field: Tensor, references: Tensor, spectra: Tensor, excluded: Tensor) -> float:
    """Mean aligned similarity of a field to its 10 nearest references.

    Some fields are similar to very many others. Half of this mean is subtracted from their similarities, so that such
    hubs do not come first everywhere (cross-domain similarity local scaling, CSLS: Conneau et al., "Word Translation
    Without Parallel Data", arXiv 1710.04087).

    Args:
        field: Motion field, (T-1, h, w, 3).
        references: Motion fields, (n, T-1, h, w, 3).
        spectra: Their `field_spectrum`, (n, M), by which candidates are found.
        excluded: References that do not count, bool (n,).

    Returns:
        The mean; 0 if there are no references.
    """
    cosines = (spectra @ field_spectrum(field[None])[0]).masked_fill(excluded, -torch.inf)
    best, candidates = cosines.topk(min(_NEIGHBOR_CANDIDATES, len(cosines)))
    candidates = candidates[best > -torch.inf]
    similarity = aligned_similarity(field[None], references[candidates])[0][0]
    nearest = similarity.topk(min(NUM_NEIGHBORS, len(similarity))).values
    return float(nearest.mean()) if len(nearest) else 0.0


def _stretch(fields: Tensor) -> Tensor:
    """Stretch the middle of fields (n, T-1, h, w, 3) over all steps, by linear interpolation."""
    steps = torch.arange(fields.shape[1], device=fields.device, dtype=fields.dtype)
    middle = (fields.shape[1] - 1) / 2
    positions = middle + (steps - middle) / FAST_SPEED
    weights = (1 - (positions[:, None] - steps).abs()).clamp(min=0)
    return (weights @ fields.flatten(2)).view_as(fields)


def _mirror_and_shift(x: Tensor) -> Tensor:
    """Fields (q, T-1, h, w, 3) and their mirror images at all shifts, flattened, (q, a/3, channels)."""
    both = torch.stack([x, x.flip(3) * x.new_tensor(_MIRROR_SIGNS)], 1)
    columns = _shift(both, _COLUMN_SHIFTS, dim=4).flatten(1, 2)
    return _shift(columns, _STEP_SHIFTS, dim=2).flatten(1, 2).flatten(2)


def _shift(x: Tensor, shifts: Sequence[int], *, dim: int) -> Tensor:
    """Shift by each number of places along a dimension, with zeros at the border, stacked before the fields' steps."""
    length, most = x.shape[dim], max(shifts)
    padded = F.pad(x, [0, 0] * (x.ndim - dim - 1) + [most, most])
    return torch.stack([padded.narrow(dim, most - shift, length) for shift in shifts], 2)


def _unit(x: Tensor) -> Tensor:
    """Scale each field to unit length; still ones stay zero."""
    return F.normalize(x.flatten(1), dim=-1).view(x.shape)
