"""Flips of single bits in every kind of file that stillmotion writes and reads again.

PYTHONPATH=tests python -m support.flipped_bits
"""

import itertools
import logging
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from stillmotion.data.datasets import shards as shard_files
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.loading.cached_tokens import TokenCache
from stillmotion.data.transcode.manifest import find_copy_damage, read_entries
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset
from stillmotion.errors import StillmotionError
from stillmotion.functional.motion_alignment import FIELD_SHAPE
from stillmotion.index.motion_fields import update_neighborhoods
from stillmotion.index.search.backends import IVF
from stillmotion.index.search.calibration import update_calibration
from stillmotion.index.storage.lance_files import HASH_FILE
from stillmotion.index.storage.lance_tables import IndexMetadata, IndexTables
from stillmotion.index.storage.rank_segment_store import RankSegmentStore
from stillmotion.index.storage.segment_rows import CompletedVideo, SegmentRow
from stillmotion.index.video_index import VideoIndex
from stillmotion.index.video_segments import VECTOR_NAMES, VideoSegment
from stillmotion.models.pretrained.weight_loading import load_weights
from stillmotion.training import checkpoint
from stillmotion.utils.array_store import load_arrays, save_arrays
from support.numbered_videos import write_numbered_video

NUM_FLIPS = 20
_IVF_SEGMENTS = 300
_METADATA = IndexMetadata("flow", "digest", "/videos", {"segmentation": {}})


class StoredFile(NamedTuple):
    """A file and a function that reads it.

    Attributes:
        path: The file.
        is_unchanged: Whether reading returns the same as before the flip; errors of the reader are raised.
        error_name: Text that an error message must contain.
    """

    path: Path
    is_unchanged: Callable[[], bool]
    error_name: str


class FlipResult(NamedTuple):
    """Counts of the flips that raised an error and of those without effect; bits that were read wrongly, and errors."""

    detected: int
    harmless: int
    silent: list[int]
    errors: list[str]


def flip_random_bits(stored: StoredFile, num_flips: int = NUM_FLIPS) -> FlipResult:
    """Flip one random bit at a time, and read the file again."""
    content = stored.path.read_bytes()
    errors, silent = [], []
    for bit in np.random.default_rng(0).integers(8 * len(content), size=num_flips).tolist():
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        stored.path.write_bytes(damaged)
        try:
            if not stored.is_unchanged():
                silent.append(bit)
        except StillmotionError as error:
            errors.append(str(error))
    stored.path.write_bytes(content)
    return FlipResult(len(errors), num_flips - len(errors) - len(silent), silent, errors)


def is_same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(is_same(a[key], b[key]) for key in a)
    return bool(a == b)


def make_module(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Conv3d(3, 16, 3), torch.nn.BatchNorm3d(16), torch.nn.Linear(64, 64))


def training_state(folder: Path) -> StoredFile:
    checkpoint.save_checkpoint(folder, make_module(0), {"step": 7, "moments": torch.randn(5000)})
    before, file = checkpoint.load_training_state(folder), folder / checkpoint.STATE_FILE
    return StoredFile(file, lambda: is_same(checkpoint.load_training_state(folder), before), file.name)


def weights_of_a_run(folder: Path) -> StoredFile:
    checkpoint.save_checkpoint(folder, make_module(0), {"step": 7})
    file, expected = folder / checkpoint.WEIGHTS_FILE, dict(make_module(0).state_dict())

    def is_unchanged() -> bool:
        module = make_module(1)
        load_weights(module, file)
        return is_same(dict(module.state_dict()), expected)

    return StoredFile(file, is_unchanged, file.name)


def make_rows(count: int = 30) -> list[SegmentRow]:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((2, count, 32)).astype(np.float32)
    fields = rng.integers(-127, 128, (count, math.prod(FIELD_SHAPE)), np.int8)
    return [
        SegmentRow(
            VideoSegment(f"{i:016x}", f"video-{i // 3}.mp4", float(i), i + 1.5, 90.0),
            f"fingerprint-{i // 3}",
            vectors[0, i],
            vectors[1, i],
            rng.bytes(50),
            fields[i],
        )
        for i in range(count)
    ]


