"""Label propagation by loops over cells, with the settings of the transfer paper and of the authors' scripts.

Written from the paper's Table 3 and a reading of the scripts of CropMAE and T-CoRe, without code of the package.
Shapes: T frames, h×w cells, H×W pixels, D channels, L labels, J joints.
"""

import math

import numpy as np


def propagate(
    features: np.ndarray, labels: np.ndarray, *, k: int, context: int, radius: int, temperature: float, authors: bool
) -> np.ndarray:
    """Labels (T, h, w, L) of all frames from features (T, h, w, D) and the labels (h, w, L) of the first one."""
    length, h, w, _ = features.shape
    unit = features / np.linalg.norm(features, axis=-1, keepdims=True)
    result = np.zeros((length, *labels.shape))
    result[0] = labels
    for t in range(1, length):
        if authors:  # the video is preceded by copies of its first frame, and the first frame is kept besides
            frames = [0, *(max(0, i) for i in range(t - context, t))]
        else:
            frames = [0, *(i for i in range(max(1, t - context), t))]
        for y in range(h):
            for x in range(w):
                candidates = []
                for number, frame in enumerate(frames):
                    similarity = unit[frame] @ unit[t, y, x]
                    for v in range(h):
                        for u in range(w):
                            if authors:
                                within_radius = number == 0 or math.sqrt((v - y) ** 2 + (u - x) ** 2) < radius
                            else:
                                within_radius = abs(v - y) <= radius and abs(u - x) <= radius
                            if within_radius:
                                candidates.append((similarity[v, u], frame, v, u))
                best = sorted(candidates, key=lambda match: -match[0])[:k]
                weights = [math.exp((match[0] - best[0][0]) / temperature) for match in best]
                for weight, (_, frame, v, u) in zip(weights, best, strict=True):
                    result[t, y, x] += weight / sum(weights) * result[frame, v, u]
    return result


def resize_linear(values: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear interpolation of (h, w, …) between cell centers, without smoothing."""
    for axis, size in enumerate((height, width)):
        old = values.shape[axis]
        lines = []
        for i in range(size):
            position = min(max((i + 0.5) * old / size - 0.5, 0), old - 1)
            low = min(int(position), old - 1)
            high = min(low + 1, old - 1)
            lines.append(
                np.take(values, low, axis) * (1 - position + low) + np.take(values, high, axis) * (position - low)
            )
        values = np.stack(lines, axis)
    return values


def resize_nearest(values: np.ndarray, height: int, width: int, *, centered: bool) -> np.ndarray:
    """Nearest value of (h, w): at the center of the new pixel (PIL), or at its corner (OpenCV)."""
    shift = 0.5 if centered else 0.0
    rows = [int((i + shift) * values.shape[0] / height) for i in range(height)]
    columns = [int((i + shift) * values.shape[1] / width) for i in range(width)]
    return values[rows][:, columns]


def mask_to_labels(mask: np.ndarray, ids: np.ndarray, size: tuple[int, int], cells: tuple[int, int], authors: bool):
    """Labels (h, w, L) of a mask (H, W)."""
    if not authors:
        small = resize_nearest(mask, *cells, centered=True)
        return np.stack([small == i for i in ids], -1).astype(float)
    resized = resize_nearest(mask, *size, centered=False)
    return resize_linear(np.stack([resized == i for i in ids], -1).astype(float), *cells)


def labels_to_mask(labels: np.ndarray, ids: np.ndarray, size: tuple[int, int], shape: tuple[int, int], authors: bool):
    """Mask (H, W) of labels (h, w, L)."""
    if not authors:
        return ids[resize_linear(labels, *shape).argmax(-1)]
    return resize_nearest(ids[resize_linear(labels, *size).argmax(-1)], *shape, centered=True)


def joints_to_labels(joints: np.ndarray, frame: tuple[int, int], cells: tuple[int, int]) -> np.ndarray:
    """Heatmaps (h, w, J) of joints (J, 2), as the scripts draw them: σ 0.5, 4×4 cells, corner cut to integers."""
    heatmaps = np.zeros((*cells, len(joints)))
    for j, (x, y) in enumerate(joints):
        x, y = x * cells[1] / frame[1], y * cells[0] / frame[0]
        left, top, right, bottom = int(x - 1.5), int(y - 1.5), int(x + 2.5), int(y + 2.5)
        for v in range(max(0, top), min(bottom, cells[0])):
            for u in range(max(0, left), min(right, cells[1])):
                heatmaps[v, u, j] = math.exp(-((u - left - 2) ** 2 + (v - top - 2) ** 2) / (2 * 0.5**2))
    return heatmaps


def labels_to_joints(labels: np.ndarray, frame: tuple[int, int], *, num_cells: int = 5) -> np.ndarray:
    """Joints (J, 2) as the scripts read them: mean of the highest cells, whose index is scaled to the frame."""
    h, w, count = labels.shape
    joints = np.full((count, 2), np.nan)
    for j in range(count):
        best = sorted(((labels[v, u, j], u, v) for v in range(h) for u in range(w)), key=lambda c: -c[0])[:num_cells]
        total = sum(value for value, _, _ in best)
        if total > 0:
            joints[j] = [sum(c[0] * c[i] for c in best) / total * frame[2 - i] / (w, h)[i - 1] for i in (1, 2)]
    return joints


def pck(predictions: np.ndarray, targets: np.ndarray, threshold: float) -> float:
    """PCK of one video as the scripts count it: (T, J, 2) without the first frame, by joint, lost joints left out."""
    hits: list[list[bool]] = [[] for _ in range(targets.shape[1])]
    for t in range(1, len(targets)):
        visible = [j for j in range(targets.shape[1]) if not np.isnan(predictions[t, j]).any()]
        if not visible:
            continue
        corners = targets[t, visible].max(0) - targets[t, visible].min(0)
        for j in visible:
            distance = np.linalg.norm(predictions[t, j] - targets[t, j]) / (0.6 * np.linalg.norm(corners))
            hits[j].append(bool(distance <= threshold))
    return float(np.mean([np.mean(h) for h in hits if h]))


def mean_iou(predictions: list[np.ndarray], targets: list[np.ndarray]) -> float:
    """Mean IoU over classes of all pixels of all given frames, of the classes that occur."""
    scores = []
    for i in range(20):
        intersection = sum(np.sum((p == i) & (t == i)) for p, t in zip(predictions, targets, strict=True))
        union = sum(np.sum((p == i) | (t == i)) for p, t in zip(predictions, targets, strict=True))
        if union:
            scores.append(intersection / union)
    return float(np.mean(scores))
