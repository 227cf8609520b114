"""Search by motion under alignment: stored fields, neighborhoods, and the alignment of each result."""

from pathlib import Path

import numpy as np
import pytest
import torch
from support.shot_videos import write_shot_videos, write_shots

from stillmotion.encoders import Encoder
from stillmotion.errors import StillmotionError
from stillmotion.functional.motion_alignment import Alignment, aligned_similarity, field_spectrum
from stillmotion.index import VideoIndex, build_index
from stillmotion.index.motion_fields import Neighborhoods, quantize_fields, unflatten_fields, update_neighborhoods
from stillmotion.index.search import backends
from stillmotion.index.search.backends import SearchResult
from stillmotion.index.storage.lance_tables import IndexMetadata, IndexTables
from stillmotion.index.storage.segment_rows import SegmentRow
from stillmotion.index.video_segments import VideoSegment

NUM_SEGMENTS = 24


def make_fields() -> torch.Tensor:
    """Fields of random motion; segment 1 is segment 0 mirrored and two steps later, the last one has no motion."""
    fields = torch.zeros(NUM_SEGMENTS, 15, 8, 10, 3)
    fields[:, 4:11, :, 2:8] = torch.randn(NUM_SEGMENTS, 7, 8, 6, 3, generator=torch.Generator().manual_seed(0))
    fields[1] = (fields[0].flip(2) * torch.tensor([1.0, -1.0, 1.0])).roll(2, 0)
    fields[-1] = 0
    return fields


def field_index(folder: Path) -> VideoIndex:
    """One segment per video, with random appearance."""
    fields = quantize_fields(make_fields().flatten(1).numpy())
    spectra = field_spectrum(unflatten_fields(fields)).numpy()
    looks = np.random.default_rng(0).normal(size=(NUM_SEGMENTS, 8)).astype(np.float32)
    looks /= np.linalg.norm(looks, axis=1, keepdims=True)
    tables = IndexTables.create(str(folder), IndexMetadata("fields", "0", str(folder), {}))
    tables.add_segments(
        [
            SegmentRow(VideoSegment(f"{i:08x}", f"{i:02}.mp4", 0.0, 3.0, 3.0), "f", look, spectrum, b"w", field)
            for i, (look, spectrum, field) in enumerate(zip(looks, spectra, fields, strict=True))
        ]
    )
    update_neighborhoods(tables)
    return VideoIndex.open(folder)


def test_quantized_fields_have_the_same_similarities():
    fields = make_fields()
    quantized = quantize_fields(fields.flatten(1).numpy())
    assert quantized.dtype == np.int8
    assert quantized.nbytes <= NUM_SEGMENTS * 8000
    stored = unflatten_fields(quantized)
    torch.testing.assert_close(
        aligned_similarity(stored, stored)[0], aligned_similarity(fields, fields)[0], atol=5e-3, rtol=0
    )
    assert (stored[-1] == 0).all()


def test_neighborhoods_are_the_mean_of_the_nearest_of_other_videos(tmp_path):
    index, stored = field_index(tmp_path), unflatten_fields(quantize_fields(make_fields().flatten(1).numpy()))
    similarity = aligned_similarity(stored, stored)[0].fill_diagonal_(-1)
    expected = similarity.topk(10).values.mean(1).numpy()
    tables = IndexTables.open(index.uri)
    assert tables is not None
    ids = [f"{i:08x}" for i in range(NUM_SEGMENTS)]
    np.testing.assert_allclose(Neighborhoods(tables).means(ids), expected, atol=1e-5)
    assert Neighborhoods(tables).means(["unknown"]) == pytest.approx(expected.mean(), abs=1e-5)


@pytest.mark.parametrize("large", [False, True], ids=["brute-force", "ivf"])
@pytest.mark.parametrize("weight", [1.0, 0.4])
def test_results_are_ranked_by_aligned_similarity_less_hubness(tmp_path, large, weight, monkeypatch):
    if large:
        monkeypatch.setattr(backends, "IVF_MIN_SEGMENTS", 10)
    index, stored = field_index(tmp_path), unflatten_fields(quantize_fields(make_fields().flatten(1).numpy()))
    ids = [f"{i:08x}" for i in range(NUM_SEGMENTS)]
    similarity = aligned_similarity(stored, stored)[0].fill_diagonal_(-1)
    means = similarity.topk(10).values.mean(1)
    looks = torch.from_numpy(index.vectors("appearance"))
    corrected = torch.where(similarity > 0, similarity - (means[:, None] + means) / 2, -1.0)
    expected = (1 - weight) * looks @ looks.mT + weight * corrected
    for query in (0, 5):
        results = index.neighbors(ids[query], motion_weight=weight, top_k=30)
        order = [i for i in expected[query].argsort(descending=True).tolist() if i != query]
        order = order[: len(results)] if large else order  # LanceDB leaves out a still segment
        assert [result.segment.id for result in results] == [ids[i] for i in order]
        for result, i in zip(results, order, strict=True):
            assert result.similarity == pytest.approx(expected[query, i].item(), abs=1e-4)
            assert result.motion == pytest.approx(similarity[query, i].item(), abs=1e-4)
    if weight == 1:
        first = index.neighbors(ids[0], motion_weight=1, top_k=1)[0]
        assert first.segment.id == ids[1]
        assert first.alignment == Alignment(steps=2, mirrored=True)
        assert first.to_dict()["alignment"] == "mirrored, 0.4 s later"
    if weight == 1 and not large:
        last = results[-1]
        assert (last.segment.id, last.motion, last.alignment_text) == (ids[-1], 0, "")


