"""Verbs about a folder's moments: index, search."""

from typing import Annotated

import tyro

from stillmotion.cli.shell import ENCODER_TEXT, Frames, together
from stillmotion.data.moments import Cutting
from stillmotion.data.reading import Reading
from stillmotion.data.videos import Videos
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.options import Searching
from stillmotion.options import Device
from stillmotion.parent import first_rank
from stillmotion.train.log import bar

_BOTH = "the video to search by; without --index, behind the encoder."


def index(
    videos: tyro.conf.Positional[str],
    cutting: Cutting,
    encoder: Annotated[str | None, tyro.conf.arg(help=f"the best at hand if left out; {ENCODER_TEXT}")] = None,
    out: str | None = None,
    device: Device = "auto",
) -> None:
    """Index the moments of a folder's videos, so that search and browse find what moves alike and what looks alike.

    examples:
      stillmotion index ~/videos                                     with the best encoder at hand
      stillmotion index ~/videos --encoder models/dinov2 --out ~/videos.index
      stillmotion index ~/videos --out s3://bucket/videos            anywhere that LanceDB writes to
      stillmotion search jump.mp4 --index ~/videos --by motion

    The same command again looks at what is new, has changed or is gone, and goes on where it was stopped. The videos'
    folder is not written to: the index lies in ~/.cache/stillmotion, unless --out is given. Under torchrun, processes
    share the videos.

    Args:
        videos: a folder of videos, or "synthetic" for drawn ones.
        out: a folder, or an address of LanceDB's.
    """
    from stillmotion.distributed import on_first
    from stillmotion.encoders import best, load
    from stillmotion.index import build
    from stillmotion.index.drawn import or_drawn

    with together(device) as place, bar("indexing") as progress:
        loaded = load(encoder or best(), device=place)
        made = build(on_first(lambda: or_drawn(videos)), loaded, out, cutting=cutting, progress=progress)
    if first_rank():
        found = len({moment.path for moment in made.moments()})
        print(f"{len(made)} moments of {found} videos in {made.address}")


def search(
    named: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[ENCODER] VIDEO", help=_BOTH)],
    videos: Videos,
    searching: Searching,
    reading: Reading,
    index: str | None = None,
    page: str | None = None,
    json: bool = False,
    frames: Frames = None,
    device: Device = "auto",
) -> None:
    """Find what moves like a video, or like a moment of it, and what looks like it.

    examples:
      stillmotion search jump.mp4 --index ~/videos                   moments, by look and motion alike
      stillmotion search jump.mp4 --index ~/videos --by motion --from 12.5 --to 16
      stillmotion search jump.mp4 --index ~/videos --mix 0.3 --page found.html
      stillmotion search flow jump.mp4 --data ~/videos --by motion --top 3   whole videos, without an index or weights

    Prints similarities and paths, best first. Without an index the folder's features are kept and reused as for
    retrieve.

    Args:
        index: an index, or the folder of videos that it was made of.
        page: a file for a page with moving thumbnails.
        json: print JSON.
    """
    if (index is None) == (len(named) == 1) or len(named) not in (1, 2):
        raise StillmotionError(
            "give a VIDEO and --index FOLDER, or an ENCODER, a VIDEO and --data FOLDER (stillmotion search --help)"
        )
    from stillmotion.encoders import load
    from stillmotion.evaluate.search import search
    from stillmotion.index import Index
    from stillmotion.index.ask import ask
    from stillmotion.report.search import moments_found, videos_found

    if index is not None:
        opened = Index.open(index)
        answer = moments_found(
            opened, named[0], searching, *ask(opened, load(opened.encoder, device=device), named[0], searching)
        )
    else:
        loaded = load(named[0], device=device).shown(frames=frames)
        with bar("embedding") as progress:
            found = search(loaded, named[1], videos, searching, reading=reading, progress=progress)
        answer = videos_found(named[1], searching, found)
    print(answer.json if json else answer.text)
    if page is not None:
        answer.write(page)
