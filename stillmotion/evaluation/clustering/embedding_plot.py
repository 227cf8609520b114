"""Maps of embeddings: many channels laid out on a plane by t-SNE, a colour for each class.

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
    """Places (N, 2) on a plane on which near neighbours (N, D) stay near; the same seed gives the same places."""
    from sklearn.manifold import TSNE  # a second to import

    if len(vectors) < _MIN_VIDEOS:
        raise StillmotionError(f"{len(vectors)} videos are too few for a map; it needs at least {_MIN_VIDEOS}")
    if not vectors.std(0).any():
        return np.zeros((len(vectors), 2))  # vectors that are all alike are one point
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    map_ = TSNE(perplexity=perplexity, init="pca", metric=metric, random_state=seed)
    return map_.fit_transform(np.ascontiguousarray(vectors, np.float64))


def plot_embedding(
    coordinates: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    *,
    color_index: Mapping[str, int] | None = None,
    title: str = "",
) -> Figure:
    """Points (N, 2) in the colours of their classes, whose names stand below.

    labels (N,): places in `classes`. slots: a number for each name, so that several maps colour a class alike.
    Where colours run out, they come again with another mark.
    """
    columns = 2 if len(classes) > _NAMES_PER_COLUMN or max(map(len, classes)) < 14 else 1
    figure, axes = new_axes(width=3.4, height=3.3 + 0.19 * -(-len(classes) // columns), title=title)
    for number, name in enumerate(classes):
        x, y = coordinates[labels == number].T
        again, colour = divmod(number if color_index is None else color_index[name], len(PALETTE))
        axes.scatter(
            x,
            y,
            s=11,
            color=PALETTE[colour],
            marker=_MARKERS[again % len(_MARKERS)],
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
