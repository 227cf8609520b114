"""The page and the text of `stillmotion cluster`: silhouette scores and t-SNE plots of several encoders."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.clustering.config import ClusteringConfig
from stillmotion.evaluation.clustering.embedding_plot import plot_embedding, tsne
from stillmotion.evaluation.clustering.evaluate import ClusterResult
from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import Block, Section, Table, Text, failed_video_blocks, figure_block
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import write_json
from stillmotion.utils.formatting import format_failed_videos

RESULTS_FILE = "results.json"
PLOTTED_CLASS_COUNTS = (5, 10)


def write_clustering_page(
    results: Sequence[ClusterResult], output_dir: str | Path, config: ClusteringConfig, *, data: str
) -> Path:
    """Write `report.html` and `results.json` into a folder.

    Args:
        results: Results of `evaluate_clustering`.
        output_dir: Folder to write to.
        config: Its options.
        data: Data set.

    Returns:
        The page.
    """
    with lock_dir(output_dir):
        return _write_page(results, Path(output_dir), config, data)


def _write_page(results: Sequence[ClusterResult], output_dir: Path, config: ClusteringConfig, data: str) -> Path:
    encoders, failed = list(dict.fromkeys(r.encoder_name for r in results)), _failed_videos(results)
    settings = {
        "encoders": encoders,
        "data": data,
        "split": config.split,
        "num_clips": config.num_clips,
        "metric": config.metric,
    }
    write_json(output_dir / RESULTS_FILE, settings | {"clusters": [r.to_dict() for r in results], "failed": failed})
    rows = [
        ["encoders", ", ".join(encoders)],
        ["videos", f"{config.split} videos of {data}"],
        ["clips per video", str(config.num_clips or "default of the encoder")],
        ["distance", config.metric],
    ]
    sections = [Section("Settings", [Table(["setting", "value"], rows), *failed_video_blocks(failed)])]
    layouts: dict[bytes, np.ndarray] = {}
    targets = dict.fromkeys(r.target for r in results)
    for target in targets:
        selected = [r for r in results if r.target == target]
        suffix = f" by {target}" if len(targets) > 1 else ""
        if selected[0].is_labeled:
            sections.append(Section(f"Silhouette scores{suffix}", [silhouette_table(selected)]))
        else:
            sections.append(Section("Groups", [group_table(selected)]))
        sections.append(Section(f"t-SNE plots{suffix}", _plot_blocks(selected, config.metric, layouts)))
    return write_page(output_dir / "report.html", f"Clusters of {', '.join(encoders)}", sections)


def silhouette_table(results: Sequence[ClusterResult]) -> Table:
    """Build a table of silhouette scores; the best encoder of each feature kind is in bold.

    Args:
        results: Results for one target.

    Returns:
        A row for each encoder and feature kind, a column for each number of classes.
    """
    sizes = list(results[0].silhouette)
    rows = [[r.encoder_name, r.feature_kind, *(f"{_silhouette(r, size):.3f}" for size in sizes)] for r in results]
    bold = set()
    for kind in {r.feature_kind for r in results}:
        indices = [i for i, r in enumerate(results) if r.feature_kind == kind]
        for j, size in enumerate(sizes) if len(indices) > 1 else ():
            scores = [_silhouette(results[i], size) for i in indices]
            if not np.isnan(scores).all():
                bold.add((indices[int(np.nanargmax(scores))], j + 2))
    caption = (
        "Silhouette score over the N classes with the best Recall@1 for this encoder; the last column uses all "
        "classes. 1: well separated; 0: overlapping; below 0: nearer to another class."
    )
    header = ["encoder", "features", *(f"{s}" for s in sizes[:-1]), f"all {sizes[-1]}"]
    return Table(header, rows, caption, frozenset(bold))


def group_table(results: Sequence[ClusterResult]) -> Table:
    """Build a table of the groups of videos without labels, each with its most central videos."""
    rows = [
        [
            f"{r.encoder_name}, {r.feature_kind}",
            f"{_silhouette(r, len(r.class_names)):.3f}",
            str(int((r.class_ranks == rank).sum())),
            name,
        ]
        for r in results
        for rank, name in enumerate(r.class_names)
    ]
    caption = "The number of groups is that of the best silhouette score. A group is named by its most central videos."
    return Table(["features", "silhouette of all", "videos", "group"], rows, caption)


def format_clustering_results(results: Sequence[ClusterResult]) -> list[str]:
    """Format results as lines of text."""
    lines = []
    for target in dict.fromkeys(r.target for r in results):
        selected = [r for r in results if r.target == target]
        if selected[0].is_labeled:
            lines += [f"silhouette scores, {target}:", *silhouette_table(selected).to_text()]
        else:
            lines += group_table(selected).to_text()
    return lines + format_failed_videos(_failed_videos(results))


def _plot_blocks(results: Sequence[ClusterResult], metric: str, layouts: dict[bytes, np.ndarray]) -> list[Block]:
    """Plot the best 5 and 10 classes; layouts are cached by vectors, since targets may share all their videos."""
    blocks: list[Block] = []
    most = len(results[0].class_names)
    noun = "classes" if results[0].is_labeled else "groups"
    for size in dict.fromkeys(min(size, most) for size in PLOTTED_CLASS_COUNTS):
        figures = {}
        color_index = {
            name: i for i, name in enumerate(dict.fromkeys(n for r in results for n in r.class_names[:size]))
        }
        try:
            for r in results:
                plotted = r.class_ranks < size
                title = f"{r.encoder_name}, {r.feature_kind}: {_silhouette(r, size):.3f}"
                vectors = r.vectors[plotted]
                key = vectors.tobytes()
                if key not in layouts:
                    layouts[key] = tsne(vectors, metric=metric)
                figures[f"t-SNE: {title}"] = plot_embedding(
                    layouts[key], r.class_ranks[plotted], r.class_names[:size], color_index=color_index, title=title
                )
        except StillmotionError as error:
            blocks.append(Text(f"The plot of {size} {noun} is not shown: {error}"))
            continue
        which = f"The {size} {noun} that each encoder retrieves best" if size < most else f"All {size} {noun}"
        caption = f"{which}, best first, laid out by t-SNE; the number is their silhouette score before the layout."
        blocks.append(figure_block(figures, caption=caption))
    return blocks


def _failed_videos(results: Sequence[ClusterResult]) -> dict[str, str]:
    return {name: reason for r in results for name, reason in r.failed.items()}


def _silhouette(result: ClusterResult, num_classes: int) -> float:
    return result.silhouette.get(num_classes, math.nan)
