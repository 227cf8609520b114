"""Boxes against literal loops: overlap, crops and RoIAlign."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stillmotion.functional.boxes import box_area, box_iou, crop_boxes, flip_boxes, roi_align, scale_boxes


def literal_overlap(a, b):
    wide = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    tall = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    area, other_area = ((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return wide * tall / (area + other_area - wide * tall) if wide * tall else 0.0


def literal_sample(plane, y, x):
    """Bilinear interpolation at (y, x) as in the original implementation of RoIAlign."""
    height, width = plane.shape
    if y < -1 or y > height or x < -1 or x > width:
        return 0.0
    y, x = max(y, 0.0), max(x, 0.0)
    low_y, low_x = int(y), int(x)
    if low_y >= height - 1:
        low_y = high_y = height - 1
        y = float(low_y)
    else:
        high_y = low_y + 1
    if low_x >= width - 1:
        low_x = high_x = width - 1
        x = float(low_x)
    else:
        high_x = low_x + 1
    dy, dx = y - low_y, x - low_x
    return (
        (1 - dy) * (1 - dx) * plane[low_y, low_x]
        + (1 - dy) * dx * plane[low_y, high_x]
        + dy * (1 - dx) * plane[high_y, low_x]
        + dy * dx * plane[high_y, high_x]
    )


def literal_roi_align(plane, box, *, size, scale, samples):
    x1, y1, x2, y2 = (value * scale - 0.5 for value in box)
    tall, wide = (y2 - y1) / size, (x2 - x1) / size
    down, across = samples or math.ceil(tall), samples or math.ceil(wide)
    result = np.zeros((size, size))
    for p in range(size):
        for q in range(size):
            total = 0.0
            for i in range(down):
                for j in range(across):
                    y = y1 + p * tall + (i + 0.5) * tall / down
                    x = x1 + q * wide + (j + 0.5) * wide / across
                    total += literal_sample(plane, y, x)
            result[p, q] = total / max(1, down * across)
    return result


# In pixels of a frame of 96×128 whose map has 12×16 cells: inside, small, thin, huge, over each edge, beyond.
BOXES = [
    [10.0, 20.0, 70.0, 80.0],
    [33.3, 41.7, 36.1, 43.9],
    [5.0, 5.0, 6.0, 90.0],
    [0.0, 0.0, 128.0, 96.0],
    [-40.0, -30.0, 30.0, 20.0],
    [100.0, 70.0, 170.0, 140.0],
    [300.0, 300.0, 320.0, 330.0],
    [50.0, 50.0, 50.0, 50.0],
]


@pytest.mark.parametrize(("samples", "size"), [(0, 7), (1, 7), (2, 1), (3, 7)])
def test_roi_align_equals_a_loop_over_samples(samples, size):
    maps = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 12, 16)))
    boxes = [torch.tensor(BOXES[:5], dtype=torch.float64), torch.tensor(BOXES[5:], dtype=torch.float64)]
    result = roi_align(maps, boxes, output_size=size, spatial_scale=1 / 8, sampling_ratio=samples)
    assert result.shape == (len(BOXES), 3, size, size)
    for number, box in enumerate(BOXES):
        for channel in range(3):
            plane = maps[int(number >= 5), channel].numpy()
            expected = literal_roi_align(plane, box, size=size, scale=1 / 8, samples=samples)
            np.testing.assert_allclose(result[number, channel], expected, atol=1e-12)


def test_a_box_of_whole_cells_gives_those_cells_back():
    maps = torch.arange(48.0).reshape(1, 1, 6, 8)
    result = roi_align(maps, [torch.tensor([[2.0, 1.0, 5.0, 4.0]])], output_size=3)
    torch.testing.assert_close(result[0, 0], maps[0, 0, 1:4, 2:5])


def test_maps_without_boxes_give_none():
    maps = torch.rand(2, 3, 4, 4)
    assert roi_align(maps, [torch.zeros(0, 4), torch.zeros(0, 4)]).shape == (0, 3, 7, 7)
    assert roi_align(maps[:0], []).shape == (0, 3, 7, 7)


@pytest.mark.parametrize("samples", [0, 2])
def test_the_gradient_of_roi_align_is_its_own(samples):
    maps = torch.rand(2, 2, 5, 6, dtype=torch.float64, requires_grad=True)
    boxes = [torch.tensor([[0.3, 0.7, 4.1, 3.9], [-1.0, 2.0, 9.0, 4.0]]), torch.tensor([[2.2, 1.1, 2.9, 4.8]])]
    assert torch.autograd.gradcheck(lambda m: roi_align(m, boxes, output_size=3, sampling_ratio=samples), maps)


def box_lists():
    edges = st.tuples(*[st.integers(0, 9)] * 4)
    return st.lists(edges.map(lambda e: [min(e[0], e[2]), min(e[1], e[3]), max(e[0], e[2]), max(e[1], e[3])]))


@given(box_lists(), box_lists())
def test_overlap_is_intersection_over_union(a, b):
    first, second = (torch.tensor(boxes, dtype=torch.float64).reshape(-1, 4) for boxes in (a, b))
    expected = [[literal_overlap(x, y) for y in b] for x in a]
    np.testing.assert_allclose(box_iou(first, second), np.array(expected).reshape(len(a), len(b)), atol=1e-12)


def test_boxes_follow_their_pixels_through_crop_resize_and_flip():
    frame = torch.zeros(40, 60)
    frame[12:30, 20:44] = 1
    boxes = torch.tensor([[20.0, 12, 44, 30], [0, 0, 5, 5]])
    cropped = frame[10:34, 8:40].repeat_interleave(2, 0).repeat_interleave(3, 1).flip(1)
    cropped_boxes, is_visible = crop_boxes(boxes, top=10, left=8, height=24, width=32)
    cropped_boxes = flip_boxes(scale_boxes(cropped_boxes, 2, 3), width=96)
    assert is_visible.tolist() == [True, False]
    left, top, right, bottom = cropped_boxes[0].int().tolist()
    filled = torch.zeros_like(cropped)
    filled[top:bottom, left:right] = 1
    assert torch.equal(filled, cropped)
    assert box_area(cropped_boxes)[0] == cropped.sum()
