"""A small copy of a data set that is cheap to decode: short key-frame intervals or JPEG frames, every frame kept.

The copy keeps relative paths and frame numbers, so that the same seed draws the same clips from it.
"""

import csv
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path, PurePath
from typing import Literal

import av
import cv2
import numpy as np

from stillmotion.data.paths import TARGET, UNKNOWN, VideoSet
from stillmotion.data.video import FileVideo, Video
from stillmotion.data.workers import process_context, start_worker
from stillmotion.errors import StillmotionError, VideoError

Form = Literal["mp4", "jpeg"]
MANIFEST = "manifest.jsonl"
SETTINGS = "prepare.json"


@dataclass(frozen=True)
class Prepared:
    """A line of the manifest: what became of one video. `error` is empty where it went well."""

    source: str
    path: str
    frames: int = 0
    fps: float = 0.0
    width: int = 0
    height: int = 0
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class _Job:
    data: VideoSet
    out: Path
    short_side: int
    gop: int
    crf: int
    quality: int
    form: Form

    def run(self, index: int, path: str) -> Prepared:
        """Copies one video: written beside its place under another name, then moved there whole."""
        started = time.monotonic()
        target = self.out / path
        partial = target.with_name(f".{target.name}.part")
        target.parent.mkdir(parents=True, exist_ok=True)
        source = self.data.name(index)
        try:
            video = self.data.video(index)
            height, width = _copy(video, partial, self)
            _remove(target)
            partial.rename(target)
        except VideoError as error:
            return Prepared(source, path, error=str(error))
        except (av.FFmpegError, OSError) as error:
            raise StillmotionError(f"{target}: cannot be written ({error})") from None
        finally:
            _remove(partial)
        seconds = round(time.monotonic() - started, 3)
        return Prepared(source, path, len(video), video.fps, width, height, seconds)


def prepare(
    data: VideoSet,
    out: str | Path,
    *,
    short_side: int = 128,
    gop: int = 8,
    crf: int = 20,
    quality: int = 90,
    form: Form = "mp4",
    processes: int = 1,
    strict: bool = False,
    progress: Callable[[Prepared, int, int], None] | None = None,
) -> list[Prepared]:
    """Writes a small copy of `data` into the folder `out`, with labels.csv and manifest.jsonl; returns the manifest.

    short_side: shorter edge in pixels; videos are never enlarged. Sizes are made even.
    gop, crf: frames between key frames and H.264 quality (form mp4). quality: of JPEG frames (form jpeg).
    processes: that encode in parallel.
    progress: called after each video with its line, the number done and the number there are.
    strict: the first unreadable video raises; otherwise it is named in the manifest and left out.
    What an earlier call finished is kept; asking for other settings in the same folder is an error.
    """
    out = Path(out)
    if form not in ("mp4", "jpeg"):
        raise StillmotionError(f"form is {form!r}; choose mp4 or jpeg")
    for name, value in {"short_side": short_side, "gop": gop, "processes": processes}.items():
        if value < 1:
            raise StillmotionError(f"{name} is {value}; it must be at least 1")
    if form == "mp4" and "libx264" not in av.codecs_available:
        raise StillmotionError("this build of PyAV has no libx264; choose the form jpeg")
    job = _Job(data, out, short_side, gop, crf, quality, form)
    out.mkdir(parents=True, exist_ok=True)
    _check_settings(job)
    paths = _target_paths(data, form)
    lines = {line.path: line for line in _read_manifest(out) if not line.error and (out / line.path).exists()}
    _write_manifest(out, lines.values())
    todo = [(index, path) for index, path in enumerate(paths) if path not in lines]
    done = len(paths) - len(todo)
    with (out / MANIFEST).open("a", buffering=1) as manifest:
        for line in _run(job, todo, processes):
            if line.error and strict:
                raise VideoError(line.error)
            manifest.write(json.dumps(asdict(line)) + "\n")
            lines[line.path] = line
            done += 1
            if progress is not None:
                progress(line, done, len(paths))
    _write_labels(data, out, paths, lines)
    return [lines[path] for path in paths]


