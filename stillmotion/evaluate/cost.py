"""What it takes to show videos to a frozen encoder, told beforehand: some are decoded, and a batch is timed."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stillmotion import amounts
from stillmotion.amounts import Row
from stillmotion.data.manifest import size_of
from stillmotion.data.paths import VideoSet
from stillmotion.data.pool import AHEAD
from stillmotion.data.reading import Reading, cores
from stillmotion.encoders import Encoder
from stillmotion.encoders.features import BLOCK, PARTS, Views, at_once, even_clips, held
from stillmotion.errors import VideoError
from stillmotion.evaluate.cache import FOLDER, by_name, features_key
from stillmotion.train.imagined import Tally
from stillmotion.train.precision import autocast

_SAMPLES = 3  # videos that are decoded
_TRIED = 12  # at most, where some cannot be read
_FLOAT = 4  # bytes


@dataclass(frozen=True, kw_only=True)
class Showing:
    """Videos that an encoder is to be shown.

    what: by which a plan calls it. times: how often; each time is of other clips.
    kept: the folder of features that are there already, all of them or in blocks.
    """

    what: str
    encoder: Encoder
    videos: VideoSet
    views: Views
    times: int = 1
    kept: Path | None = None

    def done(self) -> int:
        """The videos whose features are on the disk; nothing is asked of videos where there is no such folder."""
        if self.kept is None or not self.kept.is_dir():
            return 0
        key = features_key(self.encoder, self.videos, self.views)
        if (self.kept / f"{key}.safetensors").exists():
            return len(self.videos)
        block = f"{key}-{'[0-9]' * 7}.safetensors"
        found = [*self.kept.glob(block), *self.kept.glob(f"{key}.parts/{block}")]
        return min(len(found) * BLOCK, len(self.videos))


def keeping(what: str, encoder: Encoder, videos: VideoSet, views: Views, cache: str | Path | None) -> Showing:
    """Videos whose features are kept, as `cached_features` does."""
    folder = Path(cache) if cache is not None else encoder.folder and encoder.folder / FOLDER
    return Showing(what=what, encoder=encoder, videos=by_name(videos), views=views, kept=folder)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a showing asks of one process.

    videos: that are left, each as often as it is shown. frames: of a clip, with its height and width. clips: of a
    video. parameters: of the encoder. flops: of a video. decode, see: seconds of a video in one decoding process, and
    in the network. weights, peak: bytes of the network, and of a pass at its height, weights among them. waiting: bytes
    of decoded clips. features: bytes of all features. read: bytes of the videos' files, 0 of drawn ones.
    """

    videos: int
    done: int
    frames: tuple[int, int, int]
    clips: int
    parameters: int
    flops: float
    decode: float
    see: float
    weights: int
    peak: int
    waiting: int
    features: int
    read: int
    decoders: int
    on_cpu: bool

    @property
    def seconds(self) -> float:
        """Of all videos; where decoders have cores of their own, the slower of the two is waited for."""
        decode = self.decode / min(self.decoders or 1, cores())
        beside = self.decoders > 0 and not self.on_cpu
        return self.videos * (max(decode, self.see) if beside else decode + self.see)

    @property
    def memory(self) -> int:
        return self.peak + self.waiting + self.features


