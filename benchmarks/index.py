"""How fast a folder is indexed, against the obvious loop; and how fast an index is searched, from 1,000 moments on.

    python benchmarks/index.py make --data FOLDER --encoder TEXT [--videos 12]
    python benchmarks/index.py search [--most 1000000] [--look 384] [--motion 512] [--plot FILE.png]

make: the obvious loop decodes every frame of a video and shows the network one at a time; `stillmotion index` decodes
the frames that it needs, some moments at a time. One follows the other, by the clock: on a machine with other work the
ratio is rough. The network's share of the time is of the index.
search: made-up unit vectors in 2,000 groups, no videos. The bare scan is two products of a matrix with a vector, and
top-k, on one thread; below 100,000 moments an index does the same, above it asks LanceDB's cells. Times of queries are
by the processor's clock, of all threads together, so that other work on the machine does not count.
"""

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from stillmotion.data.file_video import FileVideo
from stillmotion.data.moments import Moment
from stillmotion.data.paths import find_videos
from stillmotion.encoders import Encoder, load
from stillmotion.encoders.features import centre_crops
from stillmotion.index import Index, Query, build, nearest
from stillmotion.index.showing import shown
from stillmotion.index.table import About, Row, Tables

LEAST, MOST_MS = 4.0, 50.0
GROUPS, BATCH, TOP, QUERIES = 2000, 1000, 10, 20
SIZES = (1000, 10_000, 99_000, 200_000, 500_000, 1_000_000)


def obvious(file: Path, encoder: Encoder) -> torch.Tensor:
    """Per-frame features of a whole video, the literal way."""
    crop = centre_crops(shown(encoder))
    with torch.inference_mode():
        return torch.cat([encoder.features(crop(frame[None])) for frame in FileVideo(file)], 1)


