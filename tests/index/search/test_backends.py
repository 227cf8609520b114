"""Results of an index against cosines that are computed one by one."""

import os
from pathlib import Path

import numpy as np
import pytest
from support.shot_videos import write_shot_videos, write_shots

from stillmotion.encoders import Encoder
from stillmotion.errors import StillmotionError
from stillmotion.index import Query, VideoIndex, VideoSegmentConfig, build_index, embed_query
from stillmotion.index.search import backends
from stillmotion.index.search.config import SearchConfig
from stillmotion.index.search.query import search_index
from stillmotion.index.storage.lance_tables import IndexMetadata, IndexTables
from stillmotion.index.storage.segment_rows import SegmentRow
from stillmotion.index.video_segments import VideoSegment


def build_random_index(folder: Path, *, moments: int, motion: int = 12) -> VideoIndex:
    """An index of random vectors: three segments per video, some of them equal."""
    rng = np.random.default_rng(0)
    tables = IndexTables.create(str(folder), IndexMetadata("made up", "0", str(folder), {}))
    numbers = rng.permutation(moments)
    looks, motions = (rng.normal(size=(moments, width)).astype(np.float32) for width in (8, motion))
    looks[1::7] = looks[0]
    unit = [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9) for x in (looks, motions)]
    for chunk in np.array_split(numbers, 3):
        tables.add_segments(
            [
                SegmentRow(
                    VideoSegment(f"{i:08x}", f"it's {i // 3}.mp4", i % 3 * 2.0, i % 3 * 2.0 + 3, 9.0), "f", a, b, b"w"
                )
                for i, a, b in ((i, unit[0][i], unit[1][i]) for i in chunk.tolist())
            ]
        )
    return VideoIndex(str(folder), tables)


def literal(index: VideoIndex, id: str, *, mix: float, exclude_same_video: bool) -> dict[str, float]:
    """Return every similarity, computed one by one in double precision."""
    segments, appearance, motion = (
        index.segments(),
        *(index.vectors(name).astype(float) for name in ("appearance", "motion")),
    )
    position = next(i for i, moment in enumerate(segments) if moment.id == id)
    return {
        moment.id: (1 - mix) * float(appearance[i] @ appearance[position]) + mix * float(motion[i] @ motion[position])
        for i, moment in enumerate(segments)
        if i != position and not (exclude_same_video and moment.path == segments[position].path)
    }


@pytest.mark.parametrize("mix", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("large", [False, True], ids=["brute-force", "ivf"])
def test_the_most_similar_come_first(tmp_path: Path, mix: float, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    index = build_random_index(tmp_path, moments=60)
    if large:
        monkeypatch.setattr(backends, "IVF_MIN_SEGMENTS", 10)
    id = index.segments()[7].id
    for exclude_same_video in (True, False):
        expected = literal(index, id, mix=mix, exclude_same_video=exclude_same_video)
        result = index.neighbors(id, motion_weight=mix, top_k=9, exclude_same_video=exclude_same_video)
        np.testing.assert_allclose([one.similarity for one in result], sorted(expected.values())[::-1][:9], atol=1e-5)
        for one in result:
            assert one.similarity == pytest.approx(expected[one.segment.id], abs=1e-5)
            assert one.similarity == pytest.approx((1 - mix) * one.appearance + mix * one.motion, abs=1e-5)
            assert index.segment(one.segment.id) == one.segment
    assert len(index.neighbors(id, top_k=1000)) == 57  # all but the three of its own video


def test_ivf_gives_the_results_of_brute_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = build_random_index(tmp_path, moments=600)
    ids = [moment.id for moment in index.segments()[::97]]
    exact = [[one.segment.id for one in index.neighbors(id, motion_weight=0.4, top_k=5)] for id in ids]
    IndexTables.open(str(tmp_path)).compact(build_ivf=True)  # type: ignore[union-attr]
    monkeypatch.setattr(backends, "IVF_MIN_SEGMENTS", 500)
    opened = VideoIndex.open(tmp_path)
    assert [[one.segment.id for one in opened.neighbors(id, motion_weight=0.4, top_k=5)] for id in ids] == exact
    assert opened.thumbnail(ids[0]) == b"w"
    with pytest.raises(KeyError):
        opened.segment("none")


def test_a_query_of_several_segments_counts_the_most_similar(tmp_path: Path) -> None:
    index = build_random_index(tmp_path, moments=30)
    rows = [3, 20]
    query = Query(index.vectors("appearance")[rows], index.vectors("motion")[rows])
    single = [
        {
            one.segment.id: one.similarity
            for one in index.neighbors(Query(query.appearance[i : i + 1], query.motion[i : i + 1]), top_k=30)
        }
        for i in range(2)
    ]
    for one in index.neighbors(query, top_k=30):
        assert one.similarity == pytest.approx(max(scores[one.segment.id] for scores in single), abs=1e-6)


def test_an_encoder_without_motion_is_searched_by_appearance(tmp_path: Path) -> None:
    index = build_random_index(tmp_path, moments=9, motion=0)
    id = index.segments()[0].id
    assert index.vectors("motion").shape == (9, 0)
    assert len(index.neighbors(id, motion_weight=0)) == 6
    with pytest.raises(StillmotionError, match="made up has no motion vectors"):
        index.neighbors(id, motion_weight=0.5)


def test_a_video_finds_itself_and_a_segment_its_scene(tmp_path: Path, encoder: Encoder) -> None:
    folder = write_shot_videos(tmp_path / "videos", num_videos=4)
    long = write_shots(folder / "long.mp4", (4, 5), (5, 5))
    index = build_index(folder, encoder, segmentation=VideoSegmentConfig(max_seconds=5, overlap_seconds=0))
    query = embed_query(encoder, folder / "2.mp4")
    best = index.neighbors(query)[0]
    assert (best.segment.path, best.appearance, best.motion) == ("2.mp4", pytest.approx(1), pytest.approx(1))
    video_file = write_shots(tmp_path / "outside.mp4", (1, 3), (5, 4))
    scene_query = embed_query(encoder, video_file, start=3.2, end=6.8)
    assert index.neighbors(scene_query, motion_weight=0)[0].segment.start >= 4  # the second scene of long.mp4
    _, result = search_index(index, encoder, long, SearchConfig(by="appearance", top_k=20, start=6.0))
    assert "long.mp4" not in {one.segment.path for one in result}
    with pytest.raises(StillmotionError, match=r"is 7.00 s long; 8 to 7 s is not a valid range"):
        embed_query(encoder, video_file, start=8)


def test_invalid_queries_and_damaged_indexes_are_errors(tmp_path: Path) -> None:
    index = build_random_index(tmp_path / "index", moments=6)
    id = index.segments()[0].id
    with pytest.raises(StillmotionError, match=r"between 0 \(appearance only\) and 1 \(motion only\), got 2"):
        index.neighbors(id, motion_weight=2)
    with pytest.raises(StillmotionError, match="the query has 3 appearance channels but the index has 8"):
        index.neighbors(Query(np.ones((1, 3), np.float32), index.vectors("motion")[:1]))
    with pytest.raises(KeyError):
        index.neighbors("none")
    with pytest.raises(KeyError):
        index.thumbnail("none")
    with pytest.raises(StillmotionError, match="is not an index and no index was built for it; run: stillmotion index"):
        VideoIndex.open(tmp_path)
    for file in (tmp_path / "index" / "videos.lance").rglob("*"):
        if file.is_file():
            os.truncate(file, 5)
    with pytest.raises(StillmotionError, match=r"cannot be read as an index .*; delete it and index again"):
        VideoIndex.open(tmp_path / "index")
