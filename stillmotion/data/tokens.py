"""Clips of tokens: those of evenly spaced frames of every video are computed once, and clips are drawn from them.

Shapes: V clips of T frames, F kept frames of a video, h×w tokens of E channels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.augment import CenterCrops
from stillmotion.data.loader import Batch, ClipDataset, EvalDataset, eval_loader
from stillmotion.data.pairs import TokenStore
from stillmotion.data.paths import VideoSet
from stillmotion.data.subset import Subset
from stillmotion.errors import VideoError

_LEAST = 7 / 8


@dataclass(frozen=True)
class GridAugment:
    """Tokens (T, h, w, E) → (E, T, h', w'): a random part of the grid, the same for all frames of the clip.

    share: of rows and of columns that it has. flip: probability of left for right.
    """

    share: float = 1.0
    flip: float = 0.5

    def __call__(self, clip: np.ndarray, rng: np.random.Generator) -> Tensor:
        sides = clip.shape[1:3]
        rows, columns = (math.ceil(self.share * side) for side in sides)
        top, left = (int(rng.integers(0, side - part + 1)) for side, part in zip(sides, (rows, columns), strict=True))
        part = clip[:, top : top + rows, left : left + columns]
        part = part[:, :, ::-1] if rng.random() < self.flip else part
        return torch.from_numpy(np.ascontiguousarray(part)).permute(3, 0, 1, 2).float()


@dataclass(frozen=True)
class TokenClips(ClipDataset):
    """Random clips of kept tokens: item (epoch, index) → clips (V, E, T, h', w'), index, broken.

    A clip takes kept frames from a random start on, at a random speed; `stride` is 0.
    store: tokens (F, h·w, E) of each video. missing: why those of a video are not there, by its number.
    """

    store: TokenStore = field(kw_only=True)
    missing: dict[int, str] = field(default_factory=dict)

    def item(self, index: int, rng: np.random.Generator) -> Batch:
        kept = self.store.read_half(index, 0)
        if kept is None:
            raise VideoError(self.missing.get(index, f"the tokens of {self.videos.name(index)} are gone"))
        side = math.isqrt(kept.shape[1])
        grid = kept.reshape(len(kept), side, side, -1)
        clips = [grid[draw_times(len(grid), self.frames, rng)] for _ in range(self.clips)]
        return {"clips": torch.stack([self.augment(clip, rng) for clip in clips])}


def draw_times(kept: int, frames: int, rng: np.random.Generator) -> np.ndarray:
    """Which of the kept frames a clip takes: evenly spaced ones of a random part that is at least 7/8 of them.

    Clips of a video so begin at other times and are faster or slower, and still show the same course of things.
    """
    span = (kept - 1) * rng.uniform(_LEAST, 1)
    start = rng.uniform(0, kept - 1 - span)
    return np.round(np.linspace(start, start + span, frames)).astype(np.int64)


def keep_tokens(
    tokens: Callable[[Tensor], Tensor],
    videos: VideoSet,
    store: TokenStore,
    *,
    crop: CenterCrops,
    workers: int = 0,
    rank: int = 0,
    world: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[int, str]:
    """Compute what the store lacks; returns why a video has none, by its number.

    tokens: those (F, h·w, E) of a clip (1, 3, F, S, S), which is what `crop` makes of F evenly spaced frames.
    rank, world: this process takes every world-th of the videos. progress: told videos done, and of how many.
    """
    lacking = np.array([i for i in range(rank, len(videos), world) if not store.has(i, 0)], np.int64)
    dataset = EvalDataset(Subset(videos, lacking), frames=store.shape[2], stride=0, clips=1, crop=crop)
    broken: dict[str, str] = {}
    # One video at a time: what is kept must not depend on the batch it came in.
    for done, batch in enumerate(eval_loader(dataset, batch=1, workers=workers), 1):
        broken.update(batch["broken"])
        for number, views in zip(batch["index"].tolist(), batch["clips"], strict=True):
            store.write(int(lacking[number]), 0, tokens(views))
        if progress is not None:
            progress(done, len(lacking))
    return {int(i): broken[videos.name(int(i))] for i in lacking if videos.name(int(i)) in broken}
