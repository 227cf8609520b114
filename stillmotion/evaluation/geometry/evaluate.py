"""`stillmotion geometry`: how far videos lie apart, how far frames of one, and how patches find back (Eq. 47–55).

Of each video, evenly spaced frames: neighbours make the pairs within it, the middle one stands for it among others.
Intervals are bootstraps over videos, paired between rows. Shapes: M videos, T frames, N tokens, D channels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stillmotion.data.datasets.base import FailedVideos
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.encoders import ProgressCallback, parse_spec
from stillmotion.encoders.input_paths import check_file_no_overlap, collect_input_paths
from stillmotion.encoders.patch_tokens import PatchTokenModel, frozen_model_config, load_patch_tokens
from stillmotion.encoders.run_encoders import resolve_run_weights
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluation.geometry.config import GeometryConfig
from stillmotion.functional.cycle import cycle_accuracy
from stillmotion.functional.embedding_geometry import (
    effective_rank,
    inter_video_distances,
    intra_video_distance,
    intra_video_nearest_distance,
    max_token_radii,
    video_radii,
)
from stillmotion.models.pretrained.frozen_image_model import FrozenImageModel
from stillmotion.utils.device import resolve_device
from stillmotion.utils.files import check_writable, write_json
from stillmotion.utils.formatting import format_failed_videos

METRIC_NAMES = ("D_inter", "D_intra", "D", "cycle accuracy", "effective rank")
DISTANCE_DEFINITIONS = {
    "paper": "distances as printed (Eq. 47–53)",
    "reference-code": "distances by the authors' script: nearest patches, the closest half, radii over patches",
}
FROZEN_ROW = "frozen"
_CONFIDENCE_LEVEL = 0.95
_NUM_BLOCKS = 50  # of videos, whose covariances are resampled
_RANK_RESAMPLES = 200  # an eigenvalue problem each


@dataclass
class _VideoMeasurements:
    """What is gathered of each video under one projection, by a convention."""

    distance_definition: str
    middle: list[Tensor] = field(default_factory=list)
    intra: list[float] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)
    cycle: list[float] = field(default_factory=list)

    def add(self, tokens: Tensor, *, temperature: float) -> None:
        """tokens: (T, N, D) of one video."""
        distance, ratio = (
            intra_video_nearest_distance if self.distance_definition == "reference-code" else intra_video_distance
        )(tokens)
        self.middle.append(tokens[len(tokens) // 2].cpu())
        self.intra.append(float(distance))
        self.ratio.append(float(ratio))
        found = cycle_accuracy(tokens[:-1], tokens[1:], tokens[:-1], temperature=temperature)
        self.cycle.append(float(found.mean()))


def evaluate_geometry(
    encoder_specs: Sequence[str],
    videos: VideoDataConfig,
    config: GeometryConfig | None = None,
    *,
    output_file: str | Path | None = None,
    device: str = "auto",
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """The distances of transfer runs beside those of their frozen models, with intervals.

    encoder_specs: transfer runs, or folders of image models; those of one frozen model share its tokens.
    output_file: a file for the results as JSON.
    """
    asked = config or GeometryConfig()
    place = resolve_device(device)
    chosen = _sample_videos(videos, asked)
    if output_file is not None:
        check_file_no_overlap(
            check_writable(output_file, is_file=True, create=True),
            collect_input_paths(videos, dataset=chosen.dataset, encoders=encoder_specs),
        )
    groups: dict[Any, list[str]] = {}
    for run in dict.fromkeys(encoder_specs):
        groups.setdefault(frozen_model_config(_model_path(run)), []).append(run)
    rows: dict[str, Any] = {}
    broken: dict[str, str] = {}
    total, done = len(chosen) * len(groups), 0

    def count() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    raw: dict[str, tuple[str | None, _VideoMeasurements]] = {}
    for number, members in enumerate(groups.values()):
        loaded = [_load_tokens(members[0])]
        loaded += [_load_tokens(run, images=loaded[0].image_model) for run in members[1:]]
        name = FROZEN_ROW if len(groups) == 1 else f"{FROZEN_ROW} {number + 1}"
        heads: dict[str, nn.Module | None] = {name: None}
        heads |= {run: t.projection for run, t in zip(members, loaded, strict=True) if t.projection is not None}
        found, failed = _measure(loaded[0], heads, chosen, asked, place, count)
        broken |= dict(failed)
        raw |= {row: (None if row == name else name, of_row) for row, of_row in found.items()}
    summaries = {row: _RowStatistics(m) for row, (_, m) in raw.items()}
    if asked.gamma == "estimate":
        scale = float(np.mean([s.intra for s in summaries.values()]) / np.mean([s.inter for s in summaries.values()]))
    else:
        scale = asked.gamma
    draws = {row: s.resampled(scale, n_resamples=asked.n_resamples, seed=asked.seed) for row, s in summaries.items()}
    for row, (before, _) in raw.items():
        values = summaries[row].values(scale)
        rows[row] = {
            "baseline_row": before,
            "gamma": summaries[row].intra / max(summaries[row].inter, 1e-12),
            **{c: _interval_around(values[c], draws[row][c]) for c in METRIC_NAMES},
        }
        if before is not None:
            start = summaries[before].values(scale)
            rows[row]["change_from_baseline"] = {
                c: _interval_around(values[c] - start[c], draws[row][c] - draws[before][c]) for c in METRIC_NAMES
            }
    results = {
        "distance_definition": asked.distance_definition,
        "data": videos.path,
        "split": videos.split,
        "num_videos": len(next(iter(raw.values()))[1].ratio),
        "num_frames": asked.resolved_num_frames(),
        "gamma": scale,
        "gamma_estimated": asked.gamma == "estimate",
        "temperature": asked.temperature,
        "confidence_level": _CONFIDENCE_LEVEL,
        "rows": rows,
        "failed": broken,
    }
    if output_file is not None:
        write_json(output_file, results)
    return results


def format_geometry_results(results: dict[str, Any]) -> list[str]:
    """The results of `geometry` as lines for a terminal."""
    wide = max(24, *(len(name) + 2 for name in results["rows"]))
    lines = [" " * wide + "".join(f"{c:>26}" for c in METRIC_NAMES)]

    def line(name: str, row: dict[str, Any], sign: str = "") -> str:
        cells = []
        for c in METRIC_NAMES:
            digits = 1 if c == "effective rank" else 3
            value, low, high = row[c]
            cells.append(f"{value:{sign}.{digits}f} [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]")
        return f"{name:<{wide}}" + "".join(f"{cell:>26}" for cell in cells)

    for name, row in results["rows"].items():
        lines.append(line(name, row))
        if "change_from_baseline" in row:
            lines.append(line("  change", row["change_from_baseline"], "+"))
    own = ", ".join(f"{name} {row['gamma']:.3f}" for name, row in results["rows"].items())
    lines.append(f"{DISTANCE_DEFINITIONS[results['distance_definition']]}; γ of each row by itself: {own}")
    how = "estimated (Eq. 54)" if results["gamma_estimated"] else "given"
    lines.append(
        f"{results['num_videos']} videos, {results['num_frames']} frames of each; γ {results['gamma']:.3f}, {how}; "
        f"in brackets {results['confidence_level']:.0%} intervals over videos"
    )
    return lines + format_failed_videos(results["failed"], what="videos were left out")


def _model_path(spec: str) -> str:
    """The folder of a transfer run; the whole text of an image model, whose family and layer it may say."""
    named = parse_spec(spec)
    return named.path if named.kind == "transfer" else spec


def _load_tokens(spec: str, *, images: FrozenImageModel | None = None) -> PatchTokenModel:
    named = parse_spec(spec)
    weights = resolve_run_weights(named).weights_file if named.kind == "transfer" else None
    return load_patch_tokens(_model_path(spec), image_model=images, weights_file=weights)


class _RowStatistics:
    """The figures of one row, and their resampling over videos."""

    def __init__(self, measured: _VideoMeasurements) -> None:
        middle = torch.stack(measured.middle).float()
        self.pairs = inter_video_distances(middle).double().numpy()
        self.radii = (
            (max_token_radii if measured.distance_definition == "reference-code" else video_radii)(middle)
            .double()
            .numpy()
        )
        self.ratio, self.cycle = np.array(measured.ratio), np.array(measured.cycle)
        self.intra = float(np.mean(measured.intra))
        self.blocks = [_second_moments(block) for block in middle.double().chunk(_NUM_BLOCKS)]
        self.inter = self._inter_distance(np.ones(len(middle)))

    def values(self, gamma: float) -> dict[str, float]:
        found = self._distances(np.ones(len(self.ratio)), gamma)
        return found | {"effective rank": self._effective_rank(np.ones(len(self.blocks)))}

    def resampled(self, gamma: float, *, n_resamples: int, seed: int) -> dict[str, np.ndarray]:
        """Each figure under so many draws of videos; the same seed draws the same ones.

        A draw has its own largest radius; the centre stays. Effective rank is drawn by blocks, and less often.
        """
        n, rng = len(self.ratio), np.random.default_rng(seed)
        drawn = rng.multinomial(n, np.full(n, 1 / n), size=n_resamples)
        drawn = drawn[(drawn > 0).sum(1) > 1]  # of a single video there is no distance to another
        parts = [self._distances(counts, gamma) for counts in drawn.astype(np.float64)]
        found = {c: np.array([part[c] for part in parts]) for c in METRIC_NAMES[:-1]}
        m = len(self.blocks)
        blocks = rng.multinomial(m, np.full(m, 1 / m), size=min(n_resamples, _RANK_RESAMPLES))
        return found | {
            "effective rank": np.array([self._effective_rank(counts) for counts in blocks.astype(np.float64)])
        }

    def _distances(self, counts: np.ndarray, gamma: float) -> dict[str, float]:
        radius = float(self.radii[counts > 0].max())
        inter = self._inter_distance(counts) / max(2 * radius, 1e-12)
        intra = float(counts @ self.ratio / counts.sum())
        return {
            "D_inter": inter,
            "D_intra": intra,
            "D": inter - gamma * intra,
            "cycle accuracy": float(counts @ self.cycle / counts.sum()),
        }

    def _inter_distance(self, counts: np.ndarray) -> float:
        """The mean over pairs of different videos."""
        pairs = counts.sum() ** 2 - (counts**2).sum()
        return float(counts @ self.pairs @ counts / max(pairs, 1e-12))

    def _effective_rank(self, counts: np.ndarray) -> float:
        weights = torch.from_numpy(counts)
        n = sum(w * b[0] for w, b in zip(weights, self.blocks, strict=True))
        mean = sum(w * b[1] for w, b in zip(weights, self.blocks, strict=True)) / n
        square = sum(w * b[2] for w, b in zip(weights, self.blocks, strict=True)) / n
        eigenvalues = torch.linalg.eigvalsh((square - torch.outer(mean, mean)).double())
        return float(effective_rank(eigenvalues.clamp_min(0).sqrt()))


def _second_moments(middle: Tensor) -> tuple[float, Tensor, Tensor]:
    tokens = middle.flatten(0, 1)
    return float(len(tokens)), tokens.sum(0), tokens.T @ tokens


def _interval_around(value: float, draws: np.ndarray) -> tuple[float, float, float]:
    """The value and its interval, which is as wide as the draws spread and lies round the value.

    A largest radius and a rank are smaller in a draw, which holds fewer different videos, than in the whole: the draws'
    own percentiles would lie beside the value.
    """
    low, high = np.quantile(draws - draws.mean(), [(1 - _CONFIDENCE_LEVEL) / 2, (1 + _CONFIDENCE_LEVEL) / 2])
    return float(value), float(value + low), float(value + high)


def _sample_videos(videos: VideoDataConfig, config: GeometryConfig) -> Subset:
    drawn = SyntheticConfig(num_videos=min(config.max_videos, 64), image_size=48)
    found = videos.open(synthetic=drawn, seed=config.seed + 1000)
    return Subset(found, np.sort(np.random.default_rng(config.seed).permutation(len(found))[: config.max_videos]))


@torch.no_grad()
def _measure(
    tokens: PatchTokenModel,
    heads: dict[str, nn.Module | None],
    videos: Subset,
    config: GeometryConfig,
    device: torch.device,
    on_video: Callable[[], None],
) -> tuple[dict[str, _VideoMeasurements], FailedVideos]:
    """What each head, None for the tokens themselves, makes of the videos; and those that cannot be used."""
    images, side = tokens.image_model.to(device), config.image_size or tokens.image_size
    images.patch_grid(side, side)
    measured = {row: _VideoMeasurements(config.distance_definition) for row in heads}
    failed: FailedVideos = []
    for i in range(len(videos)):
        try:
            seen = tokens.preprocess(_evenly_spaced_frames(videos, i, config.resolved_num_frames()), side)
        except VideoError as error:
            failed.append((videos.name(i), str(error)))
            on_video()
            continue
        found = images.patch_tokens(seen.to(device))
        for row, head in heads.items():
            measured[row].add(found if head is None else head.to(device)(found), temperature=config.temperature)
        on_video()
    used = len(videos) - len(failed)
    if used < 2:
        reason = f"; the first: {failed[0][1]}" if failed else ""
        raise StillmotionError(f"{used} videos can be used; distances need at least 2{reason}")
    return measured, failed


def _evenly_spaced_frames(videos: Subset, i: int, num_frames: int) -> np.ndarray:
    """So many evenly spaced frames of a video."""
    video = videos.open_video(i)
    if len(video) < num_frames:
        raise VideoError(f"{videos.name(i)}: {len(video)} frames; {num_frames} are taken of each video (--num-frames)")
    return video.get_frames(np.linspace(0, len(video) - 1, num_frames).round().astype(int).tolist())
