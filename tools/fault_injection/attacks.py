"""What is done to commands and files, and what became of it."""

import contextlib
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from safetensors import safe_open

from stillmotion.data.transcode.manifest import MANIFEST_FILE
from stillmotion.data.video import open_video
from stillmotion.errors import StillmotionError
from tools.fault_injection.jobs import Job, RunningCommand, run_timed

_MAX_CONCURRENT = 2


def run_baseline(jobs: list[Job], work_dir: Path) -> dict[tuple[str, int], tuple[float, str]]:
    """How long every job takes and what it leaves when nobody disturbs it."""

    def one(job: Job) -> tuple[float, str]:
        return run_timed(
            job, work_dir / f"{job.name} {job.ranks}".replace(" ", "-"), work_dir / f"{job.name}-{job.ranks}.log"
        )

    with ThreadPoolExecutor(_MAX_CONCURRENT) as pool:
        return dict(zip([(job.name, job.num_ranks) for job in jobs], pool.map(one, jobs), strict=True))


def kill_and_resume(
    jobs: list[Job], baseline: dict[tuple[str, int], tuple[float, str]], work_dir: Path, count: int
) -> list[str]:
    """Kill commands at random moments and let the same command go on; a line for each that ends otherwise."""

    def one(number: int) -> str | None:
        job, rng = jobs[number % len(jobs)], random.Random(number)
        seconds, digest = baseline[job.name, job.num_ranks]
        out = work_dir / f"killed-{number}"
        command = RunningCommand(job.command(out), work_dir / f"killed-{number}.log")
        time.sleep(rng.uniform(0.35, 1.0) * seconds)
        command.kill()
        time.sleep(5)
        left = command.alive_processes()
        command.kill_all()
        again = RunningCommand(job.command(out), work_dir / f"resumed-{number}.log")
        code = again.wait()
        told = f"{job.name}, {job.num_ranks or 1} processes, killed at moment {number}"
        if left:
            return f"{told}: {len(left)} processes lived on"
        if code:
            return f"{told}: the same command ended with {code}: {_last_line(again.output)}"
        return None if job.digest(out) == digest else f"{told}: another result"

    return _run_all(one, count)


def run_twice(jobs: list[Job], work_dir: Path, count: int) -> list[str]:
    """Start a command twice on one folder: one works, the other says who holds it."""

    def one(number: int) -> str | None:
        job = jobs[number % len(jobs)]
        out = work_dir / f"shared-{number}"
        both = [RunningCommand(job.command(out), work_dir / f"shared-{number}-{i}.log") for i in (0, 1)]
        codes = sorted(command.wait() for command in both)
        said = [command.output for command in both if command.process.returncode == 2]
        if codes == [0, 0] and any("resuming" in c.output or c.process.returncode == 0 for c in both):
            return None if _ran_one_after_the_other(both) else f"{job.name}: both wrote"
        good = codes == [0, 2] and "is being written by process" in said[0] and "Traceback" not in said[0]
        return None if good else f"{job.name} twice on a folder: exit codes {codes}: {_last_line(both[1].output)}"

    return _run_all(one, count)


def _ran_one_after_the_other(both: list[RunningCommand]) -> bool:
    """Whether the second began when the first had ended, so that neither was in the other's way."""
    return any("is being written" not in command.output for command in both)


def fill_disk(
    jobs: list[Job], baseline: dict[tuple[str, int], tuple[float, str]], work_dir: Path, count: int
) -> list[str]:
    """Give commands a disk that fills up at a random byte: one line, nothing half-written, and with room it goes on."""

    def one(number: int) -> str | None:
        job, rng = jobs[number % len(jobs)], random.Random(number)
        out = work_dir / f"disk-{number}"
        out.mkdir()
        with _small_disk(out, rng.randrange(24, 400)) as grow:
            if grow is None:
                return "no small disk can be mounted here"
            command = RunningCommand(job.command(out / "out"), work_dir / f"disk-{number}.log")
            code = command.wait()
            told = f"{job.name} on a full disk ({number})"
            if code == 0:
                return (
                    None
                    if job.digest(out / "out") == baseline[job.name, job.num_ranks][1]
                    else f"{told}: another result"
                )
            words = command.output
            if code != 2 or "Traceback" in words or not ("No space" in words or "free)" in words):
                return f"{told}: exit code {code}: {_last_line(words)}"
            torn = _first_damaged_file(out / "out")
            if torn:
                return f"{told}: half-written {torn}"
            grow()
            again = RunningCommand(job.command(out / "out"), work_dir / f"room-{number}.log")
            code = again.wait()
            if code:
                return f"{told}: with room again, exit code {code}: {_last_line(again.output)}"
            return (
                None if job.digest(out / "out") == baseline[job.name, job.num_ranks][1] else f"{told}: another result"
            )

    return _run_all(one, count, max_concurrent=1)


