"""Build or update the search index of a folder of videos.

A build that was killed continues where it was; the result is the same, bit for bit, as that of one pass.
"""

import hashlib
import logging
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch

from stillmotion.data.datasets.folder import find_videos
from stillmotion.data.video import open_video
from stillmotion.distributed import process_group
from stillmotion.encoders import Encoder
from stillmotion.encoders.feature_cache import hash_encoder
from stillmotion.errors import StillmotionError, VideoError, as_video_error
from stillmotion.functional.token_motion import MOTION_VERSION
from stillmotion.index.locations import check_videos_dir, default_index_dir, is_remote_uri, resolve_uri
from stillmotion.index.motion_fields import update_neighborhoods
from stillmotion.index.prefetch import prefetch
from stillmotion.index.search import backends
from stillmotion.index.search.calibration import update_calibration
from stillmotion.index.segment_embedder import (
    THUMBNAIL_MAX_BYTES,
    THUMBNAIL_MAX_FRAMES,
    THUMBNAIL_SIDE,
    DecodedSegment,
    SegmentEmbedder,
    decode_segments,
    segment_inputs,
)
from stillmotion.index.segment_writer import CommitFunction, SegmentWriter
from stillmotion.index.storage.lance_tables import IndexMetadata, IndexTables
from stillmotion.index.storage.rank_segment_store import RankSegmentStore, commit_leftovers
from stillmotion.index.storage.segment_rows import CompletedVideo, SegmentRow
from stillmotion.index.trusted_indexes import remember_built
from stillmotion.index.video_index import VideoIndex
from stillmotion.index.video_segments import VideoSegmentConfig, make_segment, segment_video
from stillmotion.planning.extraction_estimate import ForwardWork, decode_samples, estimate_forward_passes
from stillmotion.utils.file_lock import lock_dir
from stillmotion.utils.files import check_no_overlap, check_writable, ensure_dir
from stillmotion.utils.formatting import (
    LabelValue,
    format_count,
    format_failed_videos,
    format_memory,
    format_significant,
    printable_name,
)
from stillmotion.utils.hashing import file_fingerprint
from stillmotion.utils.progress import RemainingTime, report_progress

logger = logging.getLogger(__name__)


class VideoFile(NamedTuple):
    """A video of the folder: its path, its path in the index, and the fingerprint and size of its content."""

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
) -> VideoIndex:
    """Build the index of a folder of videos, or update it with new, changed and removed videos.

    Ranks share the videos; the first one commits what all of them embed. Progress is reported in videos.

    Args:
        videos: Folder of videos.
        encoder: The encoder.
        output_dir: Folder or LanceDB URI such as s3://bucket/index. By default a folder in the user's cache; if the
            index there was built with another encoder, a second folder for this encoder.
        segmentation: How videos are split into segments.

    Returns:
        The index.

    Raises:
        StillmotionError: If the folder has no videos, or the index was built from another folder or with other
            settings.
    """
    segmentation = segmentation or VideoSegmentConfig()
    folder, uri, metadata = _check_build(videos, encoder, output_dir, segmentation)
    local_dir = default_index_dir(folder) if is_remote_uri(uri) else Path(uri)
    with process_group.enter_on_main(lambda: _lock_dir(local_dir)):
        process_group.run_on_main(lambda: _open_or_create(uri, metadata))
        tables = _require_tables(uri)
        key = f"{uri} {metadata.digest}" if is_remote_uri(uri) else metadata.digest  # a local folder may be moved
        pending_dir = local_dir / f"{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}.parts"
        _update(tables, pending_dir, folder, encoder, segmentation)
    return VideoIndex(uri, _require_tables(uri) if process_group.get_rank() else tables)


