"""Frozen features of videos: evenly spaced clips through an encoder, as NumPy arrays.

Shapes: N videos, V = clips · crops views of each, T frames, D channels."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, get_args

import numpy as np
import torch

from stillmotion.data.datasets.base import FailedVideos, VideoDataset
from stillmotion.data.loading.clip_dataset import EvalClipDataset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.loading.loader import iter_batches
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.data.transforms.augment import EvalCrop
from stillmotion.encoders.embedding import Embedding
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.functional.knn import l2_normalize
from stillmotion.functional.koopman import KOOPMAN_MIN_FRAMES
from stillmotion.models.input_config import InputConfig
from stillmotion.utils.device import autocast
from stillmotion.utils.option_types import FeatureKind

FEATURE_KINDS: tuple[FeatureKind, ...] = get_args(FeatureKind)
EMBEDDING_FIELDS = ("whole", "static", "dynamic", "motion")  # what an encoder gives; concat is made of two of them
ProgressCallback = Callable[[int, int], None]  # videos done, videos in all
VIDEOS_PER_BLOCK = 64  # videos: what is computed of them does not depend on those before and behind
_MAX_DECODED_PIXELS = 256 * 224**2  # pixels of decoded clips in a batch, about
_MAX_FORWARD_PIXELS = 64 * 224**2  # pixels of clips that a network is given at a time, about
_RESIZE_RATIO = 256 / 224  # what the papers resize to, and what they crop of it
_MIN_SIZE_WITH_MARGIN = 112


@dataclass(frozen=True, kw_only=True)
class Features:
    """What an encoder says about the readable ones of some videos.

    index (N,): their numbers in the set. whole, static, dynamic (N, V, D) and motion (N, V, M): one for each view, as
        in `Embedding`; what there is not is (N, V, 0).
    frames (N, T, D): of each video's first view, where they were asked for.
    failed: name and reason of each video that could not be read.
    """

    index: np.ndarray
    whole: np.ndarray
    static: np.ndarray
    dynamic: np.ndarray
    motion: np.ndarray
    frames: np.ndarray | None
    failed: FailedVideos

    def vectors(self, kind: FeatureKind = "concat", *, average: bool = True) -> np.ndarray:
        """One vector per video (N, D), or per view (N, V, D) where they are not averaged.

        kind: "concat" is static ⊕ dynamic, each L2-normalised, 2·D channels.
        """
        if kind not in FEATURE_KINDS:
            raise StillmotionError(f"there are no {kind!r} features; choose one of {', '.join(FEATURE_KINDS)}")
        if kind not in self.kinds and kind == "motion":
            raise StillmotionError(
                "there is no motion embedding: the encoder makes too few time steps of a clip; ask for whole, or show "
                "it more frames"
            )
        if kind not in self.kinds:
            raise StillmotionError(
                f"there is no {kind} embedding: the encoder makes fewer than {KOOPMAN_MIN_FRAMES} time steps of a clip; "
                "ask for whole, or show it more frames"
            )
        views = (
            np.concatenate([l2_normalize(self.static), l2_normalize(self.dynamic)], -1)
            if kind == "concat"
            else getattr(self, kind)
        )
        return views.mean(1) if average else views

    @property
    def kinds(self) -> tuple[FeatureKind, ...]:
        """The kinds that there are: no halves where clips are too short to be split, no motion where none is seen."""
        missing = {of for of in EMBEDDING_FIELDS if not getattr(self, of).shape[-1]}
        return tuple(of for of in FEATURE_KINDS if of not in missing and (of != "concat" or "static" not in missing))

    def average_views(self) -> "Features":
        """The mean over each video's views, as its one view."""
        if len(self.index) == 0:
            return self
        means = {name: getattr(self, name).mean(1, keepdims=True) for name in EMBEDDING_FIELDS}
        return replace(self, **means, frames=None)


