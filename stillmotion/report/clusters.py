"""The page of `stillmotion clusters`: silhouette scores and maps of several encoders side by side."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.errors import StillmotionError
from stillmotion.evaluate.clusters import GROUP, Clusters
from stillmotion.evaluate.options import Clustering
from stillmotion.evaluate.told import skipped
from stillmotion.explain.maps import embedding_map, tsne
from stillmotion.files import locked, write_json
from stillmotion.report.blocks import Block, Section, Table, Text, figures
from stillmotion.report.page import broken_blocks, write_page

RESULTS = "results.json"
MAPS = (5, 10)


def cluster_report(found: Sequence[Clusters], out: str | Path, clustering: Clustering, *, data: str) -> Path:
    """Write `report.html` and `results.json` into a folder.

    found: of `clusters`, as it was asked. data: the path of the videos.
    """
    with locked(out):
        return _written(found, Path(out), clustering, data)


def _written(found: Sequence[Clusters], folder: Path, clustering: Clustering, data: str) -> Path:
    metric, broken = clustering.metric, _broken(found)
    settings = {
        "encoders": ", ".join(dict.fromkeys(c.encoder for c in found)),
        "videos": f"all videos of {data}" if clustering.split == "all" else f"the {clustering.split} videos of {data}",
        "clips of a video": str(clustering.clips or "as the encoder has them"),
        "distance": metric,
    }
    numbers = {"clusters": [_numbers(c) for c in found], "broken": broken}
    write_json(folder / RESULTS, settings | numbers)
    targets = dict.fromkeys(c.target for c in found)
    placed: dict[bytes, np.ndarray] = {}
    looked = [Table(["setting", "value"], [[k, v] for k, v in settings.items()]), *broken_blocks({"broken": broken})]
    sections = [Section("What was looked at", looked)]
    for target in targets:
        some = [c for c in found if c.target == target]
        of = f" of {target}" if len(targets) > 1 else ""
        if target == GROUP:
            sections.append(Section("Groups", [group_table(some)]))
        else:
            sections.append(Section(f"Silhouette scores{of}", [silhouette_table(some)]))
        sections.append(Section(f"Maps{of}", _maps(some, metric, placed)))
    title = "Clusters of " + ", ".join(dict.fromkeys(c.encoder for c in found))
    return write_page(folder / "report.html", title, sections)


def silhouette_table(found: Sequence[Clusters]) -> Table:
    """Scores by the number of classes, a row for each encoder and kind of embedding; the best of a kind is stressed."""
    sizes = list(found[0].silhouette)
    rows = [[f"{c.encoder}, {c.kind}", *(f"{c.silhouette.get(s, math.nan):.3f}" for s in sizes)] for c in found]
    strong = set()
    for kind in {c.kind for c in found}:
        places = [i for i, c in enumerate(found) if c.kind == kind]
        for j, size in enumerate(sizes) if len(places) > 1 else ():
            scores = [found[i].silhouette.get(size, math.nan) for i in places]
            if not np.isnan(scores).all():
                strong.add((places[int(np.nanargmax(scores))], j + 1))
    caption = (
        "Each column is of so many classes, those that the encoder itself retrieves best; the last is of all. 1 is a "
        "class far from all others, 0 classes that overlap, and below 0 videos lie nearer to another class."
    )
    return Table(["classes", *(f"{s}" for s in sizes[:-1]), f"all {sizes[-1]}"], rows, caption, frozenset(strong))


def group_table(found: Sequence[Clusters]) -> Table:
    """The groups of videos without labels: how many, and the videos in the middle of each."""
    rows = [
        [f"{c.encoder}, {c.kind}", name, str(int((c.ranks == rank).sum())), f"{_score(c, len(c.classes)):.3f}"]
        for c in found
        for rank, name in enumerate(c.classes)
    ]
    caption = "The number of groups is that of the best silhouette score. A group is told by the videos in its middle."
    return Table(["by", "group", "videos", "silhouette of all"], rows, caption)


def cluster_lines(found: Sequence[Clusters]) -> list[str]:
    """The silhouette scores as lines for a terminal."""
    wide = max(14, *(len(c.encoder) + 2 for c in found))
    lines = []
    for target in dict.fromkeys(c.target for c in found):
        some = [c for c in found if c.target == target]
        if target == GROUP:
            cells = (row for row in group_table(some).rows)
            lines += [f"{by:<{wide + 10}}{score:>7}{videos:>6} videos   {name}" for by, name, videos, score in cells]
            continue
        table = silhouette_table(some)
        lines.append(f"{'silhouette, ' + target:<{wide + 10}}" + "".join(f"{cell:>9}" for cell in table.header[1:]))
        for c, row in zip(some, table.rows, strict=True):
            lines.append(f"{c.encoder:<{wide}}{c.kind:<10}" + "".join(f"{cell:>9}" for cell in row[1:]))
    return lines + skipped(_broken(found))


def _maps(found: Sequence[Clusters], metric: str, placed: dict[bytes, np.ndarray]) -> list[Block]:
    """Maps of the best 5 and 10 classes; placed: layouts by vectors, since targets may share all their videos."""
    blocks: list[Block] = []
    most = len(found[0].classes)
    for size in dict.fromkeys(min(size, most) for size in MAPS):
        drawn = {}
        slots = {name: i for i, name in enumerate(dict.fromkeys(n for c in found for n in c.classes[:size]))}
        try:
            for c in found:
                shown = c.ranks < size
                title = f"{c.encoder}, {c.kind}: {_score(c, size):.3f}"
                vectors = c.vectors[shown]
                key = vectors.tobytes()
                if key not in placed:
                    placed[key] = tsne(vectors, metric=metric)
                drawn[f"map: {title}"] = embedding_map(
                    placed[key], c.ranks[shown], c.classes[:size], slots=slots, title=title
                )
        except StillmotionError as error:
            blocks.append(Text(f"The map of {size} classes is not shown: {error}."))
            continue
        which = f"The {size} classes that each encoder retrieves best" if size < most else f"All {size} classes"
        told = f"{which}, best first, laid out by t-SNE; the number is their silhouette score, before the layout."
        blocks.append(figures(drawn, caption=told))
    return blocks


def _broken(found: Sequence[Clusters]) -> dict[str, str]:
    return {name: reason for c in found for name, reason in c.broken.items()}


def _score(found: Clusters, size: int) -> float:
    return found.silhouette.get(size, math.nan)


def _numbers(found: Clusters) -> dict[str, Any]:
    scores = {str(size): None if math.isnan(score) else score for size, score in found.silhouette.items()}
    return {
        "encoder": found.encoder,
        "kind": found.kind,
        "target": found.target,
        "videos": len(found.ranks),
        "classes": found.classes,
        "recall": found.recall,
        "silhouette": scores,
    }
