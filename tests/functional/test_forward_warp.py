import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stillmotion.functional.forward_warp import forward_warp


def noise(seed: int, height: int = 24, width: int = 32) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def constant_flow(x: float, y: float, height: int = 24, width: int = 32) -> np.ndarray:
    return np.broadcast_to(np.float32([x, y]), (height, width, 2))


def numbered_pixels(height: int, width: int) -> np.ndarray:
    """Return pixels whose values are their positions; filled pixels will be -1."""
    return np.arange(height * width).reshape(height, width, 1)


def test_a_whole_shift_moves_every_pixel_and_leaves_a_border_of_fill() -> None:
    pixels, fill = noise(0), noise(1)
    warped, offset, is_filled = forward_warp(pixels, constant_flow(3, -2), fill=fill)
    assert np.array_equal(warped[:-2, 3:], pixels[2:, :-3])
    assert is_filled[-2:].all()
    assert is_filled[:, :3].all()
    assert not is_filled[:-2, 3:].any()
    assert np.array_equal(warped[is_filled], fill[is_filled])
    assert not offset.any()


@pytest.mark.parametrize("step", [0.25, 0.5, 0.4, -0.3])
def test_motion_of_less_than_a_pixel_adds_up_over_steps(step: float) -> None:
    pixels, fill, offset = noise(0), noise(1), None
    start = pixels
    for number in range(1, 16):
        pixels, offset, _ = forward_warp(pixels, constant_flow(step, 0), fill=fill, offset=offset)
        if (number * step) % 1 != 0.5:  # at half a pixel, rounding decides
            inner, shift = slice(8, 24), round(number * step)
            assert np.array_equal(pixels[:, inner], np.roll(start, shift, 1)[:, inner])
            assert offset[0, :, inner] == pytest.approx(number * step - shift, abs=1e-4)


def test_without_offsets_less_than_half_a_pixel_is_no_motion() -> None:
    pixels = noise(0)
    warped, offset, is_filled = forward_warp(pixels, constant_flow(0.4, -0.3), fill=noise(1))
    assert np.array_equal(warped, pixels)
    assert not is_filled.any()
    assert offset[:, 5, 5].tolist() == pytest.approx([0.4, -0.3])


def test_a_square_that_moves_covers_the_ground_and_uncovers_fill() -> None:
    pixels, fill = noise(0), noise(1)
    flow = np.zeros((24, 32, 2), np.float32)
    flow[8:16, 8:16, 0] = 4
    warped, _, is_filled = forward_warp(pixels, flow, fill=fill)
    assert np.array_equal(warped[8:16, 12:20], pixels[8:16, 8:16])
    uncovered = np.zeros((24, 32), bool)
    uncovered[8:16, 8:12] = True
    assert np.array_equal(is_filled, uncovered)
    assert np.array_equal(warped[uncovered], fill[uncovered])
    assert np.array_equal(warped[:8], pixels[:8])


def test_of_two_that_meet_the_loser_takes_the_next_nearest_free_place() -> None:
    pixels = numbered_pixels(1, 6)
    flow = np.zeros((1, 6, 2), np.float32)
    # Pixels 0 and 1 move to 2 and 2.4; 2 moves to 5, where pixel 5 stays.
    flow[0, 0, 0], flow[0, 1, 0], flow[0, 2, 0] = (
        2.0,
        1.4,
        3.0,
    )
    warped, offset, is_filled = forward_warp(pixels, flow, fill=np.full_like(pixels, -1))
    assert warped[0, :, 0].tolist() == [-1, -1, 0, 3, 4, 2]
    assert is_filled[0].tolist() == [True, True, False, False, False, False]
    flow[0, 3, 0] = 3.0  # leaves the frame, so that position 3 is free for pixel 1
    warped, offset, _ = forward_warp(pixels, flow, fill=np.full_like(pixels, -1))
    assert warped[0, :, 0].tolist() == [-1, -1, 0, 1, 4, 2]
    assert offset[0, 0, 3] == pytest.approx(-0.6)


