"""Estimate the time and memory of a training run or of a transcoded data set by doing a small part of it.

FLOPs, memory and time of a training step grow linearly with its videos, so two small steps give a large one. Everything
is done in a temporary folder.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.loading.loader_config import num_cores
from stillmotion.data.transcode.manifest import read_completed_entries
from stillmotion.data.transcode.transcode_job import check_transcode
from stillmotion.distributed.torchrun import torchrun_world_size
from stillmotion.errors import VideoError
from stillmotion.planning.flop_counter import FlopMemoryCounter
from stillmotion.training.checkpoint import load_training_state
from stillmotion.training.run_dir import check_resumable
from stillmotion.training.run_log import RunLog
from stillmotion.training.trainer import Trainer
from stillmotion.utils.device import resolve_device, synchronize
from stillmotion.utils.files import free_bytes, path_size
from stillmotion.utils.formatting import (
    LabelValue,
    format_bytes,
    format_duration,
    format_flops,
    format_memory,
    format_params,
    format_significant,
)

_SAMPLE_BATCH_SIZES = (2, 4)  # videos of the measured steps
_FORWARD_TIME_FRACTION = 1 / 3  # of a training step: a test has no backward pass
_NUM_TRANSCODED = 3  # videos that are transcoded
ConfigT = TypeVar("ConfigT", bound=Any)
TrainerT = TypeVar("TrainerT", bound=Trainer)


class StepCost(NamedTuple):
    """Cost of a training step: FLOPs, peak bytes, and seconds of the step, of decoding, and of a repeated step."""

    flops: float
    peak_bytes: float
    seconds: float
    decode_seconds: float
    cached_seconds: float


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """Cost of a training run per process.

    Args:
        num_videos: Training videos.
        total_steps: Steps of the run.
        steps_done: Steps that an interrupted run has done.
        trainable_params: Number of trained parameters.
        frozen_params: Number of frozen parameters.
        state_bytes: Bytes that persist between steps: weights and optimizer state.
        step_cost: Cost of a step with all its accumulated parts.
        device: Device type.
        num_workers: Number of decoding processes.
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
    def step_seconds(self) -> float:
        """Seconds of a step with decoding, which runs in parallel to a GPU and shares the cores of a CPU."""
        decode = self.step_cost.decode_seconds / max(1, min(self.num_workers, num_cores()))
        seconds = self.step_cost.seconds
        return decode + seconds if self.device == "cpu" else max(decode, seconds)


def measure_training(
    build: Callable[[ConfigT, Path, torch.device], TrainerT],
    config: ConfigT,
    run_dir: str | Path,
    *,
    build_full_run: bool = True,
) -> tuple[RunCost, TrainerT]:
    """Measure small steps of a run.

    Args:
        build: From a config, a folder and a device to a trainer.
        config: Config of the run.
        run_dir: Folder that the run will have; it is checked, and not written to.
        build_full_run: Build the run at its full batch size, too; without it the number of steps is not known.

    Returns:
        Its cost, and the trainer, whose temporary folder is removed.

    Raises:
        StillmotionError: The run could not start.
    """
    device = resolve_device(config.train.device)
    local_batch = config.optim.batch_size // (torchrun_world_size() * config.train.grad_accum_steps)
    if config.train.num_threads:
        torch.set_num_threads(config.train.num_threads)
    check_resumable(Path(run_dir), config)
    state = load_training_state(Path(run_dir)) or {}
    sizes = _SAMPLE_BATCH_SIZES if local_batch > _SAMPLE_BATCH_SIZES[-1] else (max(1, local_batch),)
    with tempfile.TemporaryDirectory() as folder:
        full_run = build(config, Path(folder, "run"), device) if build_full_run else None
        samples = [build(_with_batch_size(config, size), Path(folder, str(size)), device) for size in sizes]
        step = extrapolate(sizes, [measure_steps(trainer) for trainer in samples], local_batch)
    trainer, num_parts = full_run or samples[-1], config.train.grad_accum_steps
    num_trainable = sum(p.numel() for p in trainer.trainable_params.values())
    cost = RunCost(
        num_videos=getattr(trainer.loader, "num_videos", 0),
        total_steps=trainer.total_steps,
        steps_done=int(state.get("step", 0)),
        trainable_params=num_trainable,
        frozen_params=sum(p.numel() for p in trainer.model.parameters()) - num_trainable,
        state_bytes=sum(t.numel() * t.element_size() for t in _persistent_tensors(samples[-1])),
        step_cost=step._replace(
            flops=num_parts * step.flops,
            seconds=num_parts * step.seconds,
            decode_seconds=num_parts * step.decode_seconds,
        ),
        device=device.type,
        num_workers=num_cores() if config.data.num_workers < 0 else config.data.num_workers,
    )
    return cost, trainer


