"""Search results as text, as JSON, and as a page with videos that play."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.data.video import open_video
from stillmotion.encoders import Encoder
from stillmotion.errors import StillmotionError
from stillmotion.index.previews import encode_preview
from stillmotion.index.search.backends import SearchResult
from stillmotion.index.search.config import SearchConfig
from stillmotion.index.search.folder_search import search_folder
from stillmotion.index.search.query import resolve_motion_weight, search_index
from stillmotion.index.video_index import VideoIndex
from stillmotion.index.video_segments import VectorName
from stillmotion.report.images import data_uri
from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import Block, Section, Text, Thumbnail, Thumbnails
from stillmotion.utils.formatting import printable_name

_LINE_HEADER = "appearance  motion  segment"
_PERCENTAGES = "Percentages are the share of random pairs of segments of the index that are less similar."


@dataclass(frozen=True)
class ResultCard:
    """A video or a segment on a page.

    Attributes:
        load_preview: Function that returns its preview as a data URI.
        caption: Text below it.
    """

    load_preview: Callable[[], str]
    caption: str


@dataclass(frozen=True)
class SearchReport:
    """The results of a search.

    Attributes:
        lines: Lines for a terminal.
        rows: Values for JSON.
        query: The query on a page.
        results: The results on a page.
        description: What was searched and how it was ranked.
    """

    lines: Sequence[str]
    rows: Sequence[dict[str, Any]]
    query: ResultCard
    results: Sequence[ResultCard]
    description: str

    @property
    def text(self) -> str:
        """The results as text for a terminal."""
        return "\n".join(self.lines) or "no results: there is no other video"

    @property
    def json(self) -> str:
        """The results as JSON."""
        return json.dumps(self.rows, indent=1)

    def write_page(self, page_file: str | Path) -> Path:
        """Write the results to a self-contained HTML file."""
        query, *results = (Thumbnail(card.load_preview(), card.caption) for card in (self.query, *self.results))
        block: Block = Thumbnails(results, self.description) if results else Text("There is no other video.")
        return write_page(page_file, "Search", [Section("Query", [Thumbnails([query])]), Section("Results", [block])])


def report_index_search(index: VideoIndex, encoder: Encoder, video: str, config: SearchConfig) -> SearchReport:
    """Search an index by a video, and report the results.

    Args:
        index: The index.
        encoder: The encoder of the index.
        video: Query video.
        config: What to rank by, the query segment and the number of results.
    """
    _, results = search_index(index, encoder, video, config)
    paths = [index.video_path(result.segment.id) for result in results]
    files = [printable_name(str(path)) for path in paths]
    weight = resolve_motion_weight(config)
    description = (
        f"Segments of {printable_name(str(index.videos_dir))}, best first. Ranked by {_format_weight(weight)}. "
        f"{sum(_is_close(result, weight) for result in results)} of {len(results)} are closer than chance explains."
    )
    lines = [_result_line(result, file, weight) for result, file in zip(results, files, strict=True)]
    return SearchReport(
        [_LINE_HEADER, *lines, "", description, _PERCENTAGES] if lines else [],
        [result.to_dict() | {"file": file} for result, file in zip(results, files, strict=True)],
        ResultCard(partial(_preview_uri, Path(video), config.start, config.end), printable_name(video)),
        [
            ResultCard(partial(_segment_uri, index, result, path), _result_caption(result, weight))
            for result, path in zip(results, paths, strict=True)
        ],
        description,
    )


def report_folder_search(
    encoder: Encoder, video: str, videos: VideoDataConfig, config: SearchConfig, *, loader: LoaderConfig | None = None
) -> SearchReport:
    """Search a folder of videos without an index, and report the results.

    Args:
        encoder: The encoder.
        video: Query video.
        videos: Videos to search.
        config: What to rank by, the query segment and the number of results.
        loader: How videos are decoded.
    """
    results = search_folder(encoder, video, videos, config, loader=loader)
    ranking = (config.by or "whole") if config.motion_weight is None else _format_weight(config.motion_weight)
    return SearchReport(
        [f"{match.similarity:.4f}  {match.path}" for match in results],
        [{"file": printable_name(match.path), "similarity": match.similarity} for match in results],
        ResultCard(partial(_preview_uri, Path(video), config.start, config.end), printable_name(video)),
        [
            ResultCard(
                partial(_preview_uri, Path(match.path), None, None),
                f"{match.similarity:.3f} · {printable_name(match.path)}",
            )
            for match in results
        ],
        f"Videos, best first. Ranked by {ranking}.",
    )


def _format_weight(motion_weight: float) -> str:
    if motion_weight in (0, 1):
        return "motion" if motion_weight else "appearance"
    return f"{1 - motion_weight:.0%} appearance, {motion_weight:.0%} motion".replace("%", " %")


def _preview_uri(path: Path, start: float | None, end: float | None) -> str:
    return data_uri(encode_preview(open_video(path), start or 0.0, end), "video/mp4")


def _segment_uri(index: VideoIndex, result: SearchResult, path: Path) -> str:
    """Return a segment's preview; its thumbnail if the video was deleted since."""
    try:
        return _preview_uri(path, result.segment.start, result.segment.end)
    except (StillmotionError, OSError):
        return data_uri(index.thumbnail(result.segment.id), "image/webp")


def _format_range(result: SearchResult) -> str:
    return f"{result.segment.start:.2f}–{result.segment.end:.2f} s"


def _result_line(result: SearchResult, file: str, motion_weight: float) -> str:
    appearance = _format_similarity(result.appearance, result.appearance_percentile)
    motion = _format_similarity(result.motion, result.motion_percentile)
    # How an unrelated segment is best aligned says nothing.
    notes = ["close", *filter(None, [result.alignment_text])] if _is_close(result, motion_weight) else []
    return "  ".join([f"{appearance:>10}  {motion:>6}", file, _format_range(result), ", ".join(notes)]).rstrip()


def _format_similarity(similarity: float, percentile: float | None) -> str:
    """The percentile; in an index of too few segments for one, the similarity."""
    return f"{similarity:.3f}" if percentile is None else f"{percentile:.0f} %"


def _is_close(result: SearchResult, motion_weight: float) -> bool:
    """Whether a result is closer than chance explains by a vector that it was ranked by."""
    weights: dict[VectorName, float] = {"appearance": 1 - motion_weight, "motion": motion_weight}
    return any(weights[name] > 0 for name in result.close_by)


def _result_caption(result: SearchResult, motion_weight: float) -> str:
    parts = [f"{result.similarity:.3f}", printable_name(result.segment.path), _format_range(result)]
    parts += [result.alignment_text] if result.alignment_text else []
    return " · ".join([*parts, *["close"] * _is_close(result, motion_weight)])
