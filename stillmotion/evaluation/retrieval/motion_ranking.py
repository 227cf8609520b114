"""Ranking of videos by motion in two stages, as in the search of an index.

Shapes: q queries, r references, F numbers of a motion field.
"""

import numpy as np
import torch
from torch import Tensor

from stillmotion.functional.motion_alignment import (
    FIELD_SHAPE,
    aligned_similarity,
    field_spectrum,
    neighborhood_similarity,
)

NUM_ALIGNED = 150  # references, by amplitude spectrum, that are compared under alignment
_TIE_BREAK_SCALE = 1e-5


@torch.no_grad()
def score_by_motion(
    queries: np.ndarray, references: np.ndarray, query_groups: np.ndarray, reference_groups: np.ndarray
) -> Tensor:
    """Score references by motion: candidates by amplitude spectrum, then fields under alignment, less hubness (CSLS).

    Args:
        queries: Motion fields, (q, F).
        references: Motion fields, (r, F).
        query_groups: Group of each query, ints (q,); references of the same group are left out.
        reference_groups: Group of each reference, ints (r,).

    Returns:
        Scores, (q, r): the best references have the highest ones, and those left out -inf. Scores below -1 are of
        references that were not compared under alignment.
    """
    x, y = (torch.from_numpy(np.ascontiguousarray(z, np.float32)).view(-1, *FIELD_SHAPE) for z in (queries, references))
    x_groups, y_groups = torch.from_numpy(query_groups), torch.from_numpy(reference_groups)
    spectra = field_spectrum(y)
    means = torch.tensor(
        [
            neighborhood_similarity(field, y, spectra, y_groups == group)
            for field, group in zip(y, y_groups, strict=True)
        ]
    )
    # A still clip is similar to nothing: the order is random, because that of the references may follow labels.
    noise = torch.rand(len(x), len(y), generator=torch.Generator().manual_seed(0))
    scores = field_spectrum(x) @ spectra.mT + _TIE_BREAK_SCALE * noise - 3
    scores = scores.masked_fill(x_groups[:, None] == y_groups, -torch.inf)
    for field, row in zip(x, scores, strict=True):
        best, candidates = row.topk(min(NUM_ALIGNED, len(row)))
        candidates = candidates[best > -torch.inf]
        similarity = aligned_similarity(field[None], y[candidates])[0][0]
        moving = similarity > 0
        row[candidates[moving]] = (similarity - means[candidates] / 2)[moving]
    return scores
