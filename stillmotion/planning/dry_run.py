"""What a training run will take, told beforehand: small steps of the very run, in a temporary folder, which goes.

A step's operations, memory and time grow with its videos along a line, which two small steps give."""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from stillmotion.data.loading.collate import Batch
from stillmotion.data.loading.loader_config import num_cores
from stillmotion.planning.flop_counter import FlopMemoryCounter
from stillmotion.training.checkpoint import load_training_state
from stillmotion.training.run_dir import check_resumable
from stillmotion.training.run_log import RunLog
from stillmotion.training.trainer import Trainer
from stillmotion.utils import formatting
from stillmotion.utils.device import resolve_device
from stillmotion.utils.formatting import LabelValue, format_params

_SAMPLE_BATCH_SIZES = (2, 4)  # videos of the steps that are taken
_FORWARD_TIME_FRACTION = 1 / 3  # of a training step's time: a test has no backward pass
ConfigT = TypeVar("ConfigT", bound=Any)
TrainerT = TypeVar("TrainerT", bound=Trainer)


class StepCost(NamedTuple):
    """A small step: operations, bytes at its height, seconds of it, seconds until its clips were there.

    cached_seconds: seconds of the same step on clips that it has seen.
    """

    flops: float
    peak_bytes: float
    seconds: float
    decode_seconds: float
    cached_seconds: float


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """What a run asks of each of its devices.

    num_videos: of its set. steps: of the run; done: of them. trained, frozen: parameters. state: bytes that are there
    between steps. step: a whole one, with all its accumulated parts. device: its kind.
    """

    num_videos: int
    total_steps: int
    steps_done: int
    trainable_params: int
    frozen_params: int
    state_bytes: int
    step_cost: StepCost
    device: str
    num_workers: int

    @property
    def seconds(self) -> float:
        """Of a step; decoders beside a device of its own are waited for where they are slower."""
        fetch = self.step_cost.decode_seconds / max(1, min(self.num_workers, num_cores()))
        return fetch + self.step_cost.seconds if self.device == "cpu" else max(fetch, self.step_cost.seconds)


def measure_training(
    build: Callable[[ConfigT, Path, torch.device], TrainerT],
    config: ConfigT,
    run_dir: str | Path,
    *,
    num_processes: int = 1,
    build_full_run: bool = True,
) -> tuple[RunCost, TrainerT]:
    """What a run takes, and the run, whose folder is gone.

    build: makes it, of a configuration, in a folder. out: the folder that it will have. processes: that share a batch.
    build_full_run: False, of a run that is costly to make, makes small ones alone, which do not tell the number of steps.
    What is wrong with the configuration or the folder is said as when the run begins.
    """
    device, share = (
        resolve_device(config.train.device),
        config.optim.batch_size // (num_processes * config.train.grad_accum_steps),
    )
    if config.train.num_threads:
        torch.set_num_threads(config.train.num_threads)
    check_resumable(Path(run_dir), config)
    state = load_training_state(Path(run_dir)) or {}
    sizes = _SAMPLE_BATCH_SIZES if share > _SAMPLE_BATCH_SIZES[-1] else (max(1, share),)
    with tempfile.TemporaryDirectory() as place:
        first = build(config, Path(place, "run"), device) if build_full_run else None
        little = [build(_with_batch_size(config, size), Path(place, str(size)), device) for size in sizes]
        step = extrapolate(sizes, [_measure_steps(run) for run in little], share)
    run, parts = first or little[-1], config.train.grad_accum_steps
    trained = sum(p.numel() for p in run.trainable_params.values())
    found = RunCost(
        num_videos=getattr(run.loader, "num_videos", 0),
        total_steps=run.total_steps,
        steps_done=int(state.get("step", 0)),
        trainable_params=trained,
        frozen_params=sum(p.numel() for p in run.model.parameters()) - trained,
        state_bytes=_total_bytes(_persistent_tensors(little[-1])),
        step_cost=step._replace(
            flops=parts * step.flops, seconds=parts * step.seconds, decode_seconds=parts * step.decode_seconds
        ),
        device=device.type,
        num_workers=num_cores() if config.data.num_workers < 0 else config.data.num_workers,
    )
    return found, run


