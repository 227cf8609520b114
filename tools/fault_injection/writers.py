"""Start a command twice on one folder: one works, and the other says in one line who holds the folder."""

import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.fault_injection.checks import find_partial_files
from tools.fault_injection.jobs import Baseline, Job
from tools.fault_injection.outcomes import Outcome, attack

_REFUSAL = "is being written by process"


def run_pairs(
    jobs: Sequence[Job], baselines: Mapping[str, Baseline], work_dir: Path, *, count: int, seed: int
) -> Outcome:
    """Run pairs of writers.

    Args:
        jobs: Commands to start twice, one after the other.
        baselines: What each of them does alone.
        work_dir: Folder to work in.
        count: Number of pairs.
        seed: Seed of the attack.
    """

    def run_pair(number: int, rng: random.Random) -> str | None:
        job, folder = jobs[number % len(jobs)], work_dir / str(number)
        folder.mkdir()
        out = folder / "out"
        both = [job.start(out, folder) for _ in range(2)]
        codes = [command.wait() for command in both]
        refused = [command for command, code in zip(both, codes, strict=True) if code == 2]
        # A pair of which one began after the other had ended has written twice, in turn.
        is_expected = sorted(codes, key=str) in ([0, 2], [0, 0])
        if not is_expected or any(_REFUSAL not in each.output or "Traceback" in each.output for each in refused):
            return f"{job.name} ended with {codes}: {' | '.join(command.last_line for command in both)}"
        if left := find_partial_files(out) + [name for command in both for name in command.temporary_files()]:
            return f"{job.name} left {', '.join(left[:3])}"
        if job.digest(out) != baselines[job.name].digest:
            return f"{job.name}: the result is another"
        shutil.rmtree(folder, ignore_errors=True)
        return None

    return attack("pairs of writers", count, seed, run_pair)