def estimate_index_build(
    videos: str | Path,
    encoder: Encoder,
    output_dir: str | Path | None = None,
    *,
    segmentation: VideoSegmentConfig | None = None,
) -> list[LabelValue]:
    """Estimate the time and memory of `build_index` from the segments of a few videos and the size of all.

    Args:
        videos: Folder of videos.
        encoder: The encoder.
        output_dir: Folder or LanceDB URI of the index.
        segmentation: How videos are split into segments.

    Returns:
        Rows of label and value.

    Raises:
        StillmotionError: As `build_index`, or if none of the sampled videos can be read.
    """
    segmentation = segmentation or VideoSegmentConfig()
    folder, uri, metadata = _check_build(videos, encoder, output_dir, segmentation)
    files, tables = _list_videos(folder), IndexTables.open(uri)
    if tables is not None:
        _check_compatible(uri, tables.metadata, metadata)
    pending, changed, removed = _diff_videos(files, tables.completed_videos() if tables is not None else {})
    counts = f"{len(pending) - len(changed)} new, {len(changed)} changed, {len(removed)} removed"
    rows = [("videos", f"{len(files)}: {counts}")]
    if not pending:
        return [*rows, ("peak memory per process", format_memory(0)), ("time", "0 s: the index is up to date")]

    def decode(index: int) -> tuple[int, list[DecodedSegment]]:
        file = files[pending[index]]
        video = open_video(file.path)
        segments = [(f, make_segment(file.index_path, "", video, f)) for f in segment_video(video, segmentation)]
        return file.num_bytes, list(decode_segments(video, segments, segment_inputs(encoder)))

    samples, seconds = decode_samples(len(pending), decode)
    segments = [segment for _, part in samples for segment in part]
    num_bytes = sum(files[path].num_bytes for path in pending)
    num_segments = len(segments) * num_bytes / max(1, sum(size for size, _ in samples))
    thumbnail_bytes = sum(len(segment.thumbnail) for segment in segments) / len(segments)
    embedder = SegmentEmbedder(encoder)
    clips = [segments[i % len(segments)].clips[0] for i in range(embedder.batch_size)]
    work = ForwardWork(
        name="segments",
        amount=f"about {format_significant(num_segments)}",
        num_units=num_segments,
        clips=torch.stack(clips).to(encoder.device),
        network=encoder,
        forward=encoder,
        stored_bytes=lambda output: (
            num_segments * (4 * (output.static.shape[1] + output.motion.shape[1]) + thumbnail_bytes)
        ),
        decode_seconds=seconds * len(samples) / len(segments),
        prefetch_bytes=embedder.batch_size * clips[0].nbytes,
        input_bytes=num_bytes,
        unit="segment",
    )
    return [*rows, *estimate_forward_passes([work])]


def _check_build(
    videos: str | Path, encoder: Encoder, output_dir: str | Path | None, segmentation: VideoSegmentConfig
) -> tuple[Path, str, IndexMetadata]:
    """Check the paths of a build, and return the video folder, the URI of the index and its metadata."""
    folder = check_videos_dir(videos)
    if output_dir is not None and not is_remote_uri(output_dir):
        check_no_overlap(Path(output_dir).expanduser(), [folder])
    settings = {
        "inputs": [asdict(config) for config in segment_inputs(encoder)],
        "segmentation": asdict(segmentation),
        "thumbnail": [THUMBNAIL_SIDE, THUMBNAIL_MAX_BYTES, THUMBNAIL_MAX_FRAMES],
        "motion": MOTION_VERSION,
    }
    digest = hash_encoder(encoder, settings).hexdigest()[:32]
    uri = process_group.run_on_main(lambda: _resolve_index_uri(folder, encoder.origin.spec, output_dir))
    if not is_remote_uri(uri):
        check_writable(uri)
    return folder, uri, IndexMetadata(encoder.origin.spec, digest, printable_name(str(folder)), settings)


def _resolve_index_uri(folder: Path, encoder_spec: str, output_dir: str | Path | None) -> str:
    """Return where the index lies; a folder has a further default index for each encoder but the first."""
    if output_dir is not None:
        return resolve_uri(output_dir)
    first = default_index_dir(folder)
    tables = IndexTables.open(str(first))
    is_free = tables is None or tables.metadata.encoder == encoder_spec
    return resolve_uri(first if is_free else default_index_dir(folder, encoder_spec))


@contextmanager
def _lock_dir(folder: Path) -> Iterator[None]:
    ensure_dir(folder, mark_generated=True)
    with lock_dir(folder):
        yield


