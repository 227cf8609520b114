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

from stillmotion import files
from stillmotion.data import ranks
from stillmotion.data.manifest import MANIFEST, PARTS, Copied, read_lines, read_manifest, size_of, write_manifest
from stillmotion.data.paths import TARGET, UNKNOWN, VideoSet, find_videos
from stillmotion.data.targets import check_inside, target_paths
from stillmotion.data.video import Video, partly_read
from stillmotion.data.workers import Died, in_processes
from stillmotion.errors import StillmotionError, VideoError

LABELS = "labels.csv"


@dataclass(frozen=True)
class Written:
    """What a copier says of a copy it wrote. made: what the manifest should tell beside the copier's settings."""

    height: int
    width: int
    made: dict[str, Any] = field(default_factory=dict)


class Copier(Protocol):
    """Writes the copy of one video; it is sent to worker processes.

    suffix: of the files it writes; empty for folders.
    settings: what must agree for an earlier call's copies to be kept. record: the file that they are written to.
    """

    @property
    def suffix(self) -> str: ...

    @property
    def settings(self) -> dict[str, Any]: ...

    @property
    def record(self) -> str: ...

    def write(self, video: Video, name: str, partial: Path) -> Written:
        """Writes the copy to the path `partial`; an OSError is the disk's, and a VideoError the video's.

        name: the copy's path in the set, which no other video has.
        """
        ...


def copy_set(
    data: VideoSet,
    out: Path,
    copier: Copier,
    *,
    processes: int = 1,
    strict: bool = False,
    progress: Callable[[Copied, int, int], None] | None = None,
) -> list[Copied]:
    """Copies every video of `data` into the folder `out`, with labels.csv and manifest.jsonl; returns the manifest.

    processes: that copy in parallel, on each rank.
    progress: called after each video with its line, the number done and the number there are.
    strict: the first unreadable video raises; otherwise it is named in the manifest and left out.
    An `out` that is, lies in or holds a video of the set is an error, before anything is written.

    Ranks share the videos, and the same folder comes of it; those after the first return no lines. The same call again,
    on however many ranks, goes on where this one stopped.
    """
    if processes < 1:
        raise StillmotionError(f"processes is {processes}; it must be at least 1")
    sources = [data.name(index) for index in range(len(data))]
    own = (MANIFEST, PARTS, LABELS, copier.record, files.LOCK, files.MARK)
    paths = target_paths(data, copier.suffix, reserved=own)
    lines: dict[str, Copied] = {}
    with ExitStack() as held:

        def begin() -> list[int]:
            """Takes the folder, and says which videos are to be copied."""
            files.spare(out, sources)
            check_inside(out, paths)
            held.enter_context(files.locked(out))
            lines.update({line.path: line for line in read_manifest(out)})
            check_settings(out, copier, paths, list(lines.values()))
            files.made(out, mark=True)
            write_manifest(out, lines.values())
            todo = [i for i, path in enumerate(paths) if path not in lines or not _is_of(lines[path], sources[i])]
            for folder in {(out / paths[i]).parent for i in todo}:
                files.sweep(folder, others=True)
            return todo if processes * ranks.world() == 1 else sorted(todo, key=lambda i: -_size(sources[i]))

        def finish() -> None:
            lines.update({line.path: line for line in read_lines(out)})
            if gone := [path for path in paths if path not in lines]:
                raise StillmotionError(
                    f"{out} has no word of {len(gone)} videos, the first {gone[0]}; ranks on several machines need a "
                    "disk that all of them see: choose another --out"
                )
            found.extend(lines.pop(path) for path in paths)
            write_manifest(out, [*found, *lines.values()])
            _write_labels(data, out, found)

        todo, found = ranks.on_first(begin), list[Copied]()
        mine = [(i, paths[i]) for i in ranks.share(todo)]

        def told(line: Copied, done: int) -> None:
            if progress is not None:  # of all ranks, which are as far as this one, more or less
                progress(line, len(paths) - len(todo) + min(done * ranks.world(), len(todo)), len(paths))

        ranks.everywhere(lambda: _copy(_Job(data, out, copier), mine, processes, strict=strict, progress=told))
        ranks.on_first(finish)
    return found


def copy_lines(lines: Sequence[Copied], made: str, *, missing: Sequence[str] = ()) -> list[str]:
    """What became of the videos, as lines for a terminal. made: what the copies are called. missing: were not there."""
    bad = [line.error for line in lines if line.error]
    parts = [f"{line.source}: {line.partly}" for line in lines if line.partly]
    said = {"left out": bad, "copied as far as it can be read": parts, "listed and not there": missing}
    told = [f"{len(lines) - len(bad)} {made}"]
    for what, names in said.items():
        if names:
            told += [f"{len(names)} {'video' if len(names) == 1 else 'videos'} {what}:", *(f"  {n}" for n in names)]
    return told


