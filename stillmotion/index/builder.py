"""`stillmotion index`: every moment of a folder's videos into a table, once, whatever happens meanwhile."""

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from stillmotion.data.datasets.folder import find_videos
from stillmotion.data.loading.collate import print_message as to_stderr
from stillmotion.data.video import open_video
from stillmotion.distributed import process_group
from stillmotion.encoders import Encoder, ProgressCallback
from stillmotion.encoders.feature_cache import hash_encoder
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.index import search_backends
from stillmotion.index.lance_tables import CompletedVideo, IndexMetadata, IndexTables, SegmentRow
from stillmotion.index.locations import default_index_dir, is_remote_uri, resolve_uri
from stillmotion.index.pending_segments import PendingSegments, commit_leftovers
from stillmotion.index.segment_embedder import (
    THUMBNAIL_MAX_BYTES,
    THUMBNAIL_MAX_FRAMES,
    THUMBNAIL_SIDE,
    DecodedSegment,
    decode_segments,
    segment_input_config,
)
from stillmotion.index.segment_writer import CommitFunction, SegmentWriter
from stillmotion.index.video_index import VideoIndex
from stillmotion.index.video_segments import VideoSegmentConfig, make_segment, segment_video
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import check_no_overlap, ensure_dir
from stillmotion.utils.formatting import format_failed_videos, printable_name
from stillmotion.utils.hashing import file_fingerprint, hash_bytes
from stillmotion.utils.prefetch import prefetch
from stillmotion.utils.progress import RemainingTime


class VideoFile(NamedTuple):
    """A video to be looked at: its place, its path in the index, and the fingerprint and size of its content."""

    path: Path
    index_path: str
    fingerprint: str
    num_bytes: int


def build_index(
    videos: str | Path,
    encoder: Encoder,
    output_dir: str | Path | None = None,
    *,
    segmentation: VideoSegmentConfig | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: ProgressCallback | None = None,
) -> VideoIndex:
    """Make the index of a folder of videos, or bring it up to date: what is new, has changed or is gone.

    output_dir: a folder or an address of LanceDB's, such as s3://bucket/index; by default `default_place(videos)`.
    segmentation: into moments. say: told what is to be done, how long that takes, and which videos cannot be read.
    progress: called with the number of videos done and of all.
    A build that was killed goes on where it was; the table is then the same, bit for bit, as one made in one go.
    Ranks share the videos; the first stores what all embed, and says what there is to say.
    """
    folder = Path(videos).expanduser().resolve()
    if not folder.is_dir():
        raise StillmotionError(f"{videos}: no such folder; give one with videos in it")
    if output_dir is not None and not is_remote_uri(output_dir):
        check_no_overlap(Path(output_dir).expanduser(), [folder])
    place = resolve_uri(output_dir if output_dir is not None else default_index_dir(folder))
    cut = segmentation or VideoSegmentConfig()
    stored_as = {
        "input_config": asdict(segment_input_config(encoder)),
        "segmentation": asdict(cut),
        "thumbnail": [THUMBNAIL_SIDE, THUMBNAIL_MAX_BYTES, THUMBNAIL_MAX_FRAMES],
    }
    digest = hash_encoder(encoder, stored_as).hexdigest()[:32]
    about = IndexMetadata(encoder.origin.spec, digest, printable_name(str(folder)), stored_as)
    own = default_index_dir(folder) if is_remote_uri(place) else Path(place)
    with process_group.enter_on_main(lambda: _lock_dir(own)):
        process_group.run_on_main(lambda: _open_or_create(place, about))
        tables = _require_tables(place)
        told = f"{place} {digest}" if is_remote_uri(place) else digest  # a folder may be moved
        parts = own / f"{hash_bytes(told.encode(), digest_size=8)}.parts"
        _update(tables, parts, folder, encoder, cut, say, progress)
    return VideoIndex(place, _require_tables(place) if process_group.get_rank() else tables)


@contextmanager
def _lock_dir(folder: Path) -> Iterator[None]:
    ensure_dir(folder, mark_generated=True)
    with lock_dir(folder):
        yield


def _open_or_create(place: str, about: IndexMetadata) -> None:
    tables = IndexTables.open(place)
    if tables is None:
        tables = IndexTables.create(place, about)
    _check_compatible(place, tables.metadata, about)


def _require_tables(place: str) -> IndexTables:
    tables = IndexTables.open(place)
    if tables is None:
        raise StillmotionError(f"{place} is not to be seen here; ranks need a disk that all of them see (--out)")
    return tables


def _check_compatible(place: str, there: IndexMetadata, asked: IndexMetadata) -> None:
    if there.videos != asked.videos:
        raise StillmotionError(f"{place} is the index of {there.videos}; choose another --out")
    if there.encoder != asked.encoder or there.digest != asked.digest:
        other = there.encoder if there.encoder != asked.encoder else "other weights, settings or version of it"
        raise StillmotionError(
            f"{place} was made with {other}, and not with {asked.encoder}: vectors of two encoders do not mix; give "
            "that --encoder, choose another --out, or delete it"
        )


