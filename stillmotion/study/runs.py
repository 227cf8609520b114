"""Runs that are trained and probed, several at a time, each on one core.

A worker (`python -m stillmotion.study.runs`) takes runs from its standard input, so that torch is imported once for
many of them; when its parent dies, that closes, and the worker saves what it has and ends.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from stillmotion.config import Config, RunConfig, TransferConfig, any_from_json, to_json
from stillmotion.data.halves import Halves
from stillmotion.data.reading import Reading
from stillmotion.encoders import KINDS, load
from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.evaluate.options import Probing
from stillmotion.evaluate.probe import RESULTS, probe
from stillmotion.files import made
from stillmotion.methods.method import Method
from stillmotion.parent import end_with_parent
from stillmotion.study.measured import MEASURED, measured
from stillmotion.tasks.pretrain import pretrain
from stillmotion.tasks.tokens import TOKENS
from stillmotion.tasks.transfer import transfer
from stillmotion.train.log import read_metrics
from stillmotion.train.memory import peak_memory
from stillmotion.train.solve import solve

COST = "cost.json"
_TIMED = 3  # steps, of which the quickest counts

Key = TypeVar("Key")
Settings = TypeVar("Settings", bound=RunConfig)


@dataclass(frozen=True)
class Run:
    """A run folder to be, of pre-training or of transfer.

    probe: options of `evaluate.probe.probe`, and of its videos `data` and how many `videos` are drawn; of a transfer
        run, what `measured` takes.
    cost: measure a step's time and memory, too, in pre-training.
    """

    folder: Path
    config: RunConfig
    probe: Mapping[str, Any] = field(default_factory=dict)
    cost: bool = False

    def finished(self) -> bool:
        """Whether it is trained and probed as asked."""
        found = self.found()
        if found is None or (self.probe.get("untrained") and "untrained" not in found):
            return False
        kinds = [set(of) for of in found.values()]
        asked = set(self.probe.get("kinds", ()))
        if not all(asked <= of or of == {"whole"} for of in kinds):  # a network of few time steps has no halves
            return False
        return not self.costs or read_json(self.folder / COST) is not None

    @property
    def costs(self) -> bool:
        """Whether time and memory of its steps are measured."""
        return self.cost and isinstance(self.config, Config)

    def found(self) -> dict[str, dict[str, dict[str, float]]] | None:
        """Figures by network (trained, untrained), kind of feature and target; None where they are not there."""
        if isinstance(self.config, TransferConfig):
            return read_json(self.folder / MEASURED)
        probed = read_json(self.folder / RESULTS)
        if probed is None:
            return None
        return {
            network: {kind: {target: cell["top1"] for target, cell in cells.items()} for kind, cells in kinds.items()}
            for network, kinds in probed["accuracy"].items()
        }


def seeded(config: Settings, seed: int) -> Settings:
    """The same run with another seed."""
    return replace(config, train=replace(config.train, seed=seed))


def read_json(file: Path) -> dict[str, Any] | None:
    """What a JSON file holds; None where it is missing or was cut off while it was written."""
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (OSError, json.JSONDecodeError):
        return None
    return found


def train_and_probe(runs: Mapping[Key, Run], *, processes: int, told: Callable[[Key], str]) -> None:
    """Bring every run to its end; what an earlier attempt finished is kept, and what it began goes on.

    processes: runs at a time. told: the line that is printed when a run has finished.
    """
    if processes < 1:
        raise StillmotionError(f"processes is {processes}; it must be at least 1")
    waiting = [key for key, run in runs.items() if not run.finished()]
    behind = sum(run.config.optim.epochs + 1 for key, run in runs.items() if key not in waiting)
    workers = [_worker() for _ in range(min(processes, len(waiting)))]
    working: dict[int, Key] = {}
    try:
        with _progress() as bar:
            task = bar.add_task("training and probing", total=sum(run.config.optim.epochs + 1 for run in runs.values()))
            while waiting or working:
                for number, worker in enumerate(workers):
                    if number in working and runs[working[number]].finished():
                        behind += runs[working[number]].config.optim.epochs + 1
                        bar.console.print(told(working.pop(number)), highlight=False, markup=False, soft_wrap=True)
                    if number in working and worker.poll() is not None:
                        raise StillmotionError(_complaint(runs[working[number]].folder))
                    if number not in working and waiting:
                        working[number] = waiting.pop(0)
                        _give(worker, runs[working[number]])
                bar.update(task, completed=behind + sum(_epochs(runs[key]) for key in working.values()))
                time.sleep(0.2)
    finally:
        _end(workers)


def step_cost(config: Config) -> dict[str, float]:
    """CPU seconds of a training step on this thread, the least of a few, and MiB that it has allocated at its peak."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        method = Method(config.method).train()
        data = config.data
        clips = torch.randn(config.optim.batch, data.clips, 3, data.frames, data.size, data.size)
        seconds = []
        for _ in range(_TIMED):
            start = time.process_time()
            solve(method, clips, config)
            seconds.append(time.process_time() - start)
        return {"seconds": min(seconds), "memory": peak_memory(lambda: solve(method, clips, config))}


