"""Box IoU, cropping, flipping and scaling; RoIAlign.

A box is (left, top, right, bottom), from the outer edge of the first pixel; N boxes are (N, 4).
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of boxes; boxes without area overlap nothing.

    Args:
        a: Boxes, (…, N, 4).
        b: Boxes, (…, M, 4).

    Returns:
        IoU, (…, N, M).
    """
    first, second = a[..., :, None, :], b[..., None, :, :]
    corner = torch.minimum(first[..., 2:], second[..., 2:])
    intersection = (corner - torch.maximum(first[..., :2], second[..., :2])).clamp(min=0).prod(-1)
    union = box_area(first) + box_area(second) - intersection
    tiny = torch.finfo(intersection.dtype).tiny
    return torch.where(intersection > 0, intersection / union.clamp(min=tiny), 0)


def box_area(boxes: Tensor) -> Tensor:
    """Area (…) of boxes (…, 4)."""
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)


def scale_boxes(boxes: Tensor, height: float, width: float) -> Tensor:
    """Scale boxes with their frame.

    Args:
        boxes: Boxes, (N, 4).
        height: Factor of the frame's height.
        width: Factor of the frame's width.

    Returns:
        Boxes, (N, 4).
    """
    return boxes * boxes.new_tensor([width, height, width, height])


def crop_boxes(boxes: Tensor, *, top: float, left: float, height: float, width: float) -> tuple[Tensor, Tensor]:
    """Express boxes in the coordinates of a crop and clip them to it.

    Args:
        boxes: Boxes, (N, 4).
        top: Top edge of the crop.
        left: Left edge of the crop.
        height: Height of the crop.
        width: Width of the crop.

    Returns:
        Clipped boxes, (N, 4), and a mask (N,) of those that overlap the crop.
    """
    moved = boxes - boxes.new_tensor([left, top, left, top])
    clipped = torch.minimum(moved.clamp(min=0), boxes.new_tensor([width, height, width, height]))
    return clipped, box_area(clipped) > 0


def flip_boxes(boxes: Tensor, *, width: float) -> Tensor:
    """Mirror boxes from left to right.

    Args:
        boxes: Boxes, (N, 4).
        width: Width of the frame.

    Returns:
        Boxes, (N, 4).
    """
    left, top, right, bottom = boxes.unbind(-1)
    return torch.stack([width - right, top, width - left, bottom], -1)


def roi_align(
    maps: Tensor, boxes: Sequence[Tensor], *, output_size: int = 7, spatial_scale: float = 1.0, sampling_ratio: int = 0
) -> Tensor:
    """Aligned RoIAlign (He et al., "Mask R-CNN", 2017), differentiable in the maps.

    A sample is bilinear between the four nearest cells, and the mean over a bin is separable: a weighted sum over rows
    of weighted sums over columns.

    Args:
        maps: Feature maps, (B, C, H, W).
        boxes: Boxes (n, 4) of each map, N in all.
        output_size: Bins per side.
        spatial_scale: Cells of a map per unit of a box.
        sampling_ratio: Samples per bin and side; 0 takes as many as the bin has cells.

    Returns:
        Features, (N, C, output_size, output_size).
    """
    height, width = maps.shape[-2:]
    dtype = torch.promote_types(maps.dtype, torch.float32)  # half precision is too coarse for positions
    sampling = {"output_size": output_size, "sampling_ratio": sampling_ratio}
    pooled = []
    for feature_map, map_boxes in zip(maps, boxes, strict=True):
        left, top, right, bottom = (map_boxes.detach().to(dtype) * spatial_scale - 0.5).unbind(-1)
        rows = _bin_weights(top, bottom, height, **sampling).to(maps.dtype)
        columns = _bin_weights(left, right, width, **sampling).to(maps.dtype)
        pooled.append(torch.einsum("nph,chw,nqw->ncpq", rows, feature_map, columns))
    return torch.cat(pooled) if pooled else maps.new_zeros(0, maps.shape[1], output_size, output_size)


def _bin_weights(start: Tensor, stop: Tensor, num_cells: int, *, output_size: int, sampling_ratio: int) -> Tensor:
    """Weights (N, output_size, num_cells) of the cells in each bin of the intervals from start to stop (N,)."""
    step = (stop - start) / output_size
    count = torch.full_like(step, sampling_ratio) if sampling_ratio else step.ceil()  # 0 for a box without area
    max_count = sampling_ratio or (max(1, int(count.max())) if len(count) else 1)
    sample = torch.arange(max_count, device=start.device, dtype=start.dtype)
    offset = (sample + 0.5) / count[:, None].clamp(min=1)  # (N, max_count), within a bin
    bins = torch.arange(output_size, device=start.device, dtype=start.dtype)
    points = start[:, None, None] + (bins[:, None] + offset[:, None]) * step[:, None, None]
    is_valid = (points >= -1) & (points <= num_cells) & (sample < count[:, None])[:, None]
    # Within a cell of the edge a sample takes the edge's value; beyond, it is zero.
    points = points.clamp(0, num_cells - 1)[..., None]
    cell = torch.arange(num_cells, device=start.device, dtype=start.dtype)
    weights = (1 - (points - cell).abs()).clamp(min=0) * is_valid[..., None]
    return weights.sum(2) / count[:, None, None].clamp(min=1)
