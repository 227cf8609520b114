"""Kill commands at random moments: nothing lives on or is left behind, and the same command resumes to the same result.

`browse` is killed while it indexes or while it embeds an upload. Afterwards the index is whole, and the next start of
the page sweeps what the killed one has left.
"""

import contextlib
import http.client
import random
import re
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.fault_injection.checks import find_partial_files
from tools.fault_injection.commands import TIMEOUT, RunningCommand
from tools.fault_injection.jobs import NUM_CONCURRENT, Baseline, Job
from tools.fault_injection.outcomes import Outcome, attack

_PATIENCE = 10.0  # seconds in which the children of a killed command end
_MAX_TRIES = 4  # to kill a command before it ends
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)(/\S+/)")


def kill_commands(
    jobs: Sequence[Job], baselines: Mapping[str, Baseline], videos: Path, work_dir: Path, *, count: int, seed: int
) -> Outcome:
    """Kill commands and run them again.

    Args:
        jobs: Commands to kill, one after the other.
        baselines: What each of them does undisturbed.
        videos: Folder of videos, for uploads.
        work_dir: Folder to work in.
        count: Number of kills.
        seed: Seed of the moments.
    """
    upload = next(videos.rglob("*.mp4")).read_bytes()

    def kill(number: int, rng: random.Random) -> str | None:
        job, folder = jobs[number % len(jobs)], work_dir / str(number)
        folder.mkdir()
        if not job.serves:
            failure = _kill_and_resume(job, baselines[job.name], folder, rng)
        elif job.words[1] == "OUT":
            failure = _kill_during_upload(
                job, baselines["index"], work_dir.parent / "whole" / "index", upload, folder, rng
            )
        else:
            index = next(each for each in jobs if each.name == "index")
            failure = _kill_and_resume(job, baselines["index"], folder, rng, resume=index)
        shutil.rmtree(folder, ignore_errors=True)
        return failure and f"{job.name}: {failure}"

    return attack("kills", count, seed, kill, num_concurrent=NUM_CONCURRENT)


def _kill_and_resume(
    job: Job, baseline: Baseline, folder: Path, rng: random.Random, *, resume: Job | None = None
) -> str | None:
    delay = rng.uniform(0.1, 0.9) * baseline.seconds
    for number in range(_MAX_TRIES):
        out = folder / f"out-{number}"
        command = job.start(out, folder)
        deadline = time.monotonic() + delay
        while command.exit_code is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if command.exit_code is None:
            break
        delay /= 2  # it was faster than before
    else:
        return f"ended {_MAX_TRIES} times before it was killed"
    if failure := _kill(command):
        return failure
    again = (resume or job).start(out, folder)
    code = again.wait()
    if code != 0 or "Traceback" in again.output:
        return f"after a kill at {delay:.1f} s the same command ended with {code}: {again.last_line}"
    if left := find_partial_files(out) + command.temporary_files() + again.temporary_files():
        return f"after a kill at {delay:.1f} s these files are left: {', '.join(left[:3])}"
    if again.living_processes(_PATIENCE):
        return "processes of the resumed command live on"
    return None if job.digest(out) == baseline.digest else f"after a kill at {delay:.1f} s the result is another"


def _kill(command: RunningCommand) -> str | None:
    """Kill a command, and return what is wrong with what it printed and with its children."""
    command.kill()
    living = command.living_processes(_PATIENCE)
    command.kill_all()
    if living:
        return f"{len(living)} processes live on"
    # torchrun prints a traceback of its own when it is killed.
    if "Traceback" in command.output and "torch/distributed" not in command.output:
        return f"printed a traceback: {command.last_line}"
    return None


def _kill_during_upload(
    job: Job, baseline: Baseline, index: Path, upload: bytes, folder: Path, rng: random.Random
) -> str | None:
    """Kill a server while it receives or embeds an upload; the next one sweeps what it has left."""
    out = folder / "out"
    shutil.copytree(index, out)
    command = job.start(out, folder)
    address = wait_for_address(command)
    if address is None:
        return f"the page was not served: {command.last_line}"
    port, path = address
    thread = threading.Thread(target=_upload, args=(port, path, upload))
    thread.start()
    time.sleep(rng.uniform(0.0, 2.0))
    failure = _kill(command)
    thread.join()
    again = job.start(out, folder, temp_dir=command.temp_dir)
    if wait_for_address(again) is None:
        return failure or f"the page was not served again: {again.last_line}"
    again.terminate()
    code = again.wait()
    if failure or code != 143:
        return failure or f"the second server ended with {code}: {again.last_line}"
    if left := again.temporary_files() + find_partial_files(out):
        return f"these files are left: {', '.join(left[:3])}"
    if again.living_processes(_PATIENCE):
        return "processes of the second server live on"
    return None if job.digest(out) == baseline.digest else "the index is another"


def wait_for_address(command: RunningCommand) -> tuple[int, str] | None:
    """Wait until a server prints its address.

    Args:
        command: The command `browse`.

    Returns:
        Port and path with the token; None if the command ends or takes too long.
    """
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        if found := _ADDRESS.search(command.output):
            return int(found[1]), found[2]
        if command.exit_code is not None:
            return None
        time.sleep(0.05)
    command.kill_all()
    return None


def _upload(port: int, path: str, content: bytes) -> None:
    """Send a video, in two parts; the server is killed meanwhile."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
        connection.putrequest("POST", f"{path}uploads")
        connection.putheader("Content-Length", str(len(content)))
        connection.endheaders(content[: len(content) // 2])
        time.sleep(0.2)
        connection.send(content[len(content) // 2 :])
        connection.getresponse().read()
