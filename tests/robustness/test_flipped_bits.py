"""A flipped bit in a file that we write is detected and the file named, or it changes nothing."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stillmotion.errors import StillmotionError
from stillmotion.index.lance_tables import CompletedVideo, IndexMetadata, IndexTables, SegmentRow
from stillmotion.index.rank_segment_store import RankSegmentStore
from stillmotion.index.video_index import VideoIndex
from stillmotion.index.video_segments import VECTOR_NAMES, VideoSegment
from stillmotion.models.pretrained.weight_loading import load_weights
from stillmotion.training import checkpoint
from stillmotion.utils.array_store import load_arrays, save_arrays

NUM_FLIPS = 20


def flip_random_bits(file: Path, is_unchanged: Callable[[], bool], *, name: str | None = None) -> int:
    """Flip one bit at a time, and read the file again.

    Args:
        file: The file.
        is_unchanged: Whether what is read is as before the flip; it raises what the reader raises.
        name: What errors name; default is the file's name.

    Returns:
        How many flips were detected: an error of one line names the file. The others changed nothing.
    """
    whole = file.read_bytes()
    errors, silent = [], []
    for bit in np.random.default_rng(0).integers(8 * len(whole), size=NUM_FLIPS).tolist():
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        try:
            if not is_unchanged():
                silent.append(bit)
        except StillmotionError as error:
            errors.append(str(error))
    file.write_bytes(whole)
    assert not silent, f"flipped bits {silent} of {file.name} are used silently"
    assert all((name or file.name) in error and "\n" not in error for error in errors), errors
    return len(errors)


def make_module(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Conv3d(3, 16, 3), torch.nn.BatchNorm3d(16), torch.nn.Linear(64, 64))


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    return bool(one == other)


def test_training_state(tmp_path: Path) -> None:
    module = make_module(0)
    checkpoint.save_checkpoint(tmp_path, module, {"step": 7, "moments": torch.randn(5000)})
    before = checkpoint.load_training_state(tmp_path)
    weights = (tmp_path / checkpoint.WEIGHTS_FILE).read_bytes()

    def is_unchanged() -> bool:
        return is_same(checkpoint.load_training_state(tmp_path), before)

    assert flip_random_bits(tmp_path / checkpoint.STATE_FILE, is_unchanged) > NUM_FLIPS // 2
    assert (tmp_path / checkpoint.WEIGHTS_FILE).read_bytes() == weights


def test_weights_of_a_run(tmp_path: Path) -> None:
    checkpoint.save_checkpoint(tmp_path, make_module(0), {"step": 7})
    file, expected = tmp_path / checkpoint.WEIGHTS_FILE, dict(make_module(0).state_dict())

    def is_unchanged() -> bool:
        module = make_module(1)
        load_weights(module, file)
        return is_same(dict(module.state_dict()), expected)

    assert is_unchanged()
    assert flip_random_bits(file, is_unchanged) > NUM_FLIPS // 2


def make_rows() -> list[SegmentRow]:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((2, 30, 32)).astype(np.float32)
    return [
        SegmentRow(
            VideoSegment(f"{i:016x}", f"video-{i // 3}.mp4", float(i), i + 1.5, 90.0),
            f"fingerprint-{i // 3}",
            vectors[0, i],
            vectors[1, i],
            rng.bytes(50),
        )
        for i in range(30)
    ]


def read_index(folder: Path) -> dict[str, Any]:
    """All that an index tells: its segments, vectors, thumbnails, failures and metadata."""
    index = VideoIndex.open(folder)
    segments = index.segments()
    assert len(index) == len(segments)
    return {
        "metadata": index.metadata,
        "segments": segments,
        "failures": index.failed_videos(),
        "thumbnails": [index.thumbnail(segment.id) for segment in segments],
        **{name: torch.from_numpy(index.vectors(name)) for name in VECTOR_NAMES},
    }


@pytest.mark.parametrize("kind", ["segments.lance/data", "videos.lance/data", "segments.lance/_versions"])
def test_index(kind: str, tmp_path: Path) -> None:
    tables = IndexTables.create(str(tmp_path), IndexMetadata("flow", "digest", "/videos", {"segmentation": {}}))
    videos = [CompletedVideo(f"video-{i}.mp4", f"fingerprint-{i}", 90.0) for i in range(10)]
    tables.commit(make_rows(), [*videos, CompletedVideo("broken.mp4", "other", 0.0, "cannot be decoded")])
    before = read_index(tmp_path)
    file = max((tmp_path / kind).iterdir(), key=lambda each: each.stat().st_size)
    detected = flip_random_bits(file, lambda: is_same(read_index(tmp_path), before), name=tmp_path.name)
    if kind == "segments.lance/data":
        assert detected > NUM_FLIPS // 2


def test_segments_that_a_rank_hands_over(tmp_path: Path) -> None:
    metadata = IndexMetadata("flow", "digest", "/videos", {"segmentation": {}})
    store = RankSegmentStore(tmp_path / "pending", rank=0, run_id="run")
    (tmp_path / "pending").mkdir()
    store.write(make_rows(), [CompletedVideo("video-0.mp4", "fingerprint-0", 90.0)])
    file = tmp_path / "pending" / store.written[0]
    whole, count = file.read_bytes(), itertools.count()
    tables = IndexTables.create(str(tmp_path / "whole"), metadata)
    store.commit_rest(tables, store.written)
    before = read_index(tmp_path / "whole")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(whole)

    def is_unchanged() -> bool:
        folder = tmp_path / str(next(count))
        tables = IndexTables.create(str(folder), metadata)
        RankSegmentStore(file.parent, rank=0, run_id="run").commit_available(tables)
        return is_same(read_index(folder), before)

    assert flip_random_bits(file, is_unchanged) > NUM_FLIPS // 2


def test_feature_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "features.safetensors"
    arrays = {"whole": np.random.default_rng(0).standard_normal((20, 64)).astype(np.float32)}
    save_arrays(file, arrays, {"videos": ["a.mp4", "b.mp4"]})

    def is_unchanged() -> bool:
        caplog.clear()
        stored = load_arrays(file)
        if stored is None:
            raise StillmotionError(caplog.messages[-1])  # it is computed again
        return np.array_equal(stored.arrays["whole"], arrays["whole"]) and len(stored.metadata["videos"]) == 2

    assert is_unchanged()
    assert flip_random_bits(file, is_unchanged) > NUM_FLIPS // 2
