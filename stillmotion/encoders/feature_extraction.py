"""Extraction of frozen features: evenly spaced clips of videos through an encoder, as NumPy arrays.

Shapes: N videos, V = num_clips · num_crops views per video, T frames, D channels.
"""

from collections.abc import Iterator, Sequence
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
from stillmotion.errors import StillmotionError, raise_if_none_readable
from stillmotion.functional.knn import l2_normalize
from stillmotion.functional.koopman import KOOPMAN_MIN_FRAMES
from stillmotion.models.input_config import InputConfig
from stillmotion.utils.device import autocast
from stillmotion.utils.option_types import FeatureKind
from stillmotion.utils.progress import report_progress

FEATURE_KINDS: tuple[FeatureKind, ...] = get_args(FeatureKind)
# Outputs of an encoder; concat is made of two of them.
EMBEDDING_FIELDS = ("whole", "static", "dynamic", "motion", "motion_field")
VIDEOS_PER_BLOCK = 64  # the features of a block do not depend on other blocks
_MAX_DECODED_PIXELS = 256 * 224**2  # approximate limit of decoded pixels per batch
_MAX_FORWARD_PIXELS = 64 * 224**2  # approximate limit of pixels per forward pass
_RESIZE_RATIO = 256 / 224  # the papers resize the short side to 256 and crop 224
_MIN_SIZE_WITH_MARGIN = 112


@dataclass(frozen=True, kw_only=True)
class Features:
    """Features of the readable videos of a data set; embeddings as in `Embedding`, not L2-normalized.

    Args:
        index: Index of each video in the data set, (N,).
        whole: (N, V, D).
        static: (N, V, D), or (N, V, 0) where clips are too short to decompose.
        dynamic: (N, V, D), or (N, V, 0) where clips are too short to decompose.
        motion: (N, V, M), or (N, V, 0) where there is none.
        motion_field: (N, V, 3600), or (N, V, 0) where there is none.
        frames: Per-frame features of each video's first view, (N, T, D); None unless requested.
        failed: Name and reason of each video that could not be read.
    """

    index: np.ndarray
    whole: np.ndarray
    static: np.ndarray
    dynamic: np.ndarray
    motion: np.ndarray
    motion_field: np.ndarray
    frames: np.ndarray | None
    failed: FailedVideos

    def vectors(self, kind: FeatureKind = "concat", *, average: bool = True) -> np.ndarray:
        """Return one vector per video or per view.

        Args:
            kind: Feature kind; "concat" is static ⊕ dynamic, each L2-normalized, with 2·D channels.
            average: Average the views of each video.

        Returns:
            (N, D), or (N, V, D) if views are not averaged.

        Raises:
            StillmotionError: If there are no features of this kind.
        """
        if kind not in FEATURE_KINDS:
            raise StillmotionError(f"Unknown feature kind {kind!r}; choose one of {', '.join(FEATURE_KINDS)}.")
        if kind not in self.kinds:
            steps = "more" if kind == "motion" else f"at least {KOOPMAN_MIN_FRAMES}"
            raise StillmotionError(
                f"The {kind} embedding needs {steps} time steps per clip. Use `whole`, or increase the frames "
                "(@frames=N)."
            )
        views = (
            np.concatenate([l2_normalize(self.static), l2_normalize(self.dynamic)], -1)
            if kind == "concat"
            else getattr(self, kind)
        )
        return views.mean(1) if average else views

    @property
    def kinds(self) -> tuple[FeatureKind, ...]:
        """Available feature kinds: no static or dynamic for clips that are too short, no motion for single frames."""
        missing = {field for field in EMBEDDING_FIELDS if not getattr(self, field).shape[-1]}
        return tuple(k for k in FEATURE_KINDS if k not in missing and (k != "concat" or "static" not in missing))

    def available(self, feature_kinds: Sequence[FeatureKind]) -> Sequence[FeatureKind]:
        """Return the requested kinds that are available; all requested ones if none is, so that using them raises."""
        return [kind for kind in feature_kinds if kind in self.kinds] or feature_kinds

    def average_views(self) -> "Features":
        """Return the mean over each video's views, as its only view."""
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
    """What feature extraction needs of an `Encoder`."""

    eval_input: InputConfig

    @property
    def device(self) -> torch.device: ...

    def __call__(self, clips: torch.Tensor) -> Embedding: ...


