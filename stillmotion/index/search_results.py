"""What `stillmotion search` found, as text, as JSON, and as a page on which it moves."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stillmotion.data.video import open_video
from stillmotion.index.folder_search import VideoMatch
from stillmotion.index.index_search import resolve_motion_weight
from stillmotion.index.query import Query
from stillmotion.index.search_backends import SearchResult
from stillmotion.index.search_config import SearchConfig
from stillmotion.index.video_index import VideoIndex
from stillmotion.report.blocks import Block, Section, Text, Thumbnail, Thumbnails
from stillmotion.report.images import thumbnail_uri, webp_data_uri
from stillmotion.report.page import write_page
from stillmotion.utils.formatting import printable_name


@dataclass(frozen=True)
class ResultCard:
    """A video or a moment on a page: what gives its moving picture as a data URI, and what is said below it."""

    load_thumbnail: Callable[[], str]
    caption: str


@dataclass(frozen=True)
class SearchReport:
    """What was found: lines for a terminal, rows for JSON, and what a page shows of the query and of each.

    description: what was searched by, in words.
    """

    lines: Sequence[str]
    rows: Sequence[dict[str, Any]]
    query: ResultCard
    results: Sequence[ResultCard]
    description: str

    @property
    def text(self) -> str:
        """For a terminal."""
        return "\n".join(self.lines) or "nothing is found: there is no other video"

    @property
    def json(self) -> str:
        """For programs."""
        return json.dumps(self.rows, indent=1)

    def write_page(self, page_file: str | Path) -> Path:
        """Write one HTML file that needs no other."""
        asked, *others = (Thumbnail(one.load_thumbnail(), one.caption) for one in (self.query, *self.results))
        answers: Block = Thumbnails(others, self.description) if others else Text("Nothing was found.")
        return write_page(page_file, "Search", [Section("Asked", [Thumbnails([asked])]), Section("Found", [answers])])


def report_index_search(
    index: VideoIndex, video: str, config: SearchConfig, query: Query, results: Sequence[SearchResult]
) -> SearchReport:
    """The answer of an index. video: what was asked by."""
    files = [printable_name(str(index.video_path(one.segment.id))) for one in results]
    share = resolve_motion_weight(config)
    numbers = [{name: getattr(one, name) for name in ("similarity", "appearance", "motion")} for one in results]
    return SearchReport(
        [
            f"{one.similarity:.4f}  appearance {one.appearance:.4f}  motion {one.motion:.4f}  {file}  {_format_range(one)}"
            for one, file in zip(results, files, strict=True)
        ],
        [
            asdict(one.segment) | {"file": file} | cosines
            for one, file, cosines in zip(results, files, numbers, strict=True)
        ],
        ResultCard(partial(webp_data_uri, query.thumbnail), printable_name(video)),
        [ResultCard(partial(_segment_thumbnail, index, one.segment.id), _result_caption(one)) for one in results],
        f"Moments of {printable_name(str(index.videos_dir))}, best first, by {1 - share:g} · look + {share:g} · motion.",
    )


def report_folder_search(video: str, config: SearchConfig, results: Sequence[VideoMatch]) -> SearchReport:
    """The answer of a folder without an index. video: what was asked by."""
    by = config.by or "whole" if config.motion_weight is None else f"{config.motion_weight:g} of motion, the rest of look"
    return SearchReport(
        [f"{match.similarity:.4f}  {match.path}" for match in results],
        [{"file": printable_name(match.path), "similarity": match.similarity} for match in results],
        ResultCard(partial(_video_thumbnail, video), printable_name(video)),
        [
            ResultCard(partial(_video_thumbnail, m.path), f"{m.similarity:.3f} · {printable_name(m.path)}")
            for m in results
        ],
        f"Videos, best first, by {by}.",
    )


def _segment_thumbnail(index: VideoIndex, id: str) -> str:
    return webp_data_uri(index.thumbnail(id))


def _video_thumbnail(path: str) -> str:
    return thumbnail_uri(open_video(path))


def _format_range(result: SearchResult) -> str:
    return f"{result.segment.start:.2f}–{result.segment.end:.2f} s"


def _result_caption(result: SearchResult) -> str:
    return f"{result.similarity:.3f} · {result.segment.path} · {_format_range(result)}"
