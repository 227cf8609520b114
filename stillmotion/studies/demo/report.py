"""HTML report of the demo, and the image of the README."""

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
from stillmotion.report.charts import draw_accuracy_bars, plot_accuracy_bars
from stillmotion.report.images import thumbnail_uri
from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import Block, Code, Section, Table, Text, Thumbnail, Thumbnails, figure_block
from stillmotion.report.plot_style import GRAY, TEXT_COLOR, save_figure, style_axes
from stillmotion.studies.statistics import format_mean_range
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.recipes_bod_vcl import BASELINES
from stillmotion.training.pretrain.report import describe_method
from stillmotion.training.report_sections import loss_curve_blocks
from stillmotion.training.run_dir import load_config
from stillmotion.utils.files import read_json
from stillmotion.utils.formatting import format_count, join_words
from stillmotion.utils.typed_config import diff_configs

DISPLAY_SEED = 1_000_003  # seed of the displayed videos, which were not used for training or probing
_NUM_VIDEOS = 240
_SAMPLES = 8
_METHOD_TITLES = {
    **{name: baseline.title for name, baseline in BASELINES.items()},
    **{f"{name}+bod": f"{baseline.title} + BOD-VCL" for name, baseline in BASELINES.items()},
    "simclr+bod-eq21": "V-SimCLR + BOD-VCL (Eq. 21)",
    "vididi": "ViDiDi-SimCLR",
    "best": "best combination",
}
# Means of `stillmotion demo --all`, as in docs/results.md.
PUBLISHED_RESULTS = Path(__file__).with_name("published_results.json")
_TIE_MARGIN = 0.03  # smaller differences of means are ties
_FEATURES = {"whole": "features averaged over frames", "concat": "static ⊕ dynamic features"}


def write_demo_page(output_dir: str | Path, results: Mapping[str, Any], runs: Mapping[str, str | Path]) -> Path:
    """Write `report.html` and `demo.png`.

    Args:
        output_dir: Folder of the demo.
        results: Factors, chance by factor, and methods by name, the baseline first, each with "seeds": accuracies by
            factor for every seed, or only "mean".
        runs: Run folder of each trained method; they share their data.

    Returns:
        The path of the report.
    """
    config = load_config(next(iter(runs.values())), PretrainConfig)
    synthetic = replace(config.data.synthetic, num_videos=_NUM_VIDEOS, confound=())
    videos = SyntheticDataset(synthetic, seed=DISPLAY_SEED)
    accuracies = {_METHOD_TITLES.get(name, name): _by_seed(method) for name, method in results["methods"].items()}
    factors, chance = list(results["factors"]), results["chance"]
    run_dirs = {_METHOD_TITLES.get(name, name): Path(run) for name, run in runs.items()}
    views = {name: view_encoder(run, videos) for name, run in run_dirs.items()}
    # The first video of each trajectory: no selection by appearance.
    queries = [int(np.flatnonzero(videos.labels["trajectory"] == t)[0]) for t in range(synthetic.values_per_factor[3])]
    bars = plot_accuracy_bars(accuracies, factors=factors, chance=chance)
    neighbors: list[Block] = [neighbor_label_table(views, chance)]
    for name, view in views.items():
        neighbors += [Text(f"{name}:"), *neighbor_blocks(view, queries)]
    sections = [
        Section("Summary", _summary(accuracies, factors, config.data.synthetic, results.get("feature", ""))),
        Section("Videos", [_samples(videos)]),
        Section(
            "Linear probes on frozen features",
            [
                figure_block({"probe accuracies": bars}),
                _accuracy_table(accuracies, factors, chance),
                *_published_table(results["methods"], factors),
            ],
        ),
        Section("Training", _training_blocks(run_dirs)),
        Section("Losses", loss_curve_blocks(run_dirs)),
        Section("Eigenvalues of clips", eigenvalue_blocks(views)),
        Section("Similarity of frames", similarity_blocks(views)),
        Section("Nearest neighbors by static and dynamic embedding", neighbors),
        Section("Your own videos", _next_steps()),
    ]
    _write_readme_image(Path(output_dir) / "demo.png", videos, accuracies, factors, chance)
    return write_page(Path(output_dir) / "report.html", "Methods compared on the same synthetic videos", sections)


def _by_seed(method: Mapping[str, Any]) -> list[dict[str, float]]:
    return list(method["seeds"].values()) if method.get("seeds") else [method["mean"]]


def _mean(seeds: list[dict[str, float]], factor: str) -> float:
    return float(np.mean([seed[factor] for seed in seeds]))


def _summary(
    accuracies: dict[str, list[dict[str, float]]], factors: list[str], data: SyntheticConfig, kind: str
) -> list[Block]:
    """Return how each method compares with the baseline."""
    confounded = " and ".join(pair.replace("=", " with ") for pair in data.confound)
    setting = "with four independent factors"
    if confounded:
        setting = f"with {confounded} confounded in {data.confound_strength:.0%} of the videos"
    untrained = accuracies.get("untrained")
    trained = [name for name in accuracies if name != "untrained"]
    baseline = trained[0]
    first = (
        f"{len(trained)} methods are trained without labels on the same small synthetic videos, {setting}. The "
        f"accuracy of linear probes on frozen {_FEATURES.get(kind, 'features')}, on unconfounded videos, is compared "
        f"with {baseline}, as means over {format_count(len(accuracies[baseline]), 'seed')}:"
    )
    blocks: list[Block] = [Text(first)]
    for name in trained:
        phrases = []
        if name != baseline:
            phrases.append(_compare_with_baseline(accuracies[baseline], accuracies[name], factors))
        if untrained:
            phrases += _below_untrained(untrained, accuracies[name], factors)
        if phrases:
            blocks.append(Text(f"{name} {'; it '.join(phrases)}."))
    return blocks


