"""Mutated and odd videos: each is decoded or refused, and one of them never stops or changes the others."""

import os
import queue
import random
import shutil
import time
from pathlib import Path

import numpy as np

from stillmotion.data.video import VIDEO_SUFFIXES, open_video
from stillmotion.errors import VideoError
from stillmotion.utils.formatting import printable_name
from tools.fault_injection.checks import unchanged
from tools.fault_injection.commands import RunningCommand
from tools.fault_injection.guarded_process import GuardedProcess
from tools.fault_injection.jobs import NUM_CONCURRENT
from tools.fault_injection.outcomes import Outcome, attack

_MAX_SOURCE_BYTES = 2 * 2**20  # larger videos are left out, for time
_NUM_GOOD = 4  # undamaged videos among the others
_HEADER_BYTES = 1024
_FAILED = "unreadable: "


def list_videos(folder: Path) -> list[Path]:
    """Return the small videos of a folder.

    Args:
        folder: The folder, with subfolders.
    """
    videos = [
        file
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in VIDEO_SUFFIXES and file.is_file() and file.stat().st_size <= _MAX_SOURCE_BYTES
    ]
    if not videos:
        raise SystemExit(f"{folder}: no video of up to {_MAX_SOURCE_BYTES} bytes")
    return videos


def attack_videos(sources: list[Path], run_dir: Path, work_dir: Path, *, count: int, seed: int) -> Outcome:
    """Decode mutated videos one by one, and then give all of them to the verbs that read folders.

    Args:
        sources: Videos to mutate.
        run_dir: Folder of a pre-training run.
        work_dir: Folder to work in.
        count: Number of mutated videos.
        seed: Seed of the mutations.
    """
    started = time.monotonic()
    folder = work_dir / "videos"
    folder.mkdir()
    rng = random.Random(f"sources {seed}")
    chosen = [rng.choice(sources) for _ in range(count)]
    unreadable: list[str] = []
    processes: queue.Queue[GuardedProcess[Path]] = queue.Queue()
    for _ in range(NUM_CONCURRENT):
        processes.put(GuardedProcess(decode_video))

    def decode(number: int, rng: random.Random) -> str | None:
        file = write_mutated(chosen[number], folder, number, rng)
        process = processes.get()
        try:
            failure = process(file)
        finally:
            processes.put(process)
        if failure and failure.startswith(_FAILED):
            unreadable.append(file.name)
            return None
        return failure and f"{file.name[:60]}: {failure}"

    outcome = attack("mutated videos", count, seed, decode, num_concurrent=NUM_CONCURRENT)
    while not processes.empty():
        processes.get().close()
    (folder / "self").symlink_to(".")
    failures = [*outcome.failures, *_run_verbs(folder, sources, unreadable, run_dir, work_dir)]
    return outcome._replace(failures=failures, seconds=time.monotonic() - started)


