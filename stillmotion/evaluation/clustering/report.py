"""The page of `stillmotion clusters`: silhouette scores and maps of several encoders side by side."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.clustering.config import ClusteringConfig
from stillmotion.evaluation.clustering.embedding_plot import plot_embedding, tsne
from stillmotion.evaluation.clustering.evaluate import UNLABELED_TARGET, ClusterResult
from stillmotion.report.blocks import Block, Section, Table, Text, figure_block
from stillmotion.report.page import write_page
from stillmotion.training.report import failed_video_blocks
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import write_json
from stillmotion.utils.formatting import format_failed_videos

RESULTS_FILE = "results.json"
PLOTTED_CLASS_COUNTS = (5, 10)


def write_clustering_page(
    results: Sequence[ClusterResult], output_dir: str | Path, config: ClusteringConfig, *, data: str
) -> Path:
    """Write `report.html` and `results.json` into a folder.

    results: of `clusters`, as it was asked. data: the path of the videos.
    """
    with lock_dir(output_dir):
        return _write_page(results, Path(output_dir), config, data)


def _write_page(results: Sequence[ClusterResult], output_dir: Path, config: ClusteringConfig, data: str) -> Path:
    metric, broken = config.metric, _failed_videos(results)
    settings = {
        "encoders": ", ".join(dict.fromkeys(c.encoder_name for c in results)),
        "videos": f"all videos of {data}" if config.split == "all" else f"the {config.split} videos of {data}",
        "clips of a video": str(config.num_clips or "as the encoder has them"),
        "distance": metric,
    }
    numbers = {"clusters": [_to_json(c) for c in results], "failed": broken}
    write_json(output_dir / RESULTS_FILE, settings | numbers)
    targets = dict.fromkeys(c.target for c in results)
    placed: dict[bytes, np.ndarray] = {}
    looked = [
        Table(["setting", "value"], [[k, v] for k, v in settings.items()]),
        *failed_video_blocks({"failed": broken}),
    ]
    sections = [Section("What was looked at", looked)]
    for target in targets:
        some = [c for c in results if c.target == target]
        of = f" of {target}" if len(targets) > 1 else ""
        if target == UNLABELED_TARGET:
            sections.append(Section("Groups", [group_table(some)]))
        else:
            sections.append(Section(f"Silhouette scores{of}", [silhouette_table(some)]))
        sections.append(Section(f"Maps{of}", _plot_blocks(some, metric, placed)))
    title = "Clusters of " + ", ".join(dict.fromkeys(c.encoder_name for c in results))
    return write_page(output_dir / "report.html", title, sections)


def silhouette_table(results: Sequence[ClusterResult]) -> Table:
    """Scores by the number of classes, a row for each encoder and kind of embedding; the best of a kind is stressed."""
    sizes = list(results[0].silhouette)
    rows = [[f"{c.encoder_name}, {c.feature_kind}", *(f"{c.silhouette.get(s, math.nan):.3f}" for s in sizes)] for c in results]
    strong = set()
    for kind in {c.feature_kind for c in results}:
        places = [i for i, c in enumerate(results) if c.feature_kind == kind]
        for j, size in enumerate(sizes) if len(places) > 1 else ():
            scores = [results[i].silhouette.get(size, math.nan) for i in places]
            if not np.isnan(scores).all():
                strong.add((places[int(np.nanargmax(scores))], j + 1))
    caption = (
        "Each column is of so many classes, those that the encoder itself retrieves best; the last is of all. 1 is a "
        "class far from all others, 0 classes that overlap, and below 0 videos lie nearer to another class."
    )
    return Table(["classes", *(f"{s}" for s in sizes[:-1]), f"all {sizes[-1]}"], rows, caption, frozenset(strong))


def group_table(results: Sequence[ClusterResult]) -> Table:
    """The groups of videos without labels: how many, and the videos in the middle of each."""
    rows = [
        [
            f"{c.encoder_name}, {c.feature_kind}",
            name,
            str(int((c.class_ranks == rank).sum())),
            f"{_silhouette(c, len(c.class_names)):.3f}",
        ]
        for c in results
        for rank, name in enumerate(c.class_names)
    ]
    caption = "The number of groups is that of the best silhouette score. A group is told by the videos in its middle."
    return Table(["by", "group", "videos", "silhouette of all"], rows, caption)


def format_clustering_results(results: Sequence[ClusterResult]) -> list[str]:
    """The silhouette scores as lines for a terminal."""
    wide = max(14, *(len(c.encoder_name) + 2 for c in results))
    lines = []
    for target in dict.fromkeys(c.target for c in results):
        some = [c for c in results if c.target == target]
        if target == UNLABELED_TARGET:
            cells = (row for row in group_table(some).rows)
            lines += [f"{by:<{wide + 10}}{score:>7}{videos:>6} videos   {name}" for by, name, videos, score in cells]
            continue
        table = silhouette_table(some)
        lines.append(f"{'silhouette, ' + target:<{wide + 10}}" + "".join(f"{cell:>9}" for cell in table.header[1:]))
        for c, row in zip(some, table.rows, strict=True):
            lines.append(f"{c.encoder_name:<{wide}}{c.feature_kind:<10}" + "".join(f"{cell:>9}" for cell in row[1:]))
    return lines + format_failed_videos(_failed_videos(results))


def _plot_blocks(results: Sequence[ClusterResult], metric: str, layouts: dict[bytes, np.ndarray]) -> list[Block]:
    """Maps of the best 5 and 10 classes; placed: layouts by vectors, since targets may share all their videos."""
    blocks: list[Block] = []
    most = len(results[0].class_names)
    for size in dict.fromkeys(min(size, most) for size in PLOTTED_CLASS_COUNTS):
        drawn = {}
        slots = {name: i for i, name in enumerate(dict.fromkeys(n for c in results for n in c.class_names[:size]))}
        try:
            for c in results:
                shown = c.class_ranks < size
                title = f"{c.encoder_name}, {c.feature_kind}: {_silhouette(c, size):.3f}"
                vectors = c.vectors[shown]
                key = vectors.tobytes()
                if key not in layouts:
                    layouts[key] = tsne(vectors, metric=metric)
                drawn[f"map: {title}"] = plot_embedding(
                    layouts[key], c.class_ranks[shown], c.class_names[:size], color_index=slots, title=title
                )
        except StillmotionError as error:
            blocks.append(Text(f"The map of {size} classes is not shown: {error}."))
            continue
        which = f"The {size} classes that each encoder retrieves best" if size < most else f"All {size} classes"
        told = f"{which}, best first, laid out by t-SNE; the number is their silhouette score, before the layout."
        blocks.append(figure_block(drawn, caption=told))
    return blocks


def _failed_videos(results: Sequence[ClusterResult]) -> dict[str, str]:
    return {name: reason for c in results for name, reason in c.failed.items()}


def _silhouette(result: ClusterResult, num_classes: int) -> float:
    return result.silhouette.get(num_classes, math.nan)


def _to_json(result: ClusterResult) -> dict[str, Any]:
    scores = {str(size): None if math.isnan(score) else score for size, score in result.silhouette.items()}
    return {
        "encoder": result.encoder_name,
        "feature_kind": result.feature_kind,
        "target": result.target,
        "videos": len(result.class_ranks),
        "class_names": result.class_names,
        "recall@1": result.recall_at_1,
        "silhouette": scores,
    }