def _worker() -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "stillmotion.study.runs"]
    one_core = os.environ | {"OMP_NUM_THREADS": "1"}
    # A session of its own: Ctrl-C is the parent's, which ends its workers in good order.
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=one_core, start_new_session=True)


def _give(worker: "subprocess.Popen[bytes]", run: Run) -> None:
    (made(run.folder) / "log.txt").write_text("")
    order = {"folder": str(run.folder), "config": to_json(run.config), "probe": dict(run.probe), "cost": run.cost}
    assert worker.stdin is not None
    try:
        worker.stdin.write(json.dumps(order).encode() + b"\n")
        worker.stdin.flush()
    except BrokenPipeError:  # it died; whoever polls it says so
        worker.wait()


def _end(workers: "list[subprocess.Popen[bytes]]") -> None:
    for worker in workers:
        assert worker.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            worker.stdin.close()
    for worker in workers:
        try:
            worker.wait(60)
        except subprocess.TimeoutExpired:
            worker.kill()


def _complaint(folder: Path) -> str:
    lines = (folder / "log.txt").read_text().strip().splitlines()
    reason = lines[-1].removeprefix("stillmotion: ") if lines else "it left no word"
    return f"the run {folder} failed: {reason} ({folder / 'log.txt'} has more)"


def _epochs(run: Run) -> float:
    """How many a run has behind it."""
    return read_metrics(run.folder).get("epoch", [(0, 0.0)])[-1][1]


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _work() -> None:
    """Do what the lines of standard input ask for."""
    orders: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            orders.put(line)
        orders.put(None)
        if busy.is_set():
            os.kill(os.getpid(), signal.SIGTERM)  # a training saves itself

    end_with_parent()  # within seconds, even where a step or a probe takes longer
    busy = threading.Event()
    threading.Thread(target=listen, daemon=True).start()
    while (order := orders.get()) is not None:
        busy.set()
        asked = json.loads(order)
        folder = Path(asked["folder"])
        log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        try:
            _do(Run(folder, any_from_json(asked["config"]), asked["probe"], asked["cost"]))
        except StillmotionError as error:
            print(f"stillmotion: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        busy.clear()


def _do(run: Run) -> None:
    try:
        if isinstance(run.config, TransferConfig):
            transfer(run.config, run.folder, cache=run.folder.parent / TOKENS)
            if not run.finished():
                measured(run.folder, run.config, run.probe)
            return
        assert isinstance(run.config, Config)
        pretrain(run.config, run.folder)
    except Interrupted as stop:
        raise SystemExit(str(stop)) from None
    if run.cost and read_json(run.folder / COST) is None:
        (run.folder / COST).write_text(json.dumps(step_cost(run.config)))
    if not run.finished():
        asked = dict(run.probe)
        halves = Halves(asked.pop("data", "synthetic"), videos=asked.pop("videos", Halves.videos))
        kinds, alone = asked.pop("kinds", KINDS), Reading(workers=0)  # a core for each run, and no decoders beside it
        probe(load(run.folder, device="auto"), halves, Probing(**asked), kinds=kinds, reading=alone)


if __name__ == "__main__":
    _work()
