"""Copies of a data set, video by video: in parallel, resumable, with a manifest and the original's labels.

A copy keeps relative paths, so that it opens as the original does. What is written for a video is up to a `Copier`.
Originals are never written to, a folder of copies has one writer, and only what is whole is counted.
"""

import csv
import io
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, Protocol

from stillmotion.data.datasets.base import DEFAULT_TARGET, UNKNOWN_LABEL, VideoDataset
from stillmotion.data.datasets.folder import find_videos
from stillmotion.data.transcode.manifest import (
    MANIFEST_FILE,
    RANK_MANIFESTS_DIR,
    ManifestEntry,
    read_completed_entries,
    read_entries,
    write_entries,
)
from stillmotion.data.transcode.output_paths import check_no_links_outside, output_paths
from stillmotion.data.video.reader import VideoReader, describe_truncation
from stillmotion.distributed import process_group
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.utils import file_lock, files
from stillmotion.utils.files import path_size
from stillmotion.utils.processes import WorkerDied, run_in_processes

LABELS_FILE = "labels.csv"


@dataclass(frozen=True)
class TranscodeResult:
    """What a copier says of a copy it wrote. made: what the manifest should tell beside the copier's settings."""

    height: int
    width: int
    metadata: dict[str, Any] = field(default_factory=dict)


class Transcoder(Protocol):
    """Writes the copy of one video; it is sent to worker processes.

    suffix: of the files it writes; empty for folders.
    settings: what must agree for an earlier call's copies to be kept. record: the file that they are written to.
    """

    @property
    def suffix(self) -> str: ...

    @property
    def settings(self) -> dict[str, Any]: ...

    @property
    def settings_file(self) -> str: ...

    def write(self, video: VideoReader, name: str, output: Path) -> TranscodeResult:
        """Writes the copy to the path `output`; an OSError is the disk's, and a VideoError the video's.

        name: the copy's path in the set, which no other video has.
        """
        ...


def transcode_dataset(
    dataset: VideoDataset,
    output_dir: Path,
    transcoder: Transcoder,
    *,
    num_processes: int = 1,
    strict: bool = False,
    progress: Callable[[ManifestEntry, int, int], None] | None = None,
) -> list[ManifestEntry]:
    """Copies every video of `dataset` into the folder `output_dir`, with labels.csv and manifest.jsonl; returns the manifest.

    num_processes: that copy in parallel, on each rank.
    progress: called after each video with its line, the number done and the number there are.
    strict: the first unreadable video raises; otherwise it is named in the manifest and left out.
    An `output_dir` that is, lies in or holds a video of the set is an error, before anything is written.

    Ranks share the videos, and the same folder comes of it; those after the first return no lines. The same call again,
    on however many ranks, goes on where this one stopped.
    """
    if num_processes < 1:
        raise StillmotionError(f"processes is {num_processes}; it must be at least 1")
    sources = [dataset.name(index) for index in range(len(dataset))]
    own = (
        MANIFEST_FILE,
        RANK_MANIFESTS_DIR,
        LABELS_FILE,
        transcoder.settings_file,
        file_lock.LOCK_FILE,
        files.GENERATED_MARKER,
    )
    paths = output_paths(dataset, transcoder.suffix, reserved=own)
    lines: dict[str, ManifestEntry] = {}
    with ExitStack() as held:

        def begin() -> list[int]:
            """Takes the folder, and says which videos are to be copied."""
            files.check_no_overlap(output_dir, sources)
            check_no_links_outside(output_dir, paths)
            held.enter_context(file_lock.lock_dir(output_dir))
            lines.update({line.path: line for line in read_completed_entries(output_dir)})
            check_output_dir(output_dir, transcoder, paths, list(lines.values()))
            files.ensure_dir(output_dir, mark_generated=True)
            write_entries(output_dir, lines.values())
            todo = [i for i, path in enumerate(paths) if path not in lines or not _is_copy_of(lines[path], sources[i])]
            for folder in {(output_dir / paths[i]).parent for i in todo}:
                file_lock.remove_stale_temp_files(folder, include_other_hosts=True)
            return (
                todo
                if num_processes * process_group.get_world_size() == 1
                else sorted(todo, key=lambda i: -_source_num_bytes(sources[i]))
            )

        def finish() -> None:
            lines.update({line.path: line for line in read_entries(output_dir)})
            if gone := [path for path in paths if path not in lines]:
                raise StillmotionError(
                    f"{output_dir} has no word of {len(gone)} videos, the first {gone[0]}; ranks on several machines need a "
                    "disk that all of them see: choose another --out"
                )
            found.extend(lines.pop(path) for path in paths)
            write_entries(output_dir, [*found, *lines.values()])
            _write_labels_csv(dataset, output_dir, found)

        todo, found = process_group.run_on_main(begin), list[ManifestEntry]()
        mine = [(i, paths[i]) for i in process_group.shard_for_rank(todo)]

        def told(line: ManifestEntry, done: int) -> None:
            if progress is not None:  # of all ranks, which are as far as this one, more or less
                progress(line, len(paths) - len(todo) + min(done * process_group.get_world_size(), len(todo)), len(paths))

        process_group.run_on_all(
            lambda: _transcode_rank_share(
                _Job(dataset, output_dir, transcoder), mine, num_processes, strict=strict, progress=told
            )
        )
        process_group.run_on_main(finish)
    return found


