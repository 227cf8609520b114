"""What a pre-training run will ask of its devices, counted on a step without numbers (`train.imagined`).

What is not counted: what convolutions and collectives take for themselves while they work, and what an allocator
wastes between blocks; docs/scale.md says how much of a GPU to leave for them."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from stillmotion.distributed import process_group
from stillmotion.errors import StillmotionError
from stillmotion.methods.method import Method, MethodOutput
from stillmotion.models.activation_checkpointing import apply_activation_checkpointing
from stillmotion.models.batch_norm import convert_sync_batchnorm
from stillmotion.optim.bilevel import ParamDict
from stillmotion.optim.optimizers import build_optimizer
from stillmotion.planning.flop_counter import FlopMemoryCounter, build_on_fake_tensors, fake_tensor_mode
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.train_step import compute_gradients
from stillmotion.utils import formatting
from stillmotion.utils.device import resolve_device, synchronize
from stillmotion.utils.files import path_size
from stillmotion.utils.formatting import LabelValue

GIB = 2**30
_SECONDS_PER_DAY = 86400
_BF16: Literal["bf16"] = "bf16"
_TIMED_BATCH_SIZES = (4, 12)  # videos of the steps that are timed
_MIN_TIMED_BATCH, _LARGE_STEP_FLOPS = (
    2,
    1e12,
)  # videos of the one that is, where the larger has more operations than this
_USABLE_MEMORY_FRACTION = 0.9  # of a device's memory: the rest is for what is not counted


@dataclass(frozen=True)
class PretrainStepCost:
    """What a step asks of each of several devices.

    trainable_params: weights that are moved. flops: floating-point operations, a product and its sum being two.
    state_bytes: bytes that are there between steps: weights, statistics, queues, and what the optimiser keeps.
    peak_bytes: bytes at the step's height, state among them. clips: a device's, in one of the parts of a batch.
    """

    trainable_params: int
    flops: int
    state_bytes: int
    peak_bytes: int
    clips_per_device: int


class DeviceThroughput(NamedTuple):
    """Operations a second that a device reaches, and seconds that a step takes beside them."""

    flops_per_second: float
    overhead_seconds: float = 0.0

    def seconds(self, flops: int) -> float:
        return self.overhead_seconds + flops / self.flops_per_second


@dataclass(frozen=True)
class GpuEstimate:
    """A run on so many devices of so many bytes each.

    total_steps: of the run. seconds: of a step.
    clip_bytes_per_second: bytes of clips that go to each device in a second.
    """

    step_cost: PretrainStepCost
    num_devices: int
    usable_bytes: int
    total_steps: int
    step_seconds: float
    clip_bytes_per_second: float

    @property
    def fits(self) -> bool:
        return self.step_cost.peak_bytes <= self.usable_bytes

    @property
    def days(self) -> float:
        return self.total_steps * self.step_seconds / _SECONDS_PER_DAY


def estimate_run(
    config: PretrainConfig, *, num_videos: int, num_devices: int, usable_bytes: float, throughput: DeviceThroughput
) -> GpuEstimate:
    """What a run on so many videos asks of so many devices.

    usable_bytes: bytes of a device that a run may fill. pace: of a device.
    """
    cost = count_step_cost(config, num_devices=num_devices)
    steps = max(1, num_videos // config.optim.batch_size) * config.optim.epochs
    seconds = throughput.seconds(cost.flops)
    parts = cost.clips_per_device * config.train.grad_accum_steps
    side, frames = config.data.image_size, config.data.num_frames + config.method.views.extra_frames
    moved = parts * 3 * frames * side**2 * (4 if config.data.augment_on == "workers" else 1) / seconds
    return GpuEstimate(cost, num_devices, int(usable_bytes), steps, seconds, moved)


def count_step_cost(config: PretrainConfig, *, num_devices: int = 1) -> PretrainStepCost:
    """What a step of these settings asks of the first of so many devices."""
    parts = num_devices * config.train.grad_accum_steps
    if config.optim.batch_size % parts:
        raise StillmotionError(
            f"a batch of {config.optim.batch_size} cannot be shared by {num_devices} devices × {config.train.grad_accum_steps} "
            f"accumulated parts; choose a multiple of {parts} (--optim.batch-size)"
        )
    if config.method.model.uses_tokens:
        raise StillmotionError("a run on kept tokens is small; it is estimated by trying it")
    videos = config.optim.batch_size // parts
    with fake_tensor_mode(num_devices), FlopMemoryCounter() as tally:
        step = _ZeroInputStep(config, build_on_fake_tensors(lambda: _build_method(config)), videos)
        weights = tally.current_bytes
        solved = step.compute_gradients()
        height = tally.peak_bytes
        step.optimizer_step(solved)
        del solved
        state = tally.current_bytes
    peak = max(tally.peak_bytes, height + state - weights)  # what the optimiser has made is there in the next step
    parameters = sum(p.numel() for p in step.method.trainable_parameters().values())
    return PretrainStepCost(parameters, tally.flops, state, peak, videos * config.data.clips_per_video)


def find_fitting_config(
    config: PretrainConfig, *, num_devices: int, usable_bytes: float
) -> tuple[PretrainConfig, str] | None:
    """The nearest settings whose step fits into so many bytes a device, and the options that make them."""
    for changed, options in _memory_saving_configs(config, num_devices):
        if count_step_cost(changed, num_devices=num_devices).peak_bytes <= usable_bytes:
            return changed, options
    return None


def measure_throughput(config: PretrainConfig, device: torch.device) -> DeviceThroughput:
    """What this device reaches, by two small steps of these settings, or by the smallest of large ones."""
    little = (
        _TIMED_BATCH_SIZES
        if count_step_cost(_with_batch_size(config, _TIMED_BATCH_SIZES[-1])).flops < _LARGE_STEP_FLOPS
        else (_MIN_TIMED_BATCH,)
    )
    timed = [_time_step(config, videos, device) for videos in little]
    if len(timed) == 1:
        return DeviceThroughput(timed[0][0] / timed[0][1])
    (flops, seconds), (more, longer) = timed
    rate = (more - flops) / max(longer - seconds, 1e-9)
    return DeviceThroughput(rate, max(0.0, seconds - flops / rate))


def _time_step(config: PretrainConfig, num_videos: int, device: torch.device) -> tuple[int, float]:
    """Operations and seconds of a step of so many videos."""
    little = _with_batch_size(config, num_videos)
    step = _ZeroInputStep(little, _build_method(little).to(device), num_videos, device)
    # On a CPU its own time, which others that use it do not lengthen.
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    seconds = []
    for _ in range(4 if num_videos > _MIN_TIMED_BATCH else 2):
        synchronize(device)
        started = clock()
        step()
        synchronize(device)
        seconds.append(clock() - started)
    return count_step_cost(little).flops, min(seconds[1:])


def _with_batch_size(config: PretrainConfig, num_videos: int) -> PretrainConfig:
    return replace(
        config, optim=replace(config.optim, batch_size=num_videos), train=replace(config.train, grad_accum_steps=1)
    )


def estimate_rows(
    config: PretrainConfig,
    *,
    num_videos: int,
    num_devices: int,
    memory_gib: float,
    tflops: float,
    device_noun: str = "GPU",
    steps_done: int = 0,
) -> list[LabelValue]:
    """An estimate in words; the precision "auto" is bf16 on GPUs.

    memory_gib: GiB of a device. tflops: that each reaches; 0 times a small step here.
    num_videos: of the set; 0 counts those of the configuration. called: what a device is. done: steps of the run.
    """
    for name, value, least in (("videos", num_videos, 0), ("gpus", num_devices, 1), ("gpu_memory", memory_gib, 0)):
        if value < least:
            raise StillmotionError(f"{name} is {value}; it must be at least {least}")
    if config.train.precision == "auto":
        config = replace(config, train=replace(config.train, precision=_BF16 if device_noun == "GPU" else "fp32"))
    size = 0.0
    if not num_videos:
        found = config.data.open(synthetic=config.data.synthetic, seed=config.train.seed)
        num_videos = len(found)
        size = sum(path_size(Path(found.name(i))) for i in range(num_videos)) / max(1, num_videos)
    here = resolve_device(config.train.device)
    pace = DeviceThroughput(tflops * 1e12) if tflops else measure_throughput(config, here)
    usable = _USABLE_MEMORY_FRACTION * memory_gib * GIB
    run = estimate_run(config, num_videos=num_videos, num_devices=num_devices, usable_bytes=usable, throughput=pace)
    cost, each = run.step_cost, run.step_cost.clips_per_device * config.train.grad_accum_steps
    several = f"{num_devices} {device_noun}s {each} clips each" if num_devices > 1 else f"a {device_noun} all {each}"
    reached = f"{formatting.format_flops(pace.flops_per_second)}/s" + (
        f" (small steps, timed on this {here.type})" if not tflops else ""
    )
    kind = "float32" if config.data.augment_on == "workers" else "uint8"
    read = config.optim.batch_size / run.step_seconds
    resumed = f"; {steps_done} are done, {max(0, run.total_steps - steps_done)} left" if steps_done else ""
    left = max(0, run.total_steps - steps_done) * run.step_seconds
    rows = [
        (
            "a step",
            f"{config.optim.batch_size} videos of {config.data.clips_per_video} clips; on {several}, {config.train.precision}",
        ),
        ("weights that are moved", f"{formatting.format_significant(cost.trainable_params / 1e6)} M"),
        ("between steps", f"{formatting.format_memory(cost.state_bytes)} of weights, statistics and optimiser"),
        (
            "beside them in a step",
            f"{formatting.format_memory(cost.peak_bytes - cost.state_bytes)} of clips, activations and gradients",
        ),
        (
            "memory at its height",
            f"{formatting.format_memory(cost.peak_bytes)} of {formatting.format_memory(usable)} usable a {device_noun}",
        ),
        (
            "operations of a step",
            f"{formatting.format_flops(cost.flops)} a {device_noun}: {formatting.format_duration(run.step_seconds)} at {reached}",
        ),
        (f"clips to each {device_noun}", f"{formatting.format_bytes(run.clip_bytes_per_second)} a second, as {kind}"),
        (
            "read for all",
            f"{formatting.format_significant(read)} videos a second"
            + (f", {formatting.format_bytes(read * size)}" if size else ""),
        ),
        ("time", f"{formatting.format_duration(left)}: {run.total_steps} steps on {num_videos} videos{resumed}"),
    ]
    if run.fits:
        return [*rows, ("it fits", "")]
    nearest = find_fitting_config(config, num_devices=num_devices, usable_bytes=usable)
    remedy = f"this does: {nearest[1]}" if nearest else f"nor does a smaller part of a batch; take more {device_noun}s"
    return [*rows, ("it does not fit", remedy)]


class _ZeroInputStep:
    """A step of pre-training on clips of nothing."""

    def __init__(
        self, config: PretrainConfig, method: Method, num_videos: int, device: torch.device | str = "cpu"
    ) -> None:
        self.config, self.method = config, method
        self.optimizer = build_optimizer(dict(method.trainable_parameters()), config.optim)
        data = config.data
        self.clips = torch.zeros(
            num_videos, data.clips_per_video, 3, data.num_frames, data.image_size, data.image_size, device=device
        )

    def __call__(self) -> None:
        self.optimizer_step(self.compute_gradients())

    def compute_gradients(self) -> list[tuple[MethodOutput, ParamDict]]:
        return [
            compute_gradients(self.method, self.clips, self.config) for _ in range(self.config.train.grad_accum_steps)
        ]

    def optimizer_step(self, parts: list[tuple[MethodOutput, ParamDict]]) -> None:
        for name, p in self.method.trainable_parameters().items():
            p.grad = torch.stack([gradient[name] for _, gradient in parts]).mean(0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.method.after_step([found.keys for found, _ in parts], 0.5)


def _build_method(config: PretrainConfig) -> Method:
    method = Method(config.method).train()
    if process_group.get_world_size() > 1 and not config.method.objective.shuffles_keys:
        convert_sync_batchnorm(method)
    if config.train.activation_checkpointing:
        apply_activation_checkpointing(method.online.backbone)
    return method


def _memory_saving_configs(config: PretrainConfig, num_devices: int) -> Iterator[tuple[PretrainConfig, str]]:
    """Settings that need less and less memory; those that change what is learned come last."""
    if config.train.precision == "fp32":
        config = replace(config, train=replace(config.train, precision=_BF16))
        yield config, "--train.precision bf16"
    if not config.train.activation_checkpointing:
        config = replace(config, train=replace(config.train, activation_checkpointing=True))
        yield config, "--train.precision bf16 --train.activation-checkpointing"
    parts = config.train.grad_accum_steps * 2
    while (
        config.optim.batch_size // (num_devices * parts) >= 2 and config.optim.batch_size % (num_devices * parts) == 0
    ):
        yield (
            replace(config, train=replace(config.train, grad_accum_steps=parts)),
            f"--train.precision bf16 --train.activation-checkpointing --train.grad-accum-steps {parts}",
        )
        parts *= 2