@given(seed=st.integers(0, 1000), speed=st.floats(0, 30), smooth=st.booleans())
def test_no_pixel_is_copied_twice_and_none_lands_further_than_its_four_neighbours(
    seed: int, speed: float, smooth: bool
) -> None:
    rng = np.random.default_rng(seed)
    shape = (1, 2, 3, 4) if smooth else (1, 2, 18, 23)
    coarse = torch.from_numpy(rng.normal(0, 1, shape).astype(np.float32))
    flow = torch.nn.functional.interpolate(coarse, (18, 23), mode="bilinear")[0].permute(1, 2, 0).numpy() * speed
    warped, offset, is_filled = forward_warp(numbered_pixels(18, 23), flow, fill=np.full((18, 23, 1), -1))
    sources = warped[~is_filled][:, 0]
    assert len(np.unique(sources)) == len(sources)
    assert (warped[is_filled] == -1).all()
    assert np.abs(offset).max() <= 1
    end = numbered_pixels(18, 23)[..., 0]
    x, y = end % 23 + flow[..., 0], end // 23 + flow[..., 1]
    rows, columns = (~is_filled).nonzero()
    assert x.flatten()[sources] == pytest.approx(columns + offset[0][~is_filled], abs=1e-4)
    assert y.flatten()[sources] == pytest.approx(rows + offset[1][~is_filled], abs=1e-4)


def test_broken_flow_drops_pixels_instead_of_failing() -> None:
    flow = constant_flow(0, 0).copy()
    flow[3, 4], flow[5, 6] = float("nan"), float("inf")
    is_filled = forward_warp(noise(0), flow, fill=noise(1)).is_filled
    assert is_filled[3, 4]
    assert is_filled[5, 6]
    assert is_filled.sum() == 2


def literal_sources(flow: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Return the number of the source pixel of each position, -1 for none, by loops over pixels and positions."""
    height, width = flow.shape[:2]
    source = np.full((height, width), -1)
    rounds: list[dict[tuple[int, int], list[tuple[int, int]]]] = [{}, {}, {}, {}]
    homeless = set(range(height * width))
    for choice, candidates in enumerate(rounds):
        for number in homeless:
            row, column = divmod(number, width)
            go_x, go_y = flow[row, column]
            x = np.float32(column) + (go_x + offset[0, row, column])
            y = np.float32(row) + (go_y + offset[1, row, column])
            near_x, near_y = np.floor(x + np.float32(0.5)), np.floor(y + np.float32(0.5))
            steps = [(np.sign(x - near_x), 0), (0, np.sign(y - near_y))]
            if abs(x - near_x) < abs(y - near_y):
                steps.reverse()
            step = [(0, 0), *steps, (np.sign(x - near_x), np.sign(y - near_y))][choice]
            position = int(near_y + step[1]), int(near_x + step[0])
            if 0 <= position[0] < height and 0 <= position[1] < width and source[position] < 0:
                speed = int(min(np.sqrt(go_x * go_x + go_y * go_y), np.float32(4096)) * 64)
                candidates.setdefault(position, []).append((speed, number))
        for position, rivals in candidates.items():
            source[position] = max(rivals)[1]
            homeless.remove(max(rivals)[1])
    return source


@pytest.mark.parametrize("speed", [0.4, 3, 200])
@pytest.mark.parametrize("round_to_halves", [False, True])
def test_every_pixel_goes_where_a_literal_loop_puts_it(speed: float, round_to_halves: bool) -> None:
    rng = np.random.default_rng(7)
    flow = rng.normal(0, speed, (11, 14, 2)).astype(np.float32)
    offset = rng.uniform(-0.5, 0.5, (2, 11, 14)).astype(np.float32)
    if round_to_halves:  # rounding decides, and pixels with equal speeds collide
        flow, offset = np.round(2 * flow) / 2, np.round(2 * offset) / 2
    warped = forward_warp(numbered_pixels(11, 14), flow, fill=np.full((11, 14, 1), -1), offset=offset)
    assert np.array_equal(warped.pixels[..., 0], literal_sources(flow, offset))