def format_transcode_summary(
    entries: Sequence[ManifestEntry], description: str, *, missing: Sequence[str] = ()
) -> list[str]:
    """What became of the videos, as lines for a terminal. made: what the copies are called. missing: were not there."""
    bad = [line.error for line in entries if line.error]
    parts = [f"{line.source}: {line.truncation}" for line in entries if line.truncation]
    said = {"left out": bad, "copied as far as it can be read": parts, "listed and not there": missing}
    told = [f"{len(entries) - len(bad)} {description}"]
    for what, names in said.items():
        if names:
            told += [f"{len(names)} {'video' if len(names) == 1 else 'videos'} {what}:", *(f"  {n}" for n in names)]
    return told


@dataclass(frozen=True)
class _Job:
    dataset: VideoDataset
    output_dir: Path
    transcoder: Transcoder

    def transcode_one(self, todo: tuple[int, str]) -> ManifestEntry:
        """Copies one video: written beside its place under another name, then moved there whole."""
        started = time.monotonic()
        index, path = todo
        source, target = self.dataset.name(index), self.output_dir / path
        written: list[TranscodeResult] = []
        try:
            video = self.dataset.open_video(index)
            files.ensure_dir(target.parent)
            files.write_atomic(target, lambda partial: written.append(self.transcoder.write(video, path, partial)))
        except VideoError as error:
            return _failed_entry(source, path, str(error))
        except MemoryError:
            return _failed_entry(source, path, "too large for this machine's memory")
        (one,) = written
        return ManifestEntry(
            source,
            path,
            num_frames=len(video),
            fps=float(video.fps),
            width=one.width,
            height=one.height,
            elapsed_seconds=round(time.monotonic() - started, 3),
            truncation=describe_truncation(video),
            num_bytes=path_size(target),
            settings={**self.transcoder.settings, **one.metadata},
        )


def _transcode_rank_share(
    job: _Job,
    todo: list[tuple[int, str]],
    num_processes: int,
    *,
    strict: bool,
    progress: Callable[[ManifestEntry, int], None],
) -> None:
    """Copies this rank's videos, and writes down each when it is done. It ends with the first rank that fails."""
    rank, parts = process_group.get_rank(), job.output_dir / RANK_MANIFESTS_DIR
    notes = files.ensure_dir(parts) / f"{rank}.jsonl" if rank else job.output_dir / MANIFEST_FILE
    failed = parts / "failed"
    try:
        with (
            files.report_disk_errors(notes),
            notes.open("a", buffering=1) as manifest,
            closing(_iter_entries(job, todo, num_processes)) as made,
        ):
            for done, line in enumerate(made, 1):
                if line.error and strict:
                    raise VideoError(line.error)
                manifest.write(line.to_json_line())
                progress(line, done)
                if failed.exists():
                    return
    except StillmotionError:
        if process_group.get_world_size() > 1:
            with suppress(OSError):
                parts.mkdir(exist_ok=True)
                failed.touch()
        raise


