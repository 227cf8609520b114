"""Blocks of a page: text, tables, figures, thumbnails, images and videos. The template page.html draws each kind."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from stillmotion.utils.formatting import format_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_NUMBER_LENGTH = 24  # a longer cell is text
_NUMBER_STARTS = "0123456789+-−.[≤≥±"


@dataclass(frozen=True)
class Text:
    """A paragraph of plain text."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True)
class Code:
    """Lines of code or commands."""

    kind: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True)
class Figures:
    """Figures as inline SVG, side by side where the page is wide enough."""

    kind: ClassVar[str] = "figures"
    svgs: Sequence[str]
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """A table whose first column names the row.

    Attributes:
        header: Names of the columns.
        rows: Cells by row.
        caption: Caption.
        bold_cells: (row, column) of cells in bold.
    """

    kind: ClassVar[str] = "table"
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    bold_cells: frozenset[tuple[int, int]] = frozenset()

    @property
    def text_columns(self) -> frozenset[int]:
        """Indices of the columns that hold text, which may wrap; the others hold numbers."""
        columns = range(len(self.header))
        return frozenset({0} | {j for j in columns if any(len(row[j]) > _MAX_NUMBER_LENGTH for row in self.rows)})

    def to_text(self) -> list[str]:
        """Return the table as lines of text with aligned columns: words to the left, numbers to the right."""
        lines = [self.header, *self.rows]
        columns = []
        for j, cells in enumerate(zip(*lines, strict=True)):
            width = max(map(len, cells))
            is_number = j > 0 and any(cell[:1] in _NUMBER_STARTS for cell in cells[1:] if cell)
            columns.append([cell.rjust(width) if is_number else cell.ljust(width) for cell in cells])
        return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]


@dataclass(frozen=True)
class Thumbnail:
    """An animated image or a video as a data URI, with a caption."""

    source: str
    caption: str


@dataclass(frozen=True)
class Thumbnails:
    """Thumbnails in rows."""

    kind: ClassVar[str] = "thumbnails"
    items: Sequence[Thumbnail]
    caption: str = ""


@dataclass(frozen=True)
class Neighbors:
    """A query and its nearest videos by feature kind."""

    kind: ClassVar[str] = "neighbors"
    query: Thumbnail
    nearest: Mapping[str, Sequence[Thumbnail]]


@dataclass(frozen=True)
class ImageBlock:
    """A wide image as a data URI."""

    kind: ClassVar[str] = "image"
    source: str
    caption: str


@dataclass(frozen=True)
class VideoBlock:
    """A short video as a data URI, played in a loop."""

    kind: ClassVar[str] = "video"
    source: str
    caption: str


Block = Text | Code | Figures | Table | Thumbnails | Neighbors | ImageBlock | VideoBlock


@dataclass(frozen=True)
class Section:
    """A heading and its blocks."""

    title: str
    blocks: Sequence[Block]


def best_cells(rows: Sequence[Sequence[str]], *, columns: Sequence[int]) -> frozenset[tuple[int, int]]:
    """Find the cells with the largest number of each column, all of them if several are equal.

    Args:
        rows: Rows of a table; a cell begins with its number, or has none.
        columns: Columns to look at.

    Returns:
        Row and column of each cell; none if there are fewer than two rows.
    """
    best: set[tuple[int, int]] = set()
    for j in columns if len(rows) > 1 else ():
        values = {i: float(row[j].split()[0]) for i, row in enumerate(rows) if row[j][:1] in _NUMBER_STARTS and row[j]}
        best |= {(i, j) for i, value in values.items() if value == max(values.values())}
    return frozenset(best)


def figure_block(plots: "Mapping[str, Figure]", *, caption: str = "") -> Figures:
    """Build a block of matplotlib figures.

    Args:
        plots: Figures by their descriptions for screen readers.
        caption: Caption.
    """
    from stillmotion.report.plot_style import (
        to_inline_svg,
    )  # imports matplotlib, which tables in a terminal do not need

    return Figures([to_inline_svg(figure, label) for label, figure in plots.items()], caption)


def failed_video_blocks(failed: Collection[str]) -> list[Block]:
    """Build the block that lists failed videos; none if there are none.

    Args:
        failed: Names of the videos.
    """
    return [Text(f"{format_count(len(failed), 'video')} could not be read: {', '.join(failed)}.")] if failed else []