def format_run_cost(
    run_cost: RunCost,
    *,
    batch_size: int,
    num_processes: int = 1,
    num_test_clips: int = 0,
    num_runs: int = 1,
    uncached_steps: int | None = None,
) -> list[LabelValue]:
    """What a run takes, in words.

    batch_size: videos of a step. tests: clips that it is tested on. times: so many runs alike, such as folds.
    uncached_steps: steps on clips that were not seen before, where the others take less.
    """
    step, left = run_cost.step_cost, max(0, run_cost.total_steps - run_cost.steps_done)
    resumed = f"; {run_cost.steps_done} are done, {left} are left" if run_cost.steps_done else ""
    often = f", {num_runs} times" if num_runs > 1 else ""
    shared = f" on {num_processes} processes" if num_processes > 1 else ""
    test = num_test_clips * step.seconds / (batch_size / num_processes) * _FORWARD_TIME_FRACTION / num_processes
    tested = (
        f", {formatting.format_duration(num_runs * test)} of them for the test of {num_test_clips} clips"
        if num_test_clips
        else ""
    )
    new = left if uncached_steps is None else max(0, min(left, uncached_steps - run_cost.steps_done))
    seconds = num_runs * (new * run_cost.seconds + (left - new) * step.cached_seconds + test)
    every = step.flops * new * num_runs * num_processes
    fetched = formatting.format_duration(step.decode_seconds)
    return [
        ("videos to train on", f"{run_cost.num_videos}"),
        ("steps", f"{run_cost.total_steps} of {batch_size} videos{shared}{often}{resumed}"),
        (
            "parameters",
            f"{format_params(run_cost.trainable_params)} trained, {format_params(run_cost.frozen_params)} frozen",
        ),
        (
            "operations",
            f"{formatting.format_flops(step.flops)} a step and process; {formatting.format_flops(every)} in all",
        ),
        ("between steps", f"{formatting.format_memory(run_cost.state_bytes)} of weights and optimiser"),
        ("memory at its height", f"{formatting.format_memory(step.peak_bytes)} a process"),
        ("a step", f"{formatting.format_duration(step.seconds)}; {fetched} to decode its clips in one process"),
        (
            "time",
            f"{formatting.format_duration(seconds)}{tested}, by small steps that were taken on this {run_cost.device}",
        ),
    ]


def _with_batch_size(config: ConfigT, num_videos: int) -> ConfigT:
    train = replace(config.train, grad_accum_steps=1, log_every_steps=10**9, save_epochs=())
    return replace(
        config, optim=replace(config.optim, batch_size=num_videos), train=train, data=replace(config.data, num_workers=0)
    )


def _measure_steps(trainer: Trainer) -> StepCost:
    """Some steps of a run: the first to warm up, the second counted, the third timed, and again."""
    log = RunLog(trainer.run_dir, total_steps=trainer.total_steps, enabled=False)
    batches = chain.from_iterable(trainer.loader.iter_epoch(epoch) for epoch in count())
    _time_step(trainer, next(batches), log)
    started = time.perf_counter()
    batch = next(batches)
    fetch = time.perf_counter() - started
    with FlopMemoryCounter() as tally:
        tally.track(_persistent_tensors(trainer))
        trainer.train_step(iter([batch]), 0, log)
    seconds, again = (_time_step(trainer, batch, log) for batch in [next(batches)] * 2)
    return StepCost(tally.flops, tally.peak_bytes, seconds, fetch, again)


def _time_step(trainer: Trainer, batch: Batch, log: RunLog) -> float:
    started = time.perf_counter()
    trainer.train_step(iter([batch]), 0, log)
    if trainer.device.type == "cuda":
        torch.cuda.synchronize(trainer.device)
    return time.perf_counter() - started


def extrapolate(sizes: tuple[int, ...], steps: list[StepCost], num_videos: int) -> StepCost:
    """What a step of so many videos takes, by the line through two small ones."""
    if len(steps) == 1:
        return steps[0]
    (less, more), (first, second) = sizes, steps
    further = (num_videos - more) / (more - less)
    return StepCost(*(max(b, b + (b - a) * further) for a, b in zip(first, second, strict=True)))


def _persistent_tensors(trainer: Trainer) -> Iterator[Tensor]:
    """What is there between steps."""
    yield from trainer.model.parameters()
    yield from trainer.model.buffers()
    for kept in trainer.optimizer.state.values():
        yield from (value for value in kept.values() if isinstance(value, Tensor))


def _total_bytes(tensors: Iterator[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
