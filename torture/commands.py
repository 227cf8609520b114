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

MARK = "STILLMOTION_TORTURE"
_QUICK = ("--train.threads", "1", "--workers", "1")
_RUN = ("--train.checkpoint-every", "2", "--train.log-every", "1")


@dataclass(frozen=True)
class Job:
    """A command that writes to a folder. digest: of what it has written. ranks: processes under torchrun, or 0."""

    name: str
    words: tuple[str, ...]
    digest: Callable[[Path], str]
    ranks: int = 0

    def command(self, out: Path) -> list[str]:
        words = [word.replace("OUT", str(out)) for word in self.words]
        if not self.ranks:
            return [sys.executable, "-m", "stillmotion", *words]
        run = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.ranks))
        return [sys.executable, *run, "-m", "stillmotion", *words]


class Started:
    """A running command, in a session of its own, that all its children can be told by."""

    def __init__(self, command: list[str], log: Path, *, cwd: Path | None = None) -> None:
        self.mark = uuid.uuid4().hex
        environment = os.environ | {MARK: self.mark, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        self.log = log
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                command, stdout=stream, stderr=stream, env=environment, cwd=cwd, start_new_session=True
            )

    def wait(self, seconds: float = 240) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            return -999

    def kill(self) -> None:
        """Kill the command itself, and none of its children."""
        self.process.kill()
        self.process.wait()

    def alive(self) -> list[int]:
        """The processes that this command started and that live."""
        found = []
        for place in Path("/proc").iterdir():
            if place.name.isdigit():
                try:
                    if f"{MARK}={self.mark}".encode() in (place / "environ").read_bytes():
                        found.append(int(place.name))
                except OSError:
                    continue
        return found

    def end(self) -> None:
        for pid in self.alive():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        self.process.wait()

    @property
    def words(self) -> str:
        return self.log.read_text(errors="replace")


def timed(job: Job, out: Path, log: Path) -> tuple[float, str]:
    """How long a job takes, undisturbed, and what it leaves."""
    started = time.monotonic()
    command = Started(job.command(out), log)
    code = command.wait()
    assert code == 0, f"{job.name} ended with {code}:\n{command.words[-2000:]}"
    return time.monotonic() - started, job.digest(out)


def weights(out: Path) -> str:
    """Of a run's weights."""
    digest = hashlib.sha256()
    with safe_open(out / "checkpoint.safetensors", "np") as opened:
        for name in sorted(opened.keys()):
            digest.update(name.encode())
            digest.update(opened.get_tensor(name).tobytes())
    return digest.hexdigest()[:16]


def copies(out: Path) -> str:
    """Of a copied set: its videos, its labels, and its manifest without times."""
    digest = hashlib.sha256()
    for file in sorted(out.rglob("*.mp4")):
        digest.update(file.name.encode() + file.read_bytes())
    digest.update((out / "labels.csv").read_bytes())
    lines = [json.loads(line) for line in (out / "manifest.jsonl").read_text().splitlines()]
    for line in sorted(lines, key=lambda line: line["path"]):
        digest.update(json.dumps(line | {"seconds": 0}, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def table(out: Path) -> str:
    """Of embeddings."""
    found = np.load(out / "rows.npz")
    digest = hashlib.sha256()
    for name in ("path", "whole", "static", "dynamic"):
        digest.update(found[name].tobytes())
    return digest.hexdigest()[:16]


def jobs(videos: Path, run: Path) -> list[Job]:
    """Every verb that works long, alone and, where it can, under torchrun."""
    found = []
    for ranks in (0, 2):
        for objective in ("simclr", "moco", "byol", "swav", "vicreg"):
            words = ("pretrain", "--recipe", f"debug-bod-{objective}", "--optim.epochs", "3", *_RUN, *_QUICK)
            found.append(Job(f"pretrain {objective}", (*words, "--out", "OUT"), weights, ranks))
        words = ("transfer", "--recipe", "debug-dinov2", "--optim.epochs", "6", *_RUN, *_QUICK, "--out", "OUT")
        found.append(Job("transfer", words, weights, ranks))
        words = ("finetune", "--recipe", "debug", "--optim.epochs", "3", *_RUN, *_QUICK, "--out", "OUT")
        found.append(Job("finetune", words, weights, ranks))
        small = ("--data.acting.videos", "32", "--data.acting.tests", "4", "--optim.epochs", "4")
        found.append(
            Job("detect", ("detect", "--recipe", "debug", *small, *_RUN, *_QUICK, "--out", "OUT"), weights, ranks)
        )
    small = ("--data.untrimmed.videos", "12", "--data.untrimmed.test", "4", "--optim.epochs", "6")
    found.append(Job("segment", ("segment", "--recipe", "debug", *small, *_RUN, "--out", "OUT"), weights))
    prepare = ("prepare", "--data", str(videos), "--short-side", "24", "--processes", "2", "--out", "OUT")
    found.append(Job("prepare", prepare, copies))
    make = ("controlled", "make", "--data", str(videos), "--version", "dynamic", "--flow", "dis-fast")
    found.append(Job("controlled make", (*make, "--processes", "2", "--out", "OUT"), copies))
    embed = ("embed", str(run), "--data", str(videos), "--workers", "1", "--out", "OUT/rows.npz")
    found.append(Job("embed", embed, table))
    return found