def read_index(folder: Path) -> dict[str, Any]:
    """Read all of an index: its segments, vectors, thumbnails, failures, metadata, and neighbors of a segment."""
    index = VideoIndex.open(folder)
    segments = index.segments()
    assert len(index) == len(segments)
    return {
        "metadata": index.metadata,
        "segments": segments,
        "failures": index.failed_videos(),
        "thumbnails": [index.thumbnail(segment.id) for segment in segments],
        **{name: torch.from_numpy(index.vectors(name)) for name in VECTOR_NAMES},
        "neighbors": index.neighbors(segments[0].id, top_k=5),
    }


def index_file(kind: str) -> Callable[[Path], StoredFile]:
    def make(folder: Path) -> StoredFile:
        tables = IndexTables.create(str(folder), _METADATA)
        videos = [CompletedVideo(f"video-{i}.mp4", f"fingerprint-{i}", 90.0) for i in range(10)]
        tables.commit(make_rows(), [*videos, CompletedVideo("broken.mp4", "other", 0.0, "cannot be decoded")])
        update_neighborhoods(tables)
        update_calibration(tables)
        before = read_index(folder)
        if kind.endswith("_versions"):
            file = min((folder / kind).glob("*.manifest"))  # they are numbered downwards; others are not read
        else:
            file = max((folder / kind).iterdir(), key=lambda path: path.stat().st_size)
        return StoredFile(file, lambda: is_same(read_index(folder), before), folder.name)

    return make


def search_index_file(name: str) -> Callable[[Path], StoredFile]:
    """The largest file of this name that LanceDB searches, or the file of their hashes."""

    def make(folder: Path) -> StoredFile:
        tables = IndexTables.create(str(folder), _METADATA)
        tables.commit(make_rows(_IVF_SEGMENTS), [CompletedVideo("video-0.mp4", "fingerprint-0", 90.0)])
        tables.compact(build_ivf=True)
        files = folder.glob(name) if name == HASH_FILE else folder.glob(f"segments.lance/_indices/*/{name}")

        def search() -> list[Any]:
            opened_tables = IndexTables.open(str(folder))
            assert opened_tables is not None
            ivf = IVF(opened_tables)
            query = ivf.query_of(f"{7:016x}")
            return ivf.neighbors(query, motion_weight=0.5, top_k=20, exclude_id=None)

        before = search()
        return StoredFile(max(files, key=lambda file: file.stat().st_size), lambda: search() == before, folder.name)

    return make


def segments_of_a_process(folder: Path) -> StoredFile:
    store = RankSegmentStore(folder / "pending", rank=0, run_id="run")
    (folder / "pending").mkdir()
    store.write(make_rows(), [CompletedVideo("video-0.mp4", "fingerprint-0", 90.0)])
    file = folder / "pending" / store.written[0]
    content, count = file.read_bytes(), itertools.count()
    store.commit_rest(IndexTables.create(str(folder / "whole"), _METADATA), store.written)
    before = read_index(folder / "whole")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)

    def is_unchanged() -> bool:
        index_dir = folder / str(next(count))
        tables = IndexTables.create(str(index_dir), _METADATA)
        RankSegmentStore(file.parent, rank=0, run_id="run").commit_available(tables)
        return is_same(read_index(index_dir), before)

    return StoredFile(file, is_unchanged, file.name)


def feature_cache(folder: Path) -> StoredFile:
    file, messages = folder / "features.safetensors", list[str]()
    arrays = {"whole": np.random.default_rng(0).standard_normal((20, 64)).astype(np.float32)}
    save_arrays(file, arrays, {"videos": ["a.mp4", "b.mp4"]})
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("stillmotion.utils.array_store").addHandler(handler)

    def is_unchanged() -> bool:
        stored = load_arrays(file)
        if stored is None:
            raise StillmotionError(messages[-1])  # it is computed again
        return np.array_equal(stored.arrays["whole"], arrays["whole"]) and len(stored.metadata["videos"]) == 2

    return StoredFile(file, is_unchanged, file.name)


