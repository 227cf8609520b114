"""`stillmotion order`: what frozen features know of the order of time (Bagad and Zisserman, arXiv 2509.08502).

Two tasks, each a linear classifier of two classes on frozen features:
    pairs      opposite actions, such as opening and closing; one classifier for each pair, mean over pairs
    reverse    a clip against the same clip played backwards; any videos will do, without labels

Shapes: N clips, T frames, D channels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from stillmotion.data.halves import Halves
from stillmotion.data.played import Played
from stillmotion.data.reading import Reading
from stillmotion.distributed import first_within, on_first
from stillmotion.encoders import Encoder, Features, Progress
from stillmotion.encoders.features import Views
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.bootstrap import resampled_means
from stillmotion.evaluate.cache import features_key
from stillmotion.evaluate.linear import linear_ranks
from stillmotion.evaluate.order_tasks import Task, open_tasks
from stillmotion.evaluate.outputs import read_by, spare_folder
from stillmotion.evaluate.parts import clear, shared_features
from stillmotion.evaluate.retrieve import titles
from stillmotion.evaluate.told import skipped
from stillmotion.files import locked, write_json, write_text

Part = Literal["frames", "whole", "static", "dynamic"]
PARTS: tuple[Part, ...] = get_args(Part)
RESULTS, TEXT = "results.json", "results.txt"
_LEVEL = 0.95
_RESAMPLES = 2000


@dataclass(frozen=True)
class Answers:
    """How often each test video of a task was told right, (M,) of 0 to 1, by the task's name."""

    right: Mapping[str, np.ndarray]

    def mean(self) -> tuple[float, float, float]:
        """The mean over tasks of their accuracy, and its interval over videos."""
        draws = [self._draws(i, values) for i, values in enumerate(self.right.values())]
        return _entry(float(np.mean([v.mean() for v in self.right.values()])), np.mean(draws, 0))

    def each(self) -> dict[str, tuple[float, float, float]]:
        """The accuracy of every task, and its interval over videos."""
        pairs = enumerate(self.right.items())
        return {name: _entry(float(values.mean()), self._draws(i, values)) for i, (name, values) in pairs}

    def _draws(self, seed: int, values: np.ndarray) -> np.ndarray:
        return resampled_means(values, resamples=_RESAMPLES, seed=seed)[0]


