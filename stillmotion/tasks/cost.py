"""What a training run will take, told beforehand: small steps of the very run, in a temporary folder, which goes.

A step's operations, memory and time grow with its videos along a line, which two small steps give.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from stillmotion import amounts
from stillmotion.amounts import Row
from stillmotion.data.loader import Batch
from stillmotion.data.reading import cores
from stillmotion.train.checkpoint import load_state
from stillmotion.train.folder import check_folder
from stillmotion.train.imagined import Tally
from stillmotion.train.log import RunLog
from stillmotion.train.process import choose_device
from stillmotion.train.run import Run

_LITTLE = (2, 4)  # videos of the steps that are taken
_FORWARD = 1 / 3  # of a training step's time: a test has no backward pass
Configured = TypeVar("Configured", bound=Any)
Trained = TypeVar("Trained", bound=Run)


class Little(NamedTuple):
    """A small step: operations, bytes at its height, seconds of it, seconds until its clips were there.

    again: seconds of the same step on clips that it has seen.
    """

    flops: float
    peak: float
    seconds: float
    fetch: float
    again: float


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a run asks of each of its devices.

    videos: of its set. steps: of the run; done: of them. trained, frozen: parameters. state: bytes that are there
    between steps. step: a whole one, with all its accumulated parts. device: its kind.
    """

    videos: int
    steps: int
    done: int
    trained: int
    frozen: int
    state: int
    step: Little
    device: str
    workers: int

    @property
    def seconds(self) -> float:
        """Of a step; decoders beside a device of its own are waited for where they are slower."""
        fetch = self.step.fetch / max(1, min(self.workers, cores()))
        return fetch + self.step.seconds if self.device == "cpu" else max(fetch, self.step.seconds)


def training(
    build: Callable[[Configured, Path, torch.device], Trained],
    config: Configured,
    out: str | Path,
    *,
    processes: int = 1,
    whole: bool = True,
) -> tuple[Training, Trained]:
    """What a run takes, and the run, whose folder is gone.

    build: makes it, of a configuration, in a folder. out: the folder that it will have. processes: that share a batch.
    whole: False, of a run that is costly to make, makes small ones alone, which do not tell the number of steps.
    What is wrong with the configuration or the folder is said as when the run begins.
    """
    device, share = choose_device(config.train.device), config.optim.batch // (processes * config.train.accumulate)
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    check_folder(Path(out), config)
    state = load_state(Path(out)) or {}
    sizes = _LITTLE if share > _LITTLE[-1] else (max(1, share),)
    with tempfile.TemporaryDirectory() as place:
        first = build(config, Path(place, "run"), device) if whole else None
        little = [build(_little(config, size), Path(place, str(size)), device) for size in sizes]
        step = _along(sizes, [_taken(run) for run in little], share)
    run, parts = first or little[-1], config.train.accumulate
    trained = sum(p.numel() for p in run.weights.values())
    found = Training(
        videos=getattr(run.loader, "videos", 0),
        steps=run.total,
        done=int(state.get("step", 0)),
        trained=trained,
        frozen=sum(p.numel() for p in run.method.parameters()) - trained,
        state=_bytes(_standing(little[-1])),
        step=step._replace(flops=parts * step.flops, seconds=parts * step.seconds, fetch=parts * step.fetch),
        device=device.type,
        workers=cores() if config.data.workers < 0 else config.data.workers,
    )
    return found, run


def rows(
    found: Training, *, batch: int, processes: int = 1, tests: int = 0, times: int = 1, fresh: int | None = None
) -> list[Row]:
    """What a run takes, in words.

    batch: videos of a step. tests: clips that it is tested on. times: so many runs alike, such as folds.
    fresh: steps on clips that were not seen before, where the others take less.
    """
    step, left = found.step, max(0, found.steps - found.done)
    resumed = f"; {found.done} are done, {left} are left" if found.done else ""
    often = f", {times} times" if times > 1 else ""
    shared = f" on {processes} processes" if processes > 1 else ""
    test = tests * step.seconds / (batch / processes) * _FORWARD / processes
    tested = f", {amounts.duration(times * test)} of them for the test of {tests} clips" if tests else ""
    new = left if fresh is None else max(0, min(left, fresh - found.done))
    seconds = times * (new * found.seconds + (left - new) * step.again + test)
    every = step.flops * new * times * processes
    fetched = amounts.duration(step.fetch)
    return [
        ("videos to train on", f"{found.videos}"),
        ("steps", f"{found.steps} of {batch} videos{shared}{often}{resumed}"),
        ("parameters", f"{_millions(found.trained)} trained, {_millions(found.frozen)} frozen"),
        ("operations", f"{amounts.operations(step.flops)} a step and process; {amounts.operations(every)} in all"),
        ("between steps", f"{amounts.memory(found.state)} of weights and optimiser"),
        ("memory at its height", f"{amounts.memory(step.peak)} a process"),
        ("a step", f"{amounts.duration(step.seconds)}; {fetched} to decode its clips in one process"),
        ("time", f"{amounts.duration(seconds)}{tested}, by small steps that were taken on this {found.device}"),
    ]


def _little(config: Configured, videos: int) -> Configured:
    train = replace(config.train, accumulate=1, log_every=10**9, keep=())
    return replace(config, optim=replace(config.optim, batch=videos), train=train, data=replace(config.data, workers=0))


def _taken(run: Run) -> Little:
    """Some steps of a run: the first to warm up, the second counted, the third timed, and again."""
    log = RunLog(run.folder, total=run.total, show=False)
    batches = chain.from_iterable(run.loader.epoch(epoch) for epoch in count())
    _advance(run, next(batches), log)
    started = time.perf_counter()
    batch = next(batches)
    fetch = time.perf_counter() - started
    with Tally() as tally:
        tally.hold(_standing(run))
        run.advance(iter([batch]), 0, log)
    seconds, again = (_advance(run, batch, log) for batch in [next(batches)] * 2)
    return Little(tally.flops, tally.peak, seconds, fetch, again)


def _advance(run: Run, batch: Batch, log: RunLog) -> float:
    started = time.perf_counter()
    run.advance(iter([batch]), 0, log)
    if run.device.type == "cuda":
        torch.cuda.synchronize(run.device)
    return time.perf_counter() - started


def _along(sizes: tuple[int, ...], steps: list[Little], videos: int) -> Little:
    """What a step of so many videos takes, by the line through two small ones."""
    if len(steps) == 1:
        return steps[0]
    (less, more), (first, second) = sizes, steps
    further = (videos - more) / (more - less)
    return Little(*(max(b, b + (b - a) * further) for a, b in zip(first, second, strict=True)))


def _standing(run: Run) -> Iterator[Tensor]:
    """What is there between steps."""
    yield from run.method.parameters()
    yield from run.method.buffers()
    for kept in run.optimizer.state.values():
        yield from (value for value in kept.values() if isinstance(value, Tensor))


def _bytes(tensors: Iterator[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _millions(parameters: int) -> str:
    return f"{amounts.two(parameters / 1e6)} M"
