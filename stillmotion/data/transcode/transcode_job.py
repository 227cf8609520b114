"""Transcode every video of a data set: in parallel, resumable, with labels.csv and a manifest.

Copies keep relative paths, so that they open as the originals do. What is written for a video is up to a `Transcoder`.
Originals are never written to, an output folder has one writer, and only complete copies count.
"""

import csv
import io
import logging
import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from stillmotion.data.datasets.base import DEFAULT_TARGET, UNKNOWN_LABEL, VideoDataset
from stillmotion.data.datasets.folder import find_videos
from stillmotion.data.transcode.manifest import (
    MANIFEST_FILE,
    RANK_MANIFESTS_DIR,
    ManifestEntry,
    read_completed_entries,
    read_entries,
    read_source_state,
    write_entries,
)
from stillmotion.data.transcode.output_paths import check_no_links_outside, output_paths
from stillmotion.data.video.reader import VideoReader, describe_truncation
from stillmotion.distributed import process_group
from stillmotion.errors import StillmotionError, VideoError, as_video_error
from stillmotion.utils import file_lock, files
from stillmotion.utils.files import path_size
from stillmotion.utils.formatting import format_count
from stillmotion.utils.hashing import file_fingerprint, hash_path
from stillmotion.utils.progress import report_progress
from stillmotion.utils.worker_processes import WorkerDied, run_in_processes

logger = logging.getLogger(__name__)

LABELS_FILE = "labels.csv"


@dataclass(frozen=True)
class TranscodeResult:
    """Size of a copy, and what the manifest records of it besides the settings.

    Attributes:
        height: Height of the frames, in pixels.
        width: Width of the frames, in pixels.
        metadata: Plain data for the manifest.
    """

    height: int
    width: int
    metadata: dict[str, Any] = field(default_factory=dict)


class Transcoder(Protocol):
    """Writes the copy of one video; it is pickled to worker processes.

    Attributes:
        suffix: Suffix of the files that it writes; empty for folders.
        settings: What must be equal for the copies of an earlier call to be kept.
        settings_file: Name of the JSON file that the settings are written to.
    """

    @property
    def suffix(self) -> str: ...

    @property
    def settings(self) -> dict[str, Any]: ...

    @property
    def settings_file(self) -> str: ...

    def write(self, video: VideoReader, name: str, output: Path) -> TranscodeResult:
        """Write the copy of a video.

        Args:
            video: The video.
            name: Path of the copy in the output folder, which no other video has.
            output: Path to write to.

        Raises:
            OSError: The disk failed.
            VideoError: The video cannot be read or transcoded.
        """
        ...


def transcode_dataset(
    dataset: VideoDataset, output_dir: Path, transcoder: Transcoder, *, num_processes: int = 1, strict: bool = False
) -> list[ManifestEntry]:
    """Transcode every video into `output_dir`; write labels.csv and manifest.jsonl.

    The same call continues after an interruption. Ranks share the work, and their number may change between calls.

    Args:
        dataset: Videos to transcode.
        output_dir: Output folder; must not overlap the videos.
        transcoder: How a video is transcoded.
        num_processes: Number of worker processes of each rank.
        strict: Raise at the first unreadable video. Otherwise it is recorded in the manifest and left out.

    Returns:
        The manifest in the order of the data set; empty on all ranks but the first.

    Raises:
        StillmotionError: The output folder cannot be used, or `strict` is set and a video cannot be read.
    """
    check_transcode(dataset, output_dir, num_processes)
    sources = [dataset.name(index) for index in range(len(dataset))]
    reserved = (
        MANIFEST_FILE,
        RANK_MANIFESTS_DIR,
        LABELS_FILE,
        transcoder.settings_file,
        file_lock.LOCK_FILE,
        files.GENERATED_MARKER,
    )
    paths = output_paths(dataset, transcoder.suffix, reserved=reserved)
    entries: dict[str, ManifestEntry] = {}
    manifest: list[ManifestEntry] = []
    with ExitStack() as stack:

        def start() -> list[int]:
            """Lock the output folder; return the indices of the videos that are left to transcode."""
            check_no_links_outside(output_dir, paths)
            stack.enter_context(file_lock.lock_dir(output_dir))
            entries.update({entry.path: entry for entry in read_completed_entries(output_dir)})
            replaced = [
                i for i, path in enumerate(paths) if path in entries and not entries[path].is_copy_of(sources[i])
            ]
            check_output_dir(output_dir, transcoder, paths, list(entries.values()))
            files.ensure_dir(output_dir, mark_generated=True)
            for i in replaced:
                logger.info("%s has changed and is copied again.", sources[i])
                del entries[paths[i]]
                with files.report_disk_errors(output_dir):
                    files.remove_path(output_dir / paths[i])
            write_entries(output_dir, entries.values())
            todo = [i for i, path in enumerate(paths) if path not in entries]
            for folder in {(output_dir / paths[i]).parent for i in todo}:
                file_lock.remove_stale_temp_files(folder, include_other_hosts=True)
            if num_processes * process_group.get_world_size() == 1:
                return todo
            # The largest first, so that nobody has to wait long for the last one.
            return sorted(todo, key=lambda i: -path_size(sources[i]))

        def finish() -> None:
            entries.update({entry.path: entry for entry in read_entries(output_dir)})
            if missing := [path for path in paths if path not in entries]:
                raise StillmotionError(
                    f"{output_dir}: {format_count(len(missing), 'video')} missing from the manifest, the first is "
                    f"{missing[0]}. With several machines, --out must be on a shared disk."
                )
            manifest.extend(entries.pop(path) for path in paths)
            write_entries(output_dir, [*manifest, *entries.values()])
            _write_labels_csv(dataset, output_dir, manifest)

        todo = process_group.run_on_main(start)
        share = [(i, paths[i]) for i in process_group.shard_for_rank(todo)]
        job = _Job(dataset, output_dir, transcoder, num_done=len(paths) - len(todo))
        process_group.run_on_all(lambda: _transcode_rank_share(job, share, num_processes, strict=strict))
        process_group.run_on_main(finish)
    return manifest


