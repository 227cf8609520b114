"""What the training verbs will take, in words: each is checked as the verb checks it, and nothing is made of it."""

import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from stillmotion import amounts
from stillmotion.amounts import Row
from stillmotion.config import Config
from stillmotion.config.detect import DetectConfig
from stillmotion.config.finetune import FinetuneConfig
from stillmotion.config.segment import SegmentConfig
from stillmotion.config.transfer import TransferConfig
from stillmotion.data.breakfast import Breakfast
from stillmotion.data.clips import Excerpt
from stillmotion.data.paths import Unlabelled
from stillmotion.data.subset import Subset
from stillmotion.data.untrimmed import UntrimmedSet
from stillmotion.data.video import Video
from stillmotion.data.videos import SYNTHETIC
from stillmotion.encoders import Encoder, load
from stillmotion.encoders.runs import READY
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.frames import FrameFeatures
from stillmotion.files import writable
from stillmotion.nn.backbones.tokens import TokensCNN
from stillmotion.nn.images import locate_images
from stillmotion.tasks import tokens
from stillmotion.tasks.cost import rows, training
from stillmotion.tasks.detect import Detecting
from stillmotion.tasks.estimate import GIB, estimate_rows
from stillmotion.tasks.finetune import Finetuning, check_folds
from stillmotion.tasks.pretrain import Pretraining
from stillmotion.tasks.segment import open_untrimmed
from stillmotion.tasks.segment_head import Frames, Segmenting
from stillmotion.tasks.start import located, place_of
from stillmotion.tasks.transfer import Transferring
from stillmotion.train.checkpoint import load_state
from stillmotion.train.folder import check_folder, spare_inputs
from stillmotion.train.imagined import Tally
from stillmotion.train.process import choose_device

_PART = 48  # frames of an untrimmed video whose features are made
_BATCH = 16  # clips of a pass


def pretraining(config: Config, out: str, *, processes: int) -> list[Row]:
    """Of `pretrain`: what `estimate` says of the devices at hand."""
    config = tokens.located(config)
    model, data = config.method.model, config.data
    spare_inputs(out, data.path, data.annotations, model.weights, model.images.path)
    writable(out)
    check_folder(Path(out), config)
    if model.of_tokens:
        return _on_tokens(config, out, processes)
    device = choose_device(config.train.device)
    with tempfile.TemporaryDirectory() as place:
        run = Pretraining(config, Path(place), device)
    done = int((load_state(Path(out)) or {}).get("step", 0))
    called = "process" if device.type == "cpu" else "GPU"
    memory = _memory(device) / GIB
    return estimate_rows(run.config, videos=0, devices=processes, memory=memory, tflops=0.0, called=called, done=done)


def transferring(config: TransferConfig, out: str, *, processes: int) -> list[Row]:
    """Of `transfer`: tokens that are kept are made in the first epochs."""
    config.data.check_given()
    config = replace(config, images=locate_images(config.images))
    spare_inputs(out, config.data.path, config.data.annotations, config.images.path)
    writable(out)

    def build(config: TransferConfig, folder: Path, device: torch.device) -> Transferring:
        return Transferring(config, folder, device, folder / "tokens")

    found, run = training(build, config, out, processes=processes)
    images = sum(p.numel() for p in run.images.parameters())
    found = replace(found, frozen=found.frozen + images)
    fresh = run.steps_per_epoch * config.data.pairs if run.store is not None else None
    kept = [] if run.store is None else [("tokens to be written", amounts.room(2 * float(np.prod(run.store.shape))))]
    return [*kept, *rows(found, batch=config.optim.batch, processes=processes, fresh=fresh)]


def finetuning(config: FinetuneConfig, out: str, folds: tuple[int, ...], *, processes: int) -> list[Row]:
    """Of `finetune`; folds are as long as the first of them."""
    config = located(config)
    spare_inputs(out, config.data.path, config.data.annotations, place_of(config.encoder))
    writable(out)
    check_folds(config, folds)
    place = out
    if folds:
        config, place = replace(config, data=replace(config.data, fold=folds[0])), f"{out}/fold{folds[0]}"
    found, run = training(Finetuning, config, place, processes=processes)
    tests = len(run.videos.test) * config.data.test_clips * config.data.test_crops
    return rows(found, batch=config.optim.batch, processes=processes, tests=tests, times=len(folds) or 1)


def detecting(config: DetectConfig, out: str, *, processes: int) -> list[Row]:
    """Of `detect`."""
    config = located(config)
    if not config.data.path:
        raise StillmotionError("no videos given; add --data FOLDER of AVA (or --data acting to try)")
    spare_inputs(out, config.data.path, config.data.annotations, place_of(config.encoder))
    writable(out)
    found, run = training(Detecting, config, out, processes=processes)
    return rows(found, batch=config.optim.batch, processes=processes, tests=len(run.tests))


