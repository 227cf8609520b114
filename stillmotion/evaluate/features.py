"""Frozen features of videos: evenly spaced clips through an encoder, as NumPy arrays.

Shapes: N videos, V = clips · crops views of each, T frames, D channels.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch

from stillmotion.config import DataConfig
from stillmotion.data.augment import CenterCrops, augment
from stillmotion.data.loader import Broken, EvalDataset, eval_loader
from stillmotion.data.paths import VideoSet
from stillmotion.errors import StillmotionError
from stillmotion.nn.encoder import Encoder

Kind = Literal["both", "whole", "static", "dynamic"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Progress = Callable[[int, int], None]  # videos done, videos in all

_MARGIN = 256 / 224  # what the papers resize to, and what they crop of it
_SMALLEST_WITH_MARGIN = 112


@dataclass(frozen=True, kw_only=True)
class Features:
    """What an encoder says about the readable ones of some videos.

    index (N,): their numbers in the set. whole, static, dynamic: (N, V, D), one for each view.
    frames (N, T, D): of each video's first view, where they were asked for.
    broken: name and reason of each video that could not be read.
    """

    index: np.ndarray
    whole: np.ndarray
    static: np.ndarray
    dynamic: np.ndarray
    frames: np.ndarray | None
    broken: Broken

    def vector(self, kind: Kind = "both", *, average: bool = True) -> np.ndarray:
        """One vector per video (N, D), or per view (N, V, D) where they are not averaged.

        kind: "both" is static ⊕ dynamic, each L2-normalised, 2·D channels.
        """
        if kind not in KINDS:
            raise StillmotionError(f"there are no {kind!r} features; choose one of {', '.join(KINDS)}")
        views = np.concatenate([_unit(self.static), _unit(self.dynamic)], -1) if kind == "both" else getattr(self, kind)
        return views.mean(1) if average else views


def extract(
    encoder: Encoder,
    videos: VideoSet,
    data: DataConfig,
    *,
    clips: int = 1,
    crops: int = 1,
    full: bool = False,
    batch: int = 16,
    workers: int = 0,
    keep_frames: bool = False,
    progress: Progress | None = None,
) -> Features:
    """The features of a set, in its order, on the device where the encoder is.

    data: its frames, stride and size make a clip; its augmentation says how frames are normalised.
    clips (K): per video, evenly spaced. crops: 1, the centre, or 3 along the longer edge.
    full, batch, workers: as in `feature_batches`.
    keep_frames: keep the per-frame features of each video's first view.
    progress: called with the number of videos done and of all.
    """
    parts, done = [], 0
    for part in feature_batches(
        encoder, videos, data, clips=clips, crops=crops, full=full, batch=batch, workers=workers
    ):
        parts.append(part if keep_frames else _without_frames(part))
        done += len(part.index) + len(part.broken)
        if progress is not None:
            progress(done, len(videos))
    return join(parts)


def feature_batches(
    encoder: Encoder,
    videos: VideoSet,
    data: DataConfig,
    *,
    clips: int = 1,
    crops: int = 1,
    full: bool = False,
    batch: int = 16,
    workers: int = 0,
) -> Iterator[Features]:
    """The same piece by piece, for sets whose views do not fit in memory.

    full: crops are as large as the resized frame's shorter edge, as in the papers' test at 256 of a network at 224.
    batch: videos at a time. workers: decoding processes.
    Frames of 112 pixels and more are cut from a shorter edge of size · 256/224, smaller ones from one of their size.
    """
    device = next(encoder.parameters()).device
    dataset = even_clips(videos, data, clips=clips, crops=crops, full=full)
    for item in eval_loader(dataset, batch=batch, workers=workers):
        views = item["clips"]
        if len(views) == 0:
            yield _empty(item["broken"])
            continue
        with torch.inference_mode():
            found = encoder(views.flatten(0, 1).to(device, non_blocking=True))
        whole, static, dynamic, frames = (x.float().cpu().unflatten(0, views.shape[:2]).numpy() for x in found)
        yield Features(
            index=item["index"].numpy(),
            whole=whole,
            static=static,
            dynamic=dynamic,
            frames=frames[:, 0],
            broken=item["broken"],
        )


def join(parts: list[Features]) -> Features:
    """Several pieces as one; an error if no video among them could be read."""
    broken = [entry for part in parts for entry in part.broken]
    some = [part for part in parts if len(part.index)]
    if not some:
        first = f"; the first, {broken[0][0]}: {broken[0][1]}" if broken else ""
        raise StillmotionError(f"none of the {len(broken)} videos can be read{first}")
    kept = [part.frames for part in some if part.frames is not None]
    return Features(
        index=np.concatenate([part.index for part in some]),
        whole=np.concatenate([part.whole for part in some]),
        static=np.concatenate([part.static for part in some]),
        dynamic=np.concatenate([part.dynamic for part in some]),
        frames=np.concatenate(kept) if kept else None,
        broken=broken,
    )


def averaged(part: Features) -> Features:
    """The mean over each video's views, as its one view."""
    if len(part.index) == 0:
        return part
    means = {name: getattr(part, name).mean(1, keepdims=True) for name in ("whole", "static", "dynamic")}
    return Features(index=part.index, **means, frames=None, broken=part.broken)


def even_clips(videos: VideoSet, data: DataConfig, *, clips: int, crops: int = 1, full: bool = False) -> EvalDataset:
    """The views of each video that an evaluation takes; arguments as in `extract`."""
    side = short_side(data.size)
    preset = augment(data.augment, size=data.size)
    crop = CenterCrops(side if full else data.size, side, crops, preset.mean, preset.std)
    return EvalDataset(videos, frames=data.frames, stride=data.stride, clips=clips, crop=crop)


def short_side(size: int) -> int:
    """The shorter edge that frames are resized to before a crop of this size is cut."""
    return round(size * _MARGIN) if size >= _SMALLEST_WITH_MARGIN else size


def _without_frames(part: Features) -> Features:
    return Features(**{**vars(part), "frames": None})


def _empty(broken: Broken) -> Features:
    nothing = np.empty((0, 0, 0), np.float32)
    return Features(
        index=np.empty(0, np.int64), whole=nothing, static=nothing, dynamic=nothing, frames=None, broken=broken
    )


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
