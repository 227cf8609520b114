"""`stillmotion browse` as a command, with the encoder that needs no weights."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from support.class_videos import write_class_folders
from support.process import Command

from stillmotion.browse.open_index import is_index, open_or_build_index
from stillmotion.cli.main import dispatch
from stillmotion.encoders import load
from stillmotion.errors import StillmotionError
from stillmotion.index import SearchConfig, VideoIndex, search_index
from stillmotion.index.storage.lance_tables import IndexMetadata, IndexTables
from stillmotion.index.trusted_indexes import check_trusted


def start_browse(*arguments, cache):
    """Start the command; returns it and the JSON of its `about` page."""
    command = Command("browse", *arguments, "--no-open", environment={"XDG_CACHE_HOME": str(cache)})
    deadline = time.monotonic() + 120
    while "(Ctrl-C stops)" not in command.stdout:
        assert command.is_running, command.stderr
        assert time.monotonic() < deadline, command.stderr
        time.sleep(0.02)
    address = next(word for word in command.stdout.split() if word.startswith("http://127.0.0.1:"))
    with urllib.request.urlopen(f"{address}about", timeout=60) as response:
        return command, json.load(response)


def file_times(folder):
    """Return the modification time of every file below a folder."""
    return {path: path.stat().st_mtime_ns for path in sorted(Path(folder).rglob("*"))}


@pytest.mark.slow
def test_a_folder_is_indexed_and_served_until_ctrl_c(tmp_path):
    videos = write_class_folders(tmp_path / "videos", videos_per_class=1, num_frames=12, image_size=32)
    before = file_times(videos)
    command, about = start_browse(str(videos), cache=tmp_path / "cache")
    assert (about["videos"], about["segments"], about["encoder"]) == (2, 2, "flow")
    command.send(signal.SIGINT)
    assert command.wait() == 130
    assert command.stderr.splitlines()[-1] == "stillmotion: stopped"
    assert file_times(videos) == before

    (index,) = (path for path in (tmp_path / "cache" / "stillmotion").iterdir() if is_index(path))
    times = file_times(index)
    command, about = start_browse(str(index), cache=tmp_path / "cache")
    assert about["segments"] == 2
    command.send(signal.SIGTERM)
    assert command.wait() == 143
    assert file_times(index) == times


def test_wrong_paths_fail_fast_without_torch_and_lancedb(tmp_path):
    (tmp_path / "video.mp4").touch()
    script = """
import sys, time
from stillmotion.cli.main import main
try:
    main()
except SystemExit as stop:
    assert stop.code == 2, stop.code
assert not {"torch", "lancedb"} & sys.modules.keys()
assert time.process_time() < 1, time.process_time()
"""
    for verb in ("browse", "index"):
        for name, message in (("nope", "no such file or folder"), ("video.mp4", "is a file; give the folder")):
            command = [sys.executable, "-c", script, verb, str(tmp_path / name)]
            process = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert process.returncode == 0, process.stderr
            assert message in process.stderr


def test_a_folder_without_videos_and_a_missing_one_are_errors(tmp_path):
    (tmp_path / "empty").mkdir()
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert "no video found" in Command("browse", str(tmp_path / "empty"), "--no-open", environment=cache).expect_error()
    assert (
        "no such file or folder"
        in Command("browse", str(tmp_path / "none"), "--no-open", environment=cache).expect_error()
    )


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_one_video_and_one_that_cannot_be_read(tmp_path):
    videos = write_class_folders(tmp_path / "videos", videos_per_class=1, num_frames=8, image_size=32) / "dark"
    (videos / "broken.mp4").write_bytes(b"no video")
    result = open_or_build_index(videos)
    assert len(result.index) == 1
    assert list(result.index.failed_videos()) == ["broken.mp4"]
    assert result.embed_upload(videos / "0.mp4").motion.shape[0] == 1
    (videos / "0.mp4").unlink()
    with pytest.raises(StillmotionError, match=r"no video in .* can be read"):
        open_or_build_index(videos)
    empty = VideoIndex.open(videos)
    with pytest.raises(StillmotionError, match="is empty, because no video in"):
        search_index(empty, load(empty.encoder_spec), videos / "0.mp4", SearchConfig())


def test_an_index_keeps_its_encoder_and_another_one_has_its_own(tmp_path):
    videos = write_class_folders(tmp_path / "videos", videos_per_class=1, num_frames=8, image_size=32)
    index = open_or_build_index(videos, encoder="flow@size=64").index
    assert open_or_build_index(videos).index.encoder_spec == index.encoder_spec
    opened = open_or_build_index(index.local_dir)
    assert [segment.id for segment in opened.index.segments()] == [segment.id for segment in index.segments()]
    query = opened.embed_upload(videos / "dark" / "0.mp4")
    assert opened.index.neighbors(query, motion_weight=1, top_k=1)[0].segment.path == "dark/0.mp4"
    with pytest.raises(StillmotionError, match="is an index; omit --encoder"):
        open_or_build_index(index.local_dir, encoder="flow")
    second_index = open_or_build_index(videos, encoder="flow@size=48").index
    assert second_index.uri != index.uri
    assert open_or_build_index(videos).index.uri == index.uri
    assert not is_index(videos)


def test_a_port_in_use_is_an_error(tmp_path):
    from stillmotion.browse.server import serve

    videos = write_class_folders(tmp_path / "videos", videos_per_class=1, num_frames=8, image_size=32)
    opened = open_or_build_index(videos)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(StillmotionError, match=f"cannot listen on port {port} .*omit --port"):
            serve(opened.index, embed_upload=opened.embed_upload, port=port, open_browser=False)
    assert isinstance(opened.index, VideoIndex)


def test_an_index_from_elsewhere_is_served_only_if_it_is_trusted(tmp_path, monkeypatch):
    videos = write_class_folders(tmp_path / "videos", videos_per_class=1, num_frames=8, image_size=32)
    index = open_or_build_index(videos, output_dir=tmp_path / "index").index
    assert open_or_build_index(index.local_dir).index.videos_dir == videos
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "of somebody else"))
    with pytest.raises(StillmotionError, match=r"not built by you .* would show the videos of .*videos; add --trust-"):
        open_or_build_index(index.local_dir)
    assert len(open_or_build_index(index.local_dir, trust_index=True).index) == len(index)


def test_an_index_from_elsewhere_downloads_no_model_unless_it_is_trusted(tmp_path):
    videos, index = tmp_path / "videos", tmp_path / "index"
    write_class_folders(videos, videos_per_class=1, num_frames=8, image_size=32)
    IndexTables.create(str(index), IndexMetadata("nobody/no-such-model@size=64", "", "/", {}))
    for use in (
        lambda: open_or_build_index(index),
        lambda: open_or_build_index(videos, output_dir=index),
        lambda: dispatch(["search", str(videos / "dark" / "0.mp4"), "--index", str(index)]),
    ):
        with pytest.raises(StillmotionError, match=r"download the model nobody/no-such-model; add --trust-index"):
            use()
    check_trusted(str(index), IndexMetadata("flow", "", "/", {}), serves_videos=False)


def test_an_index_without_settings_is_one_line(tmp_path):
    IndexTables.create(str(tmp_path / "index"), IndexMetadata("flow", "", "/", {}))
    with pytest.raises(StillmotionError, match="index: segmentation"):
        open_or_build_index(tmp_path / "index", trust_index=True)