def test_by_appearance_alone_nothing_changes(tmp_path):
    index = field_index(tmp_path)
    results = index.neighbors("00000003", motion_weight=0, top_k=5)
    looks = index.vectors("appearance")
    order = [i for i in np.argsort(-looks @ looks[3]).tolist() if i != 3][:5]
    assert [result.segment.id for result in results] == [f"{i:08x}" for i in order]
    assert [result.similarity for result in results] == pytest.approx([result.appearance for result in results])


def test_few_candidates_by_spectrum_find_the_copy(tmp_path, monkeypatch):
    monkeypatch.setattr(backends, "_MIN_ALIGNED", 3)
    assert field_index(tmp_path).neighbors("00000001", motion_weight=1, top_k=1)[0].segment.id == "00000000"


def test_a_damaged_neighborhood_is_an_error(tmp_path):
    index = field_index(tmp_path)
    tables = IndexTables.open(index.uri)
    assert tables is not None
    table = tables.database.open_table("neighborhoods")
    table.update(where="id = '00000002'", values={"similarity": 0.5})
    with pytest.raises(StillmotionError, match="is damaged: stored values \\(id, similarity\\)"):
        index.neighbors("00000000", motion_weight=1)


def test_updated_and_interrupted_indexes_have_the_neighborhoods_of_one_pass(
    tmp_path: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def means(index: VideoIndex) -> list[float]:
        tables = IndexTables.open(index.uri)
        assert tables is not None
        return Neighborhoods(tables).means([segment.id for segment in index.segments()]).tolist()

    folder = write_shot_videos(tmp_path / "videos", num_videos=4)
    with monkeypatch.context() as patch:
        patch.setattr("stillmotion.index.builder.update_neighborhoods", lambda tables: None)
        before = build_index(folder, encoder, tmp_path / "updated")
    assert set(means(before)) == {0.0}
    before = build_index(folder, encoder, tmp_path / "updated")
    first = means(before)
    assert min(first) > 0
    write_shots(folder / "new.mp4", (1, 3), (5, 4))
    (folder / "1.mp4").unlink()
    updated = build_index(folder, encoder, tmp_path / "updated")
    assert means(updated) != first
    assert means(updated) == means(build_index(folder, encoder, tmp_path / "one-pass"))


def test_a_result_without_fields_has_no_alignment() -> None:
    result = SearchResult(VideoSegment("a", "a.mp4", 0.0, 3.0, 3.0), 0.5, 0.5, 0.5)
    assert result.alignment is None
    assert result.to_dict()["alignment"] == ""


def test_a_large_index_computes_the_neighborhoods_of_new_segments_only(tmp_path, monkeypatch):
    tables = IndexTables.open(field_index(tmp_path).uri)
    assert tables is not None
    row = SegmentRow(
        VideoSegment("ffffffff", "new.mp4", 0.0, 3.0, 3.0),
        "f",
        np.eye(8, dtype=np.float32)[0],
        field_spectrum(make_fields()[:1])[0].numpy(),
        b"w",
        quantize_fields(make_fields().flatten(1).numpy())[0],
    )
    tables.add_segments([row])
    monkeypatch.setattr("stillmotion.index.motion_fields._MAX_REFERENCES", NUM_SEGMENTS - 1)
    monkeypatch.setattr("stillmotion.index.motion_fields.neighborhood_similarity", lambda *arguments: 7.0)
    before = Neighborhoods(tables).means([f"{i:08x}" for i in range(NUM_SEGMENTS)])
    update_neighborhoods(tables)
    after = Neighborhoods(tables).means([*(f"{i:08x}" for i in range(NUM_SEGMENTS)), "ffffffff"])
    np.testing.assert_array_equal(after, [*before, 7.0])
