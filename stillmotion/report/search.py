"""What `stillmotion search` found, as text, as JSON, and as a page on which it moves."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stillmotion.data.video import open_video
from stillmotion.evaluate.options import Searching
from stillmotion.evaluate.search import Match
from stillmotion.evaluate.told import readable
from stillmotion.explain.neighbours import data_uri, thumbnail
from stillmotion.index.ask import mix_of
from stillmotion.index.index import Index
from stillmotion.index.nearest import Found
from stillmotion.index.query import Query
from stillmotion.report.blocks import Block, Section, Text, Thumbnail, Thumbnails
from stillmotion.report.page import write_page


@dataclass(frozen=True)
class Shown:
    """A video or a moment on a page: what gives its moving picture as a data URI, and what is said below it."""

    picture: Callable[[], str]
    caption: str


@dataclass(frozen=True)
class Answer:
    """What was found: lines for a terminal, rows for JSON, and what a page shows of the query and of each.

    how: what was searched by, in words.
    """

    lines: Sequence[str]
    rows: Sequence[dict[str, Any]]
    query: Shown
    found: Sequence[Shown]
    how: str

    @property
    def text(self) -> str:
        """For a terminal."""
        return "\n".join(self.lines) or "nothing is found: there is no other video"

    @property
    def json(self) -> str:
        """For programs."""
        return json.dumps(self.rows, indent=1)

    def write(self, page: str | Path) -> Path:
        """Write one HTML file that needs no other."""
        asked, *others = (Thumbnail(one.picture(), one.caption) for one in (self.query, *self.found))
        answers: Block = Thumbnails(others, self.how) if others else Text("Nothing was found.")
        return write_page(page, "Search", [Section("Asked", [Thumbnails([asked])]), Section("Found", [answers])])


def moments_found(index: Index, video: str, searching: Searching, query: Query, found: Sequence[Found]) -> Answer:
    """The answer of an index. video: what was asked by."""
    files = [readable(str(index.file(one.moment.id))) for one in found]
    share = mix_of(searching)
    numbers = [{name: getattr(one, name) for name in ("similarity", "look", "motion")} for one in found]
    return Answer(
        [
            f"{one.similarity:.4f}  look {one.look:.4f}  motion {one.motion:.4f}  {file}  {_seconds(one)}"
            for one, file in zip(found, files, strict=True)
        ],
        [
            asdict(one.moment) | {"file": file} | cosines
            for one, file, cosines in zip(found, files, numbers, strict=True)
        ],
        Shown(partial(data_uri, query.thumbnail), readable(video)),
        [Shown(partial(_moving, index, one.moment.id), _caption(one)) for one in found],
        f"Moments of {readable(str(index.videos))}, best first, by {1 - share:g} · look + {share:g} · motion.",
    )


def videos_found(video: str, searching: Searching, found: Sequence[Match]) -> Answer:
    """The answer of a folder without an index. video: what was asked by."""
    by = searching.by or "whole" if searching.mix is None else f"{searching.mix:g} of motion, the rest of look"
    return Answer(
        [f"{match.similarity:.4f}  {match.path}" for match in found],
        [{"file": readable(match.path), "similarity": match.similarity} for match in found],
        Shown(partial(_moving_file, video), readable(video)),
        [Shown(partial(_moving_file, m.path), f"{m.similarity:.3f} · {readable(m.path)}") for m in found],
        f"Videos, best first, by {by}.",
    )


def _moving(index: Index, id: str) -> str:
    return data_uri(index.thumbnail(id))


def _moving_file(path: str) -> str:
    return thumbnail(open_video(path))


def _seconds(one: Found) -> str:
    return f"{one.moment.start:.2f}–{one.moment.end:.2f} s"


def _caption(one: Found) -> str:
    return f"{one.similarity:.3f} · {one.moment.path} · {_seconds(one)}"