def cost(showing: Showing, reading: Reading | None = None) -> Cost:
    """Decode some of the videos, and pass a batch of their clips through the encoder."""
    reading, encoder, views = reading or Reading(), showing.encoder, showing.views
    samples, decode = _decoded(showing)
    clips = samples.shape[1]
    per_batch = min(reading.batch, held(encoder.survey, clips), len(showing.videos))
    joined = samples.flatten(0, 1)
    some = min(at_once(joined), per_batch * clips)
    batch = joined.repeat(-(-some // len(joined)), 1, 1, 1, 1)[:some].to(encoder.device)
    weights = [*encoder.parameters(), *encoder.buffers()]
    with torch.no_grad(), autocast(encoder.device, views.precision), Tally() as tally:
        tally.hold([*weights, batch])
        found = encoder(batch)
    seconds = min(_timed(encoder, batch, views.precision) for _ in range(2))
    done = showing.done()
    channels = sum(getattr(found, part).shape[1] for part in PARTS)
    decoders = reading.decoders(showing.videos)
    return Cost(
        videos=(len(showing.videos) - done) * showing.times,
        done=done,
        frames=(joined.shape[2], joined.shape[3], joined.shape[4]),
        clips=clips,
        parameters=sum(p.numel() for p in encoder.parameters()),
        flops=tally.flops / some * clips,
        decode=decode,
        see=seconds / some * clips,
        weights=sum(w.numel() * w.element_size() for w in weights),
        peak=tally.peak,
        waiting=per_batch * samples[0].nbytes * (1 + AHEAD * decoders),
        features=len(showing.videos) * (1 if views.average else clips) * channels * _FLOAT,
        read=_on_disk(showing.videos),
        decoders=decoders,
        on_cpu=encoder.device.type == "cpu",
    )


def rows(showings: Sequence[Showing], reading: Reading | None = None, *, processes: int = 1) -> list[Row]:
    """What showings cost, one after the other, in words. processes: that share the videos."""
    found = [cost(showing, reading) for showing in showings]
    told: list[Row] = []
    for showing, one in zip(showings, found, strict=True):
        told += [("", ""), (showing.what, "")] if len(showings) > 1 else []
        told += _rows(showing, one)
    seconds, height = sum(one.seconds for one in found), max(one.memory for one in found)
    if len(showings) > 1:
        told += [("", ""), ("in all", "")]
    where = f"this {showings[0].encoder.device.type}"
    on = f" on {processes} processes, each as fast as this one" if processes > 1 else ""
    return [
        *told,
        ("memory at its height", f"{amounts.memory(height)} a process"),
        ("time", f"{amounts.duration(seconds / processes)}{on}, by what was timed on {where}"),
    ]


def _rows(showing: Showing, one: Cost) -> Iterator[Row]:
    count = len(showing.videos)
    done = f", {one.done} of them done" if one.done else ""
    often = f", {showing.times} times" if showing.times > 1 else ""
    frames, height, width = one.frames
    yield "videos", f"{count}{done}{often}"
    yield "shown of each", f"{one.clips} clips of {frames} frames, {height}×{width} pixels"
    if one.read:
        yield "files to read", f"{amounts.room(one.read * one.videos / max(count, 1))}"
    yield "parameters", f"{amounts.two(one.parameters / 1e6)} M, none of them trained"
    every = amounts.operations(one.flops * one.videos)
    yield "operations", f"{amounts.operations(one.flops)} a video, counted in a pass; {every} in all"
    yield "a pass", f"{amounts.memory(one.peak)}, of which the weights are {amounts.memory(one.weights)}"
    by = f" by {one.decoders} processes" if one.decoders else ""
    yield "decoded clips that wait", f"{amounts.memory(one.waiting)}{by}"
    yield "features", amounts.room(one.features)
    yield "a video", f"{amounts.duration(one.decode)} to decode, {amounts.duration(one.see)} to embed"


def _decoded(showing: Showing) -> tuple[Tensor, float]:
    """Clips (n, K, 3, T, H, W) of some videos that can be read, evenly spaced, and the seconds that each took."""
    videos, views = showing.videos, showing.views
    dataset = even_clips(videos, showing.encoder.survey, clips=views.clips, crops=views.crops, full=views.full)
    clips: list[Tensor] = []
    broken: list[tuple[str, str]] = []
    seconds = 0.0
    for number in _spread(len(videos)):
        started = time.perf_counter()
        item = dataset[number]
        if item["clips"] is None:
            broken += item["broken"]
            continue
        seconds += time.perf_counter() - started
        clips.append(item["clips"])
        if len(clips) == _SAMPLES:
            break
    if not clips:
        first = f"; the first, {broken[0][0]}: {broken[0][1]}" if broken else ""
        raise VideoError(f"none of {len(broken)} videos can be read{first}")
    return torch.stack(clips), seconds / len(clips)


def _spread(count: int) -> list[int]:
    """Numbers of videos to be tried, some first and those between them behind."""
    every = np.unique(np.linspace(0, count - 1, min(count, _TRIED)).astype(np.int64)).tolist()
    first = every[:: max(1, -(-len(every) // _SAMPLES))]
    return [*first, *(number for number in every if number not in first)]


def _timed(encoder: Encoder, clips: Tensor, precision: str) -> float:
    started = time.perf_counter()
    with torch.inference_mode(), autocast(encoder.device, precision):
        encoder(clips).whole.cpu()  # which waits for the device
    return time.perf_counter() - started


def _on_disk(videos: VideoSet) -> int:
    return sum(size_of(Path(videos.name(i))) for i in range(len(videos)))