@contextlib.contextmanager
def _small_disk(mount_dir: Path, kib: int) -> Iterator[Callable[[], object] | None]:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(mount_dir)]
    if subprocess.run(mount, capture_output=True).returncode:
        yield None
        return
    try:
        yield lambda: subprocess.run(["mount", "-o", "remount,size=200m", str(mount_dir)], check=True)
    finally:
        subprocess.run(["umount", "-l", str(mount_dir)], capture_output=True)


def _first_damaged_file(folder: Path) -> str:
    """The first file that is there under its own name and cannot be read whole; empty where there is none."""
    for file in sorted(folder.rglob("*")):
        if file.name.startswith(".") or not file.is_file():
            continue
        try:
            if file.suffix == ".json":
                json.loads(file.read_text())
            elif file.suffix == ".safetensors":
                with safe_open(file, "np") as opened:
                    for name in opened.keys():  # noqa: SIM118
                        opened.get_tensor(name)
            elif file.name == MANIFEST_FILE:
                for line in file.read_text().splitlines(keepends=True):
                    entry = json.loads(line) if line.endswith("\n") else {"error": "torn, and dropped on reading"}
                    if not entry["error"] and len(open_video(folder / entry["path"])) != entry["num_frames"]:
                        return entry["path"]
        except Exception as error:
            return f"{file.name} ({error})"
    return ""


def mutate_files(readers: dict[Path, Callable[[], object]], count: int) -> list[str]:
    """Change files at random and read them again; a line for each error that is not one for a user.

    readers: the files, and what reads each.
    """
    bad = []
    files = list(readers)
    for number in range(count):
        rng = random.Random(number)
        file = files[number % len(files)]
        before = file.read_bytes()
        try:
            file.write_bytes(_mutate(before, rng))
            readers[file]()
        except StillmotionError:
            continue
        except Exception as error:
            bad.append(f"{file.name}, mutation {number}: {type(error).__name__}: {str(error)[:80]}")
        finally:
            file.write_bytes(before)
    return bad


_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    7,
    10**9,
    0.5,
    float("nan"),
    "",
    "x",
    "\udcff",
    [],
    [3],
    {},
    {"name": "x"},
)


def _mutate(content: bytes, rng: random.Random) -> bytes:
    """The content with a value changed where it is JSON, or a byte, a line or the end."""
    with contextlib.suppress(ValueError):
        tree = json.loads(content)
        if isinstance(tree, dict) and rng.random() < 0.7:
            return json.dumps(_change_value(tree, rng)).encode()
    how, place = rng.randrange(5), rng.randrange(max(1, len(content)))
    if how == 0:
        return content[:place]
    if how == 1:
        return content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :]
    if how == 2:
        return content[:place] + os.urandom(rng.randrange(1, 40)) + content[place:]
    lines = content.splitlines(keepends=True)
    line = rng.randrange(max(1, len(lines)))
    return b"".join(lines[:line] + (lines[line : line + 1] * 2 if how == 3 else []) + lines[line + 1 :])