_EMPTY = Features(
    index=np.empty(0, np.int64),
    **dict.fromkeys(EMBEDDING_FIELDS, np.empty((0, 0, 0), np.float32)),
    frames=None,
    failed=[],
)


class ClipEncoder(Protocol):
    """What features are asked of: an `Encoder`."""

    eval_input: InputConfig

    @property
    def device(self) -> torch.device: ...

    def __call__(self, clips: torch.Tensor) -> Embedding: ...


@dataclass(frozen=True, kw_only=True)
class ClipViews:
    """What is taken of each video, and how it is embedded.

    num_clips (K): evenly spaced, as the encoder's survey has them. crops: 1, the centre, or 3 along the longer edge.
    full_frame_crops: as in `even_clips`. average: keep the mean over a video's views, as its one view.
    precision: of the forward pass, by autocast; fp32 is none.
    """

    num_clips: int = 1
    num_crops: int = 1
    full_frame_crops: bool = False
    average_views: bool = False
    precision: str = "fp32"


def extract_features(
    encoder: ClipEncoder,
    dataset: VideoDataset,
    *,
    num_clips: int = 1,
    num_crops: int = 1,
    full_frame_crops: bool = False,
    average_views: bool = False,
    keep_frames: bool = False,
    loader: LoaderConfig | None = None,
    progress: ProgressCallback | None = None,
) -> Features:
    """The features of a set, in its order, on the device where the encoder is.

    num_clips, num_crops, full_frame_crops, average_views: as in `Views`.
    keep_frames: keep the per-frame features of each video's first view.
    progress: called with the number of videos done and of all.
    """
    views = ClipViews(
        num_clips=num_clips, num_crops=num_crops, full_frame_crops=full_frame_crops, average_views=average_views
    )
    found, done = [], 0
    for _, part in iter_features(encoder, dataset, views, keep_frames=keep_frames, loader=loader):
        found.append(part)
        done += len(part.index) + len(part.failed)
        if progress is not None:
            progress(done, len(dataset))
    return require_any_readable(concat_features(found))


def iter_features(
    encoder: ClipEncoder,
    dataset: VideoDataset,
    views: ClipViews,
    *,
    blocks: Sequence[int] | None = None,
    keep_frames: bool = False,
    loader: LoaderConfig | None = None,
) -> Iterator[tuple[int, Features]]:
    """The features of a set, some videos at a time, in its order, each with the number of the block they are of.

    blocks: those that are asked for, of `BLOCK` videos each; None is all. They come out the same, bit for bit,
        whichever others are asked for.
    """
    loader = loader or LoaderConfig()
    clip_dataset = evenly_spaced_clips(
        dataset,
        encoder.eval_input,
        num_clips=views.num_clips,
        num_crops=views.num_crops,
        full_frame=views.full_frame_crops,
    )
    size = min(loader.batch_size, videos_per_batch(encoder.eval_input, views.num_clips * views.num_crops))
    asked = [
        (block, range(first, min(first + size, (block + 1) * VIDEOS_PER_BLOCK, len(dataset))))
        for block in (range(num_blocks(dataset)) if blocks is None else blocks)
        for first in range(block * VIDEOS_PER_BLOCK, min((block + 1) * VIDEOS_PER_BLOCK, len(dataset)), size)
    ]
    workers = min(loader.resolve_num_workers(dataset), len(asked))
    keys = [list(numbers) for _, numbers in asked]
    batches = iter_batches(clip_dataset, keys, num_videos=sum(map(len, keys)), num_workers=workers)
    for (block, _), item in zip(asked, batches, strict=True):
        part = embed_batch(encoder, item, views.precision)
        part = part.average_views() if views.average_views else part
        yield block, part if keep_frames else replace(part, frames=None)


