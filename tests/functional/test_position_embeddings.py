import numpy as np
import pytest
import torch
import torch.nn.functional as F

from stillmotion.errors import StillmotionError
from stillmotion.functional.position_embeddings import (
    cell_centers,
    crop_windows,
    enlarged_grid_size,
    resize_grid,
    sample_window_corners,
    sincos_grid,
)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_an_enlarged_table_is_the_bicubic_one():
    grid = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    result = resize_grid(grid, 8, 9)
    for channel in range(5):
        expected = F.interpolate(grid[None, None, :, :, channel], size=(8, 9), mode="bicubic")[0, 0]
        torch.testing.assert_close(result[..., channel], expected)
    assert resize_grid(grid, 4, 3) is grid


def test_rotary_coordinates_are_the_middles_of_cells():
    grid = cell_centers(2, 4)
    assert grid[:, 0, 0].tolist() == [-0.5, 0.5]
    assert grid[0, :, 1].tolist() == [-0.75, -0.25, 0.25, 0.75]


def test_a_window_of_enlarged_coordinates_is_a_small_place_of_the_whole():
    rows, columns = enlarged_grid_size(4, 4, ratio=10)
    assert (rows, columns) == (44, 44)
    window = crop_windows(cell_centers(rows, columns), [(40, 0)], 4, 4)[0]
    torch.testing.assert_close(window[1, 0, 0] - window[0, 0, 0], torch.tensor(2 / 44))
    assert window[-1, 0, 0].item() == pytest.approx(1 - 1 / 44)
    assert window[0, 0, 1].item() == pytest.approx(-1 + 1 / 44)


@pytest.mark.parametrize("window", ["center", "random", "edge", "multiple"])
def test_windows_lie_within_the_enlarged_grid(window):
    margin = (9, 5)
    for seed in range(40):
        corners = sample_window_corners(margin, mode=window, num_windows=3, rng=rng(seed))
        assert len(corners) == (3 if window == "multiple" else 1)
        for top, left in corners:
            assert 0 <= top <= 9
            assert 0 <= left <= 5
            if window == "edge":
                assert top in (0, 9) or left in (0, 5)
            if window == "center":
                assert (top, left) == (4, 2)


def test_random_windows_reach_every_place_and_edges_every_side():
    random = {sample_window_corners((2, 1), mode="random", num_windows=1, rng=rng(s))[0] for s in range(200)}
    assert random == {(t, l) for t in range(3) for l in range(2)}
    edges = {sample_window_corners((4, 4), mode="edge", num_windows=1, rng=rng(s))[0] for s in range(400)}
    assert edges == {(t, l) for t in range(5) for l in range(5) if t in (0, 4) or l in (0, 4)}


def test_no_crop_draws_nothing_and_ratio_zero_leaves_one_place():
    assert sample_window_corners((3, 3), mode="none", num_windows=1, rng=rng()) == []
    assert enlarged_grid_size(7, 5, ratio=0) == (7, 5)
    assert sample_window_corners((0, 0), mode="random", num_windows=1, rng=rng()) == [(0, 0)]


def test_errors_say_what_to_do():
    with pytest.raises(StillmotionError, match="ratio of PEA is -1"):
        enlarged_grid_size(2, 2, ratio=-1)
    with pytest.raises(StillmotionError, match="multiple of 4"):
        sincos_grid(2, 2, 6)
