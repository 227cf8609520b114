"""`estimate`: GPU memory and time of a pre-training run, counted on one training step with FakeTensors.

Not counted are the workspaces of convolutions and collectives, and fragmentation of the allocator.
"""

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
from stillmotion.training.pretrain.batch_gradients import compute_gradients
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.utils.device import resolve_device, synchronize
from stillmotion.utils.files import path_size
from stillmotion.utils.formatting import (
    LabelValue,
    format_bytes,
    format_duration,
    format_flops,
    format_memory,
    format_params,
    format_significant,
)

GIB = 2**30
_BF16: Literal["bf16"] = "bf16"
_TIMED_BATCH_SIZES = (4, 12)  # videos of the timed steps
_MIN_TIMED_BATCH = 2  # videos of the one timed step of a large network
_LARGE_STEP_FLOPS = 1e12
_USABLE_MEMORY_FRACTION = 0.9  # of a device's memory: the rest is for what is not counted


@dataclass(frozen=True)
class PretrainStepCost:
    """Cost of a training step per device.

    Attributes:
        trainable_params: Number of trained parameters.
        flops: Floating-point operations; a multiply-add counts as two.
        state_bytes: Bytes that persist between steps: weights, statistics, queues and optimizer state.
        peak_bytes: Peak bytes of the step, state included.
        clips_per_device: Clips of a device in one accumulated part of a batch.
    """

    trainable_params: int
    flops: int
    state_bytes: int
    peak_bytes: int
    clips_per_device: int


class DeviceThroughput(NamedTuple):
    """Speed of a device: achieved FLOP/s, and further seconds per step."""

    flops_per_second: float
    overhead_seconds: float = 0.0

    def seconds(self, flops: int) -> float:
        """Return the seconds of a step with this many FLOPs."""
        return self.overhead_seconds + flops / self.flops_per_second


def count_step_cost(config: PretrainConfig, *, num_devices: int = 1) -> PretrainStepCost:
    """Count the cost of a step on FakeTensors, on the first of several devices.

    Args:
        config: Config of the run.
        num_devices: Number of devices that share a batch.

    Raises:
        StillmotionError: The batch cannot be divided, or the run trains on cached tokens.
    """
    num_parts = num_devices * config.train.grad_accum_steps
    if config.optim.batch_size % num_parts:
        raise StillmotionError(
            f"a batch of {config.optim.batch_size} cannot be shared by {num_devices} devices × "
            f"{config.train.grad_accum_steps} accumulated parts; choose a multiple of {num_parts} (--optim.batch-size)"
        )
    if config.method.model.uses_tokens:
        raise StillmotionError("a run on cached tokens is not counted; use stillmotion pretrain … --dry-run")
    num_videos = config.optim.batch_size // num_parts
    with fake_tensor_mode(num_devices), FlopMemoryCounter() as counter:
        step = _ZeroInputStep(config, build_on_fake_tensors(lambda: _build_method(config)), num_videos)
        weight_bytes = counter.current_bytes
        gradients = step.compute_gradients()
        gradient_peak = counter.peak_bytes
        step.optimizer_step(gradients)
        del gradients
        state_bytes = counter.current_bytes
    # The optimizer state of the first step exists during the next one.
    peak_bytes = max(counter.peak_bytes, gradient_peak + state_bytes - weight_bytes)
    num_params = sum(p.numel() for p in step.method.trainable_parameters().values())
    num_clips = num_videos * config.data.clips_per_video
    return PretrainStepCost(num_params, counter.flops, state_bytes, peak_bytes, num_clips)


def find_fitting_config(
    config: PretrainConfig, *, num_devices: int, usable_bytes: float
) -> tuple[PretrainConfig, str] | None:
    """Find the nearest options whose step fits into memory.

    Args:
        config: Config of the run.
        num_devices: Number of devices that share a batch.
        usable_bytes: Bytes of a device that the run may use.

    Returns:
        The changed config and its command-line options; None if nothing fits.
    """
    for changed, options in _memory_saving_configs(config, num_devices):
        if count_step_cost(changed, num_devices=num_devices).peak_bytes <= usable_bytes:
            return changed, options
    return None


def measure_throughput(config: PretrainConfig, device: torch.device) -> DeviceThroughput:
    """Measure the speed of a device by two small steps, or by one small step of a large network.

    Args:
        config: Config of the run.
        device: Device.
    """
    is_large = count_step_cost(_with_batch_size(config, _TIMED_BATCH_SIZES[-1])).flops >= _LARGE_STEP_FLOPS
    sizes = (_MIN_TIMED_BATCH,) if is_large else _TIMED_BATCH_SIZES
    timed = [_time_step(config, num_videos, device) for num_videos in sizes]
    if len(timed) == 1:
        return DeviceThroughput(timed[0][0] / timed[0][1])
    (flops, seconds), (more_flops, more_seconds) = timed
    rate = (more_flops - flops) / max(more_seconds - seconds, 1e-9)
    return DeviceThroughput(rate, max(0.0, seconds - flops / rate))


