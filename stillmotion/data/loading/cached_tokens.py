"""Image-model tokens of evenly spaced frames on disk, and clips sampled from them."""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.loading.clip_dataset import EvalClipDataset, TrainClipDataset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.loading.loader import iter_eval_batches
from stillmotion.data.transforms.augment import EvalCrop
from stillmotion.errors import VideoError
from stillmotion.utils.files import ensure_dir, report_disk_errors, write_text
from stillmotion.utils.hashing import hash_bytes
from stillmotion.utils.progress import report_progress

_HASH_BYTES = 8


class TokenCache:
    """Tokens in one file: (videos, pairs, views, N, D) in half precision, filled as they are computed.

    Each entry has a hash, so that a damaged entry counts as missing. Processes of one machine may write different
    entries at the same time. Entries that are not written take no space on the disk.

    Args:
        folder: Folder of the cache, which many runs may share.
        shape: Shape of all tokens.
        metadata: What the tokens depend on, as JSON; its hash names the file.
    """

    def __init__(self, folder: str | Path, shape: tuple[int, int, int, int, int], metadata: Mapping[str, Any]) -> None:
        description = json.dumps({"shape": shape, **metadata}, sort_keys=True, default=str)
        name = hash_bytes(description.encode(), digest_size=8)
        self.file = ensure_dir(folder, option_name="--cache-dir") / f"tokens-{name}.f16"
        self.shape = shape
        write_text(self.file.with_suffix(".json"), description, option_name="--cache-dir")
        self._open()

    def has(self, video: int, pair: int) -> bool:
        """Return whether the tokens of a pair are cached and intact.

        Args:
            video: Index of the video.
            pair: Index of the pair.
        """
        return self.read_fp16(video, pair) is not None

    def read(self, video: int, pair: int) -> torch.Tensor | None:
        """Read the tokens of a pair, float32 (views, N, D); None if they are missing or damaged.

        Args:
            video: Index of the video.
            pair: Index of the pair.
        """
        tokens = self.read_fp16(video, pair)
        return None if tokens is None else torch.from_numpy(tokens.astype(np.float32))

    def read_fp16(self, video: int, pair: int) -> np.ndarray | None:
        """Read the tokens of a pair as a read-only float16 array (views, N, D); None if missing or damaged.

        Args:
            video: Index of the video.
            pair: Index of the pair.
        """
        index = video * self.shape[1] + pair
        content = os.pread(self._tokens, self._size, index * self._size)
        if os.pread(self._hashes, _HASH_BYTES, _HASH_BYTES * index) != _hash(content):
            return None
        return np.frombuffer(content, np.float16).reshape(self.shape[2:])

    def write(self, video: int, pair: int, tokens: torch.Tensor) -> torch.Tensor:
        """Write the tokens of a pair and return them as `read` does.

        Args:
            video: Index of the video.
            pair: Index of the pair.
            tokens: Tokens (views, N, D).
        """
        fp16 = tokens.detach().cpu().half()
        content, index = fp16.numpy().tobytes(), video * self.shape[1] + pair
        with report_disk_errors(self.file, option_name="--cache-dir"):
            _write_at(self._tokens, content, index * self._size)
            # The hash is written last: if the process is killed in between, the entry counts as missing.
            _write_at(self._hashes, _hash(content), _HASH_BYTES * index)
        return fp16.float()

    def _open(self) -> None:
        self._size = 2 * math.prod(self.shape[2:])
        with report_disk_errors(self.file, option_name="--cache-dir"):
            self._tokens, self._hashes = (
                os.open(file, os.O_RDWR | os.O_CREAT, 0o666) for file in (self.file, self.file.with_suffix(".hash"))
            )

    def __del__(self) -> None:
        for name in ("_tokens", "_hashes"):
            if name in self.__dict__:
                os.close(self.__dict__[name])

    def __getstate__(self) -> dict[str, Any]:
        return {"file": self.file, "shape": self.shape}  # a worker opens the files again

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._open()


def _hash(content: bytes) -> bytes:
    return bytes.fromhex(hash_bytes(content, digest_size=_HASH_BYTES))


def _write_at(file: int, content: bytes, offset: int) -> None:
    """Write all bytes; a full disk raises OSError, where a memory-mapped file would crash the process."""
    left = memoryview(content)
    while left:
        done = os.pwrite(file, left, offset)
        left, offset = left[done:], offset + done