def _open_or_create(uri: str, metadata: IndexMetadata) -> None:
    tables = IndexTables.open(uri)
    if tables is None:
        tables = IndexTables.create(uri, metadata)
    _check_compatible(uri, tables.metadata, metadata)
    remember_built(uri, metadata)


def _require_tables(uri: str) -> IndexTables:
    tables = IndexTables.open(uri)
    if tables is None:
        raise StillmotionError(
            f"{uri} is not visible to this process; with several machines, choose a folder on a shared file system "
            "(--out)"
        )
    return tables


def _check_compatible(uri: str, stored: IndexMetadata, requested: IndexMetadata) -> None:
    if stored.videos != requested.videos:
        raise StillmotionError(f"{uri} is the index of {stored.videos}; choose another --out")
    if stored.encoder != requested.encoder:
        raise StillmotionError(
            f"{uri} was built with {stored.encoder}, not with {requested.encoder}; vectors of two encoders cannot be "
            "mixed. Pass that --encoder, choose another --out, or delete the index"
        )
    if stored.digest != requested.digest:
        raise StillmotionError(
            f"{uri} was built with {stored.encoder}, but with other weights, settings or another version of "
            "stillmotion, whose vectors cannot be mixed with new ones. Choose another --out, or delete the index"
        )


def _update(
    tables: IndexTables, pending_dir: Path, folder: Path, encoder: Encoder, segmentation: VideoSegmentConfig
) -> None:
    rank, num_ranks = process_group.get_rank(), process_group.get_world_size()
    files = _list_videos(folder)
    plan = process_group.run_on_main(lambda: _plan_update(tables, pending_dir, files, folder))
    num_pending = len(plan.pending_paths)
    local_files = [files[path] for path in plan.pending_paths][rank::num_ranks]
    commit, commit_rest = _make_commit(tables, pending_dir, plan.run_id)
    writer = SegmentWriter(commit, encoder)
    remaining = RemainingTime([file.num_bytes for file in local_files], num_ranks=num_ranks)
    failed = {}
    for file, item in prefetch(_iter_segments(local_files, plan.stored_ids, encoder, segmentation)):
        if isinstance(item, DecodedSegment):
            writer.add(item, file.fingerprint)
            continue
        writer.finish_video(item)
        if item.failure:
            failed[file.index_path] = item.failure
        remaining.update(file.num_bytes)
        report_progress(min(remaining.num_videos_done * num_ranks, num_pending), num_pending)
    writer.close()
    commit_rest()
    all_failed = {path: reason for part in process_group.all_gather_object(failed) for path, reason in part.items()}
    if rank == 0:
        for line in format_failed_videos({path: all_failed[path] for path in plan.pending_paths if path in all_failed}):
            logger.warning(line)
    if plan.has_changes:
        process_group.run_on_main(lambda: tables.compact(build_ivf=len(tables) >= backends.IVF_MIN_SEGMENTS))
    process_group.run_on_main(lambda: update_neighborhoods(tables))
    process_group.run_on_main(lambda: update_calibration(tables))


class _UpdatePlan(NamedTuple):
    """What is to be done.

    Attributes:
        pending_paths: Paths of the videos to index.
        stored_ids: Ids of segments of these videos that are stored already.
        has_changes: Whether the tables change.
        run_id: Random name of this command.
    """

    pending_paths: list[str]
    stored_ids: dict[str, list[str]]
    has_changes: bool
    run_id: str


def _plan_update(tables: IndexTables, pending_dir: Path, files: Mapping[str, VideoFile], folder: Path) -> _UpdatePlan:
    """Commit what an earlier command has left, delete what was removed or has changed, and list what is to be done."""
    commit_leftovers(pending_dir, tables)
    stored = tables.stored_fingerprints()
    pending, changed, removed = _diff_videos(files, tables.completed_videos())
    stale = [
        id
        for path, ids in stored.items()
        for id, fingerprint in ids.items()
        if path not in files or files[path].fingerprint != fingerprint
    ]
    counts = f"{len(pending) - len(changed)} new, {len(changed)} changed, {len(removed)} removed"
    state = counts if pending or removed else "the index is up to date"
    logger.info("%s in %s: %s", format_count(len(files), "video"), printable_name(str(folder)), state)
    tables.unmark_completed([*removed, *changed])
    tables.delete_segments("id", stale)
    stored_ids = {path: list(stored[path]) for path in pending if path in stored}
    return _UpdatePlan(pending, stored_ids, bool(pending or removed or stale), uuid.uuid4().hex)


