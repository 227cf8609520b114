"""What copies of a data set will take, told beforehand: some videos are copied into a temporary folder, which goes."""

import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion import amounts
from stillmotion.amounts import Row
from stillmotion.data.manifest import read_manifest, size_of
from stillmotion.data.paths import VideoSet
from stillmotion.data.subset import Subset
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.files import spare, writable

_SAMPLES = 3  # videos that are copied


def rows(data: VideoSet, out: str | Path, settings: Any, copy: Callable[..., Any], *, processes: int = 1) -> list[Row]:
    """What copying a set takes, in words.

    settings, copy: how, and the function that does it: `prepare` or `make_controlled`.
    """
    if processes < 1:
        raise StillmotionError(f"processes is {processes}; it must be at least 1")
    names = [data.name(i) for i in range(len(data))]
    spare(out, names)
    writable(out)
    some = np.unique(np.linspace(0, len(data) - 1, min(_SAMPLES, len(data))).astype(np.int64))
    with tempfile.TemporaryDirectory() as place:
        started = time.perf_counter()
        made = copy(Subset(data, some), Path(place, "copies"), settings, processes=1)
        seconds = (time.perf_counter() - started) / len(some)
        written = sum(size_of(file) for file in Path(place).rglob("*") if file.is_file()) / len(some)
    good = [line for line in made if not line.error]
    if not good:
        raise VideoError(made[0].error)
    done = len(read_manifest(Path(out)))
    left = max(0, len(data) - done)
    read = sum(map(size_of, map(Path, names)))
    frames = sum(line.frames for line in good) / len(good)
    return [
        ("videos", f"{len(data)}" + (f", {done} of them done" if done else "")),
        ("each", f"{amounts.two(frames)} frames, {good[0].width}×{good[0].height} pixels in the copy"),
        *([("files to read", amounts.room(read * left / max(1, len(data))))] if read else []),
        ("to be written", f"{amounts.room(written * left)}; {amounts.room(_free(Path(out)))} are free"),
        ("memory at its height", f"{amounts.memory(_resident() * processes)}, of {processes} processes like this one"),
        ("time", f"{amounts.duration(seconds * left / processes)}, by {len(some)} videos that were copied here"),
    ]


def _free(place: Path) -> int:
    there = next(path for path in (place.absolute(), *place.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def _resident() -> int:
    """The most bytes that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