def _update(
    tables: IndexTables,
    parts: Path,
    folder: Path,
    encoder: Encoder,
    cutting: VideoSegmentConfig,
    say: Callable[[str], object],
    progress: ProgressCallback | None,
) -> None:
    rank, ranks = process_group.get_rank(), process_group.get_world_size()
    files = _list_videos(folder)
    plan = process_group.run_on_main(lambda: _plan_update(tables, parts, files, folder, say))
    todo = [files[path] for path in plan.pending_paths]
    share, broken = todo[rank::ranks], {}
    keep, rest = _make_writer(tables, parts, plan.run_id)
    tell = say if rank == 0 else lambda line: None
    keeper, clock = SegmentWriter(keep, encoder), RemainingTime([file.num_bytes for file in share], tell, ranks=ranks)
    for file, found in prefetch(_iter_segments(share, plan.stored_ids, encoder, cutting)):
        if isinstance(found, DecodedSegment):
            keeper.add(found, file.fingerprint)
            continue
        keeper.finish_video(found)
        if found.failure:
            broken[file.index_path] = found.failure
        clock.update(file.num_bytes)
        if progress is not None:
            progress(min(clock.num_videos_done * ranks, len(todo)), len(todo))
    keeper.close()
    rest()
    every = {path: reason for some in process_group.all_gather_object(broken) for path, reason in some.items()}
    for line in format_failed_videos({path: every[path] for path in plan.pending_paths if path in every}):
        tell(line)
    if plan.has_changes:
        process_group.run_on_main(lambda: tables.compact(build_ivf=len(tables) >= search_backends.IVF_MIN_SEGMENTS))


class _UpdatePlan(NamedTuple):
    """What is to be done.

    pending_paths: paths of videos. stored: ids of moments of these that are stored. changed: whether the tables are to change.
    run_id: a word of this command's own.
    """

    pending_paths: list[str]
    stored_ids: dict[str, list[str]]
    has_changes: bool
    run_id: str


def _plan_update(
    tables: IndexTables, parts: Path, files: Mapping[str, VideoFile], folder: Path, say: Callable[[str], object]
) -> _UpdatePlan:
    """Take in what an earlier command has left, take out what is gone or has changed, and say what there is to do."""
    commit_leftovers(parts, tables, say=say)
    done, stored = tables.completed_videos(), tables.stored_fingerprints()
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
    say(f"{len(files)} videos in {printable_name(str(folder))}: {what if todo or gone else 'the index is up to date'}")
    tables.unmark_completed([*gone, *changed])
    tables.delete_segments("id", stale)
    there = {path: list(stored[path]) for path in todo if path in stored}
    return _UpdatePlan(todo, there, bool(todo or gone or stale), uuid.uuid4().hex)


def _make_writer(tables: IndexTables, folder: Path, command: str) -> tuple[CommitFunction, Callable[[], None]]:
    """How this rank stores what it has embedded, and what all ranks do when they have embedded everything."""
    if process_group.get_world_size() == 1:
        return tables.commit, lambda: None
    process_group.run_on_main(lambda: ensure_dir(folder))
    if not all(process_group.all_gather_object(folder.is_dir())):
        raise StillmotionError(
            f"{folder} is not to be seen by all ranks; on several machines they need a disk that all of them see: "
            "choose another --out or, where that is an address, another $XDG_CACHE_HOME"
        )
    parts = PendingSegments(folder, rank=process_group.get_rank(), run_id=command)

    def store(rows: Sequence[SegmentRow], videos: Sequence[CompletedVideo]) -> None:
        tables.commit(rows, videos)
        parts.commit_available(tables)

    def rest() -> None:
        names = [name for some in process_group.all_gather_object(parts.written) for name in some]
        process_group.run_on_main(lambda: parts.commit_rest(tables, names))

    return parts.write if process_group.get_rank() else store, rest


def _list_videos(folder: Path) -> dict[str, VideoFile]:
    """The videos of a folder by their paths; ranks share the looking at their content."""
    places = process_group.run_on_main(lambda: list(find_videos(folder)))
    if not places:
        raise StillmotionError(f"{folder}: no video found; give a folder with videos in it")
    own = [
        _describe_video(folder, place) for place in places[process_group.get_rank() :: process_group.get_world_size()]
    ]
    every = {file.index_path: file for some in process_group.all_gather_object(own) for file in some}
    return {path: every[path] for path in (printable_name(place.relative_to(folder).as_posix()) for place in places)}


def _describe_video(folder: Path, place: Path) -> VideoFile:
    try:
        size = sum(f.stat().st_size for f in place.iterdir()) if place.is_dir() else place.stat().st_size
    except OSError:
        size = 0
    return VideoFile(place, printable_name(place.relative_to(folder).as_posix()), file_fingerprint(place), size)


def _iter_segments(
    todo: Sequence[VideoFile], stored: Mapping[str, Collection[str]], encoder: Encoder, cutting: VideoSegmentConfig
) -> Iterator[tuple[VideoFile, DecodedSegment | CompletedVideo]]:
    """The moments of videos that are not stored yet, and behind the last of each video that it is done."""
    for file in todo:
        duration = 0.0
        try:
            video = open_video(file.path)
            duration = len(video) / video.fps
            parts = [
                (span, make_segment(file.index_path, file.fingerprint, video, span))
                for span in segment_video(video, cutting)
            ]
            missing = [(span, one) for span, one in parts if one.id not in stored.get(file.index_path, ())]
            yield from ((file, piece) for piece in decode_segments(video, missing, segment_input_config(encoder)))
        except VideoError as error:
            yield file, CompletedVideo(file.index_path, file.fingerprint, duration, printable_name(str(error)))
        else:
            yield file, CompletedVideo(file.index_path, file.fingerprint, duration)