def _diff_videos(
    files: Mapping[str, VideoFile], completed: Mapping[str, CompletedVideo]
) -> tuple[list[str], list[str], list[str]]:
    """Return the paths of videos that are to be indexed, of the changed ones among them, and of removed ones."""
    known = {path for path, done in completed.items() if path in files and files[path].fingerprint == done.fingerprint}
    pending = [path for path in files if path not in known]
    return pending, [path for path in pending if path in completed], [path for path in completed if path not in files]


def _make_commit(tables: IndexTables, folder: Path, run_id: str) -> tuple[CommitFunction, Callable[[], None]]:
    """Return how this rank commits segments, and what all ranks call when everything is embedded."""
    if process_group.get_world_size() == 1:
        return tables.commit, lambda: None
    process_group.run_on_main(lambda: ensure_dir(folder))
    if not all(process_group.all_gather_object(folder.is_dir())):
        raise StillmotionError(
            f"{folder} is not visible to all ranks; with several machines, choose a folder on a shared file system "
            "(--out or, for a remote index, $XDG_CACHE_HOME)"
        )
    pending = RankSegmentStore(folder, rank=process_group.get_rank(), run_id=run_id)

    def commit(rows: Sequence[SegmentRow], videos: Sequence[CompletedVideo]) -> None:
        tables.commit(rows, videos)
        pending.commit_available(tables)

    def commit_rest() -> None:
        names = [name for written in process_group.all_gather_object(pending.written) for name in written]
        process_group.run_on_main(lambda: pending.commit_rest(tables, names))

    return pending.write if process_group.get_rank() else commit, commit_rest


def _list_videos(folder: Path) -> dict[str, VideoFile]:
    """Return the videos of a folder by their paths in the index; ranks share the fingerprints."""
    paths = process_group.run_on_main(lambda: list(find_videos(folder)))
    if not paths:
        raise StillmotionError(f"{folder}: no video found; give a folder with videos in it")
    rank, num_ranks = process_group.get_rank(), process_group.get_world_size()
    local = [_describe_video(folder, path) for path in paths[rank::num_ranks]]
    files = {file.index_path: file for part in process_group.all_gather_object(local) for file in part}
    return {path: files[path] for path in (printable_name(path.relative_to(folder).as_posix()) for path in paths)}


def _describe_video(folder: Path, path: Path) -> VideoFile:
    try:
        size = sum(f.stat().st_size for f in path.iterdir()) if path.is_dir() else path.stat().st_size
    except OSError:
        size = 0
    return VideoFile(path, printable_name(path.relative_to(folder).as_posix()), file_fingerprint(path), size)


def _iter_segments(
    files: Sequence[VideoFile],
    stored_ids: Mapping[str, Collection[str]],
    encoder: Encoder,
    segmentation: VideoSegmentConfig,
) -> Iterator[tuple[VideoFile, DecodedSegment | CompletedVideo]]:
    """Yield the segments of videos that are not stored yet and, after the last one of each video, its completion."""
    for file in files:
        duration = 0.0
        try:
            with as_video_error(file.path):
                video = open_video(file.path)
                duration = len(video) / video.fps
                segments = [
                    (frames, make_segment(file.index_path, file.fingerprint, video, frames))
                    for frames in segment_video(video, segmentation)
                ]
                stored = stored_ids.get(file.index_path, ())
                missing = [(frames, segment) for frames, segment in segments if segment.id not in stored]
                for segment in decode_segments(video, missing, segment_inputs(encoder)):
                    yield file, segment
        except VideoError as error:
            yield file, CompletedVideo(file.index_path, file.fingerprint, duration, printable_name(str(error)))
        else:
            yield file, CompletedVideo(file.index_path, file.fingerprint, duration)