def _iter_entries(job: _Job, todo: list[tuple[int, str]], num_processes: int) -> Generator[ManifestEntry, None, None]:
    if num_processes == 1:
        yield from map(job.transcode_one, todo)
        return
    try:
        with closing(run_in_processes(job.transcode_one, todo, num_processes)) as results:
            for (index, path), line in results:
                yield _failed_entry(job.dataset.name(index), path, str(line)) if isinstance(line, WorkerDied) else line
    finally:
        for folder in {(job.output_dir / path).parent for _, path in todo}:
            file_lock.remove_stale_temp_files(folder)  # what a worker that was ended in the midst of a copy left behind


def _failed_entry(source: str, path: str, reason: str) -> ManifestEntry:
    return ManifestEntry(source, path, error=reason if source in reason else f"{source}: {reason}")


def _source_num_bytes(source: str) -> int:
    """In bytes, of a file: the largest are copied first, so that nobody has to wait long for the last; 0 of no file."""
    try:
        return os.stat(source).st_size
    except (OSError, ValueError):
        return 0


def _is_copy_of(line: ManifestEntry, source: str) -> bool:
    """Whether a copy is that of a source, wherever this has moved to, and not of one that had the place before."""
    return PurePath(line.source).name == PurePath(source).name


def _write_labels_csv(dataset: VideoDataset, output_dir: Path, entries: Sequence[ManifestEntry]) -> None:
    """labels.csv of what could be copied: class and label, and whatever other columns the original's list had."""
    labels, classes = dataset.labels.get(DEFAULT_TARGET), dataset.classes.get(DEFAULT_TARGET, ())
    rows = dataset.csv_rows or [{} for _ in entries]
    others = [name for name in rows[0] if name not in ("path", "class", "label")] if rows else []
    text = io.StringIO(newline="")
    table = csv.writer(text)
    table.writerow(["path", *(["class", "label"] if labels is not None else []), *others])
    for index, line in enumerate(entries):
        if line.error:
            continue
        target = []
        if labels is not None:
            label = int(labels[index])
            target = ["", ""] if label == UNKNOWN_LABEL else [classes[label], str(label)]
        table.writerow([line.path, *target, *(rows[index].get(name, "") for name in others)])
    files.write_text(output_dir / LABELS_FILE, text.getvalue())


def check_output_dir(
    output_dir: Path, transcoder: Transcoder, paths: Sequence[str], entries: Sequence[ManifestEntry]
) -> None:
    """A folder holds copies of one kind, and nothing else: those already there must have been made the same way."""
    settings, file = transcoder.settings, output_dir / transcoder.settings_file
    if file.exists():
        try:
            before = files.read_json(file, hint="")
        except StillmotionError:
            before = None
        if before == settings:
            return
        if isinstance(before, dict):
            raise StillmotionError(
                f"{output_dir} holds copies made with {before}, not {settings}; choose another folder"
            )
        if any(line.settings.get(name) != value for line in entries for name, value in settings.items()):
            raise StillmotionError(
                f"{file} is torn or damaged, and copies beside it were made otherwise than with {settings}; "
                "choose another folder, or delete this one"
            )
        print(f"stillmotion: {file} was torn; it is written anew, as each copy says how it was made", file=sys.stderr)
    elif (output_dir / MANIFEST_FILE).exists():
        raise StillmotionError(
            f"{output_dir} holds copies of another kind (it has no {file.name}); choose another folder"
        )
    else:
        places = (output_dir / path for path in paths if os.path.lexists(output_dir / path))
        there = next(chain(places, find_videos(output_dir)), None)
        if there is not None:
            raise StillmotionError(f"{there} is there already, and no copy of stillmotion's; choose another folder")
    files.write_json(file, settings)
