"""The page of the demonstration, and the picture that the README shows."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stillmotion.config import load_config
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
_LONG = {"simclr": "V-SimCLR", "simclr+bod": "V-SimCLR + BOD-VCL", "untrained": "untrained"}


def demo_report(folder: str | Path, results: Mapping[str, Any], runs: Mapping[str, str | Path]) -> Path:
    """Write `report.html` and `demo.png` into the folder.

    results: factors, chance by factor, and methods by name, each with "seeds": accuracies by factor for every seed,
        or only "mean"; settings, if any, are listed.
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
        Section("What this shows", _summary(accuracies, factors, config.data.synthetic)),
        Section("The videos", [_samples(videos)]),
        Section(
            "What a linear classifier reads off the frozen features",
            [figures({"probe accuracies": bars}), _accuracy_table(accuracies, factors, chance)],
        ),
        Section("What was trained", _trained(named, results.get("settings", {}))),
        Section("Losses", curve_blocks(named)),
        Section("Eigenvalues of clips", spectrum_blocks(views)),
        Section("How alike frames stay", similarity_blocks(views)),
        Section("Nearest neighbours by static and by dynamic embedding", neighbours),
        Section("Your own videos", _onward()),
    ]
    _picture(Path(folder) / "demo.png", videos, accuracies, factors, chance)
    return write_page(Path(folder) / "report.html", "What plain contrastive learning misses", sections)


def _by_seed(found: Mapping[str, Any]) -> list[dict[str, float]]:
    return list(found["seeds"].values()) if found.get("seeds") else [found["mean"]]


def _mean(seeds: list[dict[str, float]], factor: str) -> float:
    return float(np.mean([seed[factor] for seed in seeds]))


def _summary(accuracies: dict[str, list[dict[str, float]]], factors: list[str], data: SyntheticConfig) -> list[Block]:
    """Three sentences, their numbers taken from the results."""
    tied = " and ".join(pair.replace("=", " with ") for pair in data.confound)
    setting = f"in which {tied} go together {data.strength:.0%} of the time" if tied else "with four free factors"
    first = f"Two networks learned without labels from the same small synthetic videos, {setting}."
    plain, bod = (accuracies.get(_LONG[name]) for name in ("simclr", "simclr+bod"))
    if not plain or not bod:
        return [Text(first)]
    gains = {f: _mean(bod, f) - _mean(plain, f) for f in factors}
    most, least = max(gains, key=lambda f: gains[f]), min(gains, key=lambda f: gains[f])
    second = (
        f"A linear classifier reads {most} off the features of {_LONG['simclr']} with an accuracy of "
        f"{_mean(plain, most):.2f}, and off those of {_LONG['simclr+bod']}, which contrasts what stays and what "
        f"changes apart, with {_mean(bod, most):.2f}, where the videos are free of the confounding."
    )
    fallen = f"{least} falls most, from {_mean(plain, least):.2f} to {_mean(bod, least):.2f}"
    third = (
        f"No factor is read worse; all numbers are means over {len(bod)} seeds."
        if gains[least] >= 0
        else f"Of the factors that are read worse, {fallen}; all numbers are means over {len(bod)} seeds."
    )
    return [Text(" ".join([first, second, third]))]


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


def _trained(runs: Mapping[str, Path], settings: Mapping[str, Any]) -> list[Block]:
    blocks: list[Block] = [Text(f"{name}. {composition(load_config(run))}") for name, run in runs.items()]
    if settings:
        blocks.append(Table(["setting", "value"], [[str(key), _plain(value)] for key, value in settings.items()]))
    return blocks


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


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
