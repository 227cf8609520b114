"""The long commands that are attacked: every verb that writes for long, alone or on two processes, on small videos."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stillmotion.data.video.writer import write_mp4
from tools.fault_injection.checks import (
    digest_copies,
    digest_embeddings,
    digest_index,
    digest_shards,
    digest_weights,
)
from tools.fault_injection.commands import RunningCommand

_SINGLE_THREAD = ("--train.num-threads", "1", "--num-workers", "1")
_CHECKPOINT_OFTEN = ("--train.checkpoint-every-steps", "2", "--train.log-every-steps", "1")
NUM_CONCURRENT = 2


@dataclass(frozen=True)
class Job:
    """A command that writes to a folder.

    Attributes:
        name: Name in the table of failures.
        words: What a user types after `stillmotion`; OUT is the folder.
        digest: Function of the folder that returns a digest of the result.
        num_ranks: Number of processes under torchrun; 0 without it.
        serves: Whether the command serves the page of the index at OUT until it is stopped.
    """

    name: str
    words: tuple[str, ...]
    digest: Callable[[Path], str]
    num_ranks: int = 0
    serves: bool = False

    def start(
        self, out: Path, work_dir: Path, *, temp_dir: Path | None = None, max_file_bytes: int | None = None
    ) -> RunningCommand:
        """Start the command.

        Args:
            out: Folder of its results.
            work_dir: Folder for its output and its temporary files.
            temp_dir: Temporary folder; default is one of its own.
            max_file_bytes: Size at which a file cannot grow any more.
        """
        words = tuple(word.replace("OUT", str(out)) for word in self.words)
        return RunningCommand(
            words, work_dir, temp_dir=temp_dir, num_ranks=self.num_ranks, max_file_bytes=max_file_bytes
        )


class Baseline(NamedTuple):
    """A job that nobody disturbed: its time, the digest of its result, and its size on disk."""

    seconds: float
    digest: str
    num_bytes: int


def write_videos(output_dir: Path, num_videos: int = 12) -> Path:
    """Write small synthetic videos of two classes.

    Args:
        output_dir: Folder to write to.
        num_videos: Number of videos.
    """
    for number in range(num_videos):
        folder = output_dir / ("light" if number % 2 else "dark")
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(number)
        tiles = np.kron(rng.integers(0, 255, (6, 6, 3), np.uint8), np.ones((8, 8, 1), np.uint8))
        frames = [np.roll(tiles, (t * (1 + number % 3), t), (0, 1)) for t in range(20)]
        write_mp4(folder / f"{number:02d}.mp4", frames, size=(48, 48), fps=8, gop_size=8, crf=20)
    return output_dir


def pretrain_words(objective: str, epochs: int) -> tuple[str, ...]:
    """Return the words of a small pre-training run, without its folder.

    Args:
        objective: Objective of the recipe.
        epochs: Number of epochs.
    """
    recipe = ("--recipe", f"debug:k400-bod-{objective}", "--optim.epochs", str(epochs))
    return ("pretrain", *recipe, *_CHECKPOINT_OFTEN, *_SINGLE_THREAD)


def make_jobs(videos: Path, run_dir: Path) -> list[Job]:
    """Return the jobs; those that differ most come first.

    Args:
        videos: Folder of small videos.
        run_dir: Folder of a pre-training run.
    """
    data, out = ("--data", str(videos)), ("--out", "OUT")
    train = (*_CHECKPOINT_OFTEN, *_SINGLE_THREAD, *out)
    index = (str(videos), "--encoder", str(run_dir), *out)
    transfer = ("transfer", "--recipe", "debug:dinov2-b16", "--optim.epochs", "3", *train)
    finetune = ("finetune", "--debug", "--optim.epochs", "2", *train)
    few = ("--data.synthetic.num-train", "12", "--data.synthetic.num-test", "4", "--optim.epochs", "2")
    two_processes = ("--num-processes", "2")
    copies = ("prepare", *data, "--short-side", "24", *two_processes)
    make = ("static-dynamic", "make", *data, "--variant", "dynamic", "--flow", "dis-fast", *two_processes)
    return [
        Job("browse while indexing", ("browse", *index, "--no-open"), digest_index, serves=True),
        Job("pretrain simclr, 2 ranks", (*pretrain_words("simclr", 2), *out), digest_weights, 2),
        Job("browse during an upload", ("browse", "OUT", "--no-open", "--trust-index"), digest_index, serves=True),
        Job("index", ("index", *index), digest_index),
        Job("pretrain simclr", (*pretrain_words("simclr", 2), *out), digest_weights),
        Job("prepare", (*copies, *out), digest_copies),
        Job("finetune", finetune, digest_weights),
        Job("embed", ("embed", str(run_dir), *data, "--num-workers", "1", "--out", "OUT/rows.npz"), digest_embeddings),
        Job("index, 2 ranks", ("index", *index), digest_index, 2),
        Job("transfer", transfer, digest_weights),
        Job("segment", ("segment", "--debug", *few, *_CHECKPOINT_OFTEN, *out), digest_weights),
        Job("static-dynamic make", (*make, *out), digest_copies),
        Job("pretrain moco", (*pretrain_words("moco", 2), *out), digest_weights),
        Job("detect", ("detect", "--debug", *few, *train), digest_weights),
        Job("prepare shards", (*copies, "--format", "shards", *out), digest_shards),
        Job("finetune, 2 ranks", finetune, digest_weights, 2),
        Job("pretrain byol", (*pretrain_words("byol", 2), *out), digest_weights),
        Job("pretrain swav", (*pretrain_words("swav", 2), *out), digest_weights),
        Job("transfer, 2 ranks", transfer, digest_weights, 2),
        Job("pretrain vicreg", (*pretrain_words("vicreg", 2), *out), digest_weights),
    ]


def select_writers(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs that end by themselves and run on one process.

    Args:
        jobs: All jobs.
    """
    return [job for job in jobs if not job.num_ranks and not job.serves]


def run_baselines(jobs: Iterable[Job], work_dir: Path) -> dict[str, Baseline]:
    """Run jobs undisturbed.

    Args:
        jobs: The jobs.
        work_dir: Folder for their results.

    Returns:
        What each job takes and writes, by its name.
    """

    def run(job: Job) -> tuple[str, Baseline]:
        out = work_dir / job.name.replace(" ", "-")
        started = time.monotonic()
        command = job.start(out, work_dir)
        code = command.wait()
        assert code == 0, f"{job.name} ended with {code}:\n{command.output[-2000:]}"
        seconds = time.monotonic() - started
        num_bytes = sum(file.stat().st_blocks * 512 for file in out.rglob("*"))
        return job.name, Baseline(seconds, job.digest(out), num_bytes)

    with ThreadPoolExecutor(NUM_CONCURRENT) as pool:
        return dict(pool.map(run, {job.name: job for job in jobs}.values()))
