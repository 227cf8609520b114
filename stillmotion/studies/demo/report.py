"""The page of the demonstration, and the picture that the README shows."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.explain.encoder_sections import (
    eigenvalue_blocks,
    neighbor_blocks,
    neighbor_label_table,
    similarity_blocks,
    video_caption,
    view_encoder,
)
from stillmotion.report.blocks import Block, Code, Section, Table, Text, Thumbnail, Thumbnails, figure_block
from stillmotion.report.charts import draw_accuracy_bars, plot_accuracy_bars
from stillmotion.report.images import thumbnail_uri
from stillmotion.report.page import write_page
from stillmotion.report.plot_style import GRAY, TEXT_COLOR, save_figure, style_axes
from stillmotion.studies.statistics import format_mean_range
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.report import describe_method
from stillmotion.training.report import loss_curve_blocks
from stillmotion.training.run_dir import load_config
from stillmotion.utils.formatting import format_count, join_words
from stillmotion.utils.typed_config import diff_configs

DISPLAY_SEED = 1_000_003  # of the videos on the page: none was trained or probed on
_NUM_VIDEOS = 240
_SAMPLES = 8
_METHOD_TITLES = {
    "simclr": "V-SimCLR",
    "simclr+bod-vcl": "V-SimCLR + BOD-VCL",
    "vididi": "ViDiDi-SimCLR",
    "routed": "routed components",
}
_TIE_MARGIN = 0.03  # means that lie closer are called even
_FEATURES = {"whole": "features averaged over frames", "concat": "static ⊕ dynamic features"}


def write_demo_page(output_dir: str | Path, results: Mapping[str, Any], runs: Mapping[str, str | Path]) -> Path:
    """Write `report.html` and `demo.png` into the folder.

    results: factors, chance by factor, and methods by name, each with "seeds": accuracies by factor for every seed,
        or only "mean".
    runs: a run folder for each method that was trained; they share their data.
    """
    config = load_config(next(iter(runs.values())))
    drawn = replace(config.data.synthetic, num_videos=_NUM_VIDEOS, confound=())
    videos = SyntheticDataset(drawn, seed=DISPLAY_SEED)
    accuracies = {_METHOD_TITLES.get(name, name): _by_seed(found) for name, found in results["methods"].items()}
    factors, chance = list(results["factors"]), results["chance"]
    named = {_METHOD_TITLES.get(name, name): Path(run) for name, run in runs.items()}
    views = {name: view_encoder(run, videos) for name, run in named.items()}
    # The first video of each motion: nothing is chosen by how it looks.
    queries = [int(np.flatnonzero(videos.labels["trajectory"] == t)[0]) for t in range(drawn.values_per_factor[3])]
    bars = plot_accuracy_bars(accuracies, factors=factors, chance=chance)
    neighbours: list[Block] = [neighbor_label_table(views, chance)]
    for name, view in views.items():
        neighbours += [Text(f"{name}:"), *neighbor_blocks(view, queries)]
    sections = [
        Section("What this shows", _summary(accuracies, factors, config.data.synthetic, results.get("feature", ""))),
        Section("The videos", [_samples(videos)]),
        Section(
            "What a linear classifier reads off the frozen features",
            [figure_block({"probe accuracies": bars}), _accuracy_table(accuracies, factors, chance)],
        ),
        Section("What was trained", _training_blocks(named)),
        Section("Losses", loss_curve_blocks(named)),
        Section("Eigenvalues of clips", eigenvalue_blocks(views)),
        Section("How alike frames stay", similarity_blocks(views)),
        Section("Nearest neighbours by static and by dynamic embedding", neighbours),
        Section("Your own videos", _next_steps()),
    ]
    _write_readme_picture(Path(output_dir) / "demo.png", videos, accuracies, factors, chance)
    return write_page(Path(output_dir) / "report.html", "What four methods learn of the same videos", sections)


def _by_seed(found: Mapping[str, Any]) -> list[dict[str, float]]:
    return list(found["seeds"].values()) if found.get("seeds") else [found["mean"]]


def _mean(seeds: list[dict[str, float]], factor: str) -> float:
    return float(np.mean([seed[factor] for seed in seeds]))


def _summary(
    accuracies: dict[str, list[dict[str, float]]], factors: list[str], data: SyntheticConfig, kind: str
) -> list[Block]:
    """What each method wins and loses, its numbers taken from the results."""
    tied = " and ".join(pair.replace("=", " with ") for pair in data.confound)
    setting = (
        f"in which {tied} go together {data.confound_strength:.0%} of the time" if tied else "with four free factors"
    )
    plain, untrained = accuracies.get(_METHOD_TITLES["simclr"]), accuracies.get("untrained")
    trained = [name for name in accuracies if name != "untrained"]
    first = (
        f"{len(trained)} methods learned without labels from the same small synthetic videos, {setting}. What a linear "
        f"classifier then reads off frozen {_FEATURES.get(kind, 'features')}, on videos that are free of the tie, is "
        f"compared with {_METHOD_TITLES['simclr']}, as means over {format_count(len(accuracies[trained[0]]), 'seed')}:"
    )
    blocks: list[Block] = [Text(first)]
    for name in trained:
        told = (
            []
            if plain is None or name == _METHOD_TITLES["simclr"]
            else [_compare_with_baseline(plain, accuracies[name], factors)]
        )
        if untrained:
            told += _below_untrained(untrained, accuracies[name], factors)
        if told:
            blocks.append(Text(f"{name} {'; it '.join(told)}."))
    return blocks


def _compare_with_baseline(plain: list[dict[str, float]], found: list[dict[str, float]], factors: list[str]) -> str:
    """Which factors are read better and which worse, and in how many seeds, in words."""
    change = {f: _mean(found, f) - _mean(plain, f) for f in factors}
    told = []
    for verb, sign in (("wins", 1), ("loses", -1)):
        moved = sorted((f for f in factors if sign * change[f] > _TIE_MARGIN), key=lambda f: -sign * change[f])
        times = [sum(sign * (b[f] - a[f]) > 0 for a, b in zip(plain, found, strict=True)) for f in moved]
        cells = [
            f"{f} ({_mean(plain, f):.2f} → {_mean(found, f):.2f}, {n} of {format_count(len(found), 'seed')})"
            for f, n in zip(moved, times, strict=True)
        ]
        told.append(f"{verb} {join_words(cells) if cells else 'nothing'}")
    return " and ".join(told)


def _below_untrained(untrained: list[dict[str, float]], found: list[dict[str, float]], factors: list[str]) -> list[str]:
    """The factors that are read worse than off an untrained network, in words, if there are any."""
    fallen = [f for f in factors if _mean(found, f) < _mean(untrained, f) - _TIE_MARGIN]
    cells = [f"{f} ({_mean(found, f):.2f}, {_mean(untrained, f):.2f})" for f in fallen]
    return [f"ends below the untrained network on {join_words(cells)}"] if cells else []


def _samples(videos: SyntheticDataset) -> Thumbnails:
    items = [Thumbnail(thumbnail_uri(videos.open_video(i)), video_caption(videos, i)) for i in range(_SAMPLES)]
    told = "Each has a background colour, a shape, a course of brightness and a motion; the rest is left to chance."
    return Thumbnails(items, told)


def _accuracy_table(
    accuracies: dict[str, list[dict[str, float]]], factors: list[str], chance: Mapping[str, float]
) -> Table:
    """Mean and range over seeds; the best method of each factor is stressed."""
    rows = []
    for name, seeds in accuracies.items():
        rows.append([name, *(format_mean_range([seed[factor] for seed in seeds]) for factor in factors)])
    means = [[_mean(seeds, f) for f in factors] for seeds in accuracies.values()]
    best = frozenset((int(np.argmax(column)), j + 1) for j, column in enumerate(zip(*means, strict=True)))
    rows.append(["chance", *(f"{chance[f]:.2f}" for f in factors)])
    told = "Accuracy on unconfounded videos that were not trained on: mean, and range over seeds."
    return Table(["", *factors], rows, told, best)


def _training_blocks(runs: Mapping[str, Path]) -> list[Block]:
    """Each run in a sentence, and in which settings it differs from the first."""
    configs = {name: load_config(run, PretrainConfig) for name, run in runs.items()}
    blocks: list[Block] = [Text(f"{name}. {describe_method(config)}") for name, config in configs.items()]
    first, *others = configs
    rows = [
        [name, *(cell.strip() for cell in line.replace(":", " ≠ ", 1).split(" ≠ "))]
        for name in others
        for line in diff_configs(configs[first], configs[name])
        if not line.startswith("recipe:")
    ]
    return [*blocks, Table(["method", "setting", first, "its own"], rows)] if rows else blocks


def _next_steps() -> list[Block]:
    lines = [
        "stillmotion pretrain --data ~/videos --out runs/mine",
        "stillmotion embed runs/mine --data ~/videos --out embeddings.parquet",
        "stillmotion report runs/mine",
    ]
    return [
        Text("A folder of videos is enough; unreadable files are named and skipped. With class folders, probe too:"),
        Code("\n".join([*lines, "stillmotion probe runs/mine --data ~/videos --compare-untrained"])),
    ]


def _write_readme_picture(
    file: Path,
    videos: SyntheticDataset,
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
    length = videos.config.num_frames
    for i, row in enumerate(grid):
        frames = videos.open_video(i).get_frames(np.linspace(0, length // 2, 4).astype(int).tolist())
        for axes, frame in zip(row, frames, strict=True):
            axes.imshow(frame)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color(GRAY)
    left.supxlabel("time →", fontsize=9, color=TEXT_COLOR)
    axes = right.subplots()
    style_axes(axes)
    draw_accuracy_bars(axes, accuracies, factors=factors, chance=chance)
    save_figure(figure, file, dpi=130)
