"""Pairs of frames at a fixed share of their video's length, cut by the same box, and their tokens kept on disk."""

import hashlib
import json
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stillmotion.data.augment import Augment
from stillmotion.data.loader import Batch, ClipDataset
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.files import made, write_text, writing


def pair_augment(size: int, *, area: tuple[float, float], mean: Any, std: Any, flip: float = 0.0) -> Augment:
    """A random resized crop, mirrored with a probability, and nothing else; the same for all frames of a clip."""
    return Augment(size, area=area, flip=flip, jitter_p=0, gray=0, blur_p=0, mean=tuple(mean), std=tuple(std))


def draw_pair(length: int, *, gap: float, rng: np.random.Generator) -> np.ndarray:
    """Numbers (1, 2) of two frames that lie `gap` of the length apart, at least one frame."""
    if not 0 < gap < 1:
        raise StillmotionError(f"gap is {gap}; it is a share of the video's length, such as 0.15")
    if length < 2:
        raise VideoError(f"a video of {length} frame has no pair of frames")
    step = min(max(1, round(gap * length)), length - 1)
    first = int(rng.integers(0, length - step))
    return np.array([[first, first + step]])


@dataclass(frozen=True)
class PairDataset(ClipDataset):
    """Two frames of each video: item (epoch, index) → clips (1, 3, 2, S, S), index, broken.

    gap: of the video's length. pairs: different pairs of a video; epochs take turns. 0 draws a new one each time.
    known: tokens that need no frames: their clips are zeros.
    """

    gap: float = 0.15
    pairs: int = 0
    known: "TokenStore | None" = None

    def __getitem__(self, key: int | tuple[int, int]) -> Batch:
        epoch, index = (0, key) if isinstance(key, int) else key
        if self.pairs:
            epoch %= self.pairs
        if self.known is not None and self.known.has(index, epoch):
            assert isinstance(self.augment, Augment)
            size = self.augment.size
            return {"clips": torch.zeros(1, 3, 2, size, size), "index": index, "broken": []}
        return super().__getitem__((epoch, index))

    def numbers(self, length: int, rng: np.random.Generator) -> np.ndarray:
        return draw_pair(length, gap=self.gap, rng=rng)


class TokenStore:
    """Tokens of pairs in one file: (videos, pairs, views, N, D) in half precision, filled as they come.

    folder: may serve many runs; a file is named by the hash of what it holds.
    about: whatever the tokens depend on, as JSON. Processes of one machine may write different places at a time.
    What was damaged since it was written, as its checksum tells, is not there.
    """

    def __init__(self, folder: str | Path, shape: tuple[int, int, int, int, int], about: Mapping[str, Any]) -> None:
        described = json.dumps({"shape": shape, **about}, sort_keys=True, default=str)
        name = hashlib.sha256(described.encode()).hexdigest()[:16]
        self.file = made(folder, option="--cache") / f"tokens-{name}.f16"
        self.shape = shape
        write_text(self.file.with_suffix(".json"), described, option="--cache")
        self._open()

    def has(self, video: int, pair: int) -> bool:
        return self.read_half(video, pair) is not None

    def read(self, video: int, pair: int) -> torch.Tensor | None:
        """(views, N, D) in single precision; None where nothing whole was kept."""
        half = self.read_half(video, pair)
        return None if half is None else torch.from_numpy(half.astype(np.float32))

    def read_half(self, video: int, pair: int) -> np.ndarray | None:
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
        with writing(self.file, option="--cache"):
            _put(self._tokens, content, place * self._size)
            # After the tokens: a kill in between leaves them to be made again.
            _put(self._checks, _checksum(content), 4 * place)
        return half.float()

    def _open(self) -> None:
        self._size = 2 * math.prod(self.shape[2:])
        with writing(self.file, option="--cache"):
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


def _put(file: int, content: bytes, place: int) -> None:
    """Write all of it; a disk that fills up is an OSError, where a file mapped into memory would end the process."""
    left = memoryview(content)
    while left:
        done = os.pwrite(file, left, place)
        left, place = left[done:], place + done
