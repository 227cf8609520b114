"""Pairs of frames at a fixed share of their video's length, cut by the same box, and their tokens kept on disk."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stillmotion.data.augment import Augment
from stillmotion.data.loader import Batch, ClipDataset
from stillmotion.errors import StillmotionError, VideoError


def pair_augment(size: int, *, area: tuple[float, float], mean: Any, std: Any) -> Augment:
    """A random resized crop and nothing else, the same for all frames of a clip."""
    return Augment(size, area=area, flip=0, jitter_p=0, gray=0, blur_p=0, mean=tuple(mean), std=tuple(std))


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
    """

    def __init__(self, folder: str | Path, shape: tuple[int, int, int, int, int], about: Mapping[str, Any]) -> None:
        described = json.dumps({"shape": shape, **about}, sort_keys=True, default=str)
        name = hashlib.sha256(described.encode()).hexdigest()[:16]
        self.file = Path(folder) / f"tokens-{name}.f16"
        self.shape = shape
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            for path, size in ((self.file, 2 * int(np.prod(shape))), (self._done_file, shape[0] * shape[1])):
                with open(path, "ab") as opened:  # sparse: what is not written takes no room
                    if path.stat().st_size < size:
                        opened.truncate(size)
            self.file.with_suffix(".json").write_text(described)
        except OSError as error:
            raise StillmotionError(
                f"cannot keep tokens in {folder} ({error.strerror}); choose another --cache"
            ) from None
        self._open()

    def has(self, video: int, pair: int) -> bool:
        return bool(self._done[video, pair])

    def read(self, video: int, pair: int) -> torch.Tensor:
        """(views, N, D) in single precision."""
        return torch.from_numpy(np.array(self._tokens[video, pair])).float()

    def write(self, video: int, pair: int, tokens: torch.Tensor) -> torch.Tensor:
        """Keep tokens and return what `read` will give for them."""
        half = tokens.detach().cpu().half()
        self._tokens[video, pair] = half.numpy()
        self._done[video, pair] = 1  # after the tokens: a kill in between leaves them to be made again
        return half.float()

    @property
    def _done_file(self) -> Path:
        return self.file.with_suffix(".done")

    def _open(self) -> None:
        self._tokens = np.memmap(self.file, np.float16, "r+", shape=self.shape)
        self._done = np.memmap(self._done_file, np.uint8, "r+", shape=self.shape[:2])

    def __getstate__(self) -> dict[str, Any]:
        return {"file": self.file, "shape": self.shape}  # a worker maps the file itself

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._open()
