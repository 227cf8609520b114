"""Copies of a data set, video by video: in parallel, resumable, with a manifest and the original's labels.

A copy keeps relative paths, so that it opens as the original does. What is written for a video is up to a `Copier`.
"""

import csv
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any, Protocol

import av

from stillmotion.data.paths import TARGET, UNKNOWN, VideoSet
from stillmotion.data.video import Video
from stillmotion.data.workers import process_context, start_worker
from stillmotion.errors import StillmotionError, VideoError

MANIFEST = "manifest.jsonl"


@dataclass(frozen=True)
class Copied:
    """A line of the manifest: what became of one video, and how. `error` is empty where it went well."""

    source: str
    path: str
    frames: int = 0
    fps: float = 0.0
    width: int = 0
    height: int = 0
    seconds: float = 0.0
    error: str = ""
    made: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Written:
    """What a copier says of a copy it wrote. made: whatever else the manifest should tell."""

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
        """Writes the copy to the path `partial`. name: the copy's path in the set, which no other video has."""
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

    processes: that copy in parallel.
    progress: called after each video with its line, the number done and the number there are.
    strict: the first unreadable video raises; otherwise it is named in the manifest and left out.
    """
    if processes < 1:
        raise StillmotionError(f"processes is {processes}; it must be at least 1")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StillmotionError(f"{out}: cannot be made a folder ({error.strerror}); choose another") from None
    _check_settings(out, copier)
    paths = _target_paths(data, copier.suffix)
    lines = {line.path: line for line in _read_manifest(out) if not line.error and (out / line.path).exists()}
    _write_manifest(out, lines.values())
    todo = [(index, path) for index, path in enumerate(paths) if path not in lines]
    done = len(paths) - len(todo)
    with (out / MANIFEST).open("a", buffering=1) as manifest:
        for line in _run(_Job(data, out, copier), todo, processes):
            if line.error and strict:
                raise VideoError(line.error)
            manifest.write(json.dumps(asdict(line)) + "\n")
            lines[line.path] = line
            done += 1
            if progress is not None:
                progress(line, done, len(paths))
    _write_labels(data, out, paths, lines)
    return [lines[path] for path in paths]


def copy_lines(lines: Sequence[Copied], made: str) -> list[str]:
    """What became of the videos, as lines for a terminal. made: what the copies are called."""
    bad = [line for line in lines if line.error]
    left = [f"{len(bad)} videos were left out:", *(f"  {line.source}: {line.error}" for line in bad)] if bad else []
    return [f"{len(lines) - len(bad)} {made}", *left]


def remove(path: Path) -> None:
    """Removes a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Job:
    data: VideoSet
    out: Path
    copier: Copier

    def partial(self, path: str) -> Path:
        """Where a copy is written before it is whole."""
        return (self.out / path).with_name(f".{PurePath(path).name}.part")

    def run(self, index: int, path: str) -> Copied:
        """Copies one video: written beside its place under another name, then moved there whole."""
        started = time.monotonic()
        target, partial = self.out / path, self.partial(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        source = self.data.name(index)
        try:
            remove(partial)
            video = self.data.video(index)
            written = self.copier.write(video, path, partial)
            remove(target)
            partial.rename(target)
        except VideoError as error:
            return Copied(source, path, error=str(error))
        except (av.FFmpegError, OSError) as error:
            raise StillmotionError(f"{target}: cannot be written ({error})") from None
        finally:
            remove(partial)
        seconds = round(time.monotonic() - started, 3)
        size = (written.width, written.height)
        return Copied(source, path, len(video), video.fps, *size, seconds, made=written.made)


def _run(job: _Job, todo: list[tuple[int, str]], processes: int) -> Iterator[Copied]:
    if processes == 1:
        for index, path in todo:
            yield job.run(index, path)
        return
    pool = ProcessPoolExecutor(processes, mp_context=process_context(), initializer=start_worker)
    try:
        waiting: set[Future[Copied]] = set()
        for index, path in todo:
            waiting.add(pool.submit(job.run, index, path))
            # A bounded queue, so that an interrupt is heard soon.
            while len(waiting) >= 2 * processes:
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        for future in waiting:
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)
        for _, path in todo:  # what a worker that was ended in the midst of a copy left behind
            remove(job.partial(path))


def _target_paths(data: VideoSet, suffix: str) -> list[str]:
    """Where each video goes, relative to the copy's root: as in the original's, with another suffix; unique."""
    root = getattr(data, "root", None)
    paths: list[str] = []
    taken: set[str] = set()
    for index in range(len(data)):
        name = PurePath(data.name(index))
        if root is not None and name.is_relative_to(root):
            name = name.relative_to(root)
        elif name.is_absolute() or ".." in name.parts:
            name = PurePath(name.name)
        path = str(name.with_suffix(suffix))
        # Two sources that differ only in their suffix keep it.
        if path in taken:
            path = f"{name}{suffix}" if f"{name}{suffix}" not in taken else f"{name.with_suffix('')}_{index}{suffix}"
        taken.add(path)
        paths.append(path)
    return paths


def _write_labels(data: VideoSet, out: Path, paths: list[str], lines: dict[str, Copied]) -> None:
    """labels.csv of what could be copied: class and label, and whatever other columns the original's list had."""
    labels, classes = data.labels.get(TARGET), data.classes.get(TARGET, ())
    rows = getattr(data, "rows", None) or [{} for _ in paths]
    others = [name for name in rows[0] if name not in ("path", "class", "label")] if rows else []
    partial = out / ".labels.csv.part"
    with partial.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", *(["class", "label"] if labels is not None else []), *others])
        for index, path in enumerate(paths):
            if lines[path].error:
                continue
            target = []
            if labels is not None:
                label = int(labels[index])
                target = ["", ""] if label == UNKNOWN else [classes[label], str(label)]
            table.writerow([path, *target, *(rows[index].get(name, "") for name in others)])
    partial.replace(out / "labels.csv")


def _check_settings(out: Path, copier: Copier) -> None:
    """A folder holds copies of one kind: those already there must have been made the same way."""
    settings, file = copier.settings, out / copier.record
    if file.exists():
        before = json.loads(file.read_text())
        if before != settings:
            raise StillmotionError(f"{out} holds copies made with {before}, not {settings}; choose another folder")
    elif (out / MANIFEST).exists():
        raise StillmotionError(f"{out} holds copies of another kind (it has no {file.name}); choose another folder")
    else:
        file.write_text(json.dumps(settings) + "\n")


def _read_manifest(out: Path) -> list[Copied]:
    file = out / MANIFEST
    if not file.exists():
        return []
    lines = []
    for text in file.read_text().splitlines():
        try:
            lines.append(Copied(**json.loads(text)))
        except (json.JSONDecodeError, TypeError):
            continue  # a line cut short by a kill: its video is made again
    return lines


def _write_manifest(out: Path, lines: Iterable[Copied]) -> None:
    partial = out / f".{MANIFEST}.part"
    partial.write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines))
    partial.replace(out / MANIFEST)
