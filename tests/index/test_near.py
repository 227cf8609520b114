"""What an index finds, against cosines that are computed one by one."""

import os
from pathlib import Path

import numpy as np
import pytest
from scenes import write_folder, write_scenes

from stillmotion.data.moments import Moment
from stillmotion.encoders import Encoder, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.options import Searching
from stillmotion.index import Cutting, Index, Query, build, embed_query, nearest
from stillmotion.index.ask import ask
from stillmotion.index.table import About, Row, Tables


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load("flow@frames=6,size=48")


def made_up(folder: Path, *, moments: int, motion: int = 12) -> Index:
    """An index of vectors that no video has: three moments a video, some of them equal."""
    rng = np.random.default_rng(0)
    tables = Tables.create(str(folder), About("made up", "0", str(folder), {}))
    numbers = rng.permutation(moments)
    looks, motions = (rng.normal(size=(moments, width)).astype(np.float32) for width in (8, motion))
    looks[1::7] = looks[0]
    unit = [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9) for x in (looks, motions)]
    for some in np.array_split(numbers, 3):
        tables.add(
            [
                Row(Moment(f"{i:08x}", f"it's {i // 3}.mp4", i % 3 * 2.0, i % 3 * 2.0 + 3, 9.0), "f", a, b, b"w")
                for i, a, b in ((i, unit[0][i], unit[1][i]) for i in some.tolist())
            ]
        )
    return Index(str(folder), tables)


def literal(index: Index, id: str, *, mix: float, apart: bool) -> dict[str, float]:
    """Every similarity by itself, in double precision."""
    moments, look, motion = index.moments(), *(index.vectors(part).astype(float) for part in ("look", "motion"))
    own = next(i for i, moment in enumerate(moments) if moment.id == id)
    return {
        moment.id: (1 - mix) * float(look[i] @ look[own]) + mix * float(motion[i] @ motion[own])
        for i, moment in enumerate(moments)
        if i != own and not (apart and moment.path == moments[own].path)
    }


@pytest.mark.parametrize("mix", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("large", [False, True])
def test_the_most_alike_come_first_by_the_mixture_of_cosines(
    tmp_path: Path, mix: float, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = made_up(tmp_path, moments=60)
    if large:
        monkeypatch.setattr(nearest, "LARGE", 10)
    id = index.moments()[7].id
    for apart in (True, False):
        wanted = literal(index, id, mix=mix, apart=apart)
        found = index.near(id, mix=mix, top=9, apart=apart)
        np.testing.assert_allclose([one.similarity for one in found], sorted(wanted.values())[::-1][:9], atol=1e-5)
        for one in found:
            assert one.similarity == pytest.approx(wanted[one.moment.id], abs=1e-5)
            assert one.similarity == pytest.approx((1 - mix) * one.look + mix * one.motion, abs=1e-5)
            assert index.moment(one.moment.id) == one.moment
    assert len(index.near(id, top=1000)) == 57  # all but the three of its own video


def test_cells_that_lancedb_made_give_the_same_as_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = made_up(tmp_path, moments=600)
    ids = [moment.id for moment in index.moments()[::97]]
    exact = [[one.moment.id for one in index.near(id, mix=0.4, top=5)] for id in ids]
    Tables.open(str(tmp_path)).tidy(cells=True)  # type: ignore[union-attr]
    monkeypatch.setattr(nearest, "LARGE", 500)
    opened = Index.open(tmp_path)
    assert [[one.moment.id for one in opened.near(id, mix=0.4, top=5)] for id in ids] == exact
    assert opened.thumbnail(ids[0]) == b"w"
    with pytest.raises(KeyError):
        opened.moment("none")


def test_a_query_of_several_moments_is_as_near_as_its_nearest(tmp_path: Path) -> None:
    index = made_up(tmp_path, moments=30)
    rows = [3, 20]
    query = Query(index.vectors("look")[rows], index.vectors("motion")[rows])
    alone = [
        {
            one.moment.id: one.similarity
            for one in index.near(Query(query.look[i : i + 1], query.motion[i : i + 1]), top=30)
        }
        for i in range(2)
    ]
    for one in index.near(query, top=30):
        assert one.similarity == pytest.approx(max(scores[one.moment.id] for scores in alone), abs=1e-6)


def test_an_encoder_without_motion_is_searched_by_look_alone(tmp_path: Path) -> None:
    index = made_up(tmp_path, moments=9, motion=0)
    id = index.moments()[0].id
    assert index.vectors("motion").shape == (9, 0)
    assert len(index.near(id, mix=0)) == 6
    with pytest.raises(StillmotionError, match="made up sees no motion"):
        index.near(id, mix=0.5)


def test_a_video_finds_itself_and_a_moment_what_happens_in_it(tmp_path: Path, encoder: Encoder) -> None:
    folder = write_folder(tmp_path / "videos", videos=4)
    long = write_scenes(folder / "long.mp4", (4, 5), (5, 5))
    index = build(folder, encoder, cutting=Cutting(seconds=5, overlap=0), say=lambda line: None)
    query = embed_query(encoder, folder / "2.mp4")
    best = index.near(query)[0]
    assert (best.moment.path, best.look, best.motion) == ("2.mp4", pytest.approx(1), pytest.approx(1))
    outside = write_scenes(tmp_path / "outside.mp4", (1, 3), (5, 4))
    part = embed_query(encoder, outside, start=3.2, end=6.8)
    assert index.near(part, mix=0)[0].moment.start >= 4  # the second scene of the long one
    _, found = ask(index, encoder, long, Searching(by="look", top=20, start=6.0))
    assert "long.mp4" not in {one.moment.path for one in found}
    with pytest.raises(StillmotionError, match=r"lasts 7.00 s; 8 to 7 is no moment of it"):
        embed_query(encoder, outside, start=8)


def test_what_cannot_be_asked_is_one_line(tmp_path: Path) -> None:
    index = made_up(tmp_path / "index", moments=6)
    id = index.moments()[0].id
    with pytest.raises(StillmotionError, match="mix is 2"):
        index.near(id, mix=2)
    with pytest.raises(StillmotionError, match="a look of 3 channels among those of 8"):
        index.near(Query(np.ones((1, 3), np.float32), index.vectors("motion")[:1]))
    with pytest.raises(KeyError):
        index.near("none")
    with pytest.raises(KeyError):
        index.thumbnail("none")
    with pytest.raises(StillmotionError, match="is no index and has none; make one: stillmotion index"):
        Index.open(tmp_path)
    for file in (tmp_path / "index" / "videos.lance").rglob("*"):
        if file.is_file():
            os.truncate(file, 5)
    with pytest.raises(StillmotionError, match=r"cannot be read as an index .*; delete it and index again"):
        Index.open(tmp_path / "index")
