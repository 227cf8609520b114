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
    """Features of every frame of a video, one frame at a time."""
    crop, video = eval_crop(segment_input_config(encoder)), PyAVReader(file)
    with torch.inference_mode():
        return torch.cat(
            [encoder.frame_features(crop(frame[None])) for frame in video.iter_frames(range(len(video)))], 1
        )


def measure_build(data: str, encoder_spec: str, num_videos: int) -> None:
    encoder = load(encoder_spec)
    network_seconds = [0.0]
    original_forward = encoder.forward

    def forward(clips: torch.Tensor) -> object:
        start = time.perf_counter()
        embedding = original_forward(clips)
        network_seconds[0] += time.perf_counter() - start
        return embedding

    files = [file for file in find_videos(Path(data)) if file.is_file()]
    videos = files[:: max(1, len(files) // num_videos)][:num_videos]
    with tempfile.TemporaryDirectory() as work_dir:
        folder = Path(work_dir) / "videos"
        folder.mkdir()
        for number, file in enumerate(videos):
            (folder / f"{number}{file.suffix}").symlink_to(file.resolve())
        encoder.forward = forward  # type: ignore[method-assign]
        start = time.perf_counter()
        index = build_index(folder, encoder, Path(work_dir) / "index")
        index_seconds = time.perf_counter() - start
        encoder.forward = original_forward  # type: ignore[method-assign]
        start = time.perf_counter()
        frames = sum(naive_features(file, encoder).shape[1] for file in videos)
        loop_seconds = time.perf_counter() - start
    input_config, video_minutes = segment_input_config(encoder), 60 * len(videos)
    print(f"{len(videos)} videos, {frames} frames, {len(index)} segments")
    print(f"{input_config.num_frames} frames per segment at {input_config.image_size} pixels")
    network_fraction = network_seconds[0] / index_seconds
    print(f"index         {video_minutes / index_seconds:8.1f} videos a minute, ", end="")
    print(f"{network_fraction:.0%} of the time in the network")
    print(f"simple loop   {video_minutes / loop_seconds:8.1f} videos a minute")
    print(f"ratio         {loop_seconds / index_seconds:8.1f}×  (at least {MIN_SPEEDUP:g}×)")
    print(f"peak memory of both {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


def random_vectors(first: int, last: int, dim: int) -> np.ndarray:
    """Unit vectors (last - first, dim) of the segments with these numbers; each belongs to a random group."""
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

    with tempfile.TemporaryDirectory() as work_dir:
        tables = IndexTables.create(work_dir, IndexMetadata("made up", "0", work_dir, {}))
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
        index = VideoIndex.open(work_dir)
        queries = [Query(*vectors(10**9 + i, 10**9 + i + 1)) for i in range(NUM_QUERIES)]
        for weight in (1.0, 0.5):
            milliseconds = median_ms(partial(index.neighbors, motion_weight=weight, top_k=TOP_K), queries)
            print(f"{num_segments:9,} segments, motion weight {weight:g}: {milliseconds:.1f} ms", end="")
            print(f" (at most {MAX_ALIGNED_MS:g} ms)")


def median_ms(search: Callable[[Query], object], queries: list[Query]) -> float:
    """Median CPU time of a query in milliseconds."""
    times = []
    for query in queries:
        start = time.process_time()
        search(query)
        times.append(1000 * (time.process_time() - start))
    return statistics.median(times[1:])  # the first one loads


def measure_search(max_segments: int, dims: tuple[int, int], plot: str | None) -> None:
    numbers = range(10**9, 10**9 + NUM_QUERIES)
    queries = [Query(*(random_vectors(number, number + 1, width) for width in dims)) for number in numbers]
    rows: list[tuple[int, float, float, float]] = []
    print(f"look {dims[0]}, motion {dims[1]} channels; the median of {NUM_QUERIES - 1} queries at mix 0.5, top {TOP_K}")
    print(f"{'moments':>9}{'bare scan':>12}{'index':>10}{'recall':>8}{'cells made in':>15}{'peak':>10}")
    with tempfile.TemporaryDirectory() as work_dir:
        tables = IndexTables.create(work_dir, IndexMetadata("made up", "0", work_dir, {}))
        for size in [n for n in SIZES if n <= max_segments]:
            fill_tables(tables, len(tables), size, dims)
            start = time.perf_counter()
            tables.compact(build_ivf=size >= backends.IVF_MIN_SEGMENTS)
            compact_seconds = time.perf_counter() - start
            index = VideoIndex.open(work_dir)
            index_ms = median_ms(partial(index.neighbors, top_k=TOP_K), queries)
            scan_ms, recall = measure_brute_force(size, dims, queries, index)
            rows.append((size, scan_ms, index_ms, recall))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            cells = f"{compact_seconds:.0f} s" if size >= backends.IVF_MIN_SEGMENTS else "–"
            print(
                f"{size:9,}{scan_ms:9.1f} ms{index_ms:7.1f} ms{recall:8.2f}{cells:>15}{peak:6.2f} GiB",
                flush=True,
            )
    for size, scan_ms, index_ms, _ in [row for row in rows if row[0] == SIZES[2]]:
        print(f"among {size:,} moments: {index_ms - scan_ms:+.1f} ms of the bare scan (at most {MAX_MS:g} ms more)")
    if plot is not None:
        plot_times(rows, plot)


def measure_brute_force(
    size: int, dims: tuple[int, int], queries: list[Query], index: VideoIndex
) -> tuple[float, float]:
    """Milliseconds of a query by brute force, with some segments in memory at a time, and the recall of the index."""
    seconds = np.zeros(len(queries))
    best: list[list[tuple[float, str]]] = [[] for _ in queries]
    for start in range(0, size, 100_000):
        end = min(start + 100_000, size)
        blocks = [(a, min(a + BATCH_SIZE, end)) for a in range(start, end, BATCH_SIZE)]
        look, motion = (torch.from_numpy(np.concatenate([random_vectors(a, b, w) for a, b in blocks])) for w in dims)
        for number, query in enumerate(queries):
            q = [torch.from_numpy(x[0]) for x in (query.appearance, query.motion)]
            start = time.process_time()
            scores, rows = (0.5 * (look @ q[0]) + 0.5 * (motion @ q[1])).topk(TOP_K)
            seconds[number] += time.process_time() - start
            best[number] += [(s, f"{start + i:024x}") for s, i in zip(scores.tolist(), rows.tolist(), strict=True)]
    hits = [
        len(
            {neighbor.segment.id for neighbor in index.neighbors(query, top_k=TOP_K)}
            & {id for _, id in sorted(pairs)[-TOP_K:]}
        )
        for query, pairs in zip(queries, best, strict=True)
    ]
    return 1000 * statistics.median(seconds.tolist()), sum(hits) / TOP_K / len(queries)


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
    make_parser = verbs.add_parser("make")
    make_parser.add_argument("--data", required=True)
    make_parser.add_argument("--encoder", required=True)
    make_parser.add_argument("--videos", type=int, default=12)
    search_parser = verbs.add_parser("search")
    search_parser.add_argument("--most", type=int, default=1_000_000)
    search_parser.add_argument("--look", type=int, default=384)
    search_parser.add_argument("--motion", type=int, default=512)
    search_parser.add_argument("--plot")
    aligned_parser = verbs.add_parser("aligned")
    aligned_parser.add_argument("--most", type=int, default=99_000)
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
