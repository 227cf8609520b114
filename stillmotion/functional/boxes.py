"""Boxes: overlap, cropping and mirroring, and the features inside them.

A box is (left, top, right, bottom), from the outer edge of the first pixel; N boxes are (N, 4).
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union (…, N, M) of boxes a (…, N, 4) and b (…, M, 4); those without area overlap nothing."""
    left, right = a[..., :, None, :], b[..., None, :, :]
    corner = torch.minimum(left[..., 2:], right[..., 2:])
    shared = (corner - torch.maximum(left[..., :2], right[..., :2])).clamp(min=0).prod(-1)
    joined = box_area(left) + box_area(right) - shared
    return torch.where(shared > 0, shared / joined.clamp(min=torch.finfo(shared.dtype).tiny), 0)


def box_area(boxes: Tensor) -> Tensor:
    """The area (…) of boxes (…, 4)."""
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)


def scale_boxes(boxes: Tensor, height: float, width: float) -> Tensor:
    """Boxes (N, 4) whose frame becomes `height` times as high and `width` times as wide."""
    return boxes * boxes.new_tensor([width, height, width, height])


def crop_boxes(boxes: Tensor, *, top: float, left: float, height: float, width: float) -> tuple[Tensor, Tensor]:
    """Boxes (N, 4) as seen in a part of their frame, cut at its edges, and which of them (N,) reach into it."""
    moved = boxes - boxes.new_tensor([left, top, left, top])
    cut = torch.minimum(moved.clamp(min=0), boxes.new_tensor([width, height, width, height]))
    return cut, box_area(cut) > 0


def flip_boxes(boxes: Tensor, *, width: float) -> Tensor:
    """Boxes (N, 4) in a mirrored frame of this width."""
    left, top, right, bottom = boxes.unbind(-1)
    return torch.stack([width - right, top, width - left, bottom], -1)


def roi_align(
    maps: Tensor, boxes: Sequence[Tensor], *, output_size: int = 7, spatial_scale: float = 1.0, sampling_ratio: int = 0
) -> Tensor:
    """Aligned RoIAlign (He et al., "Mask R-CNN", 2017): features (N, C, size, size), differentiable in the maps.

    maps: (B, C, H, W). boxes: for each map (n, 4), N in all. scale: cells of a map for one unit of a box.
    sampling_ratio: to each side of a bin; 0 takes as many as the bin has cells.

    A sample is bilinear between the four nearest cells, and the mean over a bin is separable: a weighted sum over rows
    of weighted sums over columns.
    """
    height, width = maps.shape[-2:]
    exact = torch.promote_types(maps.dtype, torch.float32)  # half precision cannot tell places apart
    found = []
    for own, some in zip(maps, boxes, strict=True):
        left, top, right, bottom = (some.detach().to(exact) * spatial_scale - 0.5).unbind(-1)
        rows = _bin_weights(top, bottom, height, output_size=output_size, sampling_ratio=sampling_ratio).to(maps.dtype)
        columns = _bin_weights(left, right, width, output_size=output_size, sampling_ratio=sampling_ratio).to(
            maps.dtype
        )
        found.append(torch.einsum("nph,chw,nqw->ncpq", rows, own, columns))
    return torch.cat(found) if found else maps.new_zeros(0, maps.shape[1], output_size, output_size)


def _bin_weights(start: Tensor, stop: Tensor, cells: int, *, output_size: int, sampling_ratio: int) -> Tensor:
    """Weights (N, size, cells) of the cells in each bin of the intervals from start to stop (N,)."""
    step = (stop - start) / output_size
    count = torch.full_like(step, sampling_ratio) if sampling_ratio else step.ceil()  # none in a box without area
    most = sampling_ratio or (max(1, int(count.max())) if len(count) else 1)
    place = torch.arange(most, device=start.device, dtype=start.dtype)
    inside = (place + 0.5) / count[:, None].clamp(min=1)  # (N, most), of a bin
    bins = torch.arange(output_size, device=start.device, dtype=start.dtype)
    at = start[:, None, None] + (bins[:, None] + inside[:, None]) * step[:, None, None]  # (N, size, most)
    counts = (at >= -1) & (at <= cells) & (place < count[:, None])[:, None]
    # Within a cell of the edge a sample takes the edge's value; beyond, it is zero.
    at = at.clamp(0, cells - 1)[..., None]
    cell = torch.arange(cells, device=start.device, dtype=start.dtype)
    weights = (1 - (at - cell).abs()).clamp(min=0) * counts[..., None]
    return weights.sum(2) / count[:, None, None].clamp(min=1)
