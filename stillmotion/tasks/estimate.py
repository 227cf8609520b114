"""What a pre-training run will ask of its devices, counted on a step without numbers (`train.imagined`).

What is not counted: what convolutions and collectives take for themselves while they work, and what an allocator
wastes between blocks; docs/scale.md says how much of a GPU to leave for them.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from stillmotion import amounts, distributed
from stillmotion.amounts import Row
from stillmotion.config import Config
from stillmotion.data.manifest import size_of
from stillmotion.errors import StillmotionError
from stillmotion.methods.method import Losses, Method
from stillmotion.nn.norms import join_norms
from stillmotion.nn.recompute import recompute_stages
from stillmotion.optim.bilevel import Weights
from stillmotion.optim.optimizers import build_optimizer
from stillmotion.train.imagined import Tally, imagine, imagined
from stillmotion.train.process import choose_device
from stillmotion.train.solve import solve

GIB = 2**30
_DAY = 86400
_BF16: Literal["bf16"] = "bf16"
_LITTLE = (4, 12)  # videos of the steps that are timed
_LEAST, _MUCH = 2, 1e12  # videos of the one that is, where the larger has more operations than this
_USABLE = 0.9  # of a device's memory: the rest is for what is not counted


@dataclass(frozen=True)
class Cost:
    """What a step asks of each of several devices.

    parameters: weights that are moved. flops: floating-point operations, a product and its sum being two.
    state: bytes that are there between steps: weights, statistics, queues, and what the optimiser keeps.
    peak: bytes at the step's height, state among them. clips: a device's, in one of the parts of a batch.
    """

    parameters: int
    flops: int
    state: int
    peak: int
    clips: int


class Pace(NamedTuple):
    """Operations a second that a device reaches, and seconds that a step takes beside them."""

    rate: float
    beside: float = 0.0

    def seconds(self, flops: int) -> float:
        return self.beside + flops / self.rate


@dataclass(frozen=True)
class Estimate:
    """A run on so many devices of so many bytes each.

    steps: of the run. seconds: of a step.
    moved: bytes of clips that go to each device in a second.
    """

    cost: Cost
    devices: int
    memory: int
    steps: int
    seconds: float
    moved: float

    @property
    def fits(self) -> bool:
        return self.cost.peak <= self.memory

    @property
    def days(self) -> float:
        return self.steps * self.seconds / _DAY


def estimate(config: Config, *, videos: int, devices: int, memory: float, pace: Pace) -> Estimate:
    """What a run on so many videos asks of so many devices.

    memory: bytes of a device that a run may fill. pace: of a device.
    """
    cost = step_cost(config, devices=devices)
    steps = max(1, videos // config.optim.batch) * config.optim.epochs
    seconds = pace.seconds(cost.flops)
    parts = cost.clips * config.train.accumulate
    side, frames = config.data.size, config.data.frames + config.method.views.extra
    moved = parts * 3 * frames * side**2 * (4 if config.data.finish == "workers" else 1) / seconds
    return Estimate(cost, devices, int(memory), steps, seconds, moved)


def step_cost(config: Config, *, devices: int = 1) -> Cost:
    """What a step of these settings asks of the first of so many devices."""
    parts = devices * config.train.accumulate
    if config.optim.batch % parts:
        raise StillmotionError(
            f"a batch of {config.optim.batch} cannot be shared by {devices} devices × {config.train.accumulate} "
            f"accumulated parts; choose a multiple of {parts} (--optim.batch)"
        )
    if config.method.model.of_tokens:
        raise StillmotionError("a run on kept tokens is small; it is estimated by trying it")
    videos = config.optim.batch // parts
    with imagined(devices), Tally() as tally:
        step = _Step(config, imagine(lambda: _built(config)), videos)
        weights = tally.now
        solved = step.solve()
        height = tally.peak
        step.move(solved)
        del solved
        state = tally.now
    peak = max(tally.peak, height + state - weights)  # what the optimiser has made is there in the next step
    parameters = sum(p.numel() for p in step.method.trainable().values())
    return Cost(parameters, tally.flops, state, peak, videos * config.data.clips)


def fitting(config: Config, *, devices: int, memory: float) -> tuple[Config, str] | None:
    """The nearest settings whose step fits into so many bytes a device, and the options that make them."""
    for changed, options in _ladder(config, devices):
        if step_cost(changed, devices=devices).peak <= memory:
            return changed, options
    return None


def measured_pace(config: Config, device: torch.device) -> Pace:
    """What this device reaches, by two small steps of these settings, or by the smallest of large ones."""
    little = _LITTLE if step_cost(_of(config, _LITTLE[-1])).flops < _MUCH else (_LEAST,)
    timed = [_timed(config, videos, device) for videos in little]
    if len(timed) == 1:
        return Pace(timed[0][0] / timed[0][1])
    (flops, seconds), (more, longer) = timed
    rate = (more - flops) / max(longer - seconds, 1e-9)
    return Pace(rate, max(0.0, seconds - flops / rate))


def _timed(config: Config, videos: int, device: torch.device) -> tuple[int, float]:
    """Operations and seconds of a step of so many videos."""
    little = _of(config, videos)
    step = _Step(little, _built(little).to(device), videos, device)
    # On a CPU its own time, which others that use it do not lengthen.
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    seconds = []
    for _ in range(4 if videos > _LEAST else 2):
        _wait(device)
        started = clock()
        step()
        _wait(device)
        seconds.append(clock() - started)
    return step_cost(little).flops, min(seconds[1:])


def _of(config: Config, videos: int) -> Config:
    return replace(config, optim=replace(config.optim, batch=videos), train=replace(config.train, accumulate=1))


def estimate_rows(
    config: Config, *, videos: int, devices: int, memory: float, tflops: float, called: str = "GPU", done: int = 0
) -> list[Row]:
    """An estimate in words; the precision "auto" is bf16 on GPUs.

    memory: GiB of a device. tflops: that each reaches; 0 times a small step here.
    videos: of the set; 0 counts those of the configuration. called: what a device is. done: steps of the run.
    """
    for name, value, least in (("videos", videos, 0), ("gpus", devices, 1), ("gpu_memory", memory, 0)):
        if value < least:
            raise StillmotionError(f"{name} is {value}; it must be at least {least}")
    if config.train.precision == "auto":
        config = replace(config, train=replace(config.train, precision=_BF16 if called == "GPU" else "fp32"))
    size = 0.0
    if not videos:
        found = config.data.open(drawn=config.data.synthetic, seed=config.train.seed)
        videos = len(found)
        size = sum(size_of(Path(found.name(i))) for i in range(videos)) / max(1, videos)
    here = choose_device(config.train.device)
    pace = Pace(tflops * 1e12) if tflops else measured_pace(config, here)
    usable = _USABLE * memory * GIB
    run = estimate(config, videos=videos, devices=devices, memory=usable, pace=pace)
    cost, each = run.cost, run.cost.clips * config.train.accumulate
    several = f"{devices} {called}s {each} clips each" if devices > 1 else f"a {called} all {each}"
    reached = f"{amounts.operations(pace.rate)}/s" + (
        f" (small steps, timed on this {here.type})" if not tflops else ""
    )
    kind = "float32" if config.data.finish == "workers" else "uint8"
    read = config.optim.batch / run.seconds
    resumed = f"; {done} are done, {max(0, run.steps - done)} left" if done else ""
    left = max(0, run.steps - done) * run.seconds
    rows = [
        ("a step", f"{config.optim.batch} videos of {config.data.clips} clips; on {several}, {config.train.precision}"),
        ("weights that are moved", f"{amounts.two(cost.parameters / 1e6)} M"),
        ("between steps", f"{amounts.memory(cost.state)} of weights, statistics and optimiser"),
        ("beside them in a step", f"{amounts.memory(cost.peak - cost.state)} of clips, activations and gradients"),
        ("memory at its height", f"{amounts.memory(cost.peak)} of {amounts.memory(usable)} usable a {called}"),
        (
            "operations of a step",
            f"{amounts.operations(cost.flops)} a {called}: {amounts.duration(run.seconds)} at {reached}",
        ),
        (f"clips to each {called}", f"{amounts.room(run.moved)} a second, as {kind}"),
        ("read for all", f"{amounts.two(read)} videos a second" + (f", {amounts.room(read * size)}" if size else "")),
        ("time", f"{amounts.duration(left)}: {run.steps} steps on {videos} videos{resumed}"),
    ]
    if run.fits:
        return [*rows, ("it fits", "")]
    nearest = fitting(config, devices=devices, memory=usable)
    remedy = f"this does: {nearest[1]}" if nearest else f"nor does a smaller part of a batch; take more {called}s"
    return [*rows, ("it does not fit", remedy)]


class _Step:
    """A step of pre-training on clips of nothing."""

    def __init__(self, config: Config, method: Method, videos: int, device: torch.device | str = "cpu") -> None:
        self.config, self.method = config, method
        self.optimizer = build_optimizer(dict(method.trainable()), config.optim)
        data = config.data
        self.clips = torch.zeros(videos, data.clips, 3, data.frames, data.size, data.size, device=device)

    def __call__(self) -> None:
        self.move(self.solve())

    def solve(self) -> list[tuple[Losses, Weights]]:
        return [solve(self.method, self.clips, self.config) for _ in range(self.config.train.accumulate)]

    def move(self, parts: list[tuple[Losses, Weights]]) -> None:
        for name, p in self.method.trainable().items():
            p.grad = torch.stack([gradient[name] for _, gradient in parts]).mean(0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.method.commit([found.keys for found, _ in parts], 0.5)


def _built(config: Config) -> Method:
    method = Method(config.method).train()
    if distributed.world() > 1 and not config.method.objective.shuffles:
        join_norms(method)
    if config.train.checkpointing:
        recompute_stages(method.online.backbone)
    return method


def _ladder(config: Config, devices: int) -> Iterator[tuple[Config, str]]:
    """Settings that need less and less memory; those that change what is learned come last."""
    if config.train.precision == "fp32":
        config = replace(config, train=replace(config.train, precision=_BF16))
        yield config, "--train.precision bf16"
    if not config.train.checkpointing:
        config = replace(config, train=replace(config.train, checkpointing=True))
        yield config, "--train.precision bf16 --train.checkpointing"
    parts = config.train.accumulate * 2
    while config.optim.batch // (devices * parts) >= 2 and config.optim.batch % (devices * parts) == 0:
        yield (
            replace(config, train=replace(config.train, accumulate=parts)),
            f"--train.precision bf16 --train.checkpointing --train.accumulate {parts}",
        )
        parts *= 2


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
