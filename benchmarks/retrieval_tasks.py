"""Retrieval tasks of benchmarks: labeled videos, half of whose groups are for choosing settings, and baselines.

Shapes: n videos.
"""

import csv
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.transforms.sampling import read_clips, sample_uniform_clips
from stillmotion.evaluation.metrics.confidence_intervals import bootstrap_means, percentile_interval
from stillmotion.evaluation.retrieval.evaluate import score_retrieval

CELLS = (4, 5)  # rows and columns of SemanticMoments
METRICS = ("R@1", "mAP")
Scores = dict[str, np.ndarray]  # metrics of each video (2, n), by task
Runs = dict[tuple[str, str], dict[int, list[Scores]]]  # scores of each seed, by method and component, and by step


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
            queries, references = np.flatnonzero(self.groups == group), np.flatnonzero(self.groups != group)
            y = self.labels
            result = score_retrieval(features[queries], y[queries], features[references], y[references])
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
        all_rows = list(csv.DictReader(file))
    rows = [row for row in all_rows if not classes or row["class"] in classes.split(",")]
    names = sorted(
        {row[column] for row in all_rows}, key=lambda name: sha256(f"{Path(path).name}:{name}".encode()).digest()
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


def write_video_list(tasks: list[RetrievalTask], file: Path) -> None:
    """Write a list of the videos of all sets, so that they are one set of training videos."""
    file.parent.mkdir(parents=True, exist_ok=True)
    paths = sorted({task.root / path for task in tasks for path in task.paths})
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([["path"], *([path] for path in paths)])


def mean_scores(seeds: list[Scores]) -> Scores:
    """Mean over seeds of the scores of each video."""
    return {title: np.mean([scores[title] for scores in seeds], axis=0) for title in seeds[0]}


def print_rows(rows: dict[str, Scores], tasks: list[RetrievalTask], *, report: bool) -> None:
    """Print R@1 and mAP of each row on all tasks."""
    print(f"{' / '.join(METRICS):48}" + "".join(f"{task.title:>24}" for task in tasks))
    for name, scores in rows.items():
        values = (scores[task.title][:, queries_of(task, report=report)].mean(1) for task in tasks)
        print(f"{name:48}" + "".join(f"{f'{recall:.3f} / {precision:.3f}':>24}" for recall, precision in values))


def print_gains(runs: Runs, baselines: dict[str, Scores], tasks: list[RetrievalTask]) -> None:
    """Print what training changes, on the queries for reporting, at the step of the highest mAP on those for choosing.

    Differences are those from the untrained network and from features without training, with 95 % intervals.
    """
    print(
        "| task | method | component | step | metric | untrained | trained | difference | "
        + " | ".join(baselines)
        + " |"
    )
    for task in tasks:
        for (method, component), by_step in runs.items():
            means = {step: mean_scores(seeds)[task.title] for step, seeds in by_step.items()}
            best_step = max((step for step in means if step), key=lambda step: means[step][1, ~task.reported].mean())
            references = {"untrained": means[0]} | {name: scores[task.title] for name, scores in baselines.items()}
            for metric, metric_name in enumerate(METRICS):
                texts = []
                for values in references.values():
                    gain = (means[best_step] - values)[metric]
                    low, high = task.interval(gain, task.reported)
                    texts.append(f"{gain[task.reported].mean():+.3f} [{low:+.3f}, {high:+.3f}]")
                before, after = (means[step][metric, task.reported].mean() for step in (0, best_step))
                cells = (
                    task.title,
                    method,
                    component,
                    best_step,
                    metric_name,
                    f"{before:.3f}",
                    f"{after:.3f}",
                    *texts,
                )
                print("| " + " | ".join(map(str, cells)) + " |")


def pixel_features(videos: VideoDataset) -> dict[str, np.ndarray]:
    """Features (n, D) of raw pixels, 16 gray frames of 24×24 per video, by name."""
    small = []
    for i in range(len(videos)):
        video = videos.open_video(i)
        frames = read_clips(video, sample_uniform_clips(len(video), num_frames=16, stride=0, num_clips=1))[0]
        small.append([cv2.resize(cv2.cvtColor(f, cv2.COLOR_RGB2GRAY), (24, 24), interpolation=3) for f in frames])
    gray = np.array(small, np.float32) / 255
    features = {"mean frame": gray.mean(1), "differences of frames": np.abs(np.diff(gray, axis=1)), "16 frames": gray}
    return {name: x.reshape(len(x), -1) for name, x in features.items()}
