"""Memory and time per video of what grows with the size of a data set, before any video is decoded.

    python benchmarks/dataset_memory.py [--videos 200000]

Measures lists, shards, the order of an epoch, the fingerprint of a run's data set and the videos of an index, with
made-up names, each in its own process. Memory is the growth of the resident set of that process; time is CPU time.
"""

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.datasets.base import PathDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.shards import (
    SAMPLE_LIST_FILE,
    SHARD_FORMAT_VERSION,
    SHARD_INDEX_FILE,
    hash_shard_index,
    open_shard_dataset,
    write_sample_list,
)
from stillmotion.data.loading.sampler import shuffle_with_buffer
from stillmotion.data.transcode.manifest import MANIFEST_FILE, ManifestEntry, read_entries
from stillmotion.index.storage.lance_tables import IndexMetadata, IndexTables
from stillmotion.index.storage.segment_rows import CompletedVideo
from stillmotion.training.dataset_fingerprint import fingerprint_dataset
from stillmotion.utils.hashing import file_fingerprint, hash_path

SIZES = (10**5, 10**7, 10**9)
_VIDEOS_PER_SHARD = 1000


def video_name(i: int) -> str:
    return f"class-{i % 400:03d}/video-{i:09d}_000010_000020.mp4"


def write_csv(folder: Path, num_videos: int) -> None:
    rows = "".join(f"{video_name(i)},class-{i % 400:03d},{i % 400}\n" for i in range(num_videos))
    (folder / "labels.csv").write_text(f"path,class,label\n{rows}")


def write_shards(folder: Path, num_videos: int) -> None:
    def sample(i: int) -> dict[str, Any]:
        row = {"class": f"class-{i % 400:03d}", "label": str(i % 400)}
        location = {
            "shard": i // _VIDEOS_PER_SHARD,
            "offset": i % _VIDEOS_PER_SHARD * 200_000,
            "size": 190_000,
            "hash": f"{i:016x}",
        }
        return {"index": i, "path": video_name(i), "frames": 300, "fps": 30.0, **location, "row": row}

    write_sample_list(str(folder / SAMPLE_LIST_FILE), [sample(i) for i in range(num_videos)])
    shards = [{"name": f"shard-{k:06d}.tar", "size": 1} for k in range(-(-num_videos // _VIDEOS_PER_SHARD))]
    metadata = {
        "version": SHARD_FORMAT_VERSION,
        "classes": [],
        "list_hash": hash_path(folder / SAMPLE_LIST_FILE),
        "shards": shards,
    }
    (folder / SHARD_INDEX_FILE).write_text(json.dumps({**metadata, "hash": hash_shard_index(metadata)}))


def open_shards_with_labels(folder: Path, num_videos: int) -> Any:
    """Open shards and read labels and names once, as training does."""
    dataset = open_shard_dataset(str(folder))
    assert len(dataset.labels["class"]) == num_videos
    return dataset, [dataset.name(i) for i in range(0, num_videos, 100)]


def write_manifest(folder: Path, num_videos: int) -> None:
    lines = (
        ManifestEntry(f"/data/{video_name(i)}", video_name(i), 300, 30.0, 170, 128, 1.0, num_bytes=1).to_json_line()
        for i in range(num_videos)
    )
    (folder / MANIFEST_FILE).write_text("".join(lines))


def write_index(folder: Path, num_videos: int) -> None:
    tables = IndexTables.create(str(folder), IndexMetadata("made up", "0", str(folder), {}))
    tables.mark_completed([CompletedVideo(video_name(i), f"{i:032x}", 10.0) for i in range(num_videos)])


def write_files(folder: Path, num_videos: int) -> None:
    for i in range(min(num_videos, 200)):
        (folder / f"{i}.mp4").write_bytes(os.urandom(500_000))


def fingerprint_files(folder: Path, num_videos: int) -> list[str]:
    files = sorted(folder.glob("*.mp4"))
    return [file_fingerprint(files[i % len(files)]) for i in range(min(num_videos, 2000))]


Job = tuple[Callable[[Path, int], None] | None, Callable[[Path, int], Any]]
JOBS: dict[str, Job] = {
    "labels.csv opened": (write_csv, lambda folder, n: VideoDataConfig(folder / "labels.csv").open()),
    "shards opened": (write_shards, open_shards_with_labels),
    "manifest.jsonl read": (write_manifest, lambda folder, n: read_entries(folder)),
    "an epoch's order": (None, lambda folder, n: np.random.default_rng(0).permutation(n)),
    "an epoch's order, buffered": (
        None,
        lambda folder, n: shuffle_with_buffer(
            np.array_split(np.arange(n), n // _VIDEOS_PER_SHARD), 5000, np.random.default_rng(0)
        ),
    ),
    "what a run notes of its set": (
        None,
        lambda folder, n: fingerprint_dataset(PathDataset([Path(video_name(i)) for i in range(n)])),
    ),
    "an index's videos": (write_index, lambda folder, n: _open_index(folder).completed_videos()),
    "fingerprint of a file": (write_files, fingerprint_files),
}


def _open_index(folder: Path) -> IndexTables:
    tables = IndexTables.open(str(folder))
    assert tables is not None
    return tables


def _resident_bytes() -> int:
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * resource.getpagesize()


def _measure(job: str, folder: str, num_videos: int, connection: Any) -> None:
    job_function = JOBS[job][1]
    bytes_before, start = _resident_bytes(), time.process_time()
    result = job_function(Path(folder), num_videos)
    connection.send(
        (
            time.process_time() - start,
            _resident_bytes() - bytes_before,
            len(result) if job.startswith("finger") else num_videos,
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=200_000)
    videos = parser.parse_args().videos
    print(f"{'':28}{'µs a video':>12}{'bytes':>8}" + "".join(f"{f'{n:.0e} videos':>22}" for n in SIZES))
    for job, (write, _) in JOBS.items():
        with tempfile.TemporaryDirectory() as folder:
            if write is not None:
                write(Path(folder), videos)
            receiver, sender = multiprocessing.Pipe(duplex=False)
            process = multiprocessing.get_context("spawn").Process(target=_measure, args=(job, folder, videos, sender))
            process.start()
            seconds, num_bytes, num_items = receiver.recv()
            process.join()
        seconds_per_video, bytes_per_video = seconds / num_items, max(0, num_bytes) / num_items
        estimates = "".join(f"{seconds_per_video * n:12.0f} s {bytes_per_video * n / 2**30:5.1f} GiB" for n in SIZES)
        print(f"{job:28}{seconds_per_video * 1e6:12.1f}{bytes_per_video:8.0f}{estimates}", flush=True)


if __name__ == "__main__":
    main()
