"""Commands of `stillmotion` as a person types them, what they leave behind, and whether they are gone."""

import hashlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import safe_open

PROCESS_MARK = "STILLMOTION_FAULT_INJECTION"
_SINGLE_THREAD = ("--train.num-threads", "1", "--num-workers", "1")
_CHECKPOINT_OFTEN = ("--train.checkpoint-every-steps", "2", "--train.log-every-steps", "1")


@dataclass(frozen=True)
class Job:
    """A command that writes to a folder. digest: of what it has written. ranks: processes under torchrun, or 0."""

    name: str
    arguments: tuple[str, ...]
    digest: Callable[[Path], str]
    num_ranks: int = 0

    def command(self, out: Path) -> list[str]:
        words = [word.replace("OUT", str(out)) for word in self.arguments]
        if not self.num_ranks:
            return [sys.executable, "-m", "stillmotion", *words]
        run = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.num_ranks))
        return [sys.executable, *run, "-m", "stillmotion", *words]


class RunningCommand:
    """A running command, in a session of its own, that all its children can be told by."""

    def __init__(self, command: list[str], log: Path, *, cwd: Path | None = None) -> None:
        self.mark = uuid.uuid4().hex
        environment = os.environ | {PROCESS_MARK: self.mark, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        self.log = log
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                command, stdout=stream, stderr=stream, env=environment, cwd=cwd, start_new_session=True
            )

    def wait(self, timeout: float = 240) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill_all()
            return -999

    def kill(self) -> None:
        """Kill the command itself, and none of its children."""
        self.process.kill()
        self.process.wait()

    def alive_processes(self) -> list[int]:
        """The processes that this command started and that live."""
        found = []
        for place in Path("/proc").iterdir():
            if place.name.isdigit():
                try:
                    if f"{PROCESS_MARK}={self.mark}".encode() in (place / "environ").read_bytes():
                        found.append(int(place.name))
                except OSError:
                    continue
        return found

    def kill_all(self) -> None:
        for pid in self.alive_processes():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        self.process.wait()

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")


def run_timed(job: Job, out: Path, log: Path) -> tuple[float, str]:
    """How long a job takes, undisturbed, and what it leaves."""
    started = time.monotonic()
    command = RunningCommand(job.command(out), log)
    code = command.wait()
    assert code == 0, f"{job.name} ended with {code}:\n{command.output[-2000:]}"
    return time.monotonic() - started, job.digest(out)


def digest_weights(out: Path) -> str:
    """Of a run's weights."""
    digest = hashlib.sha256()
    with safe_open(out / "checkpoint.safetensors", "np") as opened:
        for name in sorted(opened.keys()):
            digest.update(name.encode())
            digest.update(opened.get_tensor(name).tobytes())
    return digest.hexdigest()[:16]


def digest_transcoded(out: Path) -> str:
    """Of a copied set: its videos, its labels, and its manifest without times."""
    digest = hashlib.sha256()
    for file in sorted(out.rglob("*.mp4")):
        digest.update(file.name.encode() + file.read_bytes())
    digest.update((out / "labels.csv").read_bytes())
    lines = [json.loads(line) for line in (out / "manifest.jsonl").read_text().splitlines()]
    for line in sorted(lines, key=lambda line: line["path"]):
        digest.update(json.dumps(line | {"elapsed_seconds": 0}, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def digest_embeddings(out: Path) -> str:
    """Of embeddings."""
    found = np.load(out / "rows.npz")
    digest = hashlib.sha256()
    for name in ("path", "whole", "static", "dynamic"):
        digest.update(found[name].tobytes())
    return digest.hexdigest()[:16]


def make_jobs(videos: Path, run_dir: Path) -> list[Job]:
    """Every verb that works long, alone and, where it can, under torchrun."""
    found = []
    for ranks in (0, 2):
        for objective in ("simclr", "moco", "byol", "swav", "vicreg"):
            words = (
                "pretrain",
                "--recipe",
                f"debug:k400-bod-{objective}",
                "--optim.epochs",
                "3",
                *_CHECKPOINT_OFTEN,
                *_SINGLE_THREAD,
            )
            found.append(Job(f"pretrain {objective}", (*words, "--out", "OUT"), digest_weights, ranks))
        words = (
            "transfer",
            "--recipe",
            "debug:dinov2-b16",
            "--optim.epochs",
            "6",
            *_CHECKPOINT_OFTEN,
            *_SINGLE_THREAD,
            "--out",
            "OUT",
        )
        found.append(Job("transfer", words, digest_weights, ranks))
        words = (
            "finetune",
            "--debug",
            "--optim.epochs",
            "3",
            *_CHECKPOINT_OFTEN,
            *_SINGLE_THREAD,
            "--out",
            "OUT",
        )
        found.append(Job("finetune", words, digest_weights, ranks))
        small = ("--data.synthetic.num-train", "32", "--data.synthetic.num-test", "4", "--optim.epochs", "4")
        found.append(
            Job(
                "detect",
                ("detect", "--debug", *small, *_CHECKPOINT_OFTEN, *_SINGLE_THREAD, "--out", "OUT"),
                digest_weights,
                ranks,
            )
        )
    small = ("--data.synthetic.num-train", "12", "--data.synthetic.num-test", "4", "--optim.epochs", "6")
    found.append(Job("segment", ("segment", "--debug", *small, *_CHECKPOINT_OFTEN, "--out", "OUT"), digest_weights))
    prepare = ("prepare", "--data", str(videos), "--short-side", "24", "--num-processes", "2", "--out", "OUT")
    found.append(Job("prepare", prepare, digest_transcoded))
    make = ("static-dynamic", "make", "--data", str(videos), "--variant", "dynamic", "--flow", "dis-fast")
    found.append(Job("static-dynamic make", (*make, "--num-processes", "2", "--out", "OUT"), digest_transcoded))
    embed = ("embed", str(run_dir), "--data", str(videos), "--num-workers", "1", "--out", "OUT/rows.npz")
    found.append(Job("embed", embed, digest_embeddings))
    return found
