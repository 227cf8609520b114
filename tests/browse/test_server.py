"""What the server leaves on the machine: no token in a command line, no files of killed processes, no process."""

import os
import stat
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from support.process_tree import alive_after

from stillmotion.browse.server import _redirect_file
from stillmotion.browse.upload_worker import UploadEmbedder
from stillmotion.errors import VideoError
from stillmotion.index.video_segments import VideoSegmentConfig
from stillmotion.utils.file_lock import sweep_temp_dir, temp_prefix


def test_the_browser_is_given_a_private_file_instead_of_the_token() -> None:
    with _redirect_file("http://127.0.0.1:1/secret/") as file:
        assert "secret" not in file.as_uri()
        assert "http://127.0.0.1:1/secret/" in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert not file.parent.exists()


def test_leftovers_of_killed_processes_are_swept_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    mine = temp_prefix("query")
    (tmp_path / f"{mine}a").touch()
    (tmp_path / "stillmotion-notes").touch()
    (tmp_path / mine.replace(str(os.getpid()), str(ended.pid))).touch()
    (tmp_path / temp_prefix("copy").replace(str(os.getpid()), str(ended.pid))).mkdir()
    sweep_temp_dir()
    assert {path.name for path in tmp_path.iterdir()} == {f"{mine}a", "stillmotion-notes"}


def test_a_dropped_video_that_is_being_decoded_ends_with_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "endless")
    monkeypatch.setattr("stillmotion.browse.upload_worker.embed_upload", Path.read_bytes)
    embedder = UploadEmbedder("flow", "cpu", VideoSegmentConfig())
    errors: list[Exception] = []

    def embed() -> None:
        try:
            embedder(tmp_path / "endless")
        except VideoError as error:
            errors.append(error)

    monkeypatch.setattr("stillmotion.browse.upload_worker.UploadJob", lambda video, *_: Path(video))
    thread = threading.Thread(target=embed)
    thread.start()
    while embedder._worker is None or not embedder._worker.jobs:
        time.sleep(0.01)
    pid = embedder._worker.process.pid
    embedder.close()
    thread.join(30)
    assert not thread.is_alive()
    assert "endless: its process ended" in str(errors[0])
    assert pid is not None
    assert alive_after(5.0, [pid]) == []
