"""Percentiles of similarities, and results that count as close."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from scipy.stats import norm
from support.shot_videos import write_shots

from stillmotion.data.video.writer import write_mp4
from stillmotion.encoders import load
from stillmotion.errors import StillmotionError
from stillmotion.index import VideoIndex, build_index
from stillmotion.index.search.calibration import Calibration, update_calibration
from stillmotion.index.storage.lance_tables import IndexMetadata, IndexTables
from stillmotion.index.storage.segment_rows import SegmentRow
from stillmotion.index.video_segments import VideoSegment

FRAMES, HEIGHT, WIDTH = 24, 64, 80


def vector_index(folder: Path, vectors: np.ndarray) -> VideoIndex:
    """One segment per video, with the same vector for appearance and motion and no motion fields."""
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    tables = IndexTables.create(str(folder), IndexMetadata("vectors", "0", str(folder), {}))
    rows = [
        SegmentRow(VideoSegment(f"{i:08x}", f"{i:04}.mp4", 0.0, 3.0, 3.0), "f", row, row, b"w", np.zeros(0, np.int8))
        for i, row in enumerate(unit)
    ]
    tables.add_segments(rows)
    update_calibration(tables)
    return VideoIndex.open(folder)


def test_percentiles_are_shares_of_pairs_that_are_less_similar(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 16))
    index = vector_index(tmp_path, vectors)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = (unit @ unit.T)[np.triu_indices(50, 1)]
    for result in index.neighbors("00000003", motion_weight=0, top_k=20):
        assert result.appearance_percentile == pytest.approx(100 * np.mean(pairs < result.appearance), abs=0.3)
        assert result.motion_percentile == result.appearance_percentile
        assert result.to_dict()["appearance"] == result.appearance  # raw values are unchanged


def test_false_alarms_are_rare_among_unrelated_segments_and_groups_are_close(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    unrelated = vector_index(tmp_path / "unrelated", rng.normal(size=(150, 64)))
    assert num_close(unrelated) == 0
    centers = rng.normal(size=(30, 64))
    grouped = vector_index(tmp_path / "grouped", np.repeat(centers, 5, 0) + 0.2 * rng.normal(size=(150, 64)))
    closest = [grouped.neighbors(f"{i:08x}", motion_weight=0, top_k=5) for i in range(150)]
    shares = [np.mean(["appearance" in r.close_by for r in results[:4]]) for results in closest]
    assert np.mean(shares) > 0.95  # the other four segments of its group
    assert not any("appearance" in results[4].close_by for results in closest)


def test_the_threshold_is_that_of_a_normal_distribution(tmp_path: Path) -> None:
    vectors = np.random.default_rng(2).normal(size=(160, 400))  # cosines are nearly normal, with deviation 1/20
    index = vector_index(tmp_path, vectors)
    tables = IndexTables.open(index.uri)
    assert tables is not None
    expected = norm.isf(1e-3 / 160) / 20
    assert Calibration(tables)._thresholds["motion"] == pytest.approx(expected, rel=0.05)


def test_too_few_segments_say_nothing_about_chance(tmp_path: Path) -> None:
    index = vector_index(tmp_path, np.random.default_rng(0).normal(size=(5, 8)))
    result = index.neighbors("00000000")[0]
    assert (result.appearance_percentile, result.motion_percentile, result.close_by) == (None, None, ())


def test_damaged_quantiles_are_an_error(tmp_path: Path) -> None:
    index = vector_index(tmp_path, np.random.default_rng(0).normal(size=(20, 8)))
    tables = IndexTables.open(index.uri)
    assert tables is not None
    tables.database.open_table("calibration").update(where="level > 0.5", values={"motion": 0.9})
    with pytest.raises(StillmotionError, match="is damaged"):
        VideoIndex.open(tmp_path).neighbors("00000000")


def test_quantiles_whose_commit_has_disappeared_are_an_error(tmp_path: Path) -> None:
    vector_index(tmp_path, np.random.default_rng(0).normal(size=(20, 8)))
    for manifest in (tmp_path / "calibration.lance" / "_versions").glob("*.manifest"):
        manifest.unlink()
    with pytest.raises(StillmotionError, match="delete it and index again"):
        VideoIndex.open(tmp_path).neighbors("00000000")


def num_close(index: VideoIndex) -> int:
    """Return the number of results that are close by either vector."""
    results_by_query = [index.neighbors(s.id, motion_weight=weight) for s in index.segments() for weight in (0, 1)]
    return sum(bool(result.close_by) for results in results_by_query for result in results)


def draw_noise(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (FRAMES, HEIGHT, WIDTH, 3), dtype=np.uint8)


def draw_picture(rng: np.random.Generator) -> np.ndarray:
    colors = rng.uniform(0, 255, 3) + rng.uniform(-60, 60, (5, 6, 3))
    return cv2.resize(colors, (WIDTH, HEIGHT)).clip(0, 255)


def draw_still(rng: np.random.Generator) -> np.ndarray:
    return np.repeat(draw_picture(rng)[None], FRAMES, 0).astype(np.uint8)


def draw_single_action(rng: np.random.Generator) -> np.ndarray:
    """Draw a patch that moves along a random smooth path and changes its size."""
    ground, patch, time = draw_picture(rng), draw_picture(rng), np.arange(FRAMES) / FRAMES
    waves = [
        sum(rng.normal() / f**0.7 * np.sin(2 * np.pi * (f * time + rng.uniform())) for f in range(1, 6))
        for _ in range(3)
    ]
    x, y, size = ((wave - wave.min()) / np.ptp(wave) for wave in waves)
    frames = np.repeat(ground[None], FRAMES, 0)
    for t in range(FRAMES):
        side = 10 + round(14 * size[t])
        top, left = round((HEIGHT - side) * y[t]), round((WIDTH - side) * x[t])
        frames[t, top : top + side, left : left + side] = cv2.resize(patch, (side, side))
    return frames.astype(np.uint8)


def test_nothing_is_close_in_a_folder_of_noise_stills_and_single_actions(tmp_path: Path) -> None:
    for k, draw in enumerate((draw_noise, draw_still, draw_single_action)):
        folder = tmp_path / draw.__name__
        folder.mkdir()
        for i in range(14):
            frames = draw(np.random.default_rng((k, i)))
            write_mp4(folder / f"{i:02}.mp4", list(frames), size=(HEIGHT, WIDTH), fps=12, gop_size=12, crf=20)
        assert num_close(build_index(folder, load("flow"))) == 0, draw.__name__


def test_quantiles_follow_the_index(tmp_path: Path) -> None:
    folder = tmp_path / "videos"
    for i in range(10):
        write_shots(folder / f"{i}.mp4", (i, 2))
    index = build_index(folder, load("flow"), tmp_path / "index")
    keys = []
    for _ in range(2):
        tables = IndexTables.open(index.uri)
        assert tables is not None
        keys.append(Calibration(tables).key)
        (folder / "0.mp4").unlink(missing_ok=True)
        build_index(folder, load("flow"), tmp_path / "index")
    assert len(set(keys)) == 2


def test_tables_that_a_full_disk_left_unfinished_are_written_again(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 16))
    index = vector_index(tmp_path, vectors)
    expected = index.neighbors("00000003", top_k=5)
    for file in (tmp_path / "calibration.lance" / "_versions").iterdir():
        file.unlink()
    tables = IndexTables.open(str(tmp_path))
    assert tables is not None
    assert Calibration(tables).key == ""
    update_calibration(tables)
    assert VideoIndex.open(tmp_path).neighbors("00000003", top_k=5) == expected
