"""Speed of building an index, against a simple loop, and of searching an index of 1,000 segments and more.

    python benchmarks/index_build_and_search.py make --data FOLDER --encoder TEXT [--videos 12]
    python benchmarks/index_build_and_search.py search [--most 1000000] [--look 384] [--motion 512] [--plot FILE.png]
    python benchmarks/index_build_and_search.py aligned [--most 99000]

make: the simple loop decodes every frame of a video and embeds frames one at a time; `stillmotion index` decodes only
the frames that it needs, in batches of segments. Both are timed by the wall clock, one after the other, so the ratio is
rough on a busy machine. The network's fraction of the time is that of the index.
search: random unit vectors in 2,000 groups, no videos. The brute-force search is two matrix-vector products and top-k
on one thread; below 100,000 segments an index does the same, above it uses LanceDB's IVF. Queries are timed by CPU time
of all threads, so other work on the machine does not count.
aligned: the same with random motion fields, ranked by motion: the 150 candidates by amplitude spectrum are compared
under alignment.
"""

import argparse
import math
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from stillmotion.data.datasets.folder import find_videos
from stillmotion.data.video.pyav_reader import PyAVReader
from stillmotion.encoders import Encoder, load
from stillmotion.encoders.feature_extraction import eval_crop
from stillmotion.functional.motion_alignment import FIELD_SHAPE, field_spectrum
from stillmotion.index import Query, VideoIndex, build_index
from stillmotion.index.motion_fields import unflatten_fields
from stillmotion.index.search import backends
from stillmotion.index.segment_embedder import segment_input_config
from stillmotion.index.storage.lance_tables import IndexMetadata, IndexTables
from stillmotion.index.storage.segment_rows import SegmentRow
from stillmotion.index.video_segments import VideoSegment

MIN_SPEEDUP, MAX_MS, MAX_ALIGNED_MS = 4.0, 50.0, 150.0
NUM_FIELD_VALUES = math.prod(FIELD_SHAPE)
NUM_GROUPS, BATCH_SIZE, TOP_K, NUM_QUERIES = 2000, 1000, 10, 20
SIZES = (1000, 10_000, 99_000, 200_000, 500_000, 1_000_000)


def naive_features(file: Path, encoder: Encoder) -> torch.Tensor:
    """Per-frame features of a whole video, the literal way."""
    crop, video = eval_crop(segment_input_config(encoder)), PyAVReader(file)
    with torch.inference_mode():
        return torch.cat(
            [encoder.frame_features(crop(frame[None])) for frame in video.iter_frames(range(len(video)))], 1
        )