def order(
    encoders: Sequence[Encoder],
    halves: Halves,
    *,
    pairs: str | Path | None = None,
    untrained: bool = False,
    out: str | Path | None = None,
    reading: Reading | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """How well linear classifiers tell the order of time from the embeddings of several encoders.

    encoders: each is shown as many evenly spaced frames of a video as it takes in a clip.
    halves: "synthetic" videos are drawn as the first encoder's run draws them; without pairs, light only grows.
    pairs: a JSON file of opposite actions, as `open_tasks` reads it; None tells clips from their reverses.
    untrained: beside each run the network that it started from.
    out: a folder for `results.json` and `results.txt`, and for features until these are written.
    Ranks share the clips; the first asks, and writes.
    """
    if out is None:
        return _order(encoders, halves, pairs, untrained, None, reading, progress)
    spare_folder(out, read_by(halves, encoders=encoders, also=[pairs]))
    folder = Path(out)
    with first_within(lambda: locked(folder)):
        parts = folder / "features.parts"
        results = _order(encoders, halves, pairs, untrained, parts, reading, progress)
        on_first(lambda: write_results(results, folder, result_lines(results)))
        clear(parts)
    return results


def _order(
    encoders: Sequence[Encoder],
    halves: Halves,
    pairs: str | Path | None,
    untrained: bool,
    parts: Path | None,
    reading: Reading | None,
    progress: Progress | None,
) -> dict[str, Any]:
    networks: dict[str, Encoder] = {}
    for name, encoder in zip(titles(encoders), encoders, strict=True):
        networks[name] = encoder
        if untrained:
            networks[f"{name}, untrained"] = encoder.untrained()
    asked = open_tasks(halves, pairs=pairs, drawn=encoders[0].drawn)
    accuracy: dict[str, Any] = {}
    broken: dict[str, str] = {}
    for name, network in networks.items():
        played = Played(asked.videos, frames=network.intake.frames, both=asked.both)
        shown, views = network.shown(stride=1, fps=0), Views()
        key = features_key(shown, played, views) if parts else ""
        found = shared_features(
            shown, played, views, parts=parts, key=key, keep_frames=True, reading=reading, progress=progress
        )
        broken |= dict(found.broken)
        tasks = [task for task in (t.readable(found.index) for t in asked.tasks) if task is not None]
        if not tasks:
            raise StillmotionError(
                f"too few videos: of {len(played)} clips {len(found.index)} can be read, and a classifier needs two "
                "videos of each class to learn from and one to be asked"
            )
        accuracy[name] = on_first(partial(_accuracies, found, tasks, halves.seed))
    return {
        "data": halves.path,
        "task": "reverse" if pairs is None else "pairs",
        "split": asked.how,
        "tasks": {task.name: task.about() for task in tasks},
        "left out": sorted({task.name for task in asked.tasks} - {task.name for task in tasks}),
        "level": _LEVEL,
        "accuracy": accuracy,
        "broken": broken,
    }


def _accuracies(found: Features, tasks: Sequence[Task], seed: int) -> dict[Part, dict[str, Any]]:
    by_part = {part: answers(vectors(found, part), found.index, tasks, seed=seed) for part in PARTS}
    return {part: {"mean": a.mean(), "tasks": a.each()} for part, a in by_part.items()}


def vectors(found: Features, part: Part) -> np.ndarray:
    """One vector of each clip: (N, D), and of `frames` (N, T·D), one frame after the other."""
    if part == "frames":
        assert found.frames is not None
        return found.frames.reshape(len(found.frames), -1)
    return found.vector(part)


def answers(x: np.ndarray, clips: np.ndarray, tasks: Sequence[Task], *, seed: int = 0) -> Answers:
    """What linear classifiers, one for each task and fold, say of its test clips.

    x (N, D): of these clips (N,). A video that is asked in several folds or as several clips counts once.
    """
    row = np.full(clips.max() + 1, -1)
    row[clips] = np.arange(len(clips))
    right = {}
    for task in tasks:
        videos, hits = [], []
        for train, test in task.folds:
            ranks = linear_ranks(
                x[row[train], None],
                task.labels[train],
                x[row[test], None],
                task.labels[test],
                seed=seed,
                together=task.videos[train],
            ).ranks
            videos.append(task.videos[test])
            hits.append(ranks == 0)
        _, which = np.unique(np.concatenate(videos), return_inverse=True)
        right[task.name] = np.bincount(which, np.concatenate(hits)) / np.bincount(which)
    return Answers(right)


def result_lines(results: dict[str, Any]) -> list[str]:
    """The results of `order` as lines for a terminal."""
    asked = results["tasks"]
    count = sum(about["test videos"] for about in asked.values())
    what = f"{len(asked)} pairs of opposite actions" if results["task"] == "pairs" else "clips against their reverses"
    lines = [f"{what}, {count} test videos ({results['split']})"]
    wide = max(16, *(len(name) + 2 for name in results["accuracy"]), *(len(name) + 4 for name in asked))
    lines.append(" " * wide + "".join(f"{part:>23}" for part in ("frames in order", *PARTS[1:])) + f"{'majority':>12}")
    majority = float(np.mean([about["majority"] for about in asked.values()]))
    for name, found in results["accuracy"].items():
        lines.append(_line(name, [found[part]["mean"] for part in PARTS], majority, wide))
        if len(asked) > 1:
            for task, about in asked.items():
                cells = [found[part]["tasks"][task] for part in PARTS]
                lines.append(_line(f"  {task}", cells, about["majority"], wide))
    lines.append(f"accuracy, chance is 0.5; in brackets {results['level']:.0%} bootstrap intervals over videos")
    if results["left out"]:
        lines.append(f"{len(results['left out'])} pairs had too few videos: {'; '.join(results['left out'])}")
    return lines + skipped(results["broken"], what="unreadable clips were skipped")


def write_results(results: dict[str, Any], folder: Path, lines: Sequence[str]) -> None:
    """Write results and their lines into a folder."""
    write_json(folder / RESULTS, results)
    write_text(folder / TEXT, "".join(f"{line}\n" for line in lines))


def _line(name: str, cells: Sequence[tuple[float, float, float]], majority: float, wide: int) -> str:
    texts = [f"{value:.3f} [{low:.3f}, {high:.3f}]" for value, low, high in cells]
    return f"{name:<{wide}}" + "".join(f"{text:>23}" for text in texts) + f"{majority:>12.3f}"


def _entry(value: float, draws: np.ndarray) -> tuple[float, float, float]:
    low, high = np.quantile(draws, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return value, float(low), float(high)