@dataclass(frozen=True, kw_only=True)
class ClipViews:
    """Views sampled from each video, and how they are embedded.

    Args:
        num_clips: Evenly spaced clips per video, sampled as in the encoder's `eval_input`.
        num_crops: Crops per clip: 1, the center, or 3 along the longer side.
        full_frame_crops: Crops are as large as the short side of the resized frame.
        average_views: Keep only the mean over a video's views.
        precision: Autocast precision of the forward pass; fp32 turns autocast off.
    """

    num_clips: int = 1
    num_crops: int = 1
    full_frame_crops: bool = False
    average_views: bool = False
    precision: str = "fp32"

    def __post_init__(self) -> None:
        if self.num_clips < 1:
            raise StillmotionError(f"num_clips must be at least 1, got {self.num_clips}. Increase --num-clips.")


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
) -> Features:
    """Extract features of all readable videos, in data-set order, on the encoder's device.

    Args:
        encoder: Encoder whose embeddings are extracted.
        dataset: Videos.
        num_clips: Evenly spaced clips per video.
        num_crops: Crops per clip: 1 or 3.
        full_frame_crops: Crops are as large as the short side of the resized frame.
        average_views: Keep only the mean over a video's views.
        keep_frames: Keep the per-frame features of each video's first view.
        loader: Batch size and number of decoding processes.

    Returns:
        The features, and the videos that could not be read.

    Raises:
        VideoError: If no video can be read.
    """
    views = ClipViews(
        num_clips=num_clips, num_crops=num_crops, full_frame_crops=full_frame_crops, average_views=average_views
    )
    parts, done = [], 0
    for _, part in iter_features(encoder, dataset, views, keep_frames=keep_frames, loader=loader):
        parts.append(part)
        done += len(part.index) + len(part.failed)
        report_progress(done, len(dataset))
    return require_any_readable(concat_features(parts))


def iter_features(
    encoder: ClipEncoder,
    dataset: VideoDataset,
    views: ClipViews,
    *,
    blocks: Sequence[int] | None = None,
    keep_frames: bool = False,
    loader: LoaderConfig | None = None,
) -> Iterator[tuple[int, Features]]:
    """Extract features a few videos at a time, in data-set order.

    Args:
        encoder: Encoder whose embeddings are extracted.
        dataset: Videos.
        views: Views sampled from each video.
        blocks: Blocks of `VIDEOS_PER_BLOCK` videos to extract; None is all. The features of a block are the same, bit
            for bit, whichever other blocks are requested.
        keep_frames: Keep the per-frame features of each video's first view.
        loader: Batch size and number of decoding processes.

    Yields:
        The number of a block and the features of some of its videos.
    """
    loader = loader or LoaderConfig()
    clip_dataset = build_eval_clip_dataset(
        dataset,
        encoder.eval_input,
        num_clips=views.num_clips,
        num_crops=views.num_crops,
        full_frame=views.full_frame_crops,
    )
    size = min(loader.batch_size, videos_per_batch(encoder.eval_input, views.num_clips * views.num_crops))
    requests = [
        (block, range(first, min(first + size, (block + 1) * VIDEOS_PER_BLOCK, len(dataset))))
        for block in (range(num_blocks(dataset)) if blocks is None else blocks)
        for first in range(block * VIDEOS_PER_BLOCK, min((block + 1) * VIDEOS_PER_BLOCK, len(dataset)), size)
    ]
    workers = min(loader.resolve_num_workers(dataset), len(requests))
    keys = [list(indices) for _, indices in requests]
    batches = iter_batches(clip_dataset, keys, num_videos=sum(map(len, keys)), num_workers=workers)
    for (block, _), item in zip(requests, batches, strict=True):
        part = embed_batch(encoder, item, views.precision)
        part = part.average_views() if views.average_views else part
        yield block, part if keep_frames else replace(part, frames=None)


