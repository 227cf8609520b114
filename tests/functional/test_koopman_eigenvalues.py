"""PyDMD, an independent implementation, recovers the eigenvalues that `koopman.eigenvalues` does."""

import numpy as np
import pytest
import torch
from pydmd import DMD

from stillmotion.functional import koopman


def rotation(angle, size=1.0):
    return size * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def block_diagonal(*blocks):
    size = sum(len(block) for block in blocks)
    matrix, at = np.zeros((size, size)), 0
    for block in blocks:
        matrix[at : at + len(block), at : at + len(block)] = block
        at += len(block)
    return matrix


SYSTEMS = {
    "constant": np.eye(1),
    "rotation": rotation(0.7),
    "decays": np.diag([0.9, 0.5, 0.2]),
    "constant and rotation": block_diagonal(np.eye(1), rotation(1.1)),
    "growing and shrinking rotations": block_diagonal(rotation(0.4, 1.1), rotation(1.9, 0.8)),
    "shear": np.array([[0.9, 1.0], [0.0, 0.6]]),
}


@pytest.mark.filterwarnings("ignore:Input data condition number")
@pytest.mark.parametrize("name", SYSTEMS)
def test_eigenvalues_of_known_linear_systems_are_recovered_as_by_pydmd(name):
    draw = np.random.default_rng(0)
    system = SYSTEMS[name]
    order = len(system)
    state = np.ones(order)
    states = [state := system @ state for _ in range(8)]
    frames = np.stack(states) @ draw.standard_normal((order, 16))
    result = koopman.eigenvalues(torch.from_numpy(frames)[None])[0].numpy()
    assert result.shape == (7,)
    for known in (np.linalg.eigvals(system), DMD(svd_rank=order).fit(frames.T).eigs):
        distances = abs(result[:, None] - known)
        assert distances.min(0).max() < 1e-4
    # The remaining eigenvalues are 0: there are seven transitions but fewer modes.
    assert np.sort(abs(result))[: 7 - order].max(initial=0) < 1e-4
