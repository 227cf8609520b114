"""`stillmotion index`: every moment of a folder's videos into a table, once, whatever happens meanwhile."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from stillmotion.data.moments import Cutting, moment, spans
from stillmotion.data.paths import find_videos
from stillmotion.data.video import open_video
from stillmotion.encoders import Encoder, Progress
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.cache import encoder_digest
from stillmotion.evaluate.told import readable, skipped
from stillmotion.evaluate.told import say as to_stderr
from stillmotion.files import fingerprint, locked, made, spare
from stillmotion.index import nearest
from stillmotion.index.index import Index
from stillmotion.index.keeping import Clock, Keeper
from stillmotion.index.places import address, default_place, is_remote
from stillmotion.index.showing import BYTES, PICTURES, SIDE, Piece, ahead, pieces, shown
from stillmotion.index.table import About, Done, Tables


class File(NamedTuple):
    """A video to be looked at: its place, its path in the index, and the fingerprint and size of its content."""

    place: Path
    path: str
    fingerprint: str
    bytes: int


def build(
    videos: str | Path,
    encoder: Encoder,
    out: str | Path | None = None,
    *,
    cutting: Cutting | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: Progress | None = None,
) -> Index:
    """Make the index of a folder of videos, or bring it up to date: what is new, has changed or is gone.

    out: a folder or an address of LanceDB's, such as s3://bucket/index; by default `default_place(videos)`.
    cutting: into moments. say: told what is to be done, how long that takes, and which videos cannot be read.
    progress: called with the number of videos done and of all.
    A build that was killed goes on where it was; the table is then the same, bit for bit, as one made in one go.
    """
    folder = Path(videos).expanduser().resolve()
    if not folder.is_dir():
        raise StillmotionError(f"{videos}: no such folder; give one with videos in it")
    if out is not None and not is_remote(out):
        spare(Path(out).expanduser(), [folder])
    place = address(out if out is not None else default_place(folder))
    cut = cutting or Cutting()
    stored_as = {"shown": asdict(shown(encoder)), "cutting": asdict(cut), "thumbnail": [SIDE, BYTES, PICTURES]}
    digest = encoder_digest(encoder, stored_as).hexdigest()[:32]
    about = About(encoder.origin.text, digest, readable(str(folder)), stored_as)
    with ExitStack() as holding:
        own = default_place(folder) if is_remote(place) else Path(place)
        made(own, mark=True)
        holding.enter_context(locked(own))
        tables = Tables.open(place)
        if tables is None:
            tables = Tables.create(place, about)
        _check_same(place, tables.about, about)
        _bring_up_to_date(tables, folder, encoder, cut, say, progress)
    return Index(place, tables)


def _check_same(place: str, there: About, asked: About) -> None:
    if there.videos != asked.videos:
        raise StillmotionError(f"{place} is the index of {there.videos}; choose another --out")
    if there.encoder != asked.encoder or there.digest != asked.digest:
        other = there.encoder if there.encoder != asked.encoder else "other weights, settings or version of it"
        raise StillmotionError(
            f"{place} was made with {other}, and not with {asked.encoder}: vectors of two encoders do not mix; give "
            "that --encoder, choose another --out, or delete it"
        )


def _bring_up_to_date(
    tables: Tables,
    folder: Path,
    encoder: Encoder,
    cutting: Cutting,
    say: Callable[[str], object],
    progress: Progress | None,
) -> None:
    files = _files(folder)
    done, stored = tables.done(), tables.stored()
    known = {path for path, video in done.items() if path in files and files[path].fingerprint == video.fingerprint}
    todo = [file for path, file in files.items() if path not in known]
    changed = sum(file.path in done for file in todo)
    gone = [path for path in done if path not in files]
    stale = [
        id
        for path, ids in stored.items()
        for id, content in ids.items()
        if path not in files or files[path].fingerprint != content
    ]
    what = f"{len(todo) - changed} new, {changed} changed, {len(gone)} gone"
    say(f"{len(files)} videos in {readable(str(folder))}: {what if todo or gone else 'the index is up to date'}")
    tables.forget([*gone, *(file.path for file in todo if file.path in done)])
    tables.drop("id", stale)
    keeper, clock, broken = Keeper(tables, encoder), Clock([file.bytes for file in todo], say), {}
    for file, found in ahead(_read(todo, stored, encoder, cutting)):
        if isinstance(found, Piece):
            keeper.take(found, file.fingerprint)
            continue
        keeper.end(found)
        if found.reason:
            broken[file.path] = found.reason
        clock.step(file.bytes)
        if progress is not None:
            progress(clock.videos, len(todo))
    keeper.close()
    for line in skipped(broken):
        say(line)
    if todo or gone or stale:
        tables.tidy(cells=len(tables) >= nearest.LARGE)


def _files(folder: Path) -> dict[str, File]:
    found = {}
    for place in find_videos(folder):
        path = readable(place.relative_to(folder).as_posix())
        try:
            size = sum(f.stat().st_size for f in place.iterdir()) if place.is_dir() else place.stat().st_size
        except OSError:
            size = 0
        found[path] = File(place, path, fingerprint(place), size)
    if not found:
        raise StillmotionError(f"{folder}: no video found; give a folder with videos in it")
    return found


def _read(
    todo: Sequence[File], stored: Mapping[str, Collection[str]], encoder: Encoder, cutting: Cutting
) -> Iterator[tuple[File, Piece | Done]]:
    """The moments of videos that are not stored yet, and behind the last of each video that it is done."""
    for file in todo:
        duration = 0.0
        try:
            video = open_video(file.place)
            duration = len(video) / video.fps
            parts = [(span, moment(file.path, file.fingerprint, video, span)) for span in spans(video, cutting)]
            missing = [(span, one) for span, one in parts if one.id not in stored.get(file.path, ())]
            yield from ((file, piece) for piece in pieces(video, missing, shown(encoder)))
        except VideoError as error:
            yield file, Done(file.path, file.fingerprint, duration, readable(str(error)))
        else:
            yield file, Done(file.path, file.fingerprint, duration)
