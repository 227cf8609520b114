"""t-SNE plots of embeddings, with a color for each class.

Shapes: N videos, D channels.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from stillmotion.errors import StillmotionError
from stillmotion.report.plot_style import PALETTE, TEXT_COLOR, escape_mathtext, new_axes
from stillmotion.utils.formatting import printable_name

_MIN_VIDEOS = 4
_MARKERS = ("o", "^", "s", "D")
_NAMES_PER_COLUMN = 5


def tsne(vectors: np.ndarray, *, metric: str = "euclidean", seed: int = 0) -> np.ndarray:
    """Lay out vectors on a plane by t-SNE.

    Args:
        vectors: Vectors, (N, D).
        metric: Distance.
        seed: Seed; the same seed gives the same layout.

    Returns:
        Coordinates, (N, 2).

    Raises:
        StillmotionError: If there are fewer than 4 vectors.
    """
    from sklearn.manifold import TSNE  # a second to import

    if len(vectors) < _MIN_VIDEOS:
        raise StillmotionError(f"A t-SNE plot needs at least {_MIN_VIDEOS} videos, got {len(vectors)}.")
    if not vectors.std(0).any():
        return np.zeros((len(vectors), 2))  # equal vectors are one point
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    layout = TSNE(perplexity=perplexity, init="pca", metric=metric, random_state=seed)
    return layout.fit_transform(np.ascontiguousarray(vectors, np.float64))


def plot_embedding(
    coordinates: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    *,
    color_index: Mapping[str, int] | None = None,
    title: str = "",
) -> Figure:
    """Plot points in the colors of their classes; where colors run out, they are used again with another marker.

    Args:
        coordinates: Points, (N, 2).
        labels: Index of each point's class in `classes`, (N,).
        classes: Names of the classes, for the legend.
        color_index: A number for each name, so that several plots use the same color for a class.
        title: Title.

    Returns:
        The figure.
    """
    columns = 2 if len(classes) > _NAMES_PER_COLUMN or max(map(len, classes)) < 14 else 1
    figure, axes = new_axes(width=3.4, height=3.3 + 0.19 * -(-len(classes) // columns), title=title)
    for number, name in enumerate(classes):
        x, y = coordinates[labels == number].T
        cycle, color = divmod(number if color_index is None else color_index[name], len(PALETTE))
        axes.scatter(
            x,
            y,
            s=11,
            color=PALETTE[color],
            marker=_MARKERS[cycle % len(_MARKERS)],
            alpha=0.75,
            linewidths=0,
            label=escape_mathtext(_shorten(name)),
            rasterized=True,
        )
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.margins(0.06)
    axes.grid(False)
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower left",
        ncols=columns,
        frameon=False,
        fontsize=8,
        labelcolor=TEXT_COLOR,
        handletextpad=0.1,
        columnspacing=0.8,
        markerscale=1.4,
    )
    figure.set_dpi(144)
    return figure


def _shorten(name: str) -> str:
    name = printable_name(name)
    return name if len(name) <= 22 else name[:21] + "…"