def token_cache(suffix: str) -> Callable[[Path], StoredFile]:
    def make(folder: Path) -> StoredFile:
        shape, tokens = (3, 2, 2, 4, 8), torch.randn(3, 2, 2, 4, 8).half().float()
        cache = TokenCache(folder, shape, {})
        for video, pair in itertools.product(range(3), range(2)):
            cache.write(video, pair, tokens[video, pair])

        def is_unchanged() -> bool:
            entries = [TokenCache(folder, shape, {}).read(*entry) for entry in itertools.product(range(3), range(2))]
            pairs = zip(entries, tokens.flatten(0, 1), strict=True)
            is_valid = [entry is None or torch.equal(entry, own) for entry, own in pairs]
            if all(is_valid) and None in entries:
                raise StillmotionError("the entry counts as missing")  # it is computed again
            return all(is_valid)

        return StoredFile(cache.file.with_suffix(suffix), is_unchanged, "missing")

    return make


def prepare(folder: Path, format_name: Any) -> Path:
    for i, name in enumerate("ab"):
        write_numbered_video(folder / "originals" / "run" / f"{name}.mp4", num_frames=5 + i)
    prepare_dataset(VideoFolder(folder / "originals"), folder / "out", PrepareConfig(short_side=48, format=format_name))
    return folder / "out"


def prepared_copy(folder: Path) -> StoredFile:
    out = prepare(folder, "mp4")
    entry = read_entries(out)[0]

    def is_unchanged() -> bool:
        if damage := find_copy_damage(out / entry.path, entry.hash):
            raise StillmotionError(damage)
        return False

    return StoredFile(out / entry.path, is_unchanged, Path(entry.path).name)


def manifest(folder: Path) -> StoredFile:
    out = prepare(folder, "mp4")
    expected = read_entries(out)

    def is_unchanged() -> bool:
        entries = read_entries(out)
        if len(entries) < len(expected) and all(entry in expected for entry in entries):
            raise StillmotionError("the line counts as missing")  # its video is transcoded again
        return entries == expected

    return StoredFile(out / "manifest.jsonl", is_unchanged, "missing")


def shards(name: str) -> Callable[[Path], StoredFile]:
    def make(folder: Path) -> StoredFile:
        out = prepare(folder, "shards")

        def read() -> tuple[Any, list[bytes]]:
            shard_files._fetch_bytes.cache_clear()
            videos = VideoDataConfig(str(out)).open()
            frames = [videos.open_video(i).get_frames(range(5)).tobytes() for i in range(len(videos))]
            return videos.csv_rows, frames

        before = read()
        return StoredFile(out / name, lambda: read() == before, name)

    return make


KINDS: dict[str, Callable[[Path], StoredFile]] = {
    "training_state.pt": training_state,
    "checkpoint.safetensors": weights_of_a_run,
    "index: segments": index_file("segments.lance/data"),
    "index: videos": index_file("videos.lance/data"),
    "index: neighborhoods": index_file("neighborhoods.lance/data"),
    "index: calibration": index_file("calibration.lance/data"),
    "index: manifest of a version": index_file("segments.lance/_versions"),
    "index: IVF partitions": search_index_file("index.idx"),
    "index: IVF vectors": search_index_file("auxiliary.idx"),
    "index: ids": search_index_file("page_data.lance"),
    "index: hashes of the above": search_index_file(HASH_FILE),
    "segments of a process": segments_of_a_process,
    "feature cache": feature_cache,
    "token cache": token_cache(".f16"),
    "token cache: hashes": token_cache(".hash"),
    "prepared mp4": prepared_copy,
    "manifest.jsonl": manifest,
    "shards.arrow": shards("shards.arrow"),
    "shards.json": shards("shards.json"),
    "shard-000000.tar": shards("shard-000000.tar"),
}


def main() -> None:
    """Print the table."""
    print(f"{'file':<30} flips  matter  detected  used silently")
    for name, make in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            result = flip_random_bits(make(Path(folder)))
        matter = result.detected + len(result.silent)
        print(f"{name:<30} {NUM_FLIPS:5}  {matter:6}  {result.detected:8}  {len(result.silent):13}", flush=True)


if __name__ == "__main__":
    main()