def num_blocks(dataset: VideoDataset) -> int:
    """How many blocks a set has."""
    return -(-len(dataset) // VIDEOS_PER_BLOCK)


def videos_per_batch(input_config: InputConfig, num_views: int) -> int:
    """Of how many videos so many views each are decoded at a time: what they fill does not grow with either."""
    return max(1, round(_MAX_DECODED_PIXELS / (num_views * input_config.num_frames * input_config.image_size**2)))


def resolve_num_clips(encoder: ClipEncoder, num_clips: int | None, *, default: int) -> int:
    """How many clips of a video: as asked; of None one where its frames are spread over the video, else the usual."""
    return num_clips if num_clips is not None else 1 if encoder.eval_input.stride == 0 else default


def concat_features(parts: Sequence[Features]) -> Features:
    """Several pieces as one."""
    some = [part for part in parts if len(part.index)] or [_EMPTY]
    kept = [part.frames for part in some if part.frames is not None]
    return Features(
        index=np.concatenate([part.index for part in some]),
        **{name: np.concatenate([getattr(part, name) for part in some]) for name in EMBEDDING_FIELDS},
        frames=np.concatenate(kept) if kept else None,
        failed=[entry for part in parts for entry in part.failed],
    )


def require_any_readable(features: Features) -> Features:
    """The same; an error if no video could be read."""
    if len(features.index) == 0:
        broken = features.failed
        first = f"; the first, {broken[0][0]}: {broken[0][1]}" if broken else ""
        raise VideoError(f"none of the {len(broken)} videos can be read{first}")
    return features


def evenly_spaced_clips(
    dataset: VideoDataset, input_config: InputConfig, *, num_clips: int, num_crops: int = 1, full_frame: bool = False
) -> EvalClipDataset:
    """The views of each video that an evaluation takes; clips, crops: as in `extract`.

    full_frame: crops are as large as the resized frame's shorter edge, as in the papers' test at 256 of a network at 224.
    """
    crop = eval_crop(input_config, num_crops=num_crops, full_frame=full_frame)
    return EvalClipDataset(dataset, **input_config.sampling, num_clips=num_clips, crop=crop)


def eval_crop(input_config: InputConfig, *, num_crops: int = 1, full_frame: bool = False) -> EvalCrop:
    """How frames become what an encoder wants to be shown.

    Frames of 112 pixels and more are cut from a shorter edge of size · 256/224, smaller ones from one of their size;
    those that are to be shown entire are not cut.
    """
    side = eval_short_side(input_config.image_size)
    mean, std = input_config.normalization
    size = side if full_frame and not input_config.whole_frame else input_config.image_size
    return EvalCrop(size, side, num_crops, mean, std, input_config.whole_frame, input_config.frame_width)


def eval_short_side(image_size: int) -> int:
    """The shorter edge that frames are resized to before a crop of this size is cut."""
    return round(image_size * _RESIZE_RATIO) if image_size >= _MIN_SIZE_WITH_MARGIN else image_size


def clips_per_forward(clips: torch.Tensor) -> int:
    """How many of such clips (B, 3, T, H, W) a network is given at a time."""
    return max(1, _MAX_FORWARD_PIXELS // clips[0, 0].numel())


def embed_batch(encoder: ClipEncoder, batch: Batch, precision: str = "fp32") -> Features:
    """What an encoder says of the views (B, V, …) of a batch of videos, of which it is shown some at a time."""
    views = batch["clips"]
    if len(views) == 0:
        return replace(_EMPTY, failed=batch["failed"])
    clips = views.flatten(0, 1)
    with torch.inference_mode(), autocast(encoder.device, precision):
        found = [encoder(some.to(encoder.device, non_blocking=True)) for some in clips.split(clips_per_forward(clips))]
    *parts, frames = (
        torch.cat(x).float().cpu().unflatten(0, views.shape[:2]).numpy() for x in zip(*found, strict=True)
    )
    named = dict(zip(EMBEDDING_FIELDS, parts, strict=True))
    return Features(index=batch["index"].numpy(), **named, frames=frames[:, 0], failed=batch["failed"])
