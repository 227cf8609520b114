"""Axes, palette, legends and SVG export of figures, without matplotlib's global state."""

import html
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

TEXT_COLOR = "#1b1f24"  # replaced by the text color of the page that holds the figure
PALETTE = ("#e08a2e", "#3485c9", "#4aa564", "#b3559a", "#c8523f", "#7d6bc4")
GRAY = "#8d96a0"

_LETTERS_PER_INCH = 11.5  # at the font size of titles
_MAX_REM_PER_INCH = 6.4  # so that letters have one size in all figures of a wide page
_SVG_HEAD = re.compile(r"^.*?<svg[^>]*viewBox=\"([^\"]*)\"[^>]*>", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def new_axes(*, width: float = 4.2, height: float = 2.8, title: str = "") -> tuple[Figure, Axes]:
    """Create a figure with one pair of axes.

    Args:
        width: Width in inches.
        height: Height in inches.
        title: Title of the axes.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    style_axes(axes, title=title)
    return figure, axes


def style_axes(axes: Axes, *, title: str = "") -> None:
    """Apply the style that all figures share.

    Args:
        axes: The axes.
        title: Their title.
    """
    grid = axes.get_subplotspec()
    width = _width_inches(axes) / (grid.get_gridspec().ncols if grid else 1)
    axes.set_title(wrap_text(title, width - 0.45), color=TEXT_COLOR, fontsize=10, loc="left")
    axes.patch.set_visible(False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRAY)
    axes.tick_params(colors=TEXT_COLOR, labelsize=8, color=GRAY)
    axes.xaxis.label.set(color=TEXT_COLOR, fontsize=9)
    axes.yaxis.label.set(color=TEXT_COLOR, fontsize=9)
    axes.grid(axis="y", color=GRAY, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


def _width_inches(axes: Axes) -> float:
    """Return the width of the figure or subfigure of axes."""
    return axes.figure.bbox.width / axes.figure.dpi


def escape_mathtext(name: str) -> str:
    """Escape a name for matplotlib, which reads text between two $ as a formula."""
    return printable_name(name).replace("$", r"\$")


def wrap_text(text: str, width: float) -> str:
    """Wrap text to a width.

    Args:
        text: The text.
        width: Width in inches.
    """
    lines = [textwrap.wrap(line, max(8, int(width * _LETTERS_PER_INCH))) for line in printable_name(text).splitlines()]
    return escape_mathtext("\n".join(part for parts in lines for part in parts or [""]))


def add_legend_above(axes: Axes) -> None:
    """Add a legend above the axes, with as many columns as fit; long names are wrapped."""
    handles, names = axes.get_legend_handles_labels()
    width = _width_inches(axes)
    columns = max(1, min(4, int(width * _LETTERS_PER_INCH / (max(map(len, names)) + 8))))
    axes.legend(
        handles,
        [wrap_text(name.replace(r"\$", "$"), width / columns - 0.6) for name in names],
        frameon=False,
        fontsize=8,
        labelcolor=TEXT_COLOR,
        ncols=columns,
        loc="lower left",
        bbox_to_anchor=(0, 1),
    )


def add_legend(axes: Axes) -> None:
    """Add a legend without a box, in the text color."""
    axes.legend(frameon=False, fontsize=8, labelcolor=TEXT_COLOR)


def assign_colors(names: Sequence[str]) -> dict[str, str]:
    """Assign a color to each name, in the order of the names; "untrained" is gray."""
    colors = iter(PALETTE * (1 + len(names) // len(PALETTE)))
    return {name: GRAY if name == "untrained" else next(colors) for name in names}


def to_inline_svg(figure: Figure, label: str) -> str:
    """Convert a figure to an <svg> element of an HTML page.

    Args:
        figure: The figure.
        label: Description for screen readers.
    """
    label, text = printable_name(label), io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        figure.savefig(text, format="svg", transparent=True)
    escaped = html.escape(label)
    body = _METADATA.sub("", text.getvalue())
    # HTML knows the namespaces; a page without their URLs names no other host.
    style = f"max-width:{_MAX_REM_PER_INCH * figure.get_figwidth():.0f}rem"
    body = _SVG_HEAD.sub(rf'<svg viewBox="\1" style="{style}" role="img" aria-label="{escaped}">', body, count=1)
    return body.replace(TEXT_COLOR, "currentColor")


def save_figure(figure: Figure, file: str | Path, *, dpi: float, option_name: str = "--out") -> None:
    """Write a figure to a file, atomically; the suffix decides the format.

    Args:
        figure: The figure.
        file: The file.
        dpi: Resolution.
        option_name: Option that sets the path, for errors.
    """
    write_atomic(file, lambda partial: figure.savefig(partial, dpi=dpi), option_name=option_name)