def _time_step(config: PretrainConfig, num_videos: int, device: torch.device) -> tuple[int, float]:
    """Return FLOPs and seconds of a step."""
    sample_config = _with_batch_size(config, num_videos)
    step = _ZeroInputStep(sample_config, _build_method(sample_config).to(device), num_videos, device)
    # On a CPU, process time is not lengthened by other processes.
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    seconds = []
    for _ in range(4 if num_videos > _MIN_TIMED_BATCH else 2):
        synchronize(device)
        started = clock()
        step()
        synchronize(device)
        seconds.append(clock() - started)
    return count_step_cost(sample_config).flops, min(seconds[1:])


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
    """Estimate a run as rows of label and value; the precision "auto" is bf16 on GPUs.

    Args:
        config: Config of the run.
        num_videos: Number of training videos; 0 counts those of the config.
        num_devices: Number of devices that share a batch.
        memory_gib: Memory per device in GiB.
        tflops: Achieved TFLOP/s per device; 0 measures small steps on this machine.
        device_noun: What a device is called.
        steps_done: Steps that an interrupted run has done.

    Raises:
        StillmotionError: A number is too small, or the batch cannot be divided.
    """
    smallest = {"num_videos": (num_videos, 0), "num_gpus": (num_devices, 1), "gpu_memory": (memory_gib, 0)}
    for name, (value, least) in smallest.items():
        if value < least:
            raise StillmotionError(f"{name} is {value}; it must be at least {least}")
    if config.train.precision == "auto":
        config = replace(config, train=replace(config.train, precision=_BF16 if device_noun == "GPU" else "fp32"))
    video_bytes = 0.0
    if not num_videos:
        dataset = config.data.open(synthetic=config.data.synthetic, seed=config.train.seed)
        num_videos = len(dataset)
        video_bytes = sum(path_size(Path(dataset.name(i))) for i in range(num_videos)) / max(1, num_videos)
    device = resolve_device(config.train.device)
    throughput = DeviceThroughput(tflops * 1e12) if tflops else measure_throughput(config, device)
    usable = _USABLE_MEMORY_FRACTION * memory_gib * GIB
    cost, data, batch_size = count_step_cost(config, num_devices=num_devices), config.data, config.optim.batch_size
    step_seconds = throughput.seconds(cost.flops)
    total_steps = max(1, num_videos // batch_size) * config.optim.epochs
    num_clips = cost.clips_per_device * config.train.grad_accum_steps
    num_frames = data.num_frames + config.method.views.extra_frames
    dtype, bytes_per_value = ("float32", 4) if data.augment_on == "workers" else ("uint8", 1)
    clip_bytes = 3 * num_frames * data.image_size**2 * bytes_per_value
    devices = f"{num_devices} {device_noun}s with" if num_devices > 1 else f"1 {device_noun} with"
    speed = f"{format_flops(throughput.flops_per_second)}/s" + ("" if tflops else f" (measured on this {device.type})")
    steps_left = max(0, total_steps - steps_done)
    done = f"; {steps_done} are done, {steps_left} left" if steps_done else ""
    videos_per_second = batch_size / step_seconds
    read = format_significant(videos_per_second)
    read += f", {format_bytes(videos_per_second * video_bytes)}" if video_bytes else ""
    rows = [
        (
            "batch",
            f"{batch_size} videos × {data.clips_per_video} clips; {devices} {num_clips} clips each, "
            f"{config.train.precision}",
        ),
        ("trainable parameters", format_params(cost.trainable_params)),
        ("persistent memory", f"{format_memory(cost.state_bytes)} (weights, optimizer)"),
        ("activations and gradients", format_memory(cost.peak_bytes - cost.state_bytes)),
        (f"peak memory per {device_noun}", f"{format_memory(cost.peak_bytes)} of {format_memory(usable)} usable"),
        ("FLOPs per step", f"{format_flops(cost.flops)} per {device_noun}: {format_duration(step_seconds)} at {speed}"),
        (f"input bandwidth per {device_noun}", f"{format_bytes(num_clips * clip_bytes / step_seconds)}/s as {dtype}"),
        ("videos read per second", read),
        ("time", f"{format_duration(steps_left * step_seconds)}: {total_steps} steps on {num_videos} videos{done}"),
    ]
    if cost.peak_bytes <= usable:
        return [*rows, ("fits", "yes")]
    nearest = find_fitting_config(config, num_devices=num_devices, usable_bytes=usable)
    remedy = (
        f"These options fit: {nearest[1]}" if nearest else f"More accumulation does not help; use more {device_noun}s."
    )
    return [*rows, ("fits", f"no. {remedy}")]


class _ZeroInputStep:
    """A pre-training step on clips of zeros."""

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
        self.method.after_step([output.keys for output, _ in parts], 0.5)


def _build_method(config: PretrainConfig) -> Method:
    method = Method(config.method).train()
    if process_group.get_world_size() > 1 and not config.method.objective.shuffles_keys:
        convert_sync_batchnorm(method)
    if config.train.activation_checkpointing:
        apply_activation_checkpointing(method.online.backbone)
    return method


def _memory_saving_configs(config: PretrainConfig, num_devices: int) -> Iterator[tuple[PretrainConfig, str]]:
    """Yield configs that need less and less memory, with their options; what changes the result comes last."""
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