def format_run_cost(
    run_cost: RunCost,
    *,
    batch_size: int,
    num_test_clips: int = 0,
    num_runs: int = 1,
    uncached_steps: int | None = None,
) -> list[LabelValue]:
    """Format the cost of a run.

    Args:
        run_cost: Cost per process.
        batch_size: Videos per step of all processes.
        num_test_clips: Clips that are tested after training.
        num_runs: Number of equal runs, such as folds.
        uncached_steps: Steps on clips that are not cached yet, if the others are faster.

    Returns:
        Rows of label and value.
    """
    num_processes = torchrun_world_size()
    step, steps_left = run_cost.step_cost, max(0, run_cost.total_steps - run_cost.steps_done)
    steps = f"{run_cost.total_steps} of {batch_size} videos"
    steps += f" on {num_processes} processes" * (num_processes > 1) + f", {num_runs} times" * (num_runs > 1)
    if run_cost.steps_done:
        steps += f"; {run_cost.steps_done} are done, {steps_left} left"
    test_seconds = num_runs * num_test_clips * step.seconds * _FORWARD_TIME_FRACTION / batch_size
    new = steps_left if uncached_steps is None else max(0, min(steps_left, uncached_steps - run_cost.steps_done))
    seconds = num_runs * (new * run_cost.step_seconds + (steps_left - new) * step.cached_seconds) + test_seconds
    time_text = format_duration(seconds)
    if num_test_clips:
        time_text += f", of which {format_duration(test_seconds)} to test {num_test_clips} clips"
    params = f"{format_params(run_cost.trainable_params)} trained, {format_params(run_cost.frozen_params)} frozen"
    total_flops = format_flops(step.flops * new * num_runs * num_processes)
    decode = format_duration(step.decode_seconds)
    return [
        ("training videos", f"{run_cost.num_videos}"),
        ("steps", steps),
        ("parameters", params),
        ("FLOPs per step", f"{format_flops(step.flops)} per process; {total_flops} in all"),
        ("persistent memory (weights, optimizer)", format_memory(run_cost.state_bytes)),
        ("peak memory per process", format_memory(step.peak_bytes)),
        ("time per step", f"{format_duration(step.seconds)}; {decode} to decode its clips in one process"),
        ("time", f"{time_text}, extrapolated from small steps on this {run_cost.device}"),
    ]


def measure_steps(trainer: Trainer) -> StepCost:
    """Measure steps of a trainer: one to warm up, one counted, and one timed twice.

    Args:
        trainer: Trainer in a folder of its own.
    """
    log = RunLog(trainer.run_dir, total_steps=trainer.total_steps, enabled=False)
    batches = chain.from_iterable(trainer.loader.iter_epoch(epoch) for epoch in count())
    _time_step(trainer, next(batches), log)
    started = time.perf_counter()
    batch = next(batches)
    decode_seconds = time.perf_counter() - started
    with FlopMemoryCounter() as counter:
        counter.track(_persistent_tensors(trainer))
        trainer.train_step(iter([batch]), 0, log)
    seconds, cached_seconds = (_time_step(trainer, batch, log) for batch in [next(batches)] * 2)
    return StepCost(counter.flops, counter.peak_bytes, seconds, decode_seconds, cached_seconds)


