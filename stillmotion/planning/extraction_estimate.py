"""What it takes to show videos to a frozen encoder, told beforehand: some are decoded, and a batch is timed."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.loading.loader_config import LoaderConfig, num_cores
from stillmotion.data.loading.worker_pool import PREFETCH_FACTOR
from stillmotion.encoders import Encoder
from stillmotion.encoders.feature_cache import FEATURES_DIR, feature_cache_key, sort_by_name
from stillmotion.encoders.feature_extraction import (
    EMBEDDING_FIELDS,
    VIDEOS_PER_BLOCK,
    ClipViews,
    clips_per_forward,
    evenly_spaced_clips,
    videos_per_batch,
)
from stillmotion.errors import raise_if_none_readable
from stillmotion.planning.flop_counter import FlopMemoryCounter
from stillmotion.utils import formatting
from stillmotion.utils.device import autocast
from stillmotion.utils.files import path_size
from stillmotion.utils.formatting import LabelValue

_NUM_SAMPLES = 3  # videos that are decoded
_MAX_ATTEMPTS = 12  # at most, where some cannot be read
_FLOAT_BYTES = 4  # bytes


@dataclass(frozen=True, kw_only=True)
class ExtractionJob:
    """Videos that an encoder is to be shown.

    name: by which a plan calls it. times: how often; each time is of other clips.
    cache_dir: the folder of features that are there already, all of them or in blocks.
    """

    name: str
    encoder: Encoder
    videos: VideoDataset
    views: ClipViews
    num_passes: int = 1
    cache_dir: Path | None = None

    def num_cached(self) -> int:
        """The videos whose features are on the disk; nothing is asked of videos where there is no such folder."""
        if self.cache_dir is None or not self.cache_dir.is_dir():
            return 0
        key = feature_cache_key(self.encoder, self.videos, self.views)
        if (self.cache_dir / f"{key}.safetensors").exists():
            return len(self.videos)
        block = f"{key}-{'[0-9]' * 7}.safetensors"
        found = [*self.cache_dir.glob(block), *self.cache_dir.glob(f"{key}.blocks/{block}")]
        return min(len(found) * VIDEOS_PER_BLOCK, len(self.videos))


def cached_extraction_job(
    name: str, encoder: Encoder, dataset: VideoDataset, views: ClipViews, cache_dir: str | Path | None
) -> ExtractionJob:
    """Videos whose features are kept, as `cached_features` does."""
    folder = Path(cache_dir) if cache_dir is not None else encoder.run_dir and encoder.run_dir / FEATURES_DIR
    return ExtractionJob(name=name, encoder=encoder, videos=sort_by_name(dataset), views=views, cache_dir=folder)


@dataclass(frozen=True, kw_only=True)
class ExtractionEstimate:
    """What a showing asks of one process.

    num_videos: that are left, each as often as it is shown. frames: of a clip, with its height and width. clips: of a
    video. parameters: of the encoder. flops: of a video. decode, see: seconds of a video in one decoding process, and
    in the network. weights, peak: bytes of the network, and of a pass at its height, weights among them. waiting: bytes
    of decoded clips. features: bytes of all features. read: bytes of the videos' files, 0 of drawn ones.
    """

    num_videos: int
    num_cached: int
    clip_shape: tuple[int, int, int]
    num_clips: int
    num_params: int
    flops: float
    decode_seconds: float
    forward_seconds: float
    weight_bytes: int
    peak_bytes: int
    prefetch_bytes: int
    feature_bytes: int
    input_bytes: int
    num_workers: int
    runs_on_cpu: bool

    @property
    def total_seconds(self) -> float:
        """Of all videos; where decoders have cores of their own, the slower of the two is waited for."""
        decode = self.decode_seconds / min(self.num_workers or 1, num_cores())
        beside = self.num_workers > 0 and not self.runs_on_cpu
        return self.num_videos * (max(decode, self.forward_seconds) if beside else decode + self.forward_seconds)

    @property
    def total_bytes(self) -> int:
        return self.peak_bytes + self.prefetch_bytes + self.feature_bytes


def estimate_extraction(job: ExtractionJob, loader: LoaderConfig | None = None) -> ExtractionEstimate:
    """Decode some of the videos, and pass a batch of their clips through the encoder."""
    loader, encoder, views = loader or LoaderConfig(), job.encoder, job.views
    samples, decode = _decode_sample(job)
    clips = samples.shape[1]
    per_batch = min(loader.batch_size, videos_per_batch(encoder.eval_input, clips), len(job.videos))
    joined = samples.flatten(0, 1)
    some = min(clips_per_forward(joined), per_batch * clips)
    batch = joined.repeat(-(-some // len(joined)), 1, 1, 1, 1)[:some].to(encoder.device)
    weights = [*encoder.parameters(), *encoder.buffers()]
    with torch.no_grad(), autocast(encoder.device, views.precision), FlopMemoryCounter() as tally:
        tally.track([*weights, batch])
        found = encoder(batch)
    seconds = min(_time_forward(encoder, batch, views.precision) for _ in range(2))
    done = job.num_cached()
    channels = sum(getattr(found, part).shape[1] for part in EMBEDDING_FIELDS)
    decoders = loader.resolve_num_workers(job.videos)
    return ExtractionEstimate(
        num_videos=(len(job.videos) - done) * job.num_passes,
        num_cached=done,
        clip_shape=(joined.shape[2], joined.shape[3], joined.shape[4]),
        num_clips=clips,
        num_params=sum(p.numel() for p in encoder.parameters()),
        flops=tally.flops / some * clips,
        decode_seconds=decode,
        forward_seconds=seconds / some * clips,
        weight_bytes=sum(w.numel() * w.element_size() for w in weights),
        peak_bytes=tally.peak_bytes,
        prefetch_bytes=per_batch * samples[0].nbytes * (1 + PREFETCH_FACTOR * decoders),
        feature_bytes=len(job.videos) * (1 if views.average_views else clips) * channels * _FLOAT_BYTES,
        input_bytes=_total_file_bytes(job.videos),
        num_workers=decoders,
        runs_on_cpu=encoder.device.type == "cpu",
    )


def format_extraction_estimates(
    jobs: Sequence[ExtractionJob], loader: LoaderConfig | None = None, *, num_processes: int = 1
) -> list[LabelValue]:
    """What showings cost, one after the other, in words. processes: that share the videos."""
    found = [estimate_extraction(showing, loader) for showing in jobs]
    told: list[LabelValue] = []
    for showing, one in zip(jobs, found, strict=True):
        told += [("", ""), (showing.name, "")] if len(jobs) > 1 else []
        told += _estimate_rows(showing, one)
    seconds, height = sum(one.total_seconds for one in found), max(one.total_bytes for one in found)
    if len(jobs) > 1:
        told += [("", ""), ("in all", "")]
    where = f"this {jobs[0].encoder.device.type}"
    on = f" on {num_processes} processes, each as fast as this one" if num_processes > 1 else ""
    return [
        *told,
        ("memory at its height", f"{formatting.format_memory(height)} a process"),
        ("time", f"{formatting.format_duration(seconds / num_processes)}{on}, by what was timed on {where}"),
    ]


def _estimate_rows(job: ExtractionJob, estimate: ExtractionEstimate) -> Iterator[LabelValue]:
    count = len(job.videos)
    done = f", {estimate.num_cached} of them done" if estimate.num_cached else ""
    often = f", {job.num_passes} times" if job.num_passes > 1 else ""
    frames, height, width = estimate.clip_shape
    yield "videos", f"{count}{done}{often}"
    yield "shown of each", f"{estimate.num_clips} clips of {frames} frames, {height}×{width} pixels"
    if estimate.input_bytes:
        yield "files to read", f"{formatting.format_bytes(estimate.input_bytes * estimate.num_videos / max(count, 1))}"
    yield "parameters", f"{formatting.format_significant(estimate.num_params / 1e6)} M, none of them trained"
    every = formatting.format_flops(estimate.flops * estimate.num_videos)
    yield "operations", f"{formatting.format_flops(estimate.flops)} a video, counted in a pass; {every} in all"
    yield (
        "a pass",
        f"{formatting.format_memory(estimate.peak_bytes)}, of which the weights are {formatting.format_memory(estimate.weight_bytes)}",
    )
    by = f" by {estimate.num_workers} processes" if estimate.num_workers else ""
    yield "decoded clips that wait", f"{formatting.format_memory(estimate.prefetch_bytes)}{by}"
    yield "features", formatting.format_bytes(estimate.feature_bytes)
    yield (
        "a video",
        f"{formatting.format_duration(estimate.decode_seconds)} to decode, {formatting.format_duration(estimate.forward_seconds)} to embed",
    )


def _decode_sample(job: ExtractionJob) -> tuple[Tensor, float]:
    """Clips (n, K, 3, T, H, W) of some videos that can be read, evenly spaced, and the seconds that each took."""
    videos, views = job.videos, job.views
    dataset = evenly_spaced_clips(
        videos,
        job.encoder.eval_input,
        num_clips=views.num_clips,
        num_crops=views.num_crops,
        full_frame=views.full_frame_crops,
    )
    clips: list[Tensor] = []
    broken: list[tuple[str, str]] = []
    seconds = 0.0
    for number in _sample_order(len(videos)):
        started = time.perf_counter()
        item = dataset[number]
        if item["clips"] is None:
            broken += item["failed"]
            continue
        seconds += time.perf_counter() - started
        clips.append(item["clips"])
        if len(clips) == _NUM_SAMPLES:
            break
    if not clips:
        raise_if_none_readable(broken, len(videos))
    return torch.stack(clips), seconds / len(clips)


def _sample_order(count: int) -> list[int]:
    """Numbers of videos to be tried, some first and those between them behind."""
    every = np.unique(np.linspace(0, count - 1, min(count, _MAX_ATTEMPTS)).astype(np.int64)).tolist()
    first = every[:: max(1, -(-len(every) // _NUM_SAMPLES))]
    return [*first, *(number for number in every if number not in first)]


def _time_forward(encoder: Encoder, clips: Tensor, precision: str) -> float:
    started = time.perf_counter()
    with torch.inference_mode(), autocast(encoder.device, precision):
        encoder(clips).whole.cpu()  # which waits for the device
    return time.perf_counter() - started


def _total_file_bytes(dataset: VideoDataset) -> int:
    return sum(path_size(Path(dataset.name(i))) for i in range(len(dataset)))
