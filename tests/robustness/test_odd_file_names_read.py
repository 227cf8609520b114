"""Verbs that read videos accept any file name."""

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.cached_run import cached_run
from support.class_videos import write_class_folders

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.encoders import load
from stillmotion.encoders.embedding_export import export_embeddings
from stillmotion.explain.explain_videos import explain_videos
from stillmotion.index.search.config import SearchConfig
from stillmotion.index.search.folder_search import search_folder

ODD_NAMES = (b"caf\xe9.mp4", b"a" * 251 + b".mp4", b"http:x.mp4", b"con:1 $a$_b.mp4")


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Write a folder with unusual names, circular links, a pipe and a file that is not a video."""
    root = write_class_folders(tmp_path / "videos", videos_per_class=3, num_frames=16, image_size=32)
    for plain, odd in zip(sorted(root.rglob("*.mp4")), ODD_NAMES, strict=False):
        os.rename(os.fsencode(plain), os.fsencode(plain.parent) + b"/" + odd)
    (root / "self").symlink_to(".")
    os.mkfifo(root / "light" / "pipe.mp4")
    return root


def test_every_name_is_embedded_and_what_is_no_video_is_reported(videos: Path, tmp_path: Path) -> None:
    encoder = load(cached_run("k400-bod-simclr"))
    export = export_embeddings(encoder, VideoDataConfig(str(videos)), tmp_path / "rows.parquet", num_clips=1)
    names = {Path(name).name for name in pq.read_table(export.file)["path"].to_pylist()}
    assert len(names) == export.num_videos == 6
    assert {r"caf\xe9.mp4", "http:x.mp4"} <= names
    (reason,) = export.failed.values()
    assert "pipe.mp4: not a regular file" in reason


def test_every_name_is_found_and_explained(videos: Path, tmp_path: Path) -> None:
    encoder = load(cached_run("k400-bod-simclr")).with_input(stride=1)
    query = os.fsdecode(os.fsencode(videos / "dark") + b"/" + ODD_NAMES[0])
    result = search_folder(encoder, query, VideoDataConfig(str(videos)), SearchConfig(top_k=9, num_clips=1))
    assert len(result) == 5
    explain_videos(encoder, query, tmp_path / "explained")
    (video,) = json.loads((tmp_path / "explained" / "results.json").read_text())["videos"]
    assert video["name"] == query
