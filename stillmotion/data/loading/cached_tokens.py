"""Pairs of frames at a fixed share of their video's length, cut by the same box, and their tokens kept on disk."""

import hashlib
import json
import math
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.loading.clip_dataset import ClipDataset, EvalClipDataset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.loading.loader import iter_eval_batches
from stillmotion.data.transforms.augment import ClipAugmentation, EvalCrop
from stillmotion.data.transforms.sampling import sample_frame_pair
from stillmotion.errors import VideoError
from stillmotion.utils.files import ensure_dir, report_disk_errors, write_text


@dataclass(frozen=True)
class FramePairDataset(ClipDataset):
    """Two frames of each video: item (epoch, index) → clips (1, 3, 2, S, S), index, broken.

    gap: of the video's length. pairs: different pairs of a video; epochs take turns. 0 draws a new one each time.
    token_cache: tokens that need no frames: their clips are zeros.
    """

    gap: float = 0.15
    pairs_per_video: int = 0
    token_cache: "TokenCache | None" = None

    def __getitem__(self, key: int | tuple[int, int]) -> Batch:
        epoch, index = (0, key) if isinstance(key, int) else key
        if self.pairs_per_video:
            epoch %= self.pairs_per_video
        if self.token_cache is not None and self.token_cache.has(index, epoch):
            assert isinstance(self.augment, ClipAugmentation)
            size = self.augment.size
            return {"clips": torch.zeros(1, 3, 2, size, size), "index": index, "failed": []}
        return super().__getitem__((epoch, index))

    def sample_indices(self, video_length: int, rng: np.random.Generator) -> np.ndarray:
        return sample_frame_pair(video_length, gap=self.gap, rng=rng)


class TokenCache:
    """Tokens of pairs in one file: (videos, pairs, views, N, D) in half precision, filled as they come.

    folder: may serve many runs; a file is named by the hash of what it holds.
    metadata: whatever the tokens depend on, as JSON. Processes of one machine may write different places at a time.
    What was damaged since it was written, as its checksum tells, is not there.
    """

    def __init__(self, folder: str | Path, shape: tuple[int, int, int, int, int], metadata: Mapping[str, Any]) -> None:
        described = json.dumps({"shape": shape, **metadata}, sort_keys=True, default=str)
        name = hashlib.sha256(described.encode()).hexdigest()[:16]
        self.file = ensure_dir(folder, option_name="--cache") / f"tokens-{name}.f16"
        self.shape = shape
        write_text(self.file.with_suffix(".json"), described, option_name="--cache")
        self._open()

    def has(self, video: int, pair: int) -> bool:
        return self.read_fp16(video, pair) is not None

    def read(self, video: int, pair: int) -> torch.Tensor | None:
        """(views, N, D) in single precision; None where nothing whole was kept."""
        half = self.read_fp16(video, pair)
        return None if half is None else torch.from_numpy(half.astype(np.float32))

    def read_fp16(self, video: int, pair: int) -> np.ndarray | None:
        """The same in half precision, which is not to be written to."""
        place = video * self.shape[1] + pair
        content, check = os.pread(self._tokens, self._size, place * self._size), os.pread(self._checks, 4, 4 * place)
        if check != _checksum(content):
            return None
        return np.frombuffer(content, np.float16).reshape(self.shape[2:])

    def write(self, video: int, pair: int, tokens: torch.Tensor) -> torch.Tensor:
        """Keep tokens and return what `read` will give for them."""
        half = tokens.detach().cpu().half()
        content, place = half.numpy().tobytes(), video * self.shape[1] + pair
        with report_disk_errors(self.file, option_name="--cache"):
            _write_at(self._tokens, content, place * self._size)
            # After the tokens: a kill in between leaves them to be made again.
            _write_at(self._checks, _checksum(content), 4 * place)
        return half.float()

    def _open(self) -> None:
        self._size = 2 * math.prod(self.shape[2:])
        with report_disk_errors(self.file, option_name="--cache"):
            # Where nothing is written, the files take no room.
            self._tokens, self._checks = (
                os.open(file, os.O_RDWR | os.O_CREAT, 0o666) for file in (self.file, self.file.with_suffix(".crc"))
            )

    def __del__(self) -> None:
        for opened in ("_tokens", "_checks"):
            if opened in self.__dict__:
                os.close(self.__dict__[opened])

    def __getstate__(self) -> dict[str, Any]:
        return {"file": self.file, "shape": self.shape}  # a worker opens the files itself

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._open()


