"""What `stillmotion browse` is asked to show: a folder of videos, an index, or drawn videos."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stillmotion.browse.queries import Encode
from stillmotion.encoders import Encoder, Progress, best, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.told import say as to_stderr
from stillmotion.index import Cutting, Index, Query, build, default_place, embed_query
from stillmotion.index.drawn import or_drawn
from stillmotion.index.places import is_remote


@dataclass(frozen=True)
class Shown:
    """An index, and how videos are embedded that are to be found in it."""

    index: Index
    encode: Encode


def find(
    folder: str | Path,
    *,
    encoder: str | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    say: Callable[[str], object] = to_stderr,
    progress: Progress | None = None,
) -> Shown:
    """The index of a folder of videos, made or brought up to date; of an index, itself as it is.

    folder: of videos, or of an index, or "synthetic", for which videos are drawn into the user's cache.
    encoder: by default that of the index, and the best at hand where there is none yet. out: where the index is put.
    say, progress: as for `build`.
    """
    if is_index(folder):
        for option, given in (("--encoder", encoder), ("--out", out)):
            if given is not None:
                raise StillmotionError(f"{folder} is an index already; leave out {option}, or give the videos' folder")
        index = Index.open(folder)
        return Shown(index, _encode(index, functools.cache(lambda: load(index.encoder, device=device))))
    videos = or_drawn(folder)
    loaded = load(encoder or _encoder_of(out or default_place(videos)) or best(), device=device)
    index = build(videos, loaded, out, say=say, progress=progress)
    if not len(index):
        raise StillmotionError(f"no video in {videos} can be read; give a folder with others")
    return Shown(index, _encode(index, lambda: loaded))


def is_index(folder: str | Path) -> bool:
    """Whether a folder, or what is at an address, is an index itself, and no folder of videos that may have one."""
    if is_remote(folder):
        return True
    real = Path(os.path.realpath(os.path.expanduser(folder)))
    return (real / "videos.lance").is_dir() and Index.open(real).folder == real


def _encoder_of(place: str | Path) -> str | None:
    return Index.open(place).encoder if is_index(place) else None


def _encode(index: Index, encoder: Callable[[], Encoder]) -> Encode:
    """Embeds as the index was made; its encoder is loaded when it is first needed."""
    cutting = Cutting(**index.about.settings["cutting"])

    def encode(video: Path) -> Query:
        return embed_query(encoder(), video, cutting=cutting)

    return encode