@dataclass(frozen=True)
class _Job:
    data: VideoSet
    out: Path
    copier: Copier

    def run(self, todo: tuple[int, str]) -> Copied:
        """Copies one video: written beside its place under another name, then moved there whole."""
        started = time.monotonic()
        index, path = todo
        source, target = self.data.name(index), self.out / path
        written: list[Written] = []
        try:
            video = self.data.video(index)
            files.made(target.parent)
            files.write(target, lambda partial: written.append(self.copier.write(video, path, partial)))
        except VideoError as error:
            return _failed(source, path, str(error))
        except MemoryError:
            return _failed(source, path, "too large for this machine's memory")
        (one,) = written
        return Copied(
            source,
            path,
            frames=len(video),
            fps=float(video.fps),
            width=one.width,
            height=one.height,
            seconds=round(time.monotonic() - started, 3),
            partly=partly_read(video),
            size=size_of(target),
            made={**self.copier.settings, **one.made},
        )


def _copy(
    job: _Job,
    todo: list[tuple[int, str]],
    processes: int,
    *,
    strict: bool,
    progress: Callable[[Copied, int], None],
) -> None:
    """Copies this rank's videos, and writes down each when it is done. It ends with the first rank that fails."""
    rank, parts = ranks.rank(), job.out / PARTS
    notes = files.made(parts) / f"{rank}.jsonl" if rank else job.out / MANIFEST
    failed = parts / "failed"
    try:
        with (
            files.writing(notes),
            notes.open("a", buffering=1) as manifest,
            closing(_run(job, todo, processes)) as made,
        ):
            for done, line in enumerate(made, 1):
                if line.error and strict:
                    raise VideoError(line.error)
                manifest.write(line.text())
                progress(line, done)
                if failed.exists():
                    return
    except StillmotionError:
        if ranks.world() > 1:
            with suppress(OSError):
                parts.mkdir(exist_ok=True)
                failed.touch()
        raise


def _run(job: _Job, todo: list[tuple[int, str]], processes: int) -> Generator[Copied, None, None]:
    if processes == 1:
        yield from map(job.run, todo)
        return
    try:
        with closing(in_processes(job.run, todo, processes)) as results:
            for (index, path), line in results:
                yield _failed(job.data.name(index), path, str(line)) if isinstance(line, Died) else line
    finally:
        for folder in {(job.out / path).parent for _, path in todo}:
            files.sweep(folder)  # what a worker that was ended in the midst of a copy left behind


def _failed(source: str, path: str, reason: str) -> Copied:
    return Copied(source, path, error=reason if source in reason else f"{source}: {reason}")


def _size(source: str) -> int:
    """In bytes, of a file: the largest are copied first, so that nobody has to wait long for the last; 0 of no file."""
    try:
        return os.stat(source).st_size
    except (OSError, ValueError):
        return 0


def _is_of(line: Copied, source: str) -> bool:
    """Whether a copy is that of a source, wherever this has moved to, and not of one that had the place before."""
    return PurePath(line.source).name == PurePath(source).name


def _write_labels(data: VideoSet, out: Path, lines: Sequence[Copied]) -> None:
    """labels.csv of what could be copied: class and label, and whatever other columns the original's list had."""
    labels, classes = data.labels.get(TARGET), data.classes.get(TARGET, ())
    rows = getattr(data, "rows", None) or [{} for _ in lines]
    others = [name for name in rows[0] if name not in ("path", "class", "label")] if rows else []
    text = io.StringIO(newline="")
    table = csv.writer(text)
    table.writerow(["path", *(["class", "label"] if labels is not None else []), *others])
    for index, line in enumerate(lines):
        if line.error:
            continue
        target = []
        if labels is not None:
            label = int(labels[index])
            target = ["", ""] if label == UNKNOWN else [classes[label], str(label)]
        table.writerow([line.path, *target, *(rows[index].get(name, "") for name in others)])
    files.write_text(out / LABELS, text.getvalue())


def check_settings(out: Path, copier: Copier, paths: Sequence[str], lines: Sequence[Copied]) -> None:
    """A folder holds copies of one kind, and nothing else: those already there must have been made the same way."""
    settings, file = copier.settings, out / copier.record
    if file.exists():
        try:
            before = files.read_json(file, remedy="")
        except StillmotionError:
            before = None
        if before == settings:
            return
        if isinstance(before, dict):
            raise StillmotionError(f"{out} holds copies made with {before}, not {settings}; choose another folder")
        if any(line.made.get(name) != value for line in lines for name, value in settings.items()):
            raise StillmotionError(
                f"{file} is torn or damaged, and copies beside it were made otherwise than with {settings}; "
                "choose another folder, or delete this one"
            )
        print(f"stillmotion: {file} was torn; it is written anew, as each copy says how it was made", file=sys.stderr)
    elif (out / MANIFEST).exists():
        raise StillmotionError(f"{out} holds copies of another kind (it has no {file.name}); choose another folder")
    else:
        places = (out / path for path in paths if os.path.lexists(out / path))
        there = next(chain(places, find_videos(out)), None)
        if there is not None:
            raise StillmotionError(f"{there} is there already, and no copy of stillmotion's; choose another folder")
    files.write_json(file, settings)