def _run(job: _Job, todo: list[tuple[int, str]], processes: int) -> Iterator[Prepared]:
    if processes == 1:
        for index, path in todo:
            yield job.run(index, path)
        return
    pool = ProcessPoolExecutor(processes, mp_context=process_context(), initializer=start_worker)
    try:
        waiting: set[Future[Prepared]] = set()
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


def _copy(video: Video, partial: Path, job: _Job) -> tuple[int, int]:
    """Writes all frames of the video; returns their height and width."""
    first = video.frames([0])[0]
    scale = min(1.0, job.short_side / min(first.shape[:2]))
    # H.264 in 4:2:0 needs even sizes.
    height, width = (max(2, 2 * round(edge * scale / 2)) for edge in first.shape[:2])
    _remove(partial)
    if job.form == "jpeg":
        partial.mkdir()
        (partial / "fps.txt").write_text(f"{video.fps}\n")
        for number, image in enumerate(_small_frames(video, height, width)):
            bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
            cv2.imwrite(str(partial / f"{number:06d}.jpg"), bgr, [cv2.IMWRITE_JPEG_QUALITY, job.quality])
        return height, width
    with av.open(str(partial), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=Fraction(video.fps).limit_denominator(65535))
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        # No B-frames, so that a frame needs only those before it; no in-loop filter and no CABAC: cheap to decode.
        stream.options = {"crf": str(job.crf), "preset": "fast", "tune": "fastdecode", "bf": "0", "sc_threshold": "0"}
        stream.codec_context.gop_size = job.gop
        stream.codec_context.thread_count = 1
        for number, image in enumerate(_small_frames(video, height, width)):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return height, width


def _small_frames(video: Video, height: int, width: int) -> Iterator[np.ndarray]:
    for image in video if isinstance(video, FileVideo) else _one_by_one(video):
        if image.shape[:2] == (height, width):
            yield image
        else:
            yield cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)


def _one_by_one(video: Video) -> Iterator[np.ndarray]:
    return (video.frames([number])[0] for number in range(len(video)))


def _target_paths(data: VideoSet, form: Form) -> list[str]:
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
        suffix = ".mp4" if form == "mp4" else ""
        path = str(name.with_suffix(suffix))
        # Two sources that differ only in their suffix keep it.
        if path in taken:
            path = f"{name}{suffix}" if f"{name}{suffix}" not in taken else f"{name.with_suffix('')}_{index}{suffix}"
        taken.add(path)
        paths.append(path)
    return paths


def _write_labels(data: VideoSet, out: Path, paths: list[str], lines: dict[str, Prepared]) -> None:
    """labels.csv of what could be copied: class and label, and whatever other columns the original's list had."""
    labels = getattr(data, "labels", {}).get(TARGET)
    classes = getattr(data, "classes", {}).get(TARGET, [])
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


def _check_settings(job: _Job) -> None:
    """A folder holds copies of one kind: those already there must have been made the same way."""
    names = ("short_side", "form", "gop", "crf") if job.form == "mp4" else ("short_side", "form", "quality")
    settings = {name: getattr(job, name) for name in names}
    file = job.out / SETTINGS
    if file.exists():
        before = json.loads(file.read_text())
        if before != settings:
            raise StillmotionError(f"{job.out} holds copies made with {before}, not {settings}; choose another folder")
    else:
        file.write_text(json.dumps(settings) + "\n")


def _read_manifest(out: Path) -> list[Prepared]:
    file = out / MANIFEST
    if not file.exists():
        return []
    lines = []
    for text in file.read_text().splitlines():
        try:
            lines.append(Prepared(**json.loads(text)))
        except (json.JSONDecodeError, TypeError):
            continue  # a line cut short by a kill: its video is made again
    return lines


def _write_manifest(out: Path, lines: Iterable[Prepared]) -> None:
    partial = out / f".{MANIFEST}.part"
    partial.write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines))
    partial.replace(out / MANIFEST)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