def decode_video(file: Path) -> str | None:
    """Decode the first, middle and last frame of a video.

    Args:
        file: The video.

    Returns:
        What is wrong; it begins with "unreadable: " if the video was refused as it should be.
    """
    try:
        video = open_video(file)
        frames = video.get_frames([0, len(video) // 2, len(video) - 1])
    except VideoError as error:
        message = str(error)
        return f"{_FAILED}{message}" if "\n" not in message else f"an error of several lines: {message[:100]}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if frames.shape[0] != 3 or frames.shape[-1] != 3 or frames.dtype != np.uint8:
        return f"frames of shape {frames.shape}"
    return None


def write_mutated(source: Path, output_dir: Path, number: int, rng: random.Random) -> Path:
    """Write a mutated video, or an undamaged one with an odd name, or something that only has the name of a video.

    Args:
        source: Undamaged video.
        output_dir: Folder to write to.
        number: Number of the video; the kinds take turns.
        rng: Random generator.
    """
    content = bytearray(source.read_bytes())
    start = rng.randrange(len(content))
    block = slice(start, start + rng.randrange(1, 65536))
    suffix, name = source.suffix, f"mutated-{number:03d}{source.suffix}"
    kind = number % 14
    if kind == 0:
        del content[start:]
    elif kind == 1:
        for _ in range(rng.randrange(1, 200)):
            content[rng.randrange(len(content))] = rng.randrange(256)
    elif kind == 2:  # the header, and the index at the end
        for _ in range(rng.randrange(1, 20)):
            content[rng.choice((1, -1)) * rng.randrange(min(_HEADER_BYTES, len(content)))] = rng.randrange(256)
    elif kind == 3:
        content[block] = bytes(len(content[block]))
    elif kind == 4:
        content[block] = rng.randbytes(len(content[block]))
    elif kind == 5:
        del content[block]
    elif kind == 6:
        content[start:start] = content[block]
    elif kind == 7:
        content[start] ^= 1 << rng.randrange(8)
    elif kind == 8:
        content = bytearray(rng.randbytes(rng.randrange(4000)))
    elif kind == 9:
        name = f"mutated-{number:03d}{'.avi' if suffix == '.mp4' else '.mp4'}"  # another container's suffix
        del content[start:]
    elif kind == 10:
        name = os.fsdecode(f"caf{number}".encode() + b"\xe9" + suffix.encode())
    elif kind == 11:
        name = rng.choice(("http:", "-", "concat:", "a\nb", "%03d", "'\"")) + f"{number}{suffix}"
    elif kind == 12:
        os.mkfifo(output_dir / name)
        return output_dir / name
    else:
        (output_dir / name).symlink_to(output_dir / f"loop-{number}{suffix}")
        (output_dir / f"loop-{number}{suffix}").symlink_to(output_dir / name)
        return output_dir / name
    (output_dir / name).write_bytes(content)
    return output_dir / name


def _run_verbs(folder: Path, sources: list[Path], unreadable: list[str], run_dir: Path, work_dir: Path) -> list[str]:
    """Give the folder to the verbs that read any videos; a line for each that stops, hangs, or is silent or wrong."""
    good = work_dir / "good"
    good.mkdir()
    for number, source in enumerate(sources[:_NUM_GOOD]):
        for output_dir in (good, folder):
            shutil.copyfile(source, output_dir / f"good-{number}{source.suffix}")
    some_good = next(iter(sorted(good.iterdir())))
    small = ("--optim.epochs", "1", "--optim.batch-size", "4", "--data.image-size", "32", "--train.num-threads", "1")
    data, run, good_data = ("--data", str(folder)), str(run_dir), ("--data", str(good))
    commands = {
        "embed good": ("embed", run, *good_data, "--num-workers", "1", "--out", str(work_dir / "good.npz")),
        "embed": ("embed", run, *data, "--num-workers", "1", "--out", str(work_dir / "all.npz")),
        "index": ("index", str(folder), "--encoder", run, "--out", str(work_dir / "index")),
        "prepare": ("prepare", *data, "--short-side", "24", "--out", str(work_dir / "copies")),
        "make": ("static-dynamic", "make", *data, "--variant", "static", "--out", str(work_dir / "static")),
        "search": ("search", str(some_good), "--encoder", run, *data, "--num-clips", "1"),
        "pretrain": ("pretrain", *data, *small, "--num-workers", "1", "--out", str(work_dir / "pretrain")),
    }
    failures: list[str] = []
    with unchanged(folder, failures):
        queued = list(commands.items())
        running: list[tuple[str, RunningCommand]] = []
        while queued or running:
            while queued and len(running) < NUM_CONCURRENT:
                name, words = queued.pop(0)
                running.append((name, RunningCommand(words, work_dir)))
            name, command = running.pop(0)
            code = command.wait(600)
            if code != 0 or "Traceback" in command.output:
                failures.append(f"{name} ended with {code}: {command.last_line}")
            elif name in ("embed", "index", "prepare", "make"):
                # The clip that is embedded may lie beside the damaged frames of a video.
                embedded = _embedded_names(work_dir / "all.npz") if name == "embed" else set()
                if silent := [x for x in unreadable if x not in embedded and printable_name(x) not in command.output]:
                    failures.append(f"{name} does not name {len(silent)} unreadable videos, such as {silent[0][:40]!r}")
            if living := command.living_processes(5.0):
                failures.append(f"{len(living)} processes of {name} live on")
            if left := command.temporary_files():
                failures.append(f"{name} left {left[0]}")
    if not failures and not _has_same_rows(work_dir / "good.npz", work_dir / "all.npz"):
        failures.append("embeddings of undamaged videos differ if damaged ones are in the folder")
    return failures


def _embedded_names(file: Path) -> set[str]:
    return {Path(str(path)).name for path in np.load(file)["path"]}


def _has_same_rows(some: Path, others: Path) -> bool:
    """Whether each row of a file of embeddings is also in another one, by the name of the video."""
    one, other = np.load(some), np.load(others)
    rows = {Path(str(path)).name: vector for path, vector in zip(other["path"], other["whole"], strict=True)}
    return len(one["path"]) > 0 and all(
        np.allclose(vector, rows.get(Path(str(path)).name, np.nan), atol=1e-5)
        for path, vector in zip(one["path"], one["whole"], strict=True)
    )