def check_transcode(dataset: VideoDataset, output_dir: str | Path, num_processes: int) -> None:
    """Check the arguments of `transcode_dataset`, before it runs or is estimated.

    Args:
        dataset: Videos to transcode.
        output_dir: Output folder.
        num_processes: Number of worker processes.

    Raises:
        StillmotionError: The folder overlaps the videos or cannot be written to, or there are no processes.
    """
    if num_processes < 1:
        raise StillmotionError(f"num_processes is {num_processes}; must be at least 1.")
    files.check_no_overlap(output_dir, [dataset.name(i) for i in range(len(dataset))])
    files.check_writable(output_dir)


def format_transcode_summary(
    entries: Sequence[ManifestEntry], description: str, *, missing: Sequence[str] = ()
) -> list[str]:
    """Lines for the terminal about a transcoded data set.

    Args:
        entries: The manifest.
        description: What the copies are, behind their number, such as "videos prepared in out".
        missing: Names of videos that are listed but do not exist.
    """
    failed = [entry.error for entry in entries if entry.error]
    truncated = [f"{entry.source}: {entry.truncation}" for entry in entries if entry.truncation]
    lines = [f"{len(entries) - len(failed)} {description}"]
    for names, singular, plural in (
        (failed, "failed", "failed"),
        (truncated, "was truncated", "were truncated"),
        (missing, "is listed but missing", "are listed but missing"),
    ):
        if names:
            lines.append(f"{format_count(len(names), 'video')} {singular if len(names) == 1 else plural}:")
            lines += [f"  {name}" for name in names]
    return lines


@dataclass(frozen=True)
class _Job:
    dataset: VideoDataset
    output_dir: Path
    transcoder: Transcoder
    num_done: int

    def transcode_one(self, todo: tuple[int, str]) -> ManifestEntry:
        """Transcode one video: under a temporary name, which is renamed when the copy is complete."""
        started = time.monotonic()
        index, path = todo
        source, target = self.dataset.name(index), self.output_dir / path
        results: list[TranscodeResult] = []
        described = _describe_source(source)
        try:
            with as_video_error(source):
                video = self.dataset.open_video(index)
                files.ensure_dir(target.parent)
                files.write_atomic(target, lambda partial: results.append(self.transcoder.write(video, path, partial)))
        except VideoError as error:
            return _failed_entry(source, path, str(error))
        (result,) = results
        return ManifestEntry(
            source,
            path,
            num_frames=len(video),
            fps=float(video.fps),
            width=result.width,
            height=result.height,
            elapsed_seconds=round(time.monotonic() - started, 3),
            truncation=describe_truncation(video),
            num_bytes=path_size(target),
            hash=hash_path(target),
            **described,
            settings={**self.transcoder.settings, **result.metadata},
        )


