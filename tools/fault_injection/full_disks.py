"""Commands whose disk is full: one line says so, no file is half-written, and with room the same command continues.

The disk is a small tmpfs where this process may mount one. Elsewhere a limit on the size of each file (RLIMIT_FSIZE)
takes its place; a write beyond it fails with "File too large". It also holds for shared memory, so that only verbs
without loading workers are attacked in this way.
"""

import contextlib
import ctypes
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tools.fault_injection.checks import find_damaged_file, find_partial_files
from tools.fault_injection.jobs import NUM_CONCURRENT, Baseline, Job
from tools.fault_injection.outcomes import Outcome, attack

_ERRORS = ("No space left", "free)", "File too large")
_VERBS_WITHOUT_WORKERS = ("index", "prepare", "segment", "static-dynamic")
_MAX_TRIES = 4  # to find a size that is too small
_PAGE_KIB = 4  # a tmpfs holds whole pages
_CLONE_NEWNS = 0x20000  # of unshare


def enter_private_mounts() -> bool:
    """Let this thread, and what it starts, mount file systems that nobody else sees and that end with the last of them.

    Returns:
        Whether the system allows it: root on Linux.
    """
    if sys.platform != "linux" or ctypes.CDLL(None).unshare(_CLONE_NEWNS) != 0:
        return False
    return subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False).returncode == 0


def fill_disks(
    jobs: Sequence[Job],
    baselines: Mapping[str, Baseline],
    work_dir: Path,
    *,
    count: int,
    seed: int,
    can_mount: bool,
) -> Outcome:
    """Run commands on full disks.

    Args:
        jobs: Commands to run, one after the other.
        baselines: What each of them does with room.
        work_dir: Folder to work in.
        count: Number of full disks.
        seed: Seed of their sizes.
        can_mount: Whether `enter_private_mounts` has succeeded before the first command was started.
    """
    if not can_mount:
        jobs = [job for job in jobs if job.words[0] in _VERBS_WITHOUT_WORKERS and job.name in baselines]

    def fill(number: int, rng: random.Random) -> str | None:
        job, folder = jobs[number % len(jobs)], work_dir / str(number)
        fraction = rng.uniform(0.02, 0.9)
        for _ in range(_MAX_TRIES):
            folder.mkdir()
            # A file limit is that of one file, not of all together.
            num_pages = fraction * baselines[job.name].num_bytes / (_PAGE_KIB * 1024) / (1 if can_mount else 4)
            kib = max(1, int(num_pages)) * _PAGE_KIB
            was_filled, failure = _fill_once(job, baselines[job.name], folder, kib, can_mount)
            shutil.rmtree(folder, ignore_errors=True)
            if was_filled:
                return failure and f"{job.name} on {kib} KiB: {failure}"
            fraction /= 3
        return f"{job.name}: no disk was full"

    name = "full disks, " + ("tmpfs" if can_mount else "file limit")
    return attack(name, count, seed, fill, num_concurrent=NUM_CONCURRENT)


def _fill_once(job: Job, baseline: Baseline, folder: Path, kib: int, can_mount: bool) -> tuple[bool, str | None]:
    """Whether the disk was full, and what went wrong."""
    with small_disk(folder / "disk", kib, can_mount) as grow:
        out = folder / "disk" / "out"
        command = job.start(out, folder, max_file_bytes=None if can_mount else kib * 1024)
        code = command.wait()
        if code == 0:
            return False, None
        line = next((line for line in command.output.splitlines() if any(error in line for error in _ERRORS)), "")
        if code != 2 or "Traceback" in command.output or not line:
            return True, f"exit code {code}: {command.last_line}"
        if damaged := find_damaged_file(out):
            return True, f"half-written {damaged}"
        if living := command.living_processes(5.0):
            return True, f"{len(living)} processes live on"
        grow()
        again = job.start(out, folder)
        code = again.wait()
        if code != 0 or "Traceback" in again.output:
            return True, f"with room again it ended with {code}: {again.last_line}"
        if left := find_partial_files(out) + command.temporary_files() + again.temporary_files():
            return True, f"these files are left: {', '.join(left[:3])}"
        return True, None if job.digest(out) == baseline.digest else "the result is another"


@contextlib.contextmanager
def small_disk(folder: Path, kib: int, can_mount: bool) -> Iterator[Callable[[], object]]:
    """Make a folder of limited size; yields a function that enlarges it.

    Args:
        folder: Folder to make.
        kib: Its size.
        can_mount: Whether to mount a tmpfs; otherwise it is a plain folder.
    """
    folder.mkdir()
    if not can_mount:
        yield lambda: None
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)], check=True)
    try:
        yield lambda: subprocess.run(["mount", "-o", "remount,size=200m", str(folder)], check=True)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