def _checksum(content: bytes) -> bytes:
    return (zlib.crc32(content) or 1).to_bytes(4, "little")  # 0 is where nothing was written


def _write_at(file: int, content: bytes, offset: int) -> None:
    """Write all of it; a disk that fills up is an OSError, where a file mapped into memory would end the process."""
    left = memoryview(content)
    while left:
        done = os.pwrite(file, left, offset)
        left, offset = left[done:], offset + done


_MIN_SPAN = 7 / 8


@dataclass(frozen=True)
class TokenGridAugmentation:
    """Tokens (T, h, w, E) → (E, T, h', w'): a random part of the grid, the same for all frames of the clip.

    crop_fraction: of rows and of columns that it has. flip: probability of left for right.
    """

    crop_fraction: float = 1.0
    flip_p: float = 0.5

    def __call__(self, clip: np.ndarray, rng: np.random.Generator) -> Tensor:
        sides = clip.shape[1:3]
        rows, columns = (math.ceil(self.crop_fraction * side) for side in sides)
        top, left = (int(rng.integers(0, side - part + 1)) for side, part in zip(sides, (rows, columns), strict=True))
        part = clip[:, top : top + rows, left : left + columns]
        part = part[:, :, ::-1] if rng.random() < self.flip_p else part
        return torch.from_numpy(np.ascontiguousarray(part)).permute(3, 0, 1, 2).float()


@dataclass(frozen=True)
class TokenClipDataset(ClipDataset):
    """Random clips of kept tokens: item (epoch, index) → clips (V, E, T, h', w'), index, broken.

    A clip takes kept frames from a random start on, at a random speed; `stride` is 0.
    cache: tokens (F, h·w, E) of each video. missing: why those of a video are not there, by its number.
    """

    cache: TokenCache = field(kw_only=True)
    failed: dict[int, str] = field(default_factory=dict)

    def load_item(self, index: int, rng: np.random.Generator) -> Batch:
        kept = self.cache.read_fp16(index, 0)
        if kept is None:
            raise VideoError(self.failed.get(index, f"the tokens of {self.videos.name(index)} are gone"))
        side = math.isqrt(kept.shape[1])
        grid = kept.reshape(len(kept), side, side, -1)
        clips = [grid[sample_cached_frames(len(grid), self.num_frames, rng)] for _ in range(self.num_clips)]
        return {"clips": torch.stack([self.augment(clip, rng) for clip in clips])}


def sample_cached_frames(num_cached: int, num_frames: int, rng: np.random.Generator) -> np.ndarray:
    """Which of the kept frames a clip takes: evenly spaced ones of a random part that is at least 7/8 of them.

    Clips of a video so begin at other times and are faster or slower, and still show the same course of things.
    """
    span = (num_cached - 1) * rng.uniform(_MIN_SPAN, 1)
    start = rng.uniform(0, num_cached - 1 - span)
    return np.round(np.linspace(start, start + span, num_frames)).astype(np.int64)


def fill_token_cache(
    compute_tokens: Callable[[Tensor], Tensor],
    video_dataset: VideoDataset,
    cache: TokenCache,
    *,
    crop: EvalCrop,
    num_workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[int, str]:
    """Compute what the store lacks; returns why a video has none, by its number.

    compute_tokens: those (F, h·w, E) of a clip (1, 3, F, S, S), which is what `crop` makes of F evenly spaced frames.
    rank, world_size: this process takes every world-th of the videos. progress: told videos done, and of how many.
    """
    lacking = np.array([i for i in range(rank, len(video_dataset), world_size) if not cache.has(i, 0)], np.int64)
    dataset = EvalClipDataset(
        Subset(video_dataset, lacking), num_frames=cache.shape[2], stride=0, num_clips=1, crop=crop
    )
    broken: dict[str, str] = {}
    # One video at a time: what is kept must not depend on the batch it came in.
    for done, batch in enumerate(iter_eval_batches(dataset, batch_size=1, num_workers=num_workers), 1):
        broken.update(batch["failed"])
        for number, views in zip(batch["index"].tolist(), batch["clips"], strict=True):
            cache.write(int(lacking[number]), 0, compute_tokens(views))
        if progress is not None:
            progress(done, len(lacking))
    return {int(i): broken[video_dataset.name(int(i))] for i in lacking if video_dataset.name(int(i)) in broken}
