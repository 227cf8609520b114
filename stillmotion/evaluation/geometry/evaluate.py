"""`stillmotion geometry`: inter- and intra-video distances, cycle accuracy and effective rank (Eq. 47–55).

Each video gives evenly spaced frames: pairs of neighboring frames for distances within the video, and the middle frame
for distances to other videos. Intervals are bootstraps over videos, paired between rows.

Shapes: M videos, T frames, N tokens, D channels.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stillmotion.data.datasets.base import FailedVideos
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.input_paths import check_file_no_overlap, collect_input_paths
from stillmotion.encoders.patch_tokens import PatchTokenModel, frozen_model_config, load_patch_tokens
from stillmotion.encoders.spec import add_options
from stillmotion.errors import StillmotionError, VideoError, as_video_error
from stillmotion.evaluation.common import encoder_names
from stillmotion.evaluation.geometry.config import GeometryConfig
from stillmotion.evaluation.metrics.confidence_intervals import Estimate, interval_around
from stillmotion.functional.cycle import cycle_accuracy, pool_tokens
from stillmotion.functional.embedding_geometry import (
    effective_rank,
    inter_video_distances,
    intra_video_distance,
    intra_video_nearest_token_distance,
    max_token_radii,
    video_radii,
)
from stillmotion.models.pretrained.frozen_image_model import FrozenImageModel
from stillmotion.report.page_blocks import Table
from stillmotion.utils.files import check_writable, write_json
from stillmotion.utils.formatting import format_count, format_failed_videos
from stillmotion.utils.progress import progress_part, report_progress

METRIC_NAMES = ("inter_distance", "intra_distance", "margin", "cycle_accuracy", "effective_rank")
_COLUMN_HEADS = ("D_inter", "D_intra", "D", "cycle accuracy", "effective rank")
CONVENTIONS = {
    "paper": "Definitions of the paper (Eq. 47–53)",
    "authors": "Definitions of the authors' script (nearest patches, closest half, radii over patches; cycles of "
    "pooled patches 0.15 of the video apart; effective rank as a fraction)",
}
FROZEN_ROW = "frozen"
# First and second frame of the authors' cycles, as fractions of the video.
_AUTHORS_CYCLES = ((0.25, 0.4), (0.35, 0.5), (0.45, 0.6), (0.55, 0.7), (0.65, 0.8))
_CONFIDENCE_LEVEL = 0.95
_NUM_BLOCKS = 50  # blocks of videos, whose covariances are resampled
_RANK_RESAMPLES = 200  # each needs the eigenvalues of a covariance


@dataclass(frozen=True)
class GeometryRow:
    """Metrics of one encoder.

    Args:
        baseline_row: Name of the row of its frozen model; None for a frozen model.
        gamma: γ estimated from this row alone.
        metrics: Metrics by name, with intervals.
        change_from_baseline: Difference to the baseline's metrics, with paired intervals; None for a frozen model.
    """

    baseline_row: str | None
    gamma: float
    metrics: dict[str, Estimate]
    change_from_baseline: dict[str, Estimate] | None


@dataclass(frozen=True)
class GeometryReport:
    """Results of `evaluate_geometry`.

    Args:
        convention: Definitions of the metrics.
        data: Data set.
        split: Split of the data set.
        num_videos: Number of videos that were measured.
        num_frames: Frames per video.
        gamma: γ of the margin.
        gamma_estimated: Whether γ was estimated (Eq. 54).
        temperature: Softmax temperature of the patch affinities.
        confidence_level: Confidence level of the intervals.
        rows: Rows by name: the frozen models and the encoders.
        failed: Reason for each video that was not measured.
    """

    convention: str
    data: str
    split: str | None
    num_videos: int
    num_frames: int
    gamma: float
    gamma_estimated: bool
    temperature: float
    confidence_level: float
    rows: dict[str, GeometryRow]
    failed: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON data."""
        return asdict(self)

    def table(self) -> Table:
        """Return a row for each encoder, and below it the change from its frozen model."""
        rows = []
        for name, row in self.rows.items():
            rows.append([name, *self._cells(row.metrics)])
            if row.change_from_baseline is not None:
                rows.append(["  change", *self._cells(row.change_from_baseline, sign="+")])
        return Table(["encoder", *_COLUMN_HEADS], rows)

    def to_lines(self) -> list[str]:
        """Return the results as lines of text."""
        gammas = ", ".join(f"{name} {row.gamma:.3f}" for name, row in self.rows.items())
        source = "estimated (Eq. 54)" if self.gamma_estimated else "given"
        return [
            *self.table().to_text(),
            f"{CONVENTIONS[self.convention]}; γ of each row by itself: {gammas}",
            f"{format_count(self.num_videos, 'video')}, {self.num_frames} frames per video; γ {self.gamma:.3f}, "
            f"{source}; in brackets {self.confidence_level:.0%} bootstrap intervals over videos",
            *format_failed_videos(self.failed, noun="video"),
        ]

    def _cells(self, metrics: dict[str, Estimate], *, sign: str = "") -> list[str]:
        rank_digits = 3 if self.convention == "authors" else 1
        return [metrics[c].format(digits=rank_digits if c == "effective_rank" else 3, sign=sign) for c in METRIC_NAMES]