def make(data: str, text: str, videos: int) -> None:
    encoder = load(text)
    network = [0.0]
    real = encoder.forward

    def forward(clips: torch.Tensor) -> object:
        started = time.perf_counter()
        found = real(clips)
        network[0] += time.perf_counter() - started
        return found

    files = [file for file in find_videos(Path(data)) if file.is_file()]
    chosen = files[:: max(1, len(files) // videos)][:videos]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "videos"
        folder.mkdir()
        for number, file in enumerate(chosen):
            (folder / f"{number}{file.suffix}").symlink_to(file.resolve())
        encoder.forward = forward  # type: ignore[method-assign]
        started = time.perf_counter()
        index = build(folder, encoder, Path(place) / "index", say=lambda line: None)
        ours = time.perf_counter() - started
        encoder.forward = real  # type: ignore[method-assign]
        started = time.perf_counter()
        frames = sum(obvious(file, encoder).shape[1] for file in chosen)
        loop = time.perf_counter() - started
    intake, minutes = shown(encoder), 60 * len(chosen)
    print(f"{len(chosen)} videos, {frames} frames, {len(index)} moments of {intake.frames} frames at {intake.size} px")
    print(f"index         {minutes / ours:8.1f} videos a minute, {network[0] / ours:.0%} of the time in the network")
    print(f"obvious loop  {minutes / loop:8.1f} videos a minute")
    print(f"ratio         {loop / ours:8.1f}×  (at least {LEAST:g}×)")
    print(f"peak memory of both {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


def vectors(first: int, last: int, width: int) -> np.ndarray:
    """Unit vectors of moments by their numbers, in blocks of `BATCH`, (last - first, width): each in some group."""
    centres = np.random.default_rng((width, 1)).standard_normal((GROUPS, width), np.float32)
    rng = np.random.default_rng((width, 2, first))
    rows = centres[rng.integers(GROUPS, size=last - first)] + 0.7 * rng.standard_normal(
        (last - first, width), np.float32
    )
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def fill(tables: Tables, first: int, last: int, widths: tuple[int, int]) -> None:
    for start in range(first, last, 10 * BATCH):
        blocks = [(block, block + BATCH) for block in range(start, min(start + 10 * BATCH, last), BATCH)]
        looks, motions = (np.concatenate([vectors(a, b, width) for a, b in blocks]) for width in widths)
        numbers = range(start, start + len(looks))
        tables.add(
            [
                Row(Moment(f"{i:024x}", f"{i // 4}.mp4", i % 4 * 5.0, i % 4 * 5.0 + 6, 20.0), "", look, motion, b"")
                for i, look, motion in zip(numbers, looks, motions, strict=True)
            ]
        )


def median(do: Callable[[Query], object], asked: list[Query]) -> float:
    """Milliseconds of a query."""
    taken = []
    for query in asked:
        started = time.process_time()
        do(query)
        taken.append(1000 * (time.process_time() - started))
    return statistics.median(taken[1:])  # the first one loads


def search(most: int, widths: tuple[int, int], plot: str | None) -> None:
    numbers = range(10**9, 10**9 + QUERIES)
    asked = [Query(*(vectors(number, number + 1, width) for width in widths)) for number in numbers]
    rows: list[tuple[int, float, float, float]] = []
    print(f"look {widths[0]}, motion {widths[1]} channels; the median of {QUERIES - 1} queries at mix 0.5, top {TOP}")
    print(f"{'moments':>9}{'bare scan':>12}{'index':>10}{'recall':>8}{'cells made in':>15}{'peak':>10}")
    with tempfile.TemporaryDirectory() as place:
        tables = Tables.create(place, About("made up", "0", place, {}))
        for size in [n for n in SIZES if n <= most]:
            fill(tables, len(tables), size, widths)
            started = time.perf_counter()
            tables.tidy(cells=size >= nearest.LARGE)
            tidied = time.perf_counter() - started
            index = Index.open(place)
            taken = median(lambda query: index.near(query, top=TOP), asked)  # noqa: B023
            bare, recall = scan(size, widths, asked, index)
            rows.append((size, bare, taken, recall))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            cells = f"{tidied:.0f} s" if size >= nearest.LARGE else "–"
            print(f"{size:9,}{bare:9.1f} ms{taken:7.1f} ms{recall:8.2f}{cells:>15}{peak:6.2f} GiB", flush=True)
    for size, bare, taken, _ in [row for row in rows if row[0] == SIZES[2]]:
        print(f"among {size:,} moments: {taken - bare:+.1f} ms of the bare scan (at most {MOST_MS:g} ms more)")
    if plot is not None:
        draw(rows, plot)


def scan(size: int, widths: tuple[int, int], asked: list[Query], index: Index) -> tuple[float, float]:
    """Milliseconds of the bare scan, some moments in memory at a time, and how much of its answer an index has."""
    total = np.zeros(len(asked))
    best: list[list[tuple[float, str]]] = [[] for _ in asked]
    for start in range(0, size, 100_000):
        end = min(start + 100_000, size)
        parts = [(a, min(a + BATCH, end)) for a in range(start, end, BATCH)]
        look, motion = (torch.from_numpy(np.concatenate([vectors(a, b, w) for a, b in parts])) for w in widths)
        for number, query in enumerate(asked):
            q = [torch.from_numpy(x[0]) for x in (query.look, query.motion)]
            started = time.process_time()
            scores, found = (0.5 * (look @ q[0]) + 0.5 * (motion @ q[1])).topk(TOP)
            total[number] += time.process_time() - started
            best[number] += [(s, f"{start + i:024x}") for s, i in zip(scores.tolist(), found.tolist(), strict=True)]
    hits = [
        len({one.moment.id for one in index.near(query, top=TOP)} & {id for _, id in sorted(found)[-TOP:]})
        for query, found in zip(asked, best, strict=True)
    ]
    return 1000 * statistics.median(total.tolist()), sum(hits) / TOP / len(asked)


def draw(rows: list[tuple[int, float, float, float]], file: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure((5, 3), layout="constrained")
    axes = figure.subplots()
    sizes = [row[0] for row in rows]
    axes.loglog(sizes, [row[1] for row in rows], "o--", color="0.5", label="bare scan")
    axes.loglog(sizes, [row[2] for row in rows], "o-", color="C0", label="index")
    axes.axvline(nearest.LARGE, color="0.8", zorder=0)
    axes.set_xlabel("moments")
    axes.set_ylabel("ms a query")
    axes.legend(frameon=False)
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="what", required=True)
    making = verbs.add_parser("make")
    making.add_argument("--data", required=True)
    making.add_argument("--encoder", required=True)
    making.add_argument("--videos", type=int, default=12)
    searching = verbs.add_parser("search")
    searching.add_argument("--most", type=int, default=1_000_000)
    searching.add_argument("--look", type=int, default=384)
    searching.add_argument("--motion", type=int, default=512)
    searching.add_argument("--plot")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "make":
        make(options.data, options.encoder, options.videos)
    else:
        search(options.most, (options.look, options.motion), options.plot)


if __name__ == "__main__":
    main()
