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

from stillmotion.utils.files import write_atomic
from stillmotion.utils.formatting import printable_name

TEXT_COLOR = "#1b1f24"  # stands for the text colour of the page that holds the figure
PALETTE = ("#e08a2e", "#3485c9", "#4aa564", "#b3559a", "#c8523f", "#7d6bc4")
GRAY = "#8d96a0"

_LETTERS_PER_INCH = 11.5  # of the size of titles, in an inch, or a few more
_MAX_REM_PER_INCH = 6.4  # rem an inch at most, so that letters are of one size in all figures of a wide page
_SVG_HEAD = re.compile(r"^.*?<svg[^>]*viewBox=\"([^\"]*)\"[^>]*>", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def new_axes(*, width: float = 4.2, height: float = 2.8, title: str = "") -> tuple[Figure, Axes]:
    """A figure of this size in inches with one pair of axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    style_axes(axes, title=title)
    return figure, axes


def style_axes(axes: Axes, *, title: str = "") -> None:
    """Give axes the look that all figures share."""
    grid = axes.get_subplotspec()
    wide = _width_inches(axes) / (grid.get_gridspec().ncols if grid else 1)
    axes.set_title(wrap_text(title, wide - 0.45), color=TEXT_COLOR, fontsize=10, loc="left")
    axes.patch.set_visible(False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRAY)
    axes.tick_params(colors=TEXT_COLOR, labelsize=8, color=GRAY)
    axes.xaxis.label.set(color=TEXT_COLOR, fontsize=9)
    axes.yaxis.label.set(color=TEXT_COLOR, fontsize=9)
    axes.grid(axis="y", color=GRAY, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


def _width_inches(axes: Axes) -> float:
    """The width of the figure, or of the part of one, that axes are in."""
    return axes.figure.bbox.width / axes.figure.dpi


def escape_mathtext(name: str) -> str:
    """A name as it is drawn letter by letter: matplotlib would read what stands between two $ as a formula."""
    return printable_name(name).replace("$", r"\$")


def wrap_text(text: str, width: float) -> str:
    """A name in as many lines as it takes not to be cut off at so many inches."""
    lines = [textwrap.wrap(line, max(8, int(width * _LETTERS_PER_INCH))) for line in printable_name(text).splitlines()]
    return escape_mathtext("\n".join(part for parts in lines for part in parts or [""]))


def add_legend_above(axes: Axes) -> None:
    """Names over the axes, as many in a row as there is room for; long ones in several lines."""
    handles, names = axes.get_legend_handles_labels()
    wide = _width_inches(axes)
    columns = max(1, min(4, int(wide * _LETTERS_PER_INCH / (max(map(len, names)) + 8))))
    axes.legend(
        handles,
        [wrap_text(name.replace(r"\$", "$"), wide / columns - 0.6) for name in names],
        frameon=False,
        fontsize=8,
        labelcolor=TEXT_COLOR,
        ncols=columns,
        loc="lower left",
        bbox_to_anchor=(0, 1),
    )


def add_legend(axes: Axes) -> None:
    """Names of the lines or bars, in the text colour, without a box."""
    axes.legend(frameon=False, fontsize=8, labelcolor=TEXT_COLOR)


def assign_colors(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, the same wherever the names come in the same order; what is untrained is grey."""
    free = iter(PALETTE * (1 + len(names) // len(PALETTE)))
    return {name: GRAY if name == "untrained" else next(free) for name in names}


def to_inline_svg(figure: Figure, label: str) -> str:
    """The figure as an <svg> element for an HTML page; `label` says what it shows to those who cannot see it."""
    label, text = printable_name(label), io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(text, format="svg", transparent=True)
    spoken = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    body = _METADATA.sub("", text.getvalue())
    # Within HTML the name spaces are known, and a page that names no other host is seen to need none.
    wide = f"max-width:{_MAX_REM_PER_INCH * figure.get_figwidth():.0f}rem"
    body = _SVG_HEAD.sub(rf'<svg viewBox="\1" style="{wide}" role="img" aria-label="{spoken}">', body, count=1)
    return body.replace(TEXT_COLOR, "currentColor")


def save_figure(figure: Figure, file: str | Path, *, dpi: float, option_name: str = "--out") -> None:
    """Write a figure as a picture of the kind that the file's name says, whole or not at all."""
    write_atomic(file, lambda partial: figure.savefig(partial, dpi=dpi), option_name=option_name)
