import numpy as np
import torch

from stillmotion.training.transfer.report import draw_patch_matches, match_patches, patch_grid_indices


def test_a_lattice_is_spread_over_the_grid():
    rows, columns = np.divmod(patch_grid_indices((15, 30)), 30)
    assert sorted(set(rows)) == [2, 5, 7, 10, 12]
    assert sorted(set(columns)) == [5, 10, 15, 20, 25]
    assert patch_grid_indices((1, 2)) == [0, 1]


def test_moved_patches_are_found_where_they_went():
    frame = torch.randn(12, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    permutation = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    second = 3 * frame[permutation]  # cosines do not depend on length
    assert match_patches(frame, second, [0, 5, 11]) == [int((permutation == i).nonzero()) for i in (0, 5, 11)]


def test_marks_stand_round_their_patches_and_frames_are_left_alone():
    frames = np.full((2, 192, 256, 3), 90, np.uint8)
    picture = draw_patch_matches(frames, (3, 4), [0, 6], {"frozen": [5, 5], "moved": [0, 11]})
    assert (frames == 90).all()
    first, last = picture[-192:, :256], picture[-192:, -256:]
    for panel, patches in ((first, {0, 6}), (last, {0, 11})):
        middles = [panel[64 * row + 32, 64 * column + 32] for row in range(3) for column in range(4)]
        assert all((middle == 90).all() for middle in middles)
        edges = {row * 4 + column: panel[64 * row + 1, 64 * column + 32] for row in range(3) for column in range(4)}
        assert {patch for patch, edge in edges.items() if (edge != 90).any()} >= patches
        assert (edges[3] == 90).all()
