"""Attack the commands of stillmotion, and print a table of how often each attack was carried out and failed.

An attack has failed if there was a traceback, a hang, an output that is silently wrong, a changed file of the user, a
process or temporary file that is left behind, or a resumed result that differs.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tools.fault_injection.commands import RunningCommand, start_warm_process
from tools.fault_injection.full_disks import enter_private_mounts, fill_disks
from tools.fault_injection.jobs import make_jobs, pretrain_words, run_baselines, select_writers, write_videos
from tools.fault_injection.kills import kill_commands
from tools.fault_injection.mutated_videos import attack_videos, list_videos
from tools.fault_injection.mutation_targets import INDEX_TARGETS, LIST_TARGETS, write_targets
from tools.fault_injection.mutations import mutate_targets
from tools.fault_injection.outcomes import Outcome, format_table
from tools.fault_injection.page_requests import request_pages
from tools.fault_injection.writers import run_pairs

COUNTS = {
    "kills": (40, "Kills of long commands."),
    "pairs": (20, "Pairs of commands that write to one folder."),
    "disks": (20, "Full disks."),
    "lists": (2000, "Mutated configurations and lists."),
    "videos": (200, "Mutated videos."),
    "indexes": (100, "Mutated index files."),
    "requests": (100, "Requests of each kind against the page."),
}


def main() -> None:
    """Run the attacks that the command line asks for."""
    options = _parse_options()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        outcomes = run_attacks(Path(folder), options)
    print(f"\n{format_table(outcomes)}\n{time.monotonic() - started:.0f} s with seed {options.seed}")
    sys.exit(any(outcome.fell_short for outcome in outcomes))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.fault_injection", description=__doc__)
    for name, (count, text) in COUNTS.items():
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"{text} Default: {count} times the scale.")
    parser.add_argument("--scale", type=float, default=1.0, help="Factor of all counts that are not given.")
    parser.add_argument("--videos-from", type=Path, metavar="FOLDER", help="Videos to mutate. Default: synthetic ones.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of all attacks.")
    options = parser.parse_args()
    for name, (count, _) in COUNTS.items():
        if getattr(options, name) is None:
            setattr(options, name, max(1, round(options.scale * count)))
    return options


def run_attacks(work_dir: Path, options: argparse.Namespace) -> list[Outcome]:
    """Carry out the attacks.

    Args:
        work_dir: Folder to work in.
        options: Counts of the attacks, and the seed.
    """
    started = time.monotonic()
    can_mount = enter_private_mounts()
    start_warm_process()
    videos, run_dir = write_videos(work_dir / "videos"), work_dir / "run"
    command = RunningCommand((*pretrain_words("simclr", 1), "--out", str(run_dir)), work_dir)
    assert command.wait() == 0, command.output
    jobs = make_jobs(videos, run_dir)
    writers = select_writers(jobs)
    seed, outcomes = options.seed, []

    def folder(name: str) -> Path:
        path = work_dir / name
        path.mkdir()
        return path

    def add(outcome: Outcome) -> None:
        print(
            f"{outcome.name}: {outcome.num_done}, {len(outcome.failures)} failed",
            *outcome.failures,
            sep="\n  ",
            flush=True,
        )
        outcomes.append(outcome)

    whole = folder("whole")
    needed = [*writers[: max(options.pairs, options.disks)], *jobs[: options.kills]]
    if options.kills or options.indexes or options.requests:
        needed += [job for job in jobs if job.name == "index"]
    baselines = run_baselines([job for job in needed if not job.serves], whole)
    add(Outcome("undisturbed commands", len(baselines), len(baselines), [], time.monotonic() - started))
    if options.kills:
        add(kill_commands(jobs, baselines, videos, folder("kills"), count=options.kills, seed=seed))
    if options.pairs:
        add(run_pairs(writers, baselines, folder("pairs"), count=options.pairs, seed=seed))
    if options.disks:
        disks = folder("disks")
        add(fill_disks(writers, baselines, disks, count=options.disks, seed=seed, can_mount=can_mount))
    damaged = [*(LIST_TARGETS if options.lists else ()), *(INDEX_TARGETS if options.indexes else ())]
    index = whole / "index"
    write_targets(damaged, folder("targets"), videos=videos, run_dir=run_dir, index=index)
    for name, targets, count in (
        ("configurations and lists", LIST_TARGETS, options.lists),
        ("index files", INDEX_TARGETS, options.indexes),
    ):
        if count:
            add(mutate_targets(name, targets, work_dir / "targets", folder(f"mutated {name}"), count=count, seed=seed))
    if options.videos:
        sources = list_videos(options.videos_from or videos)
        add(attack_videos(sources, run_dir, folder("odd"), count=options.videos, seed=seed))
    if options.requests:
        for outcome in request_pages(index, videos, folder("page"), count=options.requests, seed=seed):
            add(outcome)
    return outcomes


if __name__ == "__main__":
    main()
