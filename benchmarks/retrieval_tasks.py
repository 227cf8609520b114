"""Retrieval tasks of benchmarks: labeled videos, half of whose groups are for choosing settings, and baselines.

Shapes: n videos.
"""

import csv
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.evaluation.metrics.confidence_intervals import bootstrap_means, percentile_interval
from stillmotion.evaluation.retrieval.evaluate import score_retrieval

CELLS = (4, 5)  # rows and columns of SemanticMoments


@dataclass(frozen=True)
class RetrievalTask:
    """Videos that are searched among those of other groups.

    Attributes:
        title: Name of the set, and its classes if they are not all.
        root: Folder of the set.
        paths: Paths of the videos inside it.
        labels: Class of each video, (n,).
        groups: Group of each video, (n,).
        reported: Whether a video is for reporting, (n,); the others are for choosing settings.
    """

    title: str
    root: Path
    paths: list[str]
    labels: np.ndarray
    groups: np.ndarray
    reported: np.ndarray

    def scores(self, features: np.ndarray) -> np.ndarray:
        """R@1 and average precision of each video among the videos of other groups, (2, n)."""
        scores = np.empty((2, len(features)))
        for group in np.unique(self.groups):
            queries, others = np.flatnonzero(self.groups == group), np.flatnonzero(self.groups != group)
            y = self.labels
            result = score_retrieval(features[queries], y[queries], features[others], y[others])
            scores[:, queries] = result.hits[:, 0], result.average_precision
        return scores

    def interval(self, values: np.ndarray, queries: np.ndarray) -> tuple[float, float]:
        """Interval of the mean of some of the values (n,) when the groups of each class are resampled."""
        clusters = np.unique(np.stack([self.labels, self.groups])[:, queries], axis=1, return_inverse=True)[1].ravel()
        sums = np.stack([np.bincount(clusters, values[queries]), np.bincount(clusters)])
        total, count = bootstrap_means(sums)
        return percentile_interval(total / count)


def open_task(spec: str) -> RetrievalTask:
    """Open a set by PATH:COLUMN or PATH:COLUMN:CLASS,CLASS."""
    path, column, classes = [*spec.split(":"), ""][:3]
    with (Path(path) / "labels.csv").open(newline="") as file:
        every = list(csv.DictReader(file))
    rows = [row for row in every if not classes or row["class"] in classes.split(",")]
    names = sorted(
        {row[column] for row in every}, key=lambda name: sha256(f"{Path(path).name}:{name}".encode()).digest()
    )
    labels, groups = (np.unique([row[key] for row in rows], return_inverse=True)[1] for key in ("class", column))
    return RetrievalTask(
        title=Path(path).name + (f" {classes}" if classes else ""),
        root=Path(path).absolute(),
        paths=[row["path"] for row in rows],
        labels=labels,
        groups=groups,
        reported=np.array([row[column] in names[len(names) // 2 :] for row in rows]),
    )


def queries_of(task: RetrievalTask, *, report: bool | None) -> np.ndarray:
    """Mask (n,) of the queries for reporting, of those for choosing, or (None) of all."""
    return task.reported == report if report is not None else np.ones_like(task.reported)


def semantic_moments(clips: Tensor) -> Tensor:
    """SemanticMoments (arXiv 2602.09146): mean, variance and skewness of the tokens (B, E, T, h, w) on 4×5 cells."""
    cells = F.adaptive_avg_pool3d(clips, (clips.shape[2], *CELLS)).movedim(2, 1).flatten(2)
    mean = cells.mean(1)
    difference = cells - mean[:, None]
    variance = difference.square().mean(1)
    skewness = (difference**3).mean(1) / (variance + 1e-6) ** 1.5
    return torch.cat([F.normalize(x, dim=-1) for x in (mean, variance, skewness)], -1)