@dataclass(frozen=True)
class TokenGridAugmentation:
    """Random crop, flip and shift of a token grid, the same for all frames of a clip: (T, h, w, E) to (E, T, h', w').

    Attributes:
        crop_fraction: Fraction of the rows and of the columns that the crop has.
        flip_p: Probability of a horizontal flip.
        max_shift: Largest horizontal shift to either side, in cells; the border column is repeated.
        match_radius: The channels are those of `token_matches` with this radius, whose offsets a flip mirrors, too. 0:
            the channels are tokens.
    """

    crop_fraction: float = 1.0
    flip_p: float = 0.5
    max_shift: int = 0
    match_radius: int = 0

    def __call__(self, clip: np.ndarray, rng: np.random.Generator) -> Tensor:
        sides = clip.shape[1:3]
        rows, columns = (math.ceil(self.crop_fraction * side) for side in sides)
        top, left = (int(rng.integers(0, side - size + 1)) for side, size in zip(sides, (rows, columns), strict=True))
        part = clip[:, top : top + rows, left : left + columns]
        if rng.random() < self.flip_p:
            part = part[:, :, ::-1]
            if self.match_radius:
                side = 2 * self.match_radius + 1
                part = part.reshape(*part.shape[:3], side, side)[..., ::-1].reshape(part.shape)
        if self.max_shift:
            shift = rng.integers(-self.max_shift, self.max_shift + 1)
            part = part[:, :, np.clip(np.arange(columns) - shift, 0, columns - 1)]
        return torch.from_numpy(np.ascontiguousarray(part)).permute(3, 0, 1, 2).float()


@dataclass(frozen=True)
class TokenClipDataset(TrainClipDataset):
    """Random clips of cached tokens: item (epoch, index) → clips (V, E, T, h', w'), index, failed.

    A clip has cached frames from a random start, at a random speed; `stride` is 0.

    Args:
        cache: Tokens (F, h·w, E) of each video.
        failed: Why the tokens of a video are missing, by its index.
        min_window: Shortest part of a video that a clip spans, as a fraction.
    """

    cache: TokenCache = field(kw_only=True)
    failed: dict[int, str] = field(default_factory=dict)
    min_window: float = 7 / 8

    def load_item(self, index: int, rng: np.random.Generator) -> Batch:
        tokens = self.cache.read_fp16(index, 0)
        if tokens is None:
            reason = f"The cached tokens of {self.videos.name(index)} are missing"
            raise VideoError(self.failed.get(index, reason))
        side = math.isqrt(tokens.shape[1])
        grid = tokens.reshape(len(tokens), side, side, -1)
        frames = [
            sample_cached_frames(len(grid), self.num_frames, rng, min_window=self.min_window)
            for _ in range(self.num_clips)
        ]
        return {"clips": torch.stack([self.augment(grid[index], rng) for index in frames])}


def sample_cached_frames(
    num_cached: int, num_frames: int, rng: np.random.Generator, *, min_window: float = 7 / 8
) -> np.ndarray:
    """Sample evenly spaced frames from a random window of the cached frames.

    All clips have the same number of frames, so the length of the window is the speed: from 9/16 of the video to all of
    it, speeds differ from their middle by factors from 0.75 to 1.33.

    Args:
        num_cached: Number of cached frames.
        num_frames: Number of frames of the clip.
        rng: Random generator.
        min_window: Length of the shortest window, as a fraction of the cached frames.

    Returns:
        Indices of cached frames (num_frames,).
    """
    span = (num_cached - 1) * rng.uniform(min_window, 1)
    start = rng.uniform(0, num_cached - 1 - span)
    return np.round(np.linspace(start, start + span, num_frames)).astype(np.int64)


def fill_token_cache(
    compute_tokens: Callable[[Tensor], Tensor],
    videos: VideoDataset,
    cache: TokenCache,
    *,
    crop: EvalCrop,
    num_workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> dict[int, str]:
    """Compute the tokens that a cache lacks.

    Args:
        compute_tokens: Function from a clip (1, 3, F, S, S) to its tokens (F, h·w, E).
        videos: The videos.
        cache: The cache.
        crop: Crop and normalization of the F evenly spaced frames of a video.
        num_workers: Number of decoding processes.
        rank: Index of this process, which computes every `world_size`-th video.
        world_size: Number of processes.

    Returns:
        Why a video has no tokens, by its index.
    """
    missing = np.array([i for i in range(rank, len(videos), world_size) if not cache.has(i, 0)], np.int64)
    dataset = EvalClipDataset(Subset(videos, missing), num_frames=cache.shape[2], stride=0, num_clips=1, crop=crop)
    failed: dict[str, str] = {}
    # One video at a time: the tokens must not depend on the batch.
    for done, batch in enumerate(iter_eval_batches(dataset, batch_size=1, num_workers=num_workers), 1):
        failed.update(batch["failed"])
        for index, views in zip(batch["index"].tolist(), batch["clips"], strict=True):
            cache.write(int(missing[index]), 0, compute_tokens(views))
        report_progress(done, len(missing))
    return {int(i): failed[videos.name(int(i))] for i in missing if videos.name(int(i)) in failed}