def extrapolate(sizes: Sequence[int], costs: Sequence[StepCost], num_videos: int) -> StepCost:
    """Extrapolate the cost of a step linearly from two smaller steps.

    Args:
        sizes: Videos of each measured step: one or two.
        costs: Their costs.
        num_videos: Videos of the step.
    """
    if len(costs) == 1:
        return costs[0]
    factor = (num_videos - sizes[1]) / (sizes[1] - sizes[0])
    return StepCost(*(max(b, b + (b - a) * factor) for a, b in zip(*costs, strict=True)))


def estimate_transcode(
    dataset: VideoDataset,
    output_dir: str | Path,
    config: Any,
    transcode: Callable[..., Any],
    *,
    num_processes: int = 1,
) -> list[LabelValue]:
    """Estimate a transcoded copy of a data set from a few videos.

    Args:
        dataset: Videos.
        output_dir: Folder that the copy will have.
        config: Options of `transcode`.
        transcode: `prepare_dataset` or `make_static_dynamic_set`.
        num_processes: Number of encoding processes.

    Returns:
        Rows of label and value.

    Raises:
        StillmotionError: The copy cannot be written.
        VideoError: None of the sampled videos can be read.
    """
    check_transcode(dataset, output_dir, num_processes)
    indices = np.unique(np.linspace(0, len(dataset) - 1, min(_NUM_TRANSCODED, len(dataset))).astype(np.int64))
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        entries = transcode(Subset(dataset, indices), Path(folder, "copy"), config, num_processes=1)
        seconds = (time.perf_counter() - started) / len(indices)
        num_bytes = sum(path_size(file) for file in Path(folder).rglob("*") if file.is_file()) / len(indices)
    readable = [entry for entry in entries if not entry.error]
    if not readable:
        raise VideoError(entries[0].error)
    num_done = len(read_completed_entries(Path(output_dir), check_hash=False))
    num_left = max(0, len(dataset) - num_done)
    input_bytes = sum(path_size(Path(dataset.name(i))) for i in range(len(dataset))) * num_left / max(1, len(dataset))
    num_frames = format_significant(sum(entry.num_frames for entry in readable) / len(readable))
    free = format_bytes(free_bytes(output_dir) or 0)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return [
        ("videos", f"{len(dataset)}" + f", {num_done} of them done" * bool(num_done)),
        ("output per video", f"{num_frames} frames, {readable[0].width}×{readable[0].height} pixels"),
        *([("files to read", format_bytes(input_bytes))] if input_bytes else []),
        ("disk space", f"{format_bytes(num_bytes * num_left)}; {free} are free"),
        ("peak memory per process", f"{format_memory(memory)}, in {num_processes} processes"),
        (
            "time",
            f"{format_duration(seconds * num_left / num_processes)}, extrapolated from {len(indices)} videos",
        ),
    ]


def _with_batch_size(config: ConfigT, num_videos: int) -> ConfigT:
    return replace(
        config,
        optim=replace(config.optim, batch_size=num_videos),
        train=replace(config.train, grad_accum_steps=1, log_every_steps=10**9, save_epochs=()),
        data=replace(config.data, num_workers=0),
    )


def _time_step(trainer: Trainer, batch: Batch, log: RunLog) -> float:
    started = time.perf_counter()
    trainer.train_step(iter([batch]), 0, log)
    synchronize(trainer.device)
    return time.perf_counter() - started


def _persistent_tensors(trainer: Trainer) -> Iterator[Tensor]:
    yield from trainer.model.parameters()
    yield from trainer.model.buffers()
    for state in trainer.optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))
