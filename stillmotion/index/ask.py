"""`stillmotion search` over an index: the moments most alike to a video, or to a moment of it."""

from dataclasses import replace
from pathlib import Path

from stillmotion.data.moments import Cutting
from stillmotion.encoders import Encoder
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.options import Searching
from stillmotion.evaluate.told import readable
from stillmotion.index.index import Index
from stillmotion.index.nearest import Found
from stillmotion.index.query import Query, embed_query

_MIX = 0.5
_ALONE = {"look": 0.0, "static": 0.0, "motion": 1.0}


def ask(index: Index, encoder: Encoder, video: str | Path, searching: Searching) -> tuple[Query, list[Found]]:
    """The video as a query, and what is found; moments of the video itself, where it is in the index, are left out."""
    mix = mix_of(searching)
    cutting = Cutting(**index.about.settings["cutting"])
    query = embed_query(encoder, video, start=searching.start, end=searching.end, cutting=cutting)
    place = Path(video).resolve()
    if place.is_relative_to(index.videos):
        query = replace(query, path=readable(place.relative_to(index.videos).as_posix()))
    return query, index.near(query, mix=mix, top=searching.top)


def mix_of(searching: Searching) -> float:
    """The share of motion in what is asked of an index."""
    if searching.mix is not None or searching.by is None:
        return _MIX if searching.mix is None else searching.mix
    if searching.by not in _ALONE:
        raise StillmotionError(
            f"an index holds look and motion, not {searching.by}; search by one, or by --mix of both"
        )
    return _ALONE[searching.by]
