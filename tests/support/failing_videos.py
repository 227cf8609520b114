"""Exceptions of every kind that a decoder may raise, and videos whose reading raises them."""

from collections.abc import Sequence

import cv2
import numpy as np
import pytest

from stillmotion.data.video.frame_folder import FrameFolderReader
from stillmotion.data.video.pyav_reader import PyAVReader

ERRORS = (
    cv2.error("bad"),
    MemoryError(),
    OSError(5, "io"),
    ValueError(""),
    RuntimeError("x"),
    KeyError("k"),
    StopIteration(),
)


def fail_reading(monkeypatch: pytest.MonkeyPatch, names: Sequence[str]) -> None:
    """Make the n-th of these videos (names without suffix) raise the n-th of `ERRORS` whenever a frame is read."""
    errors = dict(zip(names, ERRORS, strict=True))
    for reader, method in (
        (PyAVReader, "get_frames"),
        (PyAVReader, "_iter_unique"),
        (FrameFolderReader, "get_frames"),
    ):
        original = getattr(reader, method)

        def read(self, indices, original=original) -> np.ndarray:
            if self.path.stem in errors:
                raise errors[self.path.stem]
            return original(self, indices)

        monkeypatch.setattr(reader, method, read)