def _change_value(tree: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    inner: Any = tree
    while True:
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        key = rng.choice(keys)
        if isinstance(inner[key], dict | list) and inner[key] and rng.random() < 0.8:
            inner = inner[key]
            continue
        if rng.random() < 0.15 and isinstance(inner, dict):
            del inner[key]
        else:
            inner[key] = rng.choice(_VALUES)
        return tree


def write_odd_videos(output_dir: Path, sources: list[Path], count: int) -> None:
    """Fill a folder with damaged and odd files of videos' names."""
    output_dir.mkdir(parents=True)
    for number in range(count):
        rng = random.Random(number)
        source = sources[number % len(sources)]
        content = bytearray(source.read_bytes())
        how = number % 10
        name = f"odd-{number:03d}{source.suffix}"
        if how == 0:
            content = content[: rng.randrange(len(content))]
        elif how == 1:
            for _ in range(rng.randrange(1, 200)):
                content[rng.randrange(len(content))] = rng.randrange(256)
        elif how == 2:
            start = rng.randrange(len(content))
            content[start : start + 4096] = bytes(len(content[start : start + 4096]))
        elif how == 3:
            content = bytearray(os.urandom(rng.randrange(0, 4000)))
        elif how == 4:
            content = bytearray()
        elif how == 5:
            name = os.fsdecode(f"caf{number}".encode() + b"\xe9" + source.suffix.encode())
        elif how == 6:
            name = f"http:{number}{source.suffix}"
        elif how == 7:
            os.mkfifo(output_dir / name)
            continue
        elif how == 8:
            name = "a" * (250 - len(str(number))) + str(number) + source.suffix
        else:
            (output_dir / name).symlink_to(output_dir / f"loop-{number}{source.suffix}")
            (output_dir / f"loop-{number}{source.suffix}").symlink_to(output_dir / name)
            continue
        (output_dir / name).write_bytes(content)
    (output_dir / "self").symlink_to(".")


def run_on_odd_videos(videos_dir: Path, run_dir: Path, work_dir: Path) -> list[str]:
    """Give a folder of odd videos to the verbs that take any; a line for each that stops, hangs or is silent."""
    unreadable = []
    for file in sorted(videos_dir.iterdir()):
        if file.is_file() and not file.is_symlink():
            try:
                video = open_video(file)
                video.get_frames([0, len(video) - 1])
            except StillmotionError:
                unreadable.append(file.name)
    small = ("--optim.epochs", "1", "--optim.batch-size", "8", "--data.image-size", "32", "--train.num-threads", "1")
    good = next(file for file in sorted(videos_dir.parent.glob("good/*")))
    lines = {
        "pretrain": (
            "pretrain",
            "--data",
            str(videos_dir),
            *small,
            "--num-workers",
            "1",
            "--out",
            str(work_dir / "fed"),
        ),
        "embed": ("embed", str(run_dir), "--data", str(videos_dir), "--out", str(work_dir / "fed.parquet")),
        "search": ("search", str(run_dir), str(good), "--data", str(videos_dir), "--num-clips", "1"),
        "prepare": ("prepare", "--data", str(videos_dir), "--short-side", "24", "--out", str(work_dir / "fed-copy")),
        "static-dynamic make": (
            "static-dynamic",
            "make",
            "--data",
            str(videos_dir),
            "--variant",
            "static",
            "--out",
            str(work_dir / "s"),
        ),
    }
    bad = []
    for name, words in lines.items():
        command = RunningCommand(Job(name, words, lambda out: "").command(work_dir), work_dir / f"fed-{name}.log")
        code, said = command.wait(300), command.output
        if code or "Traceback" in said:
            bad.append(f"{name} on odd videos: exit code {code}: {_last_line(said)}")
            continue
        silent = [file for file in unreadable if file.encode(errors="backslashreplace").decode() not in said]
        if silent:
            bad.append(
                f"{name} says nothing of {len(silent)} of {len(unreadable)} unreadable videos, as {silent[0][:40]}"
            )
    return bad


def _run_all(one: Callable[[int], str | None], count: int, *, max_concurrent: int = _MAX_CONCURRENT) -> list[str]:
    with ThreadPoolExecutor(max_concurrent) as pool:
        return [line for line in pool.map(one, range(count)) if line]


def _last_line(output: str) -> str:
    return output.strip().splitlines()[-1][:160] if output.strip() else "no word"


def ensure_empty_dir(folder: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