@dataclass
class _VideoMeasurements:
    """Measurements of each video under one projection."""

    convention: str
    middle: list[Tensor] = field(default_factory=list)
    intra: list[float] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)
    cycle: list[float] = field(default_factory=list)

    def add(self, tokens: Tensor, grid: tuple[int, int], *, temperature: float) -> None:
        """Add the tokens of one video, (T, N, D), of a grid of patches."""
        if self.convention == "authors":
            distance, ratio = intra_video_nearest_token_distance(tokens)
            cycles = _authors_cycle_accuracy(tokens, grid, temperature=temperature)
        else:
            distance, ratio = intra_video_distance(tokens)
            cycles = cycle_accuracy(tokens[:-1], tokens[1:], tokens[:-1], temperature=temperature)
        self.middle.append(tokens[len(tokens) // 2].cpu())
        self.intra.append(float(distance))
        self.ratio.append(float(ratio))
        self.cycle.append(float(cycles.mean()))


def _authors_cycle_accuracy(tokens: Tensor, grid: tuple[int, int], *, temperature: float) -> Tensor:
    """Accuracy of each of the authors' five cycles: means of 2×2 tokens (T, N, D), compared by dot product."""
    rows, columns = grid[0] // 2 * 2, grid[1] // 2 * 2  # a last row or column without a partner is left out
    pooled = pool_tokens(tokens.unflatten(1, grid)[:, :rows, :columns].flatten(1, 2), (rows, columns))
    first, second = (torch.tensor(_AUTHORS_CYCLES) * len(tokens)).long().unbind(1)
    views = (pooled[first], pooled[second], pooled[first])
    return cycle_accuracy(*views, temperature=temperature, similarity="dot")


def evaluate_geometry(
    encoders: Sequence[Encoder],
    videos: VideoDataConfig,
    config: GeometryConfig | None = None,
    *,
    output_file: str | Path | None = None,
) -> GeometryReport:
    """Measure the patch tokens of transfer runs beside those of their frozen image models.

    Args:
        encoders: Transfer runs, or image models; those of one frozen model share its tokens.
        videos: Videos.
        config: Which videos are measured, and how.
        output_file: JSON file for the results.

    Returns:
        A row for each frozen model and each transfer run.

    Raises:
        StillmotionError: If an encoder is no image model, or fewer than 2 videos can be used.
    """
    config = config or GeometryConfig()
    sampled = _sample_videos(videos, config)
    if output_file is not None:
        file = check_writable(output_file, is_file=True, create=True)
        check_file_no_overlap(file, collect_input_paths(videos, dataset=sampled.dataset, encoders=encoders))
    named = dict(zip(encoder_names(encoders), encoders, strict=True))
    groups: dict[Any, list[str]] = {}
    for name, encoder in named.items():
        groups.setdefault(frozen_model_config(_token_spec(encoder)), []).append(name)
    failed: dict[str, str] = {}
    measured: dict[str, tuple[str | None, _VideoMeasurements]] = {}
    for number, names in enumerate(groups.values()):
        tokens = [_load_tokens(named[name]) for name in names]
        frozen = FROZEN_ROW if len(groups) == 1 else f"{FROZEN_ROW} {number + 1}"
        heads: dict[str, nn.Module | None] = {frozen: None}
        heads |= {name: t.projection for name, t in zip(names, tokens, strict=True) if t.projection is not None}
        encoder = named[names[0]]
        image_size = config.image_size or encoder.origin.options.get("size") or tokens[0].image_size
        with progress_part(number * len(sampled), len(groups) * len(sampled)):
            by_row, failed_here = _measure(tokens[0], heads, sampled, config, image_size, encoder.device)
        failed |= dict(failed_here)
        measured |= {row: (None if row == frozen else frozen, values) for row, values in by_row.items()}
    statistics = {row: _RowStatistics(values) for row, (_, values) in measured.items()}
    if config.gamma == "estimate":
        gamma = float(np.mean([s.intra for s in statistics.values()]) / np.mean([s.inter for s in statistics.values()]))
    else:
        gamma = config.gamma
    report = GeometryReport(
        convention=config.convention,
        data=videos.path,
        split=videos.split,
        num_videos=len(next(iter(measured.values()))[1].ratio),
        num_frames=config.resolved_num_frames(),
        gamma=gamma,
        gamma_estimated=config.gamma == "estimate",
        temperature=config.temperature,
        confidence_level=_CONFIDENCE_LEVEL,
        rows=_build_rows({row: baseline for row, (baseline, _) in measured.items()}, statistics, gamma, config),
        failed=failed,
    )
    if output_file is not None:
        write_json(output_file, report.to_dict())
    return report


def _token_spec(encoder: Encoder) -> str:
    """Return the spec of an encoder's patch tokens: a run folder, or an image model with its layer."""
    spec, options = encoder.origin.spec, encoder.origin.options
    if not options:
        return spec
    return add_options(spec.rpartition("@")[0], {name: value for name, value in options.items() if name == "layer"})


def _load_tokens(encoder: Encoder) -> PatchTokenModel:
    spec, backbone = _token_spec(encoder), encoder.backbone
    if isinstance(backbone, FrozenImageModel):  # they are loaded already
        size = encoder.input_config.image_size
        return PatchTokenModel(backbone, backbone.projection, size, frozen_model_config(spec))
    return load_patch_tokens(spec)


def _build_rows(
    baselines: dict[str, str | None], statistics: "dict[str, _RowStatistics]", gamma: float, config: GeometryConfig
) -> dict[str, GeometryRow]:
    values = {row: s.values(gamma) for row, s in statistics.items()}
    resampled = {
        row: s.resampled(gamma, n_resamples=config.n_resamples, seed=config.seed) for row, s in statistics.items()
    }
    rows = {}
    for row, baseline in baselines.items():
        change = None
        if baseline is not None:
            change = {
                c: interval_around(values[row][c] - values[baseline][c], resampled[row][c] - resampled[baseline][c])
                for c in METRIC_NAMES
            }
        metrics = {c: interval_around(values[row][c], resampled[row][c]) for c in METRIC_NAMES}
        own_gamma = statistics[row].intra / max(statistics[row].inter, 1e-12)
        rows[row] = GeometryRow(baseline, own_gamma, metrics, change)
    return rows


class _RowStatistics:
    """Metrics of one row, and their resampling over videos."""

    def __init__(self, measured: _VideoMeasurements) -> None:
        middle = torch.stack(measured.middle).float()
        self.pairs = inter_video_distances(middle).double().numpy()
        self.is_authors = measured.convention == "authors"
        radii = max_token_radii if self.is_authors else video_radii
        self.radii = radii(middle).double().numpy()
        self.ratio, self.cycle = np.array(measured.ratio), np.array(measured.cycle)
        self.intra = float(np.mean(measured.intra))
        self.blocks = [_second_moments(block) for block in middle.double().chunk(_NUM_BLOCKS)]
        self.inter = self._inter_distance(np.ones(len(middle)))

    def values(self, gamma: float) -> dict[str, float]:
        distances = self._distances(np.ones(len(self.ratio)), gamma)
        return distances | {"effective_rank": self._effective_rank(np.ones(len(self.blocks)))}

    def resampled(self, gamma: float, *, n_resamples: int, seed: int) -> dict[str, np.ndarray]:
        """Compute each metric under resamples of the videos; the same seed gives the same resamples.

        A resample has its own largest radius, but not its own center. Effective rank is resampled by blocks of videos,
        and less often.
        """
        n, rng = len(self.ratio), np.random.default_rng(seed)
        resamples = rng.multinomial(n, np.full(n, 1 / n), size=n_resamples)
        resamples = resamples[(resamples > 0).sum(1) > 1]  # a single video has no distance to another
        parts = [self._distances(counts, gamma) for counts in resamples.astype(np.float64)]
        metrics = {c: np.array([part[c] for part in parts]) for c in METRIC_NAMES[:-1]}
        m = len(self.blocks)
        blocks = rng.multinomial(m, np.full(m, 1 / m), size=min(n_resamples, _RANK_RESAMPLES)).astype(np.float64)
        return metrics | {"effective_rank": np.array([self._effective_rank(counts) for counts in blocks])}

    def _distances(self, counts: np.ndarray, gamma: float) -> dict[str, float]:
        radius = float(self.radii[counts > 0].max())
        inter = self._inter_distance(counts) / max(2 * radius, 1e-12)
        intra = float(counts @ self.ratio / counts.sum())
        return {
            "inter_distance": inter,
            "intra_distance": intra,
            "margin": inter - gamma * intra,
            "cycle_accuracy": float(counts @ self.cycle / counts.sum()),
        }

    def _inter_distance(self, counts: np.ndarray) -> float:
        """Return the mean over pairs of different videos."""
        pairs = counts.sum() ** 2 - (counts**2).sum()
        return float(counts @ self.pairs @ counts / max(pairs, 1e-12))

    def _effective_rank(self, counts: np.ndarray) -> float:
        weights = torch.from_numpy(counts)
        n = sum(w * b[0] for w, b in zip(weights, self.blocks, strict=True))
        mean = sum(w * b[1] for w, b in zip(weights, self.blocks, strict=True)) / n
        square = sum(w * b[2] for w, b in zip(weights, self.blocks, strict=True)) / n
        second_moment = square if self.is_authors else square - torch.outer(mean, mean)
        singular_values = torch.linalg.eigvalsh(second_moment.double()).clamp_min(0).sqrt()
        largest = min(float(n), len(singular_values)) if self.is_authors else 1
        return float(effective_rank(singular_values)) / largest


def _second_moments(middle: Tensor) -> tuple[float, Tensor, Tensor]:
    tokens = middle.flatten(0, 1)
    return float(len(tokens)), tokens.sum(0), tokens.T @ tokens


def _sample_videos(videos: VideoDataConfig, config: GeometryConfig) -> Subset:
    synthetic = SyntheticConfig(num_videos=min(config.max_videos, 64), image_size=48)
    dataset = videos.open(synthetic=synthetic, seed=config.seed + 1000)
    return Subset(dataset, np.sort(np.random.default_rng(config.seed).permutation(len(dataset))[: config.max_videos]))


@torch.no_grad()
def _measure(
    tokens: PatchTokenModel,
    heads: dict[str, nn.Module | None],
    videos: Subset,
    config: GeometryConfig,
    image_size: int,
    device: torch.device,
) -> tuple[dict[str, _VideoMeasurements], FailedVideos]:
    """Measure the tokens of the videos under each projection (None for the tokens themselves)."""
    image_model = tokens.image_model.to(device)
    grid = image_model.patch_grid(image_size, image_size)
    measured = {row: _VideoMeasurements(config.convention) for row in heads}
    failed: FailedVideos = []
    for i in range(len(videos)):
        report_progress(i, len(videos))
        try:
            with as_video_error(videos.name(i)):
                frames = _evenly_spaced_frames(videos, i, config.resolved_num_frames())
                patches = image_model.patch_tokens(tokens.preprocess(frames, image_size).to(device))
        except VideoError as error:
            failed.append((videos.name(i), str(error)))
            continue
        for row, head in heads.items():
            projected = patches if head is None else head.to(device)(patches)
            measured[row].add(projected, grid, temperature=config.temperature)
    report_progress(len(videos), len(videos))
    num_used = len(videos) - len(failed)
    if num_used < 2:
        reason = f" First failure: {failed[0][1]}" if failed else ""
        raise StillmotionError(f"Distances need at least 2 readable videos, got {num_used}.{reason}")
    return measured, failed


def _evenly_spaced_frames(videos: Subset, i: int, num_frames: int) -> np.ndarray:
    video = videos.open_video(i)
    if len(video) < num_frames:
        raise VideoError(f"{videos.name(i)} has {len(video)} frames, fewer than --num-frames {num_frames}.")
    return video.get_frames(np.linspace(0, len(video) - 1, num_frames).round().astype(int).tolist())
