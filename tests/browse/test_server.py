"""The server leaves nothing behind: no token in a command line, no files of killed processes, no process."""

import asyncio
import gc
import os
import stat
import subprocess
import tempfile
import threading
import time
import weakref
from pathlib import Path

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from support.process_tree import alive_after
from uvicorn.server import ServerState

from stillmotion.browse.server import _redirect_file, _TimedProtocol
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
    process = subprocess.Popen(["true"])
    process.wait()
    own_prefix = temp_prefix("query")
    (tmp_path / f"{own_prefix}a").touch()
    (tmp_path / "stillmotion-notes").touch()
    (tmp_path / own_prefix.replace(str(os.getpid()), str(process.pid))).touch()
    (tmp_path / temp_prefix("copy").replace(str(os.getpid()), str(process.pid))).mkdir()
    sweep_temp_dir()
    assert {path.name for path in tmp_path.iterdir()} == {f"{own_prefix}a", "stillmotion-notes"}


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


def test_a_connection_that_has_ended_is_not_kept_in_memory() -> None:
    async def connect() -> bool:
        settings = uvicorn.Config(PlainTextResponse("answer"), lifespan="off", log_config=None)
        settings.load()
        connections: list[weakref.ref[_TimedProtocol]] = []

        def accept() -> _TimedProtocol:
            connection = _TimedProtocol(settings, ServerState(), {})
            connections.append(weakref.ref(connection))
            return connection

        async with await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).endswith(b"answer")
            writer.close()
            await writer.wait_closed()
        await asyncio.sleep(0.1)
        gc.collect()
        return connections[0]() is None

    assert asyncio.run(connect())