def segmenting(config: SegmentConfig, out: str, cache: str | None) -> list[Row]:
    """Of `segment`: features of all frames, and then a head on them."""
    config = config if config.encoder == READY else located(config)
    if not config.data.path:
        raise StillmotionError("no videos given; add --data FOLDER (or --data synthetic to try)")
    spare_inputs(
        out, config.data.path, config.data.videos, None if config.encoder == READY else place_of(config.encoder)
    )
    writable(out)
    train, test = open_untrimmed(config)
    if config.encoder != READY:
        encoder = load(config.encoder, device=config.train.device)
        place = Path(cache) if cache is not None else Path(out) / "features"
        told, width = _frames(encoder.untrained() if config.untrained else encoder, (train, test), config, place)
    elif isinstance(train, Breakfast):
        told, width = [], train.ready_features(0).shape[1]
    else:
        raise StillmotionError("drawn videos have no features on disk; name an encoder (--encoder)")

    def build(config: SegmentConfig, folder: Path, device: torch.device) -> Segmenting:
        videos = _Blank(train, width, config.data.hop, min(len(train), config.optim.batch))
        return Segmenting(config, folder, device, videos, len(train.actions), None)

    found, _ = training(build, config, out, whole=False)
    steps = -(-len(train) // config.optim.batch) * config.optim.epochs
    found = replace(found, videos=len(train), steps=steps)
    return [*told, ("", ""), ("then the head", ""), *rows(found, batch=config.optim.batch)]


def _on_tokens(config: Config, out: str, processes: int) -> list[Row]:
    """A run on kept tokens: they are made once, and its steps are those of a run on drawn videos."""
    data, batch = config.data, config.optim.batch
    videos = len(data.open(drawn=data.synthetic, seed=config.train.seed))
    if videos < batch:
        raise StillmotionError(f"{videos} videos are fewer than a batch of {batch}; lower --optim.batch or add videos")

    def build(config: Config, folder: Path, device: torch.device) -> Pretraining:
        drawn = replace(data.synthetic, videos=config.optim.batch)
        little = replace(config.data, path=SYNTHETIC, layout="auto", annotations=None, split=None, synthetic=drawn)
        return Pretraining(replace(config, data=little), folder, device, folder / "tokens")

    found, run = training(build, config, out, processes=processes, whole=False)
    found = replace(found, videos=videos, steps=videos // batch * config.optim.epochs)
    backbone = run.method.online.backbone
    assert isinstance(backbone, TokensCNN)
    frames = torch.zeros(1, 3, data.kept, data.size, data.size, device=run.device)
    with torch.no_grad(), Tally() as tally:
        made = backbone.tokens(frames)
    started = time.perf_counter()
    backbone.tokens(frames).cpu()
    seconds = (time.perf_counter() - started) * videos / processes
    return [
        ("tokens to be written", amounts.room(2 * made.numel() * videos)),
        ("operations for them", f"{amounts.operations(tally.flops)} a video, of {data.kept} frames"),
        ("time for them", f"{amounts.duration(seconds)}, and what decoding takes; none where they are kept already"),
        ("", ""),
        ("then the steps", ""),
        *rows(found, batch=batch, processes=processes),
    ]


def _frames(
    encoder: Encoder, halves: tuple[UntrimmedSet, ...], config: SegmentConfig, place: Path
) -> tuple[list[Row], int]:
    """What the features of all frames take, by those of two parts of a video; and their width."""
    hop, every = config.data.hop, sum(map(len, halves))
    with tempfile.TemporaryDirectory() as folder:
        features = FrameFeatures(encoder, folder, hop=hop)
        parts, seconds = _timed(features, halves[0])
        found = features.read(parts, 1)
        done = min(every, len(list((place / features.folder.name).glob("*.safetensors"))))
    total = sum(-(-len(videos.frame_labels(i)) // hop) for videos in halves for i in range(len(videos)))
    left, shown = round(total * (1 - done / every)), features.encoder
    intake = shown.intake
    clips = torch.zeros(_BATCH, 3, intake.frames, intake.size, intake.width or intake.size, device=encoder.device)
    with torch.no_grad(), Tally() as tally:
        tally.hold([*shown.parameters(), *shown.buffers(), clips])
        shown.features(clips)
    each = tally.flops / _BATCH
    told = [
        ("videos", f"{every}" + (f", {done} of them done" if done else "")),
        ("features to make", f"{left}, each of a clip of {intake.frames} frames, {intake.size} pixels a side"),
        ("operations", f"{amounts.operations(each)} a feature; {amounts.operations(each * left)} in all"),
        ("features to be written", amounts.room(4 * found.shape[1] * left)),
        ("memory for them", amounts.memory(tally.peak)),
        ("time for them", f"{amounts.duration(seconds / len(found) * left)}, by {len(found)} that were made here"),
    ]
    return told, found.shape[1]


def _timed(features: FrameFeatures, videos: UntrimmedSet) -> tuple["_Parts", float]:
    """Two parts of the first video that can be read, and the seconds that the features of the second took."""
    reasons: list[str] = []
    for number in range(len(videos)):
        parts = _Parts(videos, number)
        broken = features.compute(Subset(parts, np.array([0])))  # and nothing is made for the first time after it
        started = time.perf_counter()
        broken += features.compute(Subset(parts, np.array([1])))
        if not broken:
            return parts, time.perf_counter() - started
        reasons += [reason for _, reason in broken]
    raise VideoError(f"none of the {len(videos)} videos can be read; the first: {reasons[0]}")


class _Parts(Unlabelled):
    """Two parts of a video as videos: its beginning, and what comes next."""

    def __init__(self, videos: UntrimmedSet, number: int) -> None:
        self.videos, self.number = videos, number

    def __len__(self) -> int:
        return 2

    def name(self, i: int) -> str:
        return f"{self.videos.name(self.number)}, part {i}"

    def video(self, i: int) -> Video:
        whole = self.videos.video(self.number)
        first = max(0, min(i * _PART, len(whole) - _PART))
        return Excerpt(whole, np.arange(first, min(first + _PART, len(whole))))


@dataclass(frozen=True)
class _Blank:
    """Features of no meaning, as long as those of the first videos of a set, with their labels."""

    videos: UntrimmedSet
    width: int
    hop: int
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Frames:
        labels = torch.from_numpy(self.videos.frame_labels(i)[:: self.hop])
        return Frames(torch.randn(len(labels), self.width), labels)


def _memory(device: torch.device) -> int:
    """Bytes that a device has, or this machine."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
