"""The page of the demonstration, and the picture that the README shows."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stillmotion.config import differences, load_config
from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet
from stillmotion.explain.bars import accuracy_bars, draw_bars
from stillmotion.explain.figure import GREY, INK, save_picture, tidy
from stillmotion.explain.neighbours import thumbnail
from stillmotion.report.blocks import Block, Code, Section, Table, Text, Thumbnail, Thumbnails, figures
from stillmotion.report.page import composition, curve_blocks, write_page
from stillmotion.report.views import (
    agreement_table,
    caption,
    look,
    neighbour_blocks,
    similarity_blocks,
    spectrum_blocks,
)
from stillmotion.study.statistics import ranged

SHOWN_SEED = 1_000_003  # of the videos on the page: none was trained or probed on
_POOL = 240
_SAMPLES = 8
_LONG = {
    "simclr": "V-SimCLR",
    "simclr+bod": "V-SimCLR + BOD-VCL",
    "vididi": "ViDiDi-SimCLR",
    "ours": "routed halves (ours)",
}
_EVEN = 0.03  # means that lie closer are called even
_FEATURES = {"whole": "features averaged over frames", "both": "static ⊕ dynamic features"}


def demo_report(folder: str | Path, results: Mapping[str, Any], runs: Mapping[str, str | Path]) -> Path:
    """Write `report.html` and `demo.png` into the folder.

    results: factors, chance by factor, and methods by name, each with "seeds": accuracies by factor for every seed,
        or only "mean".
    runs: a run folder for each method that was trained; they share their data.
    """
    config = load_config(next(iter(runs.values())))
    drawn = replace(config.data.synthetic, videos=_POOL, confound=())
    videos = SyntheticSet(drawn, seed=SHOWN_SEED)
    accuracies = {_LONG.get(name, name): _by_seed(found) for name, found in results["methods"].items()}
    factors, chance = list(results["factors"]), results["chance"]
    named = {_LONG.get(name, name): Path(run) for name, run in runs.items()}
    views = {name: look(run, videos) for name, run in named.items()}
    # The first video of each motion: nothing is chosen by how it looks.
    queries = [int(np.flatnonzero(videos.labels["trajectory"] == t)[0]) for t in range(drawn.values[3])]
    bars = accuracy_bars(accuracies, factors=factors, chance=chance)
    neighbours: list[Block] = [agreement_table(views, chance)]
    for name, view in views.items():
        neighbours += [Text(f"{name}:"), *neighbour_blocks(view, queries)]
    sections = [
        Section("What this shows", _summary(accuracies, factors, config.data.synthetic, results.get("feature", ""))),
        Section("The videos", [_samples(videos)]),
        Section(
            "What a linear classifier reads off the frozen features",
            [figures({"probe accuracies": bars}), _accuracy_table(accuracies, factors, chance)],
        ),
        Section("What was trained", _trained(named)),
        Section("Losses", curve_blocks(named)),
        Section("Eigenvalues of clips", spectrum_blocks(views)),
        Section("How alike frames stay", similarity_blocks(views)),
        Section("Nearest neighbours by static and by dynamic embedding", neighbours),
        Section("Your own videos", _onward()),
    ]
    _picture(Path(folder) / "demo.png", videos, accuracies, factors, chance)
    return write_page(Path(folder) / "report.html", "What four methods learn of the same videos", sections)


def _by_seed(found: Mapping[str, Any]) -> list[dict[str, float]]:
    return list(found["seeds"].values()) if found.get("seeds") else [found["mean"]]


def _mean(seeds: list[dict[str, float]], factor: str) -> float:
    return float(np.mean([seed[factor] for seed in seeds]))


def _summary(
    accuracies: dict[str, list[dict[str, float]]], factors: list[str], data: SyntheticConfig, kind: str
) -> list[Block]:
    """What each method wins and loses, its numbers taken from the results."""
    tied = " and ".join(pair.replace("=", " with ") for pair in data.confound)
    setting = f"in which {tied} go together {data.strength:.0%} of the time" if tied else "with four free factors"
    plain, untrained = accuracies.get(_LONG["simclr"]), accuracies.get("untrained")
    trained = [name for name in accuracies if name != "untrained"]
    first = (
        f"{len(trained)} methods learned without labels from the same small synthetic videos, {setting}. What a linear "
        f"classifier then reads off frozen {_FEATURES.get(kind, 'features')}, on videos that are free of the tie, is "
        f"compared with {_LONG['simclr']}, as means over {_count(len(accuracies[trained[0]]), 'seed')}:"
    )
    blocks: list[Block] = [Text(first)]
    for name in trained:
        told = [] if plain is None or name == _LONG["simclr"] else [_against(plain, accuracies[name], factors)]
        if untrained:
            told += _below(untrained, accuracies[name], factors)
        if told:
            blocks.append(Text(f"{name} {'; it '.join(told)}."))
    return blocks


def _against(plain: list[dict[str, float]], found: list[dict[str, float]], factors: list[str]) -> str:
    """Which factors are read better and which worse, and in how many seeds, in words."""
    change = {f: _mean(found, f) - _mean(plain, f) for f in factors}
    told = []
    for verb, sign in (("wins", 1), ("loses", -1)):
        moved = sorted((f for f in factors if sign * change[f] > _EVEN), key=lambda f: -sign * change[f])
        times = [sum(sign * (b[f] - a[f]) > 0 for a, b in zip(plain, found, strict=True)) for f in moved]
        cells = [
            f"{f} ({_mean(plain, f):.2f} → {_mean(found, f):.2f}, {n} of {_count(len(found), 'seed')})"
            for f, n in zip(moved, times, strict=True)
        ]
        told.append(f"{verb} {_listed(cells) if cells else 'nothing'}")
    return " and ".join(told)


def _below(untrained: list[dict[str, float]], found: list[dict[str, float]], factors: list[str]) -> list[str]:
    """The factors that are read worse than off an untrained network, in words, if there are any."""
    fallen = [f for f in factors if _mean(found, f) < _mean(untrained, f) - _EVEN]
    cells = [f"{f} ({_mean(found, f):.2f}, {_mean(untrained, f):.2f})" for f in fallen]
    return [f"ends below the untrained network on {_listed(cells)}"] if cells else []


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + words[-1:])


def _samples(videos: SyntheticSet) -> Thumbnails:
    items = [Thumbnail(thumbnail(videos.video(i)), caption(videos, i)) for i in range(_SAMPLES)]
    told = "Each has a background colour, a shape, a course of brightness and a motion; the rest is left to chance."
    return Thumbnails(items, told)


def _accuracy_table(
    accuracies: dict[str, list[dict[str, float]]], factors: list[str], chance: Mapping[str, float]
) -> Table:
    """Mean and range over seeds; the best method of each factor is stressed."""
    rows = []
    for name, seeds in accuracies.items():
        rows.append([name, *(ranged([seed[factor] for seed in seeds]) for factor in factors)])
    means = [[_mean(seeds, f) for f in factors] for seeds in accuracies.values()]
    best = frozenset((int(np.argmax(column)), j + 1) for j, column in enumerate(zip(*means, strict=True)))
    rows.append(["chance", *(f"{chance[f]:.2f}" for f in factors)])
    told = "Accuracy on unconfounded videos that were not trained on: mean, and range over seeds."
    return Table(["", *factors], rows, told, best)


def _trained(runs: Mapping[str, Path]) -> list[Block]:
    """Each run in a sentence, and in which settings it differs from the first."""
    configs = {name: load_config(run) for name, run in runs.items()}
    blocks: list[Block] = [Text(f"{name}. {composition(config)}") for name, config in configs.items()]
    first, *others = configs
    rows = [
        [name, *(cell.strip() for cell in line.replace(":", " ≠ ", 1).split(" ≠ "))]
        for name in others
        for line in differences(configs[first], configs[name])
        if not line.startswith("recipe:")
    ]
    return [*blocks, Table(["method", "setting", first, "its own"], rows)] if rows else blocks


def _onward() -> list[Block]:
    lines = [
        "stillmotion pretrain --data ~/videos --out runs/mine",
        "stillmotion embed runs/mine --data ~/videos --out embeddings.parquet",
        "stillmotion report runs/mine",
    ]
    return [
        Text("A folder of videos is enough; unreadable files are named and skipped. With class folders, probe too:"),
        Code("\n".join([*lines, "stillmotion probe runs/mine --data ~/videos --untrained"])),
    ]


def _picture(
    file: Path,
    videos: SyntheticSet,
    accuracies: dict[str, list[dict[str, float]]],
    factors: list[str],
    chance: Mapping[str, float],
) -> None:
    """Sample videos, four frames of each in a row, beside the bar chart."""
    figure = Figure(figsize=(11, 3.6), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    halves = figure.add_gridspec(1, 2, width_ratios=(0.9, 2))
    left, right = figure.add_subfigure(halves[0]), figure.add_subfigure(halves[1])
    grid = left.subplots(4, 4)
    length = videos.config.length
    for i, row in enumerate(grid):
        frames = videos.video(i).frames(np.linspace(0, length // 2, 4).astype(int).tolist())
        for axes, frame in zip(row, frames, strict=True):
            axes.imshow(frame)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color(GREY)
    left.supxlabel("time →", fontsize=9, color=INK)
    axes = right.subplots()
    tidy(axes)
    draw_bars(axes, accuracies, factors=factors, chance=chance)
    save_picture(figure, file, dpi=130)