def _transcode_rank_share(job: _Job, todo: list[tuple[int, str]], num_processes: int, *, strict: bool) -> None:
    """Transcode the videos of this rank and record each one; stop when another rank fails."""
    rank, world_size = process_group.get_rank(), process_group.get_world_size()
    rank_dir = job.output_dir / RANK_MANIFESTS_DIR
    manifest_file = files.ensure_dir(rank_dir) / f"{rank}.jsonl" if rank else job.output_dir / MANIFEST_FILE
    failure_marker = rank_dir / "failed"
    total = len(job.dataset)
    try:
        with (
            files.report_disk_errors(manifest_file),
            manifest_file.open("a", buffering=1) as manifest,
            closing(_iter_entries(job, todo, num_processes)) as entries,
        ):
            for done, entry in enumerate(entries, 1):
                if entry.error and strict:
                    raise VideoError(entry.error)
                manifest.write(entry.to_json_line())
                logger.debug("transcoded %s", entry.path)
                # The other ranks are about as far as this one.
                report_progress(min(job.num_done + done * world_size, total), total)
                if failure_marker.exists():
                    return
    except StillmotionError:
        if world_size > 1:
            with suppress(OSError):
                rank_dir.mkdir(exist_ok=True)
                failure_marker.touch()
        raise


def _iter_entries(job: _Job, todo: list[tuple[int, str]], num_processes: int) -> Generator[ManifestEntry, None, None]:
    if num_processes == 1:
        yield from map(job.transcode_one, todo)
        return
    try:
        with closing(run_in_processes(job.transcode_one, todo, num_processes)) as results:
            for (index, path), entry in results:
                if isinstance(entry, WorkerDied):
                    entry = _failed_entry(job.dataset.name(index), path, str(entry))
                yield entry
    finally:
        for folder in {(job.output_dir / path).parent for _, path in todo}:
            file_lock.remove_stale_temp_files(folder)  # of workers that were stopped while they wrote


def _failed_entry(source: str, path: str, reason: str) -> ManifestEntry:
    error = reason if source in reason else f"{source}: {reason}"
    return ManifestEntry(source, path, error=error, **_describe_source(source))


def _describe_source(source: str) -> dict[str, Any]:
    """The fields of the manifest by which a replaced original is known."""
    state = read_source_state(source)
    fingerprint = file_fingerprint(source) if state.num_bytes else ""
    return {
        "source_bytes": state.num_bytes,
        "source_mtime_ns": state.mtime_ns,
        "source_fingerprint": fingerprint,
    }


def _write_labels_csv(dataset: VideoDataset, output_dir: Path, entries: Sequence[ManifestEntry]) -> None:
    """Write labels.csv of all complete copies: class, label and the other columns of the original list."""
    labels, classes = dataset.labels.get(DEFAULT_TARGET), dataset.classes.get(DEFAULT_TARGET, ())
    rows: Sequence[Mapping[str, str]] = dataset.csv_rows or [{} for _ in entries]
    other_columns = [name for name in rows[0] if name not in ("path", "class", "label")] if rows else []
    text = io.StringIO(newline="")
    table = csv.writer(text)
    table.writerow(["path", *(["class", "label"] if labels is not None else []), *other_columns])
    for index, entry in enumerate(entries):
        if entry.error:
            continue
        target = []
        if labels is not None:
            label = int(labels[index])
            target = ["", ""] if label == UNKNOWN_LABEL else [classes[label], str(label)]
        table.writerow([entry.path, *target, *(rows[index].get(name, "") for name in other_columns)])
    files.write_text(output_dir / LABELS_FILE, text.getvalue())


def check_output_dir(
    output_dir: Path, transcoder: Transcoder, paths: Sequence[str], entries: Sequence[ManifestEntry]
) -> None:
    """Check that a folder holds nothing but copies with the same settings, and write the file of its settings.

    Args:
        output_dir: Output folder.
        transcoder: How videos are transcoded.
        paths: Paths of the copies in it.
        entries: Manifest of the existing copies.

    Raises:
        StillmotionError: It holds copies with other settings, or other files at these paths.
    """
    settings, file = transcoder.settings, output_dir / transcoder.settings_file
    if file.exists():
        try:
            existing_settings = files.read_json(file)
        except StillmotionError:
            existing_settings = None
        if existing_settings == settings:
            return
        if isinstance(existing_settings, dict):
            raise StillmotionError(
                f"{output_dir} was made with the settings {existing_settings}, not {settings}. Choose another --out."
            )
        if any(entry.settings.get(name) != value for entry in entries for name, value in settings.items()):
            raise StillmotionError(
                f"{file} is damaged, and existing copies were made with other settings than {settings}. "
                "Delete the folder or choose another --out."
            )
        logger.warning("%s was damaged and has been rewritten from the manifest.", file)
    elif (output_dir / MANIFEST_FILE).exists():
        raise StillmotionError(f"{output_dir} was written by another command (no {file.name}). Choose another --out.")
    else:
        at_paths = (output_dir / path for path in paths if os.path.lexists(output_dir / path))
        existing = next(chain(at_paths, find_videos(output_dir)), None)
        if existing is not None:
            raise StillmotionError(
                f"{existing} already exists and was not written by stillmotion. Choose another --out."
            )
    files.write_json(file, settings)
