"""`stillmotion index`: every moment of a folder's videos into a table, once, whatever happens meanwhile."""

import hashlib
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from stillmotion import distributed
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
from stillmotion.index.keeping import Clock, Keep, Keeper
from stillmotion.index.parts import Parts, take_left
from stillmotion.index.places import address, default_place, is_remote
from stillmotion.index.showing import BYTES, PICTURES, SIDE, Piece, ahead, pieces, shown
from stillmotion.index.table import About, Done, Row, Tables


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
    Ranks share the videos; the first stores what all embed, and says what there is to say.
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
    own = default_place(folder) if is_remote(place) else Path(place)
    with distributed.first_within(lambda: _held(own)):
        distributed.on_first(lambda: _make(place, about))
        tables = _there(place)
        told = f"{place} {digest}" if is_remote(place) else digest  # a folder may be moved
        parts = own / f"{hashlib.blake2b(told.encode(), digest_size=8).hexdigest()}.parts"
        _bring_up_to_date(tables, parts, folder, encoder, cut, say, progress)
    return Index(place, _there(place) if distributed.rank() else tables)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    made(folder, mark=True)
    with locked(folder):
        yield


def _make(place: str, about: About) -> None:
    tables = Tables.open(place)
    if tables is None:
        tables = Tables.create(place, about)
    _check_same(place, tables.about, about)


def _there(place: str) -> Tables:
    tables = Tables.open(place)
    if tables is None:
        raise StillmotionError(f"{place} is not to be seen here; ranks need a disk that all of them see (--out)")
    return tables


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
    parts: Path,
    folder: Path,
    encoder: Encoder,
    cutting: Cutting,
    say: Callable[[str], object],
    progress: Progress | None,
) -> None:
    rank, ranks = distributed.rank(), distributed.world()
    files = _files(folder)
    plan = distributed.on_first(lambda: _plan(tables, parts, files, folder, say))
    todo = [files[path] for path in plan.todo]
    share, broken = todo[rank::ranks], {}
    keep, rest = _ways(tables, parts, plan.command)
    tell = say if rank == 0 else lambda line: None
    keeper, clock = Keeper(keep, encoder), Clock([file.bytes for file in share], tell, ranks=ranks)
    for file, found in ahead(_read(share, plan.stored, encoder, cutting)):
        if isinstance(found, Piece):
            keeper.take(found, file.fingerprint)
            continue
        keeper.end(found)
        if found.reason:
            broken[file.path] = found.reason
        clock.step(file.bytes)
        if progress is not None:
            progress(min(clock.videos * ranks, len(todo)), len(todo))
    keeper.close()
    rest()
    every = {path: reason for some in distributed.gather_objects(broken) for path, reason in some.items()}
    for line in skipped({path: every[path] for path in plan.todo if path in every}):
        tell(line)
    if plan.changed:
        distributed.on_first(lambda: tables.tidy(cells=len(tables) >= nearest.LARGE))


class _Plan(NamedTuple):
    """What is to be done.

    todo: paths of videos. stored: ids of moments of these that are stored. changed: whether the tables are to change.
    command: a word of this command's own.
    """

    todo: list[str]
    stored: dict[str, list[str]]
    changed: bool
    command: str


def _plan(tables: Tables, parts: Path, files: Mapping[str, File], folder: Path, say: Callable[[str], object]) -> _Plan:
    """Take in what an earlier command has left, take out what is gone or has changed, and say what there is to do."""
    take_left(parts, tables, say=say)
    done, stored = tables.done(), tables.stored()
    known = {path for path, video in done.items() if path in files and files[path].fingerprint == video.fingerprint}
    todo = [path for path in files if path not in known]
    changed = [path for path in todo if path in done]
    gone = [path for path in done if path not in files]
    stale = [
        id
        for path, ids in stored.items()
        for id, content in ids.items()
        if path not in files or files[path].fingerprint != content
    ]
    what = f"{len(todo) - len(changed)} new, {len(changed)} changed, {len(gone)} gone"
    say(f"{len(files)} videos in {readable(str(folder))}: {what if todo or gone else 'the index is up to date'}")
    tables.forget([*gone, *changed])
    tables.drop("id", stale)
    there = {path: list(stored[path]) for path in todo if path in stored}
    return _Plan(todo, there, bool(todo or gone or stale), uuid.uuid4().hex)


def _ways(tables: Tables, folder: Path, command: str) -> tuple[Keep, Callable[[], None]]:
    """How this rank stores what it has embedded, and what all ranks do when they have embedded everything."""
    if distributed.world() == 1:
        return tables.keep, lambda: None
    distributed.on_first(lambda: made(folder))
    if not all(distributed.gather_objects(folder.is_dir())):
        raise StillmotionError(
            f"{folder} is not to be seen by all ranks; on several machines they need a disk that all of them see: "
            "choose another --out or, where that is an address, another $XDG_CACHE_HOME"
        )
    parts = Parts(folder, rank=distributed.rank(), command=command)

    def store(rows: Sequence[Row], videos: Sequence[Done]) -> None:
        tables.keep(rows, videos)
        parts.take(tables)

    def rest() -> None:
        names = [name for some in distributed.gather_objects(parts.written) for name in some]
        distributed.on_first(lambda: parts.take_rest(tables, names))

    return parts.keep if distributed.rank() else store, rest


def _files(folder: Path) -> dict[str, File]:
    """The videos of a folder by their paths; ranks share the looking at their content."""
    places = distributed.on_first(lambda: list(find_videos(folder)))
    if not places:
        raise StillmotionError(f"{folder}: no video found; give a folder with videos in it")
    own = [_file(folder, place) for place in places[distributed.rank() :: distributed.world()]]
    every = {file.path: file for some in distributed.gather_objects(own) for file in some}
    return {path: every[path] for path in (readable(place.relative_to(folder).as_posix()) for place in places)}


def _file(folder: Path, place: Path) -> File:
    try:
        size = sum(f.stat().st_size for f in place.iterdir()) if place.is_dir() else place.stat().st_size
    except OSError:
        size = 0
    return File(place, readable(place.relative_to(folder).as_posix()), fingerprint(place), size)


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
