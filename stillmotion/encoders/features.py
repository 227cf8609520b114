"""Frozen features of videos: evenly spaced clips through an encoder, as NumPy arrays.

Shapes: N videos, V = clips · crops views of each, T frames, D channels.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, get_args

import numpy as np
import torch

from stillmotion.data.augment import CenterCrops
from stillmotion.data.loader import Batch, Broken, EvalDataset, keyed_loader
from stillmotion.data.paths import VideoSet
from stillmotion.data.reading import Reading
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.functional.koopman import LEAST_FRAMES
from stillmotion.nn.intake import Intake
from stillmotion.nn.split import Embedding
from stillmotion.options import Kind
from stillmotion.train.precision import autocast

KINDS: tuple[Kind, ...] = get_args(Kind)
PARTS = ("whole", "static", "dynamic", "motion")  # what an encoder gives; both is made of two of them
Progress = Callable[[int, int], None]  # videos done, videos in all

BLOCK = 64  # videos: what is computed of them does not depend on those before and behind

_HELD = 256 * 224**2  # pixels of decoded clips in a batch, about
_SEEN = 64 * 224**2  # pixels of clips that a network is given at a time, about
_MARGIN = 256 / 224  # what the papers resize to, and what they crop of it
_SMALLEST_WITH_MARGIN = 112


@dataclass(frozen=True, kw_only=True)
class Features:
    """What an encoder says about the readable ones of some videos.

    index (N,): their numbers in the set. whole, static, dynamic (N, V, D) and motion (N, V, M): one for each view, as
        in `Embedding`; what there is not is (N, V, 0).
    frames (N, T, D): of each video's first view, where they were asked for.
    broken: name and reason of each video that could not be read.
    """

    index: np.ndarray
    whole: np.ndarray
    static: np.ndarray
    dynamic: np.ndarray
    motion: np.ndarray
    frames: np.ndarray | None
    broken: Broken

    def vector(self, kind: Kind = "both", *, average: bool = True) -> np.ndarray:
        """One vector per video (N, D), or per view (N, V, D) where they are not averaged.

        kind: "both" is static ⊕ dynamic, each L2-normalised, 2·D channels.
        """
        if kind not in KINDS:
            raise StillmotionError(f"there are no {kind!r} features; choose one of {', '.join(KINDS)}")
        if kind not in self.kinds and kind == "motion":
            raise StillmotionError(
                "there is no motion embedding: the encoder makes too few time steps of a clip; ask for whole, or show "
                "it more frames"
            )
        if kind not in self.kinds:
            raise StillmotionError(
                f"there is no {kind} embedding: the encoder makes fewer than {LEAST_FRAMES} time steps of a clip; "
                "ask for whole, or show it more frames"
            )
        views = np.concatenate([_unit(self.static), _unit(self.dynamic)], -1) if kind == "both" else getattr(self, kind)
        return views.mean(1) if average else views

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that there are: no halves where clips are too short to be split, no motion where none is seen."""
        missing = {of for of in PARTS if not getattr(self, of).shape[-1]}
        return tuple(of for of in KINDS if of not in missing and (of != "both" or "static" not in missing))

    def averaged(self) -> "Features":
        """The mean over each video's views, as its one view."""
        if len(self.index) == 0:
            return self
        means = {name: getattr(self, name).mean(1, keepdims=True) for name in PARTS}
        return replace(self, **means, frames=None)


_NOTHING = Features(
    index=np.empty(0, np.int64),
    **dict.fromkeys(PARTS, np.empty((0, 0, 0), np.float32)),
    frames=None,
    broken=[],
)


class Seeing(Protocol):
    """What features are asked of: an `Encoder`."""

    survey: Intake

    @property
    def device(self) -> torch.device: ...

    def __call__(self, clips: torch.Tensor) -> Embedding: ...


@dataclass(frozen=True, kw_only=True)
class Views:
    """What is taken of each video, and how it is embedded.

    clips (K): evenly spaced, as the encoder's survey has them. crops: 1, the centre, or 3 along the longer edge.
    full: as in `even_clips`. average: keep the mean over a video's views, as its one view.
    precision: of the forward pass, by autocast; fp32 is none.
    """

    clips: int = 1
    crops: int = 1
    full: bool = False
    average: bool = False
    precision: str = "fp32"


def extract(
    encoder: Seeing,
    videos: VideoSet,
    *,
    clips: int = 1,
    crops: int = 1,
    full: bool = False,
    average: bool = False,
    keep_frames: bool = False,
    reading: Reading | None = None,
    progress: Progress | None = None,
) -> Features:
    """The features of a set, in its order, on the device where the encoder is.

    clips, crops, full, average: as in `Views`.
    keep_frames: keep the per-frame features of each video's first view.
    progress: called with the number of videos done and of all.
    """
    views = Views(clips=clips, crops=crops, full=full, average=average)
    found, done = [], 0
    for _, part in parts_of(encoder, videos, views, keep_frames=keep_frames, reading=reading):
        found.append(part)
        done += len(part.index) + len(part.broken)
        if progress is not None:
            progress(done, len(videos))
    return readable(join(found))


