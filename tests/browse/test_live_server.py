"""The server as a user starts it: it cleans up when it is stopped or killed, and shows its token to nobody."""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from support.class_videos import write_class_folders
from support.live_server import LiveServer
from support.process_tree import alive_after

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_class_folders(tmp_path_factory.mktemp("videos"), videos_per_class=2, num_frames=20, image_size=40)


@pytest.fixture
def server(videos: Path, tmp_path: Path) -> Iterator[LiveServer]:
    live_server = LiveServer(videos, tmp_path, options=("--no-open",))
    yield live_server
    if live_server.process.poll() is None:
        live_server.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def long_video(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A video that takes minutes to decode: a still picture of 4000×4000 pixels, 2,000 times."""
    file = tmp_path_factory.mktemp("long") / "long.mp4"
    picture = av.VideoFrame.from_ndarray(np.full((4000, 4000, 3), 128, np.uint8), format="rgb24")
    with av.open(str(file), "w") as container:
        stream = container.add_stream("libx264", rate=10, options={"preset": "ultrafast"})
        stream.height, stream.width, stream.pix_fmt = 4000, 4000, "yuv420p"
        content = bytes([*stream.encode(picture), *stream.encode(None)][0])
        for number in range(2000):
            packet = av.Packet(content)
            packet.stream, packet.time_base, packet.pts, packet.dts = stream, Fraction(1, 10), number, number
            packet.is_keyframe = True
            container.mux(packet)
    return file.read_bytes()


def start_upload(server: LiveServer, content: bytes) -> threading.Thread:
    """Upload in a thread; returns when the server stores the video and has had a moment to decode it."""

    def upload() -> None:
        with contextlib.suppress(OSError):  # the server ends
            server.request("POST", "uploads", content)

    thread = threading.Thread(target=upload)
    thread.start()
    while not any(path.is_file() and path.stat().st_size == len(content) for path in server.temp_dir.iterdir()):
        time.sleep(0.01)
    return thread


@pytest.mark.parametrize("seconds", [0.0, 8.0])  # while its process starts, and while it decodes
def test_ctrl_c_while_a_dropped_video_is_decoded_ends_at_once_and_leaves_nothing(
    server: LiveServer, long_video: bytes, seconds: float
) -> None:
    upload = start_upload(server, long_video)
    time.sleep(seconds)
    assert upload.is_alive()
    processes = server.processes()
    code, seconds_to_stop = server.stop()
    print(f"Ctrl-C took {seconds_to_stop:.2f} s")
    upload.join(10)
    assert (code, server.errors.read_text().count("Traceback")) == (130, 0)
    assert seconds_to_stop < 20
    assert alive_after(2.0, processes) == []
    assert list(server.temp_dir.glob("stillmotion-*")) == []  # torch makes a folder of its own


def test_what_a_killed_server_leaves_is_swept_by_the_next(server: LiveServer, videos: Path, long_video: bytes) -> None:
    upload = start_upload(server, long_video)
    processes = server.processes()
    server.stop(signal.SIGKILL)
    upload.join(10)
    assert alive_after(5.0, processes) == []
    assert list(server.temp_dir.glob("stillmotion-*")) != []
    following = LiveServer(videos, server.home, options=("--no-open",))
    leftovers = list(server.temp_dir.glob("stillmotion-*"))
    following.stop()
    assert leftovers == []


def test_the_token_is_in_no_command_line(videos: Path, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called.part\nmv {tmp_path}/called.part {tmp_path}/called\n')
    browser.chmod(0o700)
    server = LiveServer(videos, tmp_path, {"BROWSER": f"{browser} %s"})
    while not (tmp_path / "called").exists():
        time.sleep(0.05)
    server.stop()
    assert (tmp_path / "called").read_text().strip()
    assert server.token not in (tmp_path / "called").read_text()


def test_a_tab_that_is_closed_while_it_uploads_is_silent_and_frees_the_place(server: LiveServer, videos: Path) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        head = f"POST /{server.token}/uploads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\npart"
        client.sendall(head.encode())
        time.sleep(0.5)
        assert server.request("POST", "uploads", b"x")[0] == 429
    content = (videos / "dark" / "0.mp4").read_bytes()
    assert server.request("POST", "uploads", content)[0] == 200
    server.stop()
    assert server.errors.read_text().splitlines()[1:] == ["stillmotion: stopped"]  # the first names the index


def test_a_client_that_sends_hardly_anything_is_dropped(server: LiveServer) -> None:
    upload = f"POST /{server.token}/uploads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\n".encode()
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
    clients[0].sendall(b"GET / HT")  # a head that never ends
    clients[1].sendall(upload)
    start, responses = time.monotonic(), [b"", b""]
    while time.monotonic() - start < 45 and not all(responses):
        time.sleep(1)
        for i, client in enumerate(clients):
            if responses[i]:
                continue
            client.setblocking(False)
            try:
                client.send(b"x")  # a byte a second
                responses[i] = client.recv(1000) or b"closed"
            except BlockingIOError:
                pass
            except OSError:
                responses[i] = b"closed"
    for client in clients:
        client.close()
    assert responses[0] == b"closed"
    assert responses[1].startswith(b"HTTP/1.1 408")
