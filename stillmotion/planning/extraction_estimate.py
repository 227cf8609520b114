"""Estimate the time and memory of passing videos through a frozen network, from a sample of them."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from stillmotion.data.loading.loader_config import LoaderConfig, num_cores
from stillmotion.data.loading.worker_pool import PREFETCH_FACTOR
from stillmotion.distributed.torchrun import torchrun_world_size
from stillmotion.encoders.feature_cache import ExtractionJob
from stillmotion.encoders.feature_extraction import (
    EMBEDDING_FIELDS,
    build_eval_clip_dataset,
    clips_per_forward,
    videos_per_batch,
)
from stillmotion.errors import VideoError, as_video_error, raise_if_none_readable
from stillmotion.planning.flop_counter import FlopMemoryCounter
from stillmotion.utils.device import autocast, synchronize
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

_NUM_SAMPLES = 3  # videos that are decoded
_MAX_ATTEMPTS = 12  # videos that are tried, where some cannot be read
Sample = TypeVar("Sample")


@dataclass(frozen=True, kw_only=True)
class ForwardWork:
    """Videos to decode and pass through a frozen network, with a decoded sample.

    Args:
        name: Title in the estimate.
        amount: How much there is to do, such as "12, 3 of them done".
        num_units: Units that are left: videos, or whatever `unit` is.
        clips: Clips (n, 3, T, H, W) of one forward pass.
        clips_per_unit: Clips of a unit.
        network: Network; its weights count as memory.
        forward: Forward pass on clips.
        stored_bytes: From the output of a forward pass to the bytes of all stored results.
        decode_seconds: Seconds to decode a unit in one process.
        prefetch_bytes: Bytes of decoded clips that wait for the network.
        input_bytes: Bytes of the files to read; 0 for synthetic videos.
        num_workers: Number of decoding processes.
        unit: Singular noun of what is counted.
    """

    name: str
    amount: str
    num_units: float
    clips: Tensor
    clips_per_unit: float = 1.0
    network: nn.Module
    forward: Callable[[Tensor], Any]
    stored_bytes: Callable[[Any], float]
    decode_seconds: float
    prefetch_bytes: float = 0.0
    input_bytes: float = 0.0
    num_workers: int = 0
    unit: str = "video"


@dataclass(frozen=True, kw_only=True)
class ForwardEstimate:
    """Cost of a `ForwardWork` in one process.

    Args:
        num_params: Parameters of the network.
        flops: FLOPs per unit.
        forward_seconds: Seconds of the network per unit.
        weight_bytes: Bytes of the weights.
        peak_bytes: Peak bytes of a forward pass, weights included.
        stored_bytes: Bytes of all stored results.
        total_seconds: Seconds of all units.
        total_bytes: Peak bytes with waiting clips and results.
        output: Output of the forward pass.
    """

    num_params: int
    flops: float
    forward_seconds: float
    weight_bytes: int
    peak_bytes: int
    stored_bytes: float
    total_seconds: float
    total_bytes: float
    output: Any


def estimate_forward(work: ForwardWork) -> ForwardEstimate:
    """Count and time one forward pass, and extrapolate to all units.

    Args:
        work: What is to be done.
    """
    weights = [*work.network.parameters(), *work.network.buffers()]
    with torch.no_grad(), FlopMemoryCounter() as counter:
        counter.track([*weights, work.clips])
        output = work.forward(work.clips)
    per_unit = work.clips_per_unit / len(work.clips)
    forward = min(_time_forward(work) for _ in range(2)) * per_unit
    decode = work.decode_seconds / min(work.num_workers or 1, num_cores())
    # Decoding and a GPU work at the same time; decoding and a CPU share its cores.
    parallel = work.num_workers > 0 and work.clips.device.type != "cpu"
    stored = work.stored_bytes(output)
    return ForwardEstimate(
        num_params=sum(p.numel() for p in work.network.parameters()),
        flops=counter.flops * per_unit,
        forward_seconds=forward,
        weight_bytes=sum(w.numel() * w.element_size() for w in weights),
        peak_bytes=counter.peak_bytes,
        stored_bytes=stored,
        total_seconds=work.num_units * (max(decode, forward) if parallel else decode + forward),
        total_bytes=counter.peak_bytes + work.prefetch_bytes + stored,
        output=output,
    )


def _time_forward(work: ForwardWork) -> float:
    started = time.perf_counter()
    with torch.no_grad():
        work.forward(work.clips)
    synchronize(work.clips.device)
    return time.perf_counter() - started


def sample_extraction(job: ExtractionJob, loader: LoaderConfig | None = None) -> ForwardWork:
    """Decode some videos of a job.

    Args:
        job: Videos and encoder.
        loader: Batch size and number of decoding processes.

    Raises:
        StillmotionError: None of the sampled videos can be read.
    """
    loader, encoder, views, videos = loader or LoaderConfig(), job.encoder, job.views, job.videos
    dataset = build_eval_clip_dataset(
        videos,
        encoder.eval_input,
        num_clips=views.num_clips,
        num_crops=views.num_crops,
        full_frame=views.full_frame_crops,
    )

    def decode(index: int) -> Tensor:
        item = dataset[index]
        if item["clips"] is None:
            raise VideoError("; ".join(f"{name}: {reason}" for name, reason in item["failed"]))
        clips: Tensor = item["clips"]
        return clips

    def forward(clips: Tensor) -> Any:
        with autocast(encoder.device, views.precision):
            return encoder(clips)

    def stored_bytes(output: Any) -> float:
        channels = sum(getattr(output, name).shape[1] for name in EMBEDDING_FIELDS)
        return 4.0 * len(videos) * (1 if views.average_views else num_views) * channels

    samples, decode_seconds = decode_samples(len(videos), decode)
    clips = torch.cat(samples)
    num_views = len(samples[0])
    batch_size = min(loader.batch_size, videos_per_batch(encoder.eval_input, num_views), len(videos))
    num_clips = min(clips_per_forward(clips), batch_size * num_views)
    num_workers, num_cached = loader.resolve_num_workers(videos), job.num_cached()
    num_left = len(videos) - num_cached
    amount = f"{len(videos)}" + f", {num_cached} of them cached" * bool(num_cached)
    file_bytes = sum(path_size(Path(videos.name(i))) for i in range(len(videos)))
    return ForwardWork(
        name=job.name,
        amount=amount + f", read {job.num_passes} times" * (job.num_passes > 1),
        num_units=num_left * job.num_passes,
        clips=clips.repeat(-(-num_clips // len(clips)), 1, 1, 1, 1)[:num_clips].to(encoder.device),
        clips_per_unit=num_views,
        network=encoder,
        forward=forward,
        stored_bytes=stored_bytes,
        decode_seconds=decode_seconds,
        prefetch_bytes=batch_size * samples[0].nbytes * (1 + PREFETCH_FACTOR * num_workers),
        input_bytes=file_bytes * num_left * job.num_passes / max(len(videos), 1),
        num_workers=num_workers,
    )


def decode_samples(count: int, decode: Callable[[int], Sample]) -> tuple[list[Sample], float]:
    """Decode a few evenly spaced videos; those that cannot be read are passed over.

    Args:
        count: Number of videos.
        decode: From the index of a video to what is read from it.

    Returns:
        What was read, and the mean seconds per video.

    Raises:
        StillmotionError: None of the sampled videos can be read.
    """
    tried = np.unique(np.linspace(0, count - 1, min(count, _MAX_ATTEMPTS)).astype(np.int64)).tolist()
    first = tried[:: max(1, -(-len(tried) // _NUM_SAMPLES))]
    samples, failed, seconds = [], [], 0.0
    for index in [*first, *(index for index in tried if index not in first)]:
        started = time.perf_counter()
        try:
            with as_video_error(f"video {index}"):
                samples.append(decode(index))
        except VideoError as error:
            failed.append(("", str(error)))
            continue
        seconds += time.perf_counter() - started
        if len(samples) == _NUM_SAMPLES:
            break
    if not samples:
        raise_if_none_readable(failed, len(failed))
    return samples, seconds / len(samples)


def estimate_extraction_rows(jobs: Sequence[ExtractionJob], loader: LoaderConfig | None = None) -> list[LabelValue]:
    """Estimate jobs that are done one after the other.

    Args:
        jobs: Videos and encoders.
        loader: Batch size and number of decoding processes.

    Returns:
        Rows of label and value.
    """
    return estimate_forward_passes([sample_extraction(job, loader) for job in jobs])


def estimate_forward_passes(works: Sequence[ForwardWork]) -> list[LabelValue]:
    """Estimate work that is done in sequence, shared by the processes of torchrun.

    Args:
        works: What is to be done.

    Returns:
        Rows of label and value; the last two are peak memory and time.
    """
    rows: list[LabelValue] = []
    estimates = [estimate_forward(work) for work in works]
    for work, estimate in zip(works, estimates, strict=True):
        rows += [("", ""), (work.name, "")] if len(works) > 1 else []
        rows += _format_forward(work, estimate)
    if len(works) > 1:
        rows += [("", ""), ("total", "")]
    num_processes, device = torchrun_world_size(), works[0].clips.device.type
    shared = f" on {num_processes} processes, each as fast as this one" if num_processes > 1 else ""
    seconds = sum(estimate.total_seconds for estimate in estimates) / num_processes
    return [
        *rows,
        ("peak memory per process", format_memory(max(estimate.total_bytes for estimate in estimates))),
        ("time", f"{format_duration(seconds)}{shared}, extrapolated from a sample on this {device}"),
    ]


def _format_forward(work: ForwardWork, estimate: ForwardEstimate) -> Iterator[LabelValue]:
    frames, height, width = work.clips.shape[2:]
    yield f"{work.unit}s", work.amount
    num_clips = format_significant(work.clips_per_unit)
    yield f"input per {work.unit}", f"{num_clips} clips of {frames} frames, {height}×{width} pixels"
    if work.input_bytes:
        yield "files to read", format_bytes(work.input_bytes)
    yield "parameters", f"{format_params(estimate.num_params)}, all frozen"
    total = format_flops(estimate.flops * work.num_units)
    yield f"FLOPs per {work.unit}", f"{format_flops(estimate.flops)}; {total} in all"
    weights = format_memory(estimate.weight_bytes)
    yield "memory of a forward pass", f"{format_memory(estimate.peak_bytes)}, of which weights {weights}"
    if work.prefetch_bytes:
        workers = f" in {work.num_workers} processes" if work.num_workers else ""
        yield "prefetched clips", f"{format_memory(work.prefetch_bytes)}{workers}"
    yield "disk space for results", format_bytes(estimate.stored_bytes)
    decode = format_duration(work.decode_seconds)
    yield f"time per {work.unit}", f"{decode} to decode, {format_duration(estimate.forward_seconds)} to embed"