def _compare_with_baseline(plain: list[dict[str, float]], method: list[dict[str, float]], factors: list[str]) -> str:
    """Return which factors have higher and lower accuracy, and in how many seeds."""
    change = {f: _mean(method, f) - _mean(plain, f) for f in factors}
    phrases = []
    for verb, sign in (("improves", 1), ("worsens", -1)):
        moved = sorted((f for f in factors if sign * change[f] > _TIE_MARGIN), key=lambda f: -sign * change[f])
        times = [sum(sign * (b[f] - a[f]) > 0 for a, b in zip(plain, method, strict=True)) for f in moved]
        cells = [
            f"{f} ({_mean(plain, f):.2f} → {_mean(method, f):.2f}, {n} of {format_count(len(method), 'seed')})"
            for f, n in zip(moved, times, strict=True)
        ]
        phrases.append(f"{verb} {join_words(cells) if cells else 'nothing'}")
    return " and ".join(phrases)


def _below_untrained(
    untrained: list[dict[str, float]], method: list[dict[str, float]], factors: list[str]
) -> list[str]:
    """Return the factors with lower accuracy than an untrained network, if there are any."""
    lower = [f for f in factors if _mean(method, f) < _mean(untrained, f) - _TIE_MARGIN]
    cells = [f"{f} ({_mean(method, f):.2f}, {_mean(untrained, f):.2f})" for f in lower]
    return [f"is below the untrained network on {join_words(cells)}"] if cells else []


def _samples(videos: SyntheticDataset) -> Thumbnails:
    items = [Thumbnail(thumbnail_uri(videos.open_video(i)), video_caption(videos, i)) for i in range(_SAMPLES)]
    caption = "Each video has a background color, a shape, a brightness trend and a trajectory; the rest is random."
    return Thumbnails(items, caption)


def _accuracy_table(
    accuracies: dict[str, list[dict[str, float]]], factors: list[str], chance: Mapping[str, float]
) -> Table:
    """Return mean and range over seeds; the best method of each factor is highlighted."""
    rows = []
    for name, seeds in accuracies.items():
        rows.append([name, *(format_mean_range([seed[factor] for seed in seeds]) for factor in factors)])
    means = [[_mean(seeds, f) for f in factors] for seeds in accuracies.values()]
    best = frozenset((int(np.argmax(column)), j + 1) for j, column in enumerate(zip(*means, strict=True)))
    rows.append(["chance", *(f"{chance[f]:.2f}" for f in factors)])
    caption = "Accuracy on new, unconfounded videos: mean, and range over seeds."
    return Table(["", *factors], rows, caption, best)


def _published_table(methods: Mapping[str, Any], factors: list[str]) -> list[Block]:
    """Return the published table of all methods, unless they were all trained here."""
    published = read_json(PUBLISHED_RESULTS)
    if "simclr" not in methods or set(published["methods"]) <= set(methods):
        return []
    rows = [
        [_METHOD_TITLES.get(name, name), *(f"{means[factor]:.3f}" for factor in factors)]
        for name, means in published["methods"].items()
    ]
    caption = f"For comparison, all methods, measured once by {published['command']}: means over seeds 11 to 15."
    return [Table(["", *factors], rows, caption)]


def _training_blocks(runs: Mapping[str, Path]) -> list[Block]:
    """Describe each run, and list the options in which it differs from the first."""
    configs = {name: load_config(run, PretrainConfig) for name, run in runs.items()}
    blocks: list[Block] = [Text(f"{name}. {describe_method(config)}") for name, config in configs.items()]
    first, *others = configs
    rows = [
        [name, *(cell.strip() for cell in line.replace(":", " ≠ ", 1).split(" ≠ "))]
        for name in others
        for line in diff_configs(configs[first], configs[name])
        if not line.startswith("recipe:")
    ]
    return [*blocks, Table(["method", "option", first, "value"], rows)] if rows else blocks


def _next_steps() -> list[Block]:
    lines = [
        "stillmotion pretrain --data ~/videos --out runs/mine",
        "stillmotion embed runs/mine --data ~/videos --out embeddings.parquet",
        "stillmotion report runs/mine",
    ]
    return [
        Text("A folder of videos is enough; unreadable files are listed and skipped. With class folders, run a probe:"),
        Code("\n".join([*lines, "stillmotion probe runs/mine --data ~/videos --compare-untrained"])),
    ]


def _write_readme_image(
    file: Path,
    videos: SyntheticDataset,
    accuracies: dict[str, list[dict[str, float]]],
    factors: list[str],
    chance: Mapping[str, float],
) -> None:
    """Draw sample videos, four frames of each in a row, beside the bar chart."""
    figure = Figure(figsize=(11, 3.6), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    columns = figure.add_gridspec(1, 2, width_ratios=(0.9, 2))
    left, right = figure.add_subfigure(columns[0]), figure.add_subfigure(columns[1])
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