def parts_of(
    encoder: Seeing,
    videos: VideoSet,
    views: Views,
    *,
    blocks: Sequence[int] | None = None,
    keep_frames: bool = False,
    reading: Reading | None = None,
) -> Iterator[tuple[int, Features]]:
    """The features of a set, some videos at a time, in its order, each with the number of the block they are of.

    blocks: those that are asked for, of `BLOCK` videos each; None is all. They come out the same, bit for bit,
        whichever others are asked for.
    """
    reading = reading or Reading()
    dataset = even_clips(videos, encoder.survey, clips=views.clips, crops=views.crops, full=views.full)
    size = min(reading.batch, held(encoder.survey, views.clips * views.crops))
    asked = [
        (block, range(first, min(first + size, (block + 1) * BLOCK, len(videos))))
        for block in (range(blocks_in(videos)) if blocks is None else blocks)
        for first in range(block * BLOCK, min((block + 1) * BLOCK, len(videos)), size)
    ]
    workers = min(reading.decoders(videos), len(asked))
    keys = [list(numbers) for _, numbers in asked]
    loader = keyed_loader(dataset, keys, videos=sum(map(len, keys)), workers=workers)
    for (block, _), item in zip(asked, loader, strict=True):
        part = embedded(encoder, item, views.precision)
        part = part.averaged() if views.average else part
        yield block, part if keep_frames else replace(part, frames=None)


def blocks_in(videos: VideoSet) -> int:
    """How many blocks a set has."""
    return -(-len(videos) // BLOCK)


def held(intake: Intake, views: int) -> int:
    """Of how many videos so many views each are decoded at a time: what they fill does not grow with either."""
    return max(1, round(_HELD / (views * intake.frames * intake.size**2)))


def clips_of(encoder: Seeing, asked: int | None, *, usual: int) -> int:
    """How many clips of a video: as asked; of None one where its frames are spread over the video, else the usual."""
    return asked if asked is not None else 1 if encoder.survey.stride == 0 else usual


def join(parts: Sequence[Features]) -> Features:
    """Several pieces as one."""
    some = [part for part in parts if len(part.index)] or [_NOTHING]
    kept = [part.frames for part in some if part.frames is not None]
    return Features(
        index=np.concatenate([part.index for part in some]),
        **{name: np.concatenate([getattr(part, name) for part in some]) for name in PARTS},
        frames=np.concatenate(kept) if kept else None,
        broken=[entry for part in parts for entry in part.broken],
    )


def readable(found: Features) -> Features:
    """The same; an error if no video could be read."""
    if len(found.index) == 0:
        broken = found.broken
        first = f"; the first, {broken[0][0]}: {broken[0][1]}" if broken else ""
        raise VideoError(f"none of the {len(broken)} videos can be read{first}")
    return found


def even_clips(videos: VideoSet, intake: Intake, *, clips: int, crops: int = 1, full: bool = False) -> EvalDataset:
    """The views of each video that an evaluation takes; clips, crops: as in `extract`.

    full: crops are as large as the resized frame's shorter edge, as in the papers' test at 256 of a network at 224.
    """
    crop = centre_crops(intake, crops=crops, full=full)
    return EvalDataset(videos, **intake.sampling, clips=clips, crop=crop)


def centre_crops(intake: Intake, *, crops: int = 1, full: bool = False) -> CenterCrops:
    """How frames become what an encoder wants to be shown.

    Frames of 112 pixels and more are cut from a shorter edge of size · 256/224, smaller ones from one of their size;
    those that are to be shown entire are not cut.
    """
    side = short_side(intake.size)
    mean, std = intake.normalisation
    size = side if full and not intake.entire else intake.size
    return CenterCrops(size, side, crops, mean, std, intake.entire, intake.width)


def short_side(size: int) -> int:
    """The shorter edge that frames are resized to before a crop of this size is cut."""
    return round(size * _MARGIN) if size >= _SMALLEST_WITH_MARGIN else size


def at_once(clips: torch.Tensor) -> int:
    """How many of such clips (B, 3, T, H, W) a network is given at a time."""
    return max(1, _SEEN // clips[0, 0].numel())


def embedded(encoder: Seeing, item: Batch, precision: str = "fp32") -> Features:
    """What an encoder says of the views (B, V, …) of a batch of videos, of which it is shown some at a time."""
    views = item["clips"]
    if len(views) == 0:
        return replace(_NOTHING, broken=item["broken"])
    clips = views.flatten(0, 1)
    with torch.inference_mode(), autocast(encoder.device, precision):
        found = [encoder(some.to(encoder.device, non_blocking=True)) for some in clips.split(at_once(clips))]
    *parts, frames = (
        torch.cat(x).float().cpu().unflatten(0, views.shape[:2]).numpy() for x in zip(*found, strict=True)
    )
    named = dict(zip(PARTS, parts, strict=True))
    return Features(index=item["index"].numpy(), **named, frames=frames[:, 0], broken=item["broken"])


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
