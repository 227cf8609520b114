import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.class_videos import write_class_folders

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.encoders import extract_features, load
from stillmotion.encoders.embedding_export import export_embeddings
from stillmotion.errors import StillmotionError


@pytest.fixture
def folder(tmp_path):
    """Write two classes of three videos, one of them truncated, and one video without a class."""
    folder = write_class_folders(tmp_path / "videos", videos_per_class=3)
    (folder / "dark" / "1.mp4").write_bytes(b"torn")
    (folder / "light" / "2.mp4").rename(folder / "loose.mp4")
    return folder


def expected_features(run, folder, clips):
    result = extract_features(load(run), VideoFolder(folder), num_clips=clips)
    return {name: result.vectors(name) for name in ("whole", "static", "dynamic")}


def test_parquet_has_the_embeddings_of_the_encoder(run, folder, tmp_path):
    file = tmp_path / "new" / "table.parquet"
    out = export_embeddings(load(run), VideoDataConfig(folder), file, num_clips=2, loader=LoaderConfig(batch_size=2))
    table = pq.read_table(out.file)
    assert table.schema.field("static").type == pa.list_(pa.float32(), 32)
    for name, vectors in expected_features(run, folder, 2).items():
        np.testing.assert_allclose(np.array(table[name].to_pylist()), vectors, atol=1e-5)
    names = [path.rsplit("/", 1)[1] for path in table["path"].to_pylist()]
    assert names == ["loose.mp4", "0.mp4", "2.mp4", "0.mp4", "1.mp4"]
    assert table["label"].to_pylist() == [None, "dark", "dark", "light", "light"]
    about = {"encoder": str(run), "data": str(folder), "num_clips": 2, "num_crops": 1}
    assert json.loads(table.schema.metadata[b"stillmotion"]) == about
    lines = out.to_lines()
    assert lines[0].startswith("5 videos embedded")
    assert lines[1] == "1 unreadable video skipped:"
    assert "dark/1.mp4" in lines[2]
    assert [p.name for p in file.parent.iterdir()] == ["table.parquet"]


def test_npz_holds_the_same_and_no_pickles(run, folder, tmp_path):
    out = export_embeddings(load(run), VideoDataConfig(folder), tmp_path / "table.npz", num_clips=2)
    with np.load(out.file, allow_pickle=False) as table:
        for name, vectors in expected_features(run, folder, 2).items():
            np.testing.assert_allclose(table[name], vectors, atol=1e-5)
        assert table["label"].tolist() == ["", "dark", "dark", "light", "light"]
        assert table["whole"].dtype == np.float32


def test_drawn_videos_carry_their_factors(run, tmp_path):
    table = pq.read_table(
        export_embeddings(load(run), VideoDataConfig("synthetic"), tmp_path / "t.parquet", num_clips=1).file
    )
    assert table.num_rows == 64
    assert set(table["trajectory"].to_pylist()) == {"horizontal", "vertical", "circling", "zooming"}


def test_what_cannot_be_written_is_refused_before_any_work(run, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StillmotionError, match="cannot write to"):
        export_embeddings(load(run), VideoDataConfig("nowhere"), tmp_path / "file" / "t.npz")
    with pytest.raises(StillmotionError, match=r"ends in \.parquet or \.npz"):
        export_embeddings(load(run), VideoDataConfig("nowhere"), tmp_path / "t.csv")
