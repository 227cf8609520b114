"""Figures without global state: made with matplotlib's objects, given to a page as SVG in the page's own colours."""

import io
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stillmotion.evaluate.told import readable
from stillmotion.files import write

INK = "#1b1f24"  # stands for the text colour of the page that holds the figure
PALETTE = ("#e08a2e", "#3485c9", "#4aa564", "#b3559a", "#c8523f", "#7d6bc4")
GREY = "#8d96a0"

_LETTERS = 11.5  # of the size of titles, in an inch, or a few more
_ENLARGED = 6.4  # rem an inch at most, so that letters are of one size in all figures of a wide page
_HEAD = re.compile(r"^.*?<svg[^>]*viewBox=\"([^\"]*)\"[^>]*>", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def new_axes(*, width: float = 4.2, height: float = 2.8, title: str = "") -> tuple[Figure, Axes]:
    """A figure of this size in inches with one pair of axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    tidy(axes, title=title)
    return figure, axes


def tidy(axes: Axes, *, title: str = "") -> None:
    """Give axes the look that all figures share."""
    grid = axes.get_subplotspec()
    wide = _inches(axes) / (grid.get_gridspec().ncols if grid else 1)
    axes.set_title(within(title, wide - 0.45), color=INK, fontsize=10, loc="left")
    axes.patch.set_visible(False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(colors=INK, labelsize=8, color=GREY)
    axes.xaxis.label.set(color=INK, fontsize=9)
    axes.yaxis.label.set(color=INK, fontsize=9)
    axes.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


def _inches(axes: Axes) -> float:
    """The width of the figure, or of the part of one, that axes are in."""
    return axes.figure.bbox.width / axes.figure.dpi


def plain(name: str) -> str:
    """A name as it is drawn letter by letter: matplotlib would read what stands between two $ as a formula."""
    return readable(name).replace("$", r"\$")


def within(name: str, width: float) -> str:
    """A name in as many lines as it takes not to be cut off at so many inches."""
    lines = [textwrap.wrap(line, max(8, int(width * _LETTERS))) for line in readable(name).splitlines()]
    return plain("\n".join(part for parts in lines for part in parts or [""]))


def legend_above(axes: Axes) -> None:
    """Names over the axes, as many in a row as there is room for; long ones in several lines."""
    handles, names = axes.get_legend_handles_labels()
    wide = _inches(axes)
    columns = max(1, min(4, int(wide * _LETTERS / (max(map(len, names)) + 8))))
    axes.legend(
        handles,
        [within(name.replace(r"\$", "$"), wide / columns - 0.6) for name in names],
        frameon=False,
        fontsize=8,
        labelcolor=INK,
        ncols=columns,
        loc="lower left",
        bbox_to_anchor=(0, 1),
    )


def legend(axes: Axes) -> None:
    """Names of the lines or bars, in the text colour, without a box."""
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, the same wherever the names come in the same order; what is untrained is grey."""
    free = iter(PALETTE * (1 + len(names) // len(PALETTE)))
    return {name: GREY if name == "untrained" else next(free) for name in names}


def inline_svg(figure: Figure, label: str) -> str:
    """The figure as an <svg> element for an HTML page; `label` says what it shows to those who cannot see it."""
    label, text = readable(label), io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(text, format="svg", transparent=True)
    spoken = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    body = _METADATA.sub("", text.getvalue())
    # Within HTML the name spaces are known, and a page that names no other host is seen to need none.
    wide = f"max-width:{_ENLARGED * figure.get_figwidth():.0f}rem"
    body = _HEAD.sub(rf'<svg viewBox="\1" style="{wide}" role="img" aria-label="{spoken}">', body, count=1)
    return body.replace(INK, "currentColor")


def save_picture(figure: Figure, file: str | Path, *, dpi: float, option: str = "--out") -> None:
    """Write a figure as a picture of the kind that the file's name says, whole or not at all."""
    write(file, lambda partial: figure.savefig(partial, dpi=dpi), option=option)
