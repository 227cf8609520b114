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

from stillmotion.data.loader import Broken
from stillmotion.data.subset import Subset
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.data.videos import Videos
from stillmotion.encoders import Progress
from stillmotion.encoders.tokens import Tokens, frozen_model, load_tokens
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.options import Geometry
from stillmotion.evaluate.outputs import read_by, spare_file, tried
from stillmotion.evaluate.told import skipped
from stillmotion.files import write_json
from stillmotion.functional.cycle import cycle_accuracy
from stillmotion.functional.geometry import (
    effective_rank,
    intra_distance,
    nearest_distance,
    pair_distances,
    radii,
    token_radii,
)
from stillmotion.train.process import choose_device

COLUMNS = ("D_inter", "D_intra", "D", "cycle accuracy", "effective rank")
CONVENTIONS = {
    "equations": "distances as printed (Eq. 47–53)",
    "authors": "distances by the authors' script: nearest patches, the closest half, radii over patches",
}
FROZEN = "frozen"
_LEVEL = 0.95
_BLOCKS = 50  # of videos, whose covariances are resampled
_RANK_RESAMPLES = 200  # an eigenvalue problem each


@dataclass
class _Measured:
    """What is gathered of each video under one projection, by a convention."""

    convention: str
    middle: list[Tensor] = field(default_factory=list)
    intra: list[float] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)
    cycle: list[float] = field(default_factory=list)

    def add(self, tokens: Tensor, *, temperature: float) -> None:
        """tokens: (T, N, D) of one video."""
        distance, ratio = (nearest_distance if self.convention == "authors" else intra_distance)(tokens)
        self.middle.append(tokens[len(tokens) // 2].cpu())
        self.intra.append(float(distance))
        self.ratio.append(float(ratio))
        found = cycle_accuracy(tokens[:-1], tokens[1:], tokens[:-1], temperature=temperature)
        self.cycle.append(float(found.mean()))


def geometry(
    runs: Sequence[str],
    videos: Videos,
    measured: Geometry | None = None,
    *,
    out: str | Path | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The distances of transfer runs beside those of their frozen models, with intervals.

    runs: transfer runs, or folders of image models; those of one frozen model share its tokens.
    out: a file for the results as JSON.
    """
    asked = measured or Geometry()
    place = choose_device(device)
    chosen = _chosen(videos, asked)
    if out is not None:
        spare_file(tried(out), read_by(videos, videos=chosen.videos, encoders=runs))
    groups: dict[Any, list[str]] = {}
    for run in dict.fromkeys(runs):
        groups.setdefault(frozen_model(run), []).append(run)
    rows: dict[str, Any] = {}
    broken: dict[str, str] = {}
    total, done = len(chosen) * len(groups), 0

    def count() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    raw: dict[str, tuple[str | None, _Measured]] = {}
    for number, members in enumerate(groups.values()):
        loaded = [load_tokens(members[0])]
        loaded += [load_tokens(run, images=loaded[0].images) for run in members[1:]]
        name = FROZEN if len(groups) == 1 else f"{FROZEN} {number + 1}"
        heads: dict[str, nn.Module | None] = {name: None}
        heads |= {run: t.projection for run, t in zip(members, loaded, strict=True) if t.projection is not None}
        found, failed = _measure(loaded[0], heads, chosen, asked, place, count)
        broken |= dict(failed)
        raw |= {row: (None if row == name else name, of_row) for row, of_row in found.items()}
    summaries = {row: _Summary(m) for row, (_, m) in raw.items()}
    if asked.gamma == "estimate":
        scale = float(np.mean([s.intra for s in summaries.values()]) / np.mean([s.inter for s in summaries.values()]))
    else:
        scale = asked.gamma
    draws = {row: s.resampled(scale, resamples=asked.resamples, seed=asked.seed) for row, s in summaries.items()}
    for row, (before, _) in raw.items():
        values = summaries[row].values(scale)
        rows[row] = {
            "before": before,
            "gamma": summaries[row].intra / max(summaries[row].inter, 1e-12),
            **{c: _entry(values[c], draws[row][c]) for c in COLUMNS},
        }
        if before is not None:
            start = summaries[before].values(scale)
            rows[row]["change"] = {c: _entry(values[c] - start[c], draws[row][c] - draws[before][c]) for c in COLUMNS}
    results = {
        "convention": asked.convention,
        "data": videos.path,
        "split": videos.split,
        "videos": len(next(iter(raw.values()))[1].ratio),
        "frames": asked.taken(),
        "gamma": scale,
        "estimated": asked.gamma == "estimate",
        "temperature": asked.temperature,
        "level": _LEVEL,
        "rows": rows,
        "broken": broken,
    }
    if out is not None:
        write_json(out, results)
    return results


def result_lines(results: dict[str, Any]) -> list[str]:
    """The results of `geometry` as lines for a terminal."""
    wide = max(24, *(len(name) + 2 for name in results["rows"]))
    lines = [" " * wide + "".join(f"{c:>26}" for c in COLUMNS)]

    def line(name: str, row: dict[str, Any], sign: str = "") -> str:
        cells = []
        for c in COLUMNS:
            digits = 1 if c == "effective rank" else 3
            value, low, high = row[c]
            cells.append(f"{value:{sign}.{digits}f} [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]")
        return f"{name:<{wide}}" + "".join(f"{cell:>26}" for cell in cells)

    for name, row in results["rows"].items():
        lines.append(line(name, row))
        if "change" in row:
            lines.append(line("  change", row["change"], "+"))
    own = ", ".join(f"{name} {row['gamma']:.3f}" for name, row in results["rows"].items())
    lines.append(f"{CONVENTIONS[results['convention']]}; γ of each row by itself: {own}")
    how = "estimated (Eq. 54)" if results["estimated"] else "given"
    lines.append(
        f"{results['videos']} videos, {results['frames']} frames of each; γ {results['gamma']:.3f}, {how}; "
        f"in brackets {results['level']:.0%} intervals over videos"
    )
    return lines + skipped(results["broken"], what="videos were left out")


class _Summary:
    """The figures of one row, and their resampling over videos."""

    def __init__(self, measured: _Measured) -> None:
        middle = torch.stack(measured.middle).float()
        self.pairs = pair_distances(middle).double().numpy()
        self.radii = (token_radii if measured.convention == "authors" else radii)(middle).double().numpy()
        self.ratio, self.cycle = np.array(measured.ratio), np.array(measured.cycle)
        self.intra = float(np.mean(measured.intra))
        self.blocks = [_moments(block) for block in middle.double().chunk(_BLOCKS)]
        self.inter = self._inter_original(np.ones(len(middle)))

    def values(self, gamma: float) -> dict[str, float]:
        found = self._of(np.ones(len(self.ratio)), gamma)
        return found | {"effective rank": self._rank(np.ones(len(self.blocks)))}

    def resampled(self, gamma: float, *, resamples: int, seed: int) -> dict[str, np.ndarray]:
        """Each figure under so many draws of videos; the same seed draws the same ones.

        A draw has its own largest radius; the centre stays. Effective rank is drawn by blocks, and less often.
        """
        n, rng = len(self.ratio), np.random.default_rng(seed)
        drawn = rng.multinomial(n, np.full(n, 1 / n), size=resamples)
        drawn = drawn[(drawn > 0).sum(1) > 1]  # of a single video there is no distance to another
        parts = [self._of(counts, gamma) for counts in drawn.astype(np.float64)]
        found = {c: np.array([part[c] for part in parts]) for c in COLUMNS[:-1]}
        m = len(self.blocks)
        blocks = rng.multinomial(m, np.full(m, 1 / m), size=min(resamples, _RANK_RESAMPLES))
        return found | {"effective rank": np.array([self._rank(counts) for counts in blocks.astype(np.float64)])}

    def _of(self, counts: np.ndarray, gamma: float) -> dict[str, float]:
        radius = float(self.radii[counts > 0].max())
        inter = self._inter_original(counts) / max(2 * radius, 1e-12)
        intra = float(counts @ self.ratio / counts.sum())
        return {
            "D_inter": inter,
            "D_intra": intra,
            "D": inter - gamma * intra,
            "cycle accuracy": float(counts @ self.cycle / counts.sum()),
        }

    def _inter_original(self, counts: np.ndarray) -> float:
        """The mean over pairs of different videos."""
        pairs = counts.sum() ** 2 - (counts**2).sum()
        return float(counts @ self.pairs @ counts / max(pairs, 1e-12))

    def _rank(self, counts: np.ndarray) -> float:
        weights = torch.from_numpy(counts)
        n = sum(w * b[0] for w, b in zip(weights, self.blocks, strict=True))
        mean = sum(w * b[1] for w, b in zip(weights, self.blocks, strict=True)) / n
        square = sum(w * b[2] for w, b in zip(weights, self.blocks, strict=True)) / n
        return float(effective_rank(square - torch.outer(mean, mean)))


def _moments(middle: Tensor) -> tuple[float, Tensor, Tensor]:
    tokens = middle.flatten(0, 1)
    return float(len(tokens)), tokens.sum(0), tokens.T @ tokens


def _entry(value: float, drawn: np.ndarray) -> tuple[float, float, float]:
    """The value and its interval, which is as wide as the draws spread and lies round the value.

    A largest radius and a rank are smaller in a draw, which holds fewer different videos, than in the whole: the draws'
    own percentiles would lie beside the value.
    """
    low, high = np.quantile(drawn - drawn.mean(), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(value), float(value + low), float(value + high)


def _chosen(videos: Videos, asked: Geometry) -> Subset:
    drawn = SyntheticConfig(videos=min(asked.videos, 64), size=48)
    found = videos.open(drawn=drawn, seed=asked.seed + 1000)
    return Subset(found, np.sort(np.random.default_rng(asked.seed).permutation(len(found))[: asked.videos]))


@torch.no_grad()
def _measure(
    tokens: Tokens,
    heads: dict[str, nn.Module | None],
    videos: Subset,
    asked: Geometry,
    device: torch.device,
    count: Callable[[], None],
) -> tuple[dict[str, _Measured], Broken]:
    """What each head, None for the tokens themselves, makes of the videos; and those that cannot be used."""
    images, side = tokens.images.to(device), asked.size or tokens.size
    images.grid(side, side)
    measured = {row: _Measured(asked.convention) for row in heads}
    failed: Broken = []
    for i in range(len(videos)):
        try:
            seen = tokens.squares(_spaced(videos, i, asked.taken()), side)
        except VideoError as error:
            failed.append((videos.name(i), str(error)))
            count()
            continue
        found = images.tokens(seen.to(device))
        for row, head in heads.items():
            measured[row].add(found if head is None else head.to(device)(found), temperature=asked.temperature)
        count()
    used = len(videos) - len(failed)
    if used < 2:
        reason = f"; the first: {failed[0][1]}" if failed else ""
        raise StillmotionError(f"{used} videos can be used; distances need at least 2{reason}")
    return measured, failed


def _spaced(videos: Subset, i: int, frames: int) -> np.ndarray:
    """So many evenly spaced frames of a video."""
    video = videos.video(i)
    if len(video) < frames:
        raise VideoError(f"{videos.name(i)}: {len(video)} frames; {frames} are taken of each video (--frames)")
    return video.frames(np.linspace(0, len(video) - 1, frames).round().astype(int).tolist())
