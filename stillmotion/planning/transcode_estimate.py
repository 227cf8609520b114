"""What copies of a data set will take, told beforehand: some videos are copied into a temporary folder, which goes."""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.transcode.manifest import read_completed_entries
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.utils import formatting
from stillmotion.utils.files import check_no_overlap, check_writable, free_bytes, path_size
from stillmotion.utils.formatting import LabelValue

_NUM_SAMPLES = 3  # videos that are copied


def estimate_transcode(
    dataset: VideoDataset, output_dir: str | Path, config: Any, transcode: Callable[..., Any], *, num_processes: int = 1
) -> list[LabelValue]:
    """What copying a set takes, in words.

    config, transcode: how, and the function that does it: `prepare` or `make_controlled`.
    """
    if num_processes < 1:
        raise StillmotionError(f"processes is {num_processes}; it must be at least 1")
    names = [dataset.name(i) for i in range(len(dataset))]
    check_no_overlap(output_dir, names)
    check_writable(output_dir)
    some = np.unique(np.linspace(0, len(dataset) - 1, min(_NUM_SAMPLES, len(dataset))).astype(np.int64))
    with tempfile.TemporaryDirectory() as place:
        started = time.perf_counter()
        made = transcode(Subset(dataset, some), Path(place, "copies"), config, num_processes=1)
        seconds = (time.perf_counter() - started) / len(some)
        written = sum(path_size(file) for file in Path(place).rglob("*") if file.is_file()) / len(some)
    good = [line for line in made if not line.error]
    if not good:
        raise VideoError(made[0].error)
    done = len(read_completed_entries(Path(output_dir)))
    left = max(0, len(dataset) - done)
    read = sum(map(path_size, map(Path, names)))
    frames = sum(line.num_frames for line in good) / len(good)
    return [
        ("videos", f"{len(dataset)}" + (f", {done} of them done" if done else "")),
        (
            "each",
            f"{formatting.format_significant(frames)} frames, {good[0].width}×{good[0].height} pixels in the copy",
        ),
        *([("files to read", formatting.format_bytes(read * left / max(1, len(dataset))))] if read else []),
        (
            "to be written",
            f"{formatting.format_bytes(written * left)}; {formatting.format_bytes(free_bytes(output_dir) or 0)} are free",
        ),
        (
            "memory at its height",
            f"{formatting.format_memory(_peak_memory_bytes() * num_processes)}, of {num_processes} processes like this one",
        ),
        (
            "time",
            f"{formatting.format_duration(seconds * left / num_processes)}, by {len(some)} videos that were copied here",
        ),
    ]


def _peak_memory_bytes() -> int:
    """The most bytes that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