def measure_build(data: str, encoder_spec: str, num_videos: int) -> None:
    encoder = load(encoder_spec)
    network = [0.0]
    real = encoder.forward

    def forward(clips: torch.Tensor) -> object:
        started = time.perf_counter()
        found = real(clips)
        network[0] += time.perf_counter() - started
        return found

    files = [file for file in find_videos(Path(data)) if file.is_file()]
    chosen = files[:: max(1, len(files) // num_videos)][:num_videos]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "videos"
        folder.mkdir()
        for number, file in enumerate(chosen):
            (folder / f"{number}{file.suffix}").symlink_to(file.resolve())
        encoder.forward = forward  # type: ignore[method-assign]
        started = time.perf_counter()
        index = build_index(folder, encoder, Path(place) / "index")
        ours = time.perf_counter() - started
        encoder.forward = real  # type: ignore[method-assign]
        started = time.perf_counter()
        frames = sum(naive_features(file, encoder).shape[1] for file in chosen)
        loop = time.perf_counter() - started
    intake, minutes = segment_input_config(encoder), 60 * len(chosen)
    print(f"{len(chosen)} videos, {frames} frames, {len(index)} segments")
    print(f"{intake.num_frames} frames per segment at {intake.image_size} pixels")
    print(f"index         {minutes / ours:8.1f} videos a minute, {network[0] / ours:.0%} of the time in the network")
    print(f"simple loop   {minutes / loop:8.1f} videos a minute")
    print(f"ratio         {loop / ours:8.1f}×  (at least {MIN_SPEEDUP:g}×)")
    print(f"peak memory of both {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


def random_vectors(first: int, last: int, dim: int) -> np.ndarray:
    """Unit vectors of moments by their numbers, in blocks of `BATCH`, (last - first, width): each in some group."""
    centres = np.random.default_rng((dim, 1)).standard_normal((NUM_GROUPS, dim), np.float32)
    rng = np.random.default_rng((dim, 2, first))
    rows = centres[rng.integers(NUM_GROUPS, size=last - first)] + 0.7 * rng.standard_normal(
        (last - first, dim), np.float32
    )
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def fill_tables(tables: IndexTables, first: int, last: int, dims: tuple[int, int]) -> None:
    for start in range(first, last, 10 * BATCH_SIZE):
        blocks = [(block, block + BATCH_SIZE) for block in range(start, min(start + 10 * BATCH_SIZE, last), BATCH_SIZE)]
        looks, motions = (np.concatenate([random_vectors(a, b, width) for a, b in blocks]) for width in dims)
        numbers = range(start, start + len(looks))
        tables.add_segments(
            [
                SegmentRow(
                    VideoSegment(f"{i:024x}", f"{i // 4}.mp4", i % 4 * 5.0, i % 4 * 5.0 + 6, 20.0),
                    "",
                    look,
                    motion,
                    b"",
                )
                for i, look, motion in zip(numbers, looks, motions, strict=True)
            ]
        )


def random_fields(first: int, last: int) -> np.ndarray:
    """Motion fields of segments by their numbers, int8 (last - first, F)."""
    return np.random.default_rng((3, first)).integers(-127, 128, (last - first, NUM_FIELD_VALUES), np.int8)


def measure_aligned(num_segments: int, look_dim: int) -> None:
    def vectors(first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        fields = random_fields(first, last)
        return random_vectors(first, last, look_dim), field_spectrum(unflatten_fields(fields)).numpy(), fields

    with tempfile.TemporaryDirectory() as place:
        tables = IndexTables.create(place, IndexMetadata("made up", "0", place, {}))
        for start in range(0, num_segments, BATCH_SIZE):
            rows = zip(*vectors(start, min(start + BATCH_SIZE, num_segments)), strict=True)
            segments = (VideoSegment(f"{start + i:024x}", f"{start + i}.mp4", 0.0, 6.0, 6.0) for i in range(BATCH_SIZE))
            tables.add_segments(
                [
                    SegmentRow(segment, "", look, motion, b"", field)
                    for segment, (look, motion, field) in zip(segments, rows, strict=False)
                ]
            )
        tables.compact(build_ivf=num_segments >= backends.IVF_MIN_SEGMENTS)
        index = VideoIndex.open(place)
        queries = [Query(*vectors(10**9 + i, 10**9 + i + 1)) for i in range(NUM_QUERIES)]
        for weight in (1.0, 0.5):
            taken = median_ms(partial(index.neighbors, motion_weight=weight, top_k=TOP_K), queries)
            print(
                f"{num_segments:9,} segments, motion weight {weight:g}: {taken:.1f} ms (at most {MAX_ALIGNED_MS:g} ms)"
            )


def median_ms(search: Callable[[Query], object], queries: list[Query]) -> float:
    """Milliseconds of a query."""
    taken = []
    for query in queries:
        started = time.process_time()
        search(query)
        taken.append(1000 * (time.process_time() - started))
    return statistics.median(taken[1:])  # the first one loads


def measure_search(max_segments: int, dims: tuple[int, int], plot: str | None) -> None:
    numbers = range(10**9, 10**9 + NUM_QUERIES)
    asked = [Query(*(random_vectors(number, number + 1, width) for width in dims)) for number in numbers]
    rows: list[tuple[int, float, float, float]] = []
    print(f"look {dims[0]}, motion {dims[1]} channels; the median of {NUM_QUERIES - 1} queries at mix 0.5, top {TOP_K}")
    print(f"{'moments':>9}{'bare scan':>12}{'index':>10}{'recall':>8}{'cells made in':>15}{'peak':>10}")
    with tempfile.TemporaryDirectory() as place:
        tables = IndexTables.create(place, IndexMetadata("made up", "0", place, {}))
        for size in [n for n in SIZES if n <= max_segments]:
            fill_tables(tables, len(tables), size, dims)
            started = time.perf_counter()
            tables.compact(build_ivf=size >= backends.IVF_MIN_SEGMENTS)
            tidied = time.perf_counter() - started
            index = VideoIndex.open(place)
            taken = median_ms(partial(index.neighbors, top_k=TOP_K), asked)
            bare, recall = measure_brute_force(size, dims, asked, index)
            rows.append((size, bare, taken, recall))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            cells = f"{tidied:.0f} s" if size >= backends.IVF_MIN_SEGMENTS else "–"
            print(f"{size:9,}{bare:9.1f} ms{taken:7.1f} ms{recall:8.2f}{cells:>15}{peak:6.2f} GiB", flush=True)
    for size, bare, taken, _ in [row for row in rows if row[0] == SIZES[2]]:
        print(f"among {size:,} moments: {taken - bare:+.1f} ms of the bare scan (at most {MAX_MS:g} ms more)")
    if plot is not None:
        plot_times(rows, plot)


def measure_brute_force(
    size: int, dims: tuple[int, int], queries: list[Query], index: VideoIndex
) -> tuple[float, float]:
    """Milliseconds of the bare scan, some moments in memory at a time, and how much of its answer an index has."""
    total = np.zeros(len(queries))
    best: list[list[tuple[float, str]]] = [[] for _ in queries]
    for start in range(0, size, 100_000):
        end = min(start + 100_000, size)
        parts = [(a, min(a + BATCH_SIZE, end)) for a in range(start, end, BATCH_SIZE)]
        look, motion = (torch.from_numpy(np.concatenate([random_vectors(a, b, w) for a, b in parts])) for w in dims)
        for number, query in enumerate(queries):
            q = [torch.from_numpy(x[0]) for x in (query.appearance, query.motion)]
            started = time.process_time()
            scores, found = (0.5 * (look @ q[0]) + 0.5 * (motion @ q[1])).topk(TOP_K)
            total[number] += time.process_time() - started
            best[number] += [(s, f"{start + i:024x}") for s, i in zip(scores.tolist(), found.tolist(), strict=True)]
    hits = [
        len({one.segment.id for one in index.neighbors(query, top_k=TOP_K)} & {id for _, id in sorted(found)[-TOP_K:]})
        for query, found in zip(queries, best, strict=True)
    ]
    return 1000 * statistics.median(total.tolist()), sum(hits) / TOP_K / len(queries)


def plot_times(rows: list[tuple[int, float, float, float]], file: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure((5, 3), layout="constrained")
    axes = figure.subplots()
    sizes = [row[0] for row in rows]
    axes.loglog(sizes, [row[1] for row in rows], "o--", color="0.5", label="bare scan")
    axes.loglog(sizes, [row[2] for row in rows], "o-", color="C0", label="index")
    axes.axvline(backends.IVF_MIN_SEGMENTS, color="0.8", zorder=0)
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
    aligning = verbs.add_parser("aligned")
    aligning.add_argument("--most", type=int, default=99_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "make":
        measure_build(options.data, options.encoder, options.videos)
    elif options.what == "aligned":
        measure_aligned(options.most, 384)
    else:
        measure_search(options.most, (options.look, options.motion), options.plot)


if __name__ == "__main__":
    main()