def num_blocks(dataset: VideoDataset) -> int:
    """Return the number of blocks of a data set."""
    return -(-len(dataset) // VIDEOS_PER_BLOCK)


def videos_per_batch(input_config: InputConfig, num_views: int) -> int:
    """Return how many videos to decode at a time, so that the decoded pixels stay below a limit.

    Args:
        input_config: Size of the clips.
        num_views: Views per video.

    Returns:
        The number of videos, at least 1.
    """
    return max(1, round(_MAX_DECODED_PIXELS / (num_views * input_config.num_frames * input_config.image_size**2)))


def resolve_num_clips(encoder: ClipEncoder, num_clips: int | None, *, default: int) -> int:
    """Return the number of clips per video.

    Args:
        encoder: Encoder that embeds the clips.
        num_clips: Requested number, or None.
        default: Number where None is requested and the encoder takes short clips. An encoder whose frames are spread
            over the whole video takes one clip.

    Returns:
        The number of clips.
    """
    return num_clips if num_clips is not None else 1 if encoder.eval_input.stride == 0 else default


def concat_features(parts: Sequence[Features]) -> Features:
    """Concatenate features along the videos."""
    nonempty = [part for part in parts if len(part.index)] or [_EMPTY]
    frames = [part.frames for part in nonempty if part.frames is not None]
    return Features(
        index=np.concatenate([part.index for part in nonempty]),
        **{name: np.concatenate([getattr(part, name) for part in nonempty]) for name in EMBEDDING_FIELDS},
        frames=np.concatenate(frames) if frames else None,
        failed=[entry for part in parts for entry in part.failed],
    )


def require_any_readable(features: Features) -> Features:
    """Return the features; raise VideoError if no video could be read."""
    raise_if_none_readable(features.failed, len(features.failed) + len(features.index))
    return features


def build_eval_clip_dataset(
    dataset: VideoDataset, input_config: InputConfig, *, num_clips: int, num_crops: int = 1, full_frame: bool = False
) -> EvalClipDataset:
    """Build the data set of evenly spaced clips that an evaluation embeds.

    Args:
        dataset: Videos.
        input_config: Size and sampling of the clips.
        num_clips: Evenly spaced clips per video.
        num_crops: Crops per clip: 1 or 3.
        full_frame: Crops are as large as the short side of the resized frame, as in the papers' test at 256 pixels of
            a network trained at 224.

    Returns:
        The clip data set.
    """
    crop = eval_crop(input_config, num_crops=num_crops, full_frame=full_frame)
    return EvalClipDataset(dataset, **input_config.sampling, num_clips=num_clips, crop=crop)


def eval_crop(input_config: InputConfig, *, num_crops: int = 1, full_frame: bool = False) -> EvalCrop:
    """Build the resizing and cropping of an evaluation.

    Crops of 112 pixels and more are cut from frames whose short side is 256/224 times the crop size; smaller ones from
    frames whose short side is the crop size. Inputs with `whole_frame` are resized without cropping.

    Args:
        input_config: Size and normalization of the clips.
        num_crops: Crops per clip: 1 or 3.
        full_frame: Crops are as large as the short side of the resized frame.

    Returns:
        The transform.
    """
    short_side = eval_short_side(input_config.image_size)
    mean, std = input_config.normalization
    size = short_side if full_frame and not input_config.whole_frame else input_config.image_size
    return EvalCrop(size, short_side, num_crops, mean, std, input_config.whole_frame, input_config.frame_width)


def eval_short_side(image_size: int) -> int:
    """Return the short side to which frames are resized before a crop of `image_size` pixels."""
    return round(image_size * _RESIZE_RATIO) if image_size >= _MIN_SIZE_WITH_MARGIN else image_size


def clips_per_forward(clips: torch.Tensor) -> int:
    """Return how many of the clips (B, 3, T, H, W) go through the network at a time."""
    return max(1, _MAX_FORWARD_PIXELS // clips[0, 0].numel())


def embed_batch(encoder: ClipEncoder, batch: Batch, precision: str = "fp32") -> Features:
    """Embed a batch of videos, some views at a time.

    Args:
        encoder: Encoder.
        batch: Batch with "clips" (B, V, 3, T, H, W), "index" and "failed".
        precision: Autocast precision of the forward pass.

    Returns:
        The features of the videos.
    """
    views = batch["clips"]
    if len(views) == 0:
        return replace(_EMPTY, failed=batch["failed"])
    clips = views.flatten(0, 1)
    with torch.inference_mode(), autocast(encoder.device, precision):
        embeddings = [
            encoder(some.to(encoder.device, non_blocking=True)) for some in clips.split(clips_per_forward(clips))
        ]
    *parts, frames = (
        torch.cat(x).float().cpu().unflatten(0, views.shape[:2]).numpy() for x in zip(*embeddings, strict=True)
    )
    named = dict(zip(EMBEDDING_FIELDS, parts, strict=True))
    return Features(index=batch["index"].numpy(), **named, frames=frames[:, 0], failed=batch["failed"])
