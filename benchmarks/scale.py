"""What is held and how long it takes for each video, before any is decoded: what grows with the size of a set.

    python benchmarks/scale.py [--videos 200000]

Lists, shards, an epoch's order, what a run notes of its set, and what an index knows, of made-up names; each in a
process of its own. Memory is what that process holds more afterwards, time is the processor's.
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

from stillmotion.data.manifest import MANIFEST, Copied, read_lines, size_of
from stillmotion.data.order import buffered
from stillmotion.data.paths import PathSet
from stillmotion.data.shards import INDEX, LIST, VERSION, open_shards, write_list
from stillmotion.data.videos import Videos
from stillmotion.files import fingerprint
from stillmotion.index.table import About, Done, Tables
from stillmotion.train.seen import digest

SIZES = (10**5, 10**7, 10**9)
_IN_A_SHARD = 1000


def name(i: int) -> str:
    return f"class-{i % 400:03d}/video-{i:09d}_000010_000020.mp4"


def write_csv(folder: Path, videos: int) -> None:
    rows = "".join(f"{name(i)},class-{i % 400:03d},{i % 400}\n" for i in range(videos))
    (folder / "labels.csv").write_text(f"path,class,label\n{rows}")


def write_shards(folder: Path, videos: int) -> None:
    def sample(i: int) -> dict[str, Any]:
        row = {"class": f"class-{i % 400:03d}", "label": str(i % 400)}
        place = {"shard": i // _IN_A_SHARD, "offset": i % _IN_A_SHARD * 200_000, "size": 190_000, "crc32": i}
        return {"number": i, "path": name(i), "frames": 300, "fps": 30.0, **place, "row": row}

    write_list(str(folder / LIST), [sample(i) for i in range(videos)])
    shards = [{"name": f"shard-{k:06d}.tar", "size": 1} for k in range(-(-videos // _IN_A_SHARD))]
    about = {"version": VERSION, "classes": [], "list": size_of(folder / LIST), "shards": shards}
    (folder / INDEX).write_text(json.dumps(about))


def opened_shards(folder: Path, videos: int) -> Any:
    """A set of shards as training has it: names and labels were asked for once."""
    found = open_shards(str(folder))
    assert len(found.labels["class"]) == videos
    return found, [found.name(i) for i in range(0, videos, 100)]


def write_manifest(folder: Path, videos: int) -> None:
    lines = (Copied(f"/data/{name(i)}", name(i), 300, 30.0, 170, 128, 1.0, size=1).text() for i in range(videos))
    (folder / MANIFEST).write_text("".join(lines))


def write_index(folder: Path, videos: int) -> None:
    tables = Tables.create(str(folder), About("made up", "0", str(folder), {}))
    tables.note([Done(name(i), f"{i:032x}", 10.0) for i in range(videos)])


def write_files(folder: Path, videos: int) -> None:
    for i in range(min(videos, 200)):
        (folder / f"{i}.mp4").write_bytes(os.urandom(500_000))


def fingerprints(folder: Path, videos: int) -> list[str]:
    files = sorted(folder.glob("*.mp4"))
    return [fingerprint(files[i % len(files)]) for i in range(min(videos, 2000))]


Job = tuple[Callable[[Path, int], None] | None, Callable[[Path, int], Any]]
JOBS: dict[str, Job] = {
    "labels.csv opened": (write_csv, lambda folder, n: Videos(folder / "labels.csv").open()),
    "shards opened": (write_shards, opened_shards),
    "manifest.jsonl read": (write_manifest, lambda folder, n: read_lines(folder)),
    "an epoch's order": (None, lambda folder, n: np.random.default_rng(0).permutation(n)),
    "an epoch's order, buffered": (
        None,
        lambda folder, n: buffered(np.array_split(np.arange(n), n // _IN_A_SHARD), 5000, np.random.default_rng(0)),
    ),
    "what a run notes of its set": (None, lambda folder, n: digest(PathSet([Path(name(i)) for i in range(n)]))),
    "an index's videos": (write_index, lambda folder, n: _opened(folder).done()),
    "fingerprint of a file": (write_files, fingerprints),
}


def _opened(folder: Path) -> Tables:
    tables = Tables.open(str(folder))
    assert tables is not None
    return tables


def _held() -> int:
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * resource.getpagesize()


def _measure(job: str, folder: str, videos: int, answer: Any) -> None:
    do = JOBS[job][1]
    before, started = _held(), time.process_time()
    kept = do(Path(folder), videos)
    answer.send((time.process_time() - started, _held() - before, len(kept) if job.startswith("finger") else videos))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=200_000)
    videos = parser.parse_args().videos
    print(f"{'':28}{'µs a video':>12}{'bytes':>8}" + "".join(f"{f'{n:.0e} videos':>22}" for n in SIZES))
    for job, (write, _) in JOBS.items():
        with tempfile.TemporaryDirectory() as folder:
            if write is not None:
                write(Path(folder), videos)
            mine, theirs = multiprocessing.Pipe(duplex=False)
            process = multiprocessing.get_context("spawn").Process(target=_measure, args=(job, folder, videos, theirs))
            process.start()
            taken, held, done = mine.recv()
            process.join()
        each, size = taken / done, max(0, held) / done
        grown = "".join(f"{each * n:12.0f} s {size * n / 2**30:5.1f} GiB" for n in SIZES)
        print(f"{job:28}{each * 1e6:12.1f}{size:8.0f}{grown}", flush=True)


if __name__ == "__main__":
    main()
