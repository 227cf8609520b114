"""Many requests and uploads, hostile ones among them, against the page's server; what they leave behind.

PYTHONPATH=tests python -m support.page_load --requests 2000 --uploads 50
"""

import argparse
import json
import os
import random
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import numpy as np
from PIL import Image

from support.class_videos import write_class_folders
from support.live_server import LiveServer
from support.process_tree import alive_after

_PATHS = ("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd", "a%00b", "....//x", "C:%5Cx", "%", "~")
_ROUTES = ("segments", "thumbnails", "posters", "videos", "previews", "static", "map", "groups")
_NUMBERS = ("-1", "nan", "1e999", "x", "9" * 5000, "0x10", "²", "")
_SLOW = "slow"


@dataclass
class LoadReport:
    """What a load did and left.

    Attributes:
        statuses: Answers by kind and status; 0 is a connection that was closed.
        memory: Resident MiB of the server at its start, after one request of each kind and one upload, and at the end.
        worker_memory: Resident MiB of its other processes together, after the first upload and at the end.
        files: Names of the files in the temporary and cache folders that the load left.
        processes: Processes that are left after the server was stopped.
        errors: What the server wrote to stderr.
        stop_seconds: Seconds from Ctrl-C to its end.
        seconds: Seconds of the load.
    """

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    memory: list[float] = field(default_factory=list)
    worker_memory: list[float] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    errors: str = ""
    stop_seconds: float = 0.0
    seconds: float = 0.0

    def to_lines(self) -> list[str]:
        rows: dict[str, list[str]] = {}
        for (kind, status), count in sorted(self.statuses.items()):
            rows.setdefault(kind, []).append(f"{count} × {status or 'closed'}")
        return [
            *(f"{kind:<24} {', '.join(cells)}" for kind, cells in rows.items()),
            "resident MiB of the server: " + " → ".join(f"{value:.0f}" for value in self.memory),
            "resident MiB of its processes: " + " → ".join(f"{value:.0f}" for value in self.worker_memory),
            f"processes left {len(self.processes)}, files left {len(self.files)} {self.files[:5]}",
            f"{self.seconds:.0f} s; Ctrl-C took {self.stop_seconds:.2f} s; stderr: {self.errors!r}",
        ]


class PageLoad:
    """Requests and uploads of every kind, drawn by a seed."""

    def __init__(self, server: LiveServer, good_video: bytes, ids: list[str], seed: int) -> None:
        self.server, self.good_video, self.ids, self.random = server, good_video, ids, random.Random(seed)

    def requests(self) -> dict[str, Callable[[], int]]:
        """A function for each kind of request, which sends one and returns its status."""
        get, choose = self._get, self.random.choice
        return {
            "page": lambda: get(choose(("", "about", "segments", "baselines", "static/main.js", "map/motion"))),
            "segment": lambda: get(f"{choose(_ROUTES[:5])}/{choose(self.ids)}"),
            "neighbors": lambda: get(f"neighbors?id={choose(self.ids)}&motion_weight={self.random.random():.2f}"),
            "path trick": lambda: get(f"{choose(_ROUTES)}/{choose(_PATHS)}"),
            "odd number": lambda: get(f"segments?first={choose(_NUMBERS)}&count={choose(_NUMBERS)}"),
            "bad token": lambda: self._send(f"GET /{choose(('', 'wrong', 'x' * 9000, '%00'))}/about HTTP/1.1"),
            "other host": lambda: self._send(f"GET /{self.server.token}/about HTTP/1.1", host="evil.example"),
            "other method": lambda: self._send(
                f"{choose(('DELETE', 'TRACE', 'PATCH'))} /{self.server.token}/ HTTP/1.1"
            ),
            "malformed": lambda: self._send(choose(("GET", "\0\0\0", "GET / HTTP/9", "A" * 70_000))),
            "group name": lambda: self._put(f"groups/motion/{choose(_NUMBERS)[:99]}", self.random.randbytes(100)),
            "range": lambda: self._send(
                f"GET /{self.server.token}/videos/{choose(self.ids)} HTTP/1.1\r\n"
                f"Range: bytes={choose(('0-10', '99999999-', '5-1', '-3', ','.join(['0-1'] * 500)))}"
            ),
            "left early": self._leave_early,
        }

    def uploads(self) -> dict[str, Callable[[], int]]:
        """A function for each kind of upload."""
        good, random_bytes = self.good_video, self.random.randbytes
        return {
            "good video": lambda: self._upload(good),
            "truncated": lambda: self._upload(good[: self.random.randrange(1, len(good))]),
            "mutated": lambda: self._upload(_mutate(good, self.random)),
            "huge picture": lambda: self._upload(_gif(self.random.choice((8000, 16000, 65000)))),
            "wrong type": lambda: self._upload(
                self.random.choice((b"text", b"PK\3\4" + random_bytes(500), b"\0" * 5000))
            ),
            "script": lambda: self._upload(b"ffconcat version 1.0\nfile /etc/passwd\n"),
            "odd name": lambda: self._upload(b"x", name="../../../etc/\0<script>" + "x" * 3000),
            "claims 9 GiB": lambda: self._send(
                f"POST /{self.server.token}/uploads HTTP/1.1\r\nContent-Length: {9 * 2**30}"
            ),
            "closed tab": lambda: self._send(
                f"POST /{self.server.token}/uploads HTTP/1.1\r\nContent-Length: 99999", wait=False
            ),
            _SLOW: self._upload_slowly,
        }

    def _get(self, path: str) -> int:
        return self._send(f"GET /{self.server.token}/{path} HTTP/1.1")

    def _put(self, path: str, body: bytes) -> int:
        try:
            return self.server.request("PUT", quote(path), body)[0]
        except OSError:
            return 0

    def _upload(self, content: bytes, name: str = "dropped.mp4") -> int:
        return self.server.request("POST", f"uploads?name={quote(name)}", content)[0]

    def _send(self, head: str, *, host: str = "127.0.0.1", wait: bool = True) -> int:
        """Send a request as it is, read all of the answer, and return its status; 0 if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=120) as client:
                client.sendall(f"{head}\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                answer = client.recv(100) if wait else b""
                while wait and client.recv(2**16):
                    pass
            return int(answer.split()[1]) if answer.startswith(b"HTTP/") else 0
        except OSError:
            return 0

    def _leave_early(self) -> int:
        """Ask for a video, and close the connection without reading it."""
        return self._send(f"GET /{self.server.token}/videos/{self.random.choice(self.ids)} HTTP/1.1", wait=False)

    def _upload_slowly(self) -> int:
        """Send a byte a second, until the server has had enough."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=1) as client:
            head = f"POST /{self.server.token}/uploads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999\r\n\r\n"
            client.sendall(head.encode())
            for _ in range(120):
                try:
                    client.sendall(b"x")
                    answer = client.recv(100)
                    return int(answer.split()[1]) if answer else 0
                except TimeoutError:
                    continue
                except OSError:
                    return 0
        return -1


def run_page_load(folder: Path, *, num_requests: int, num_uploads: int, seed: int = 0) -> LoadReport:
    """Start a server, load it, stop it, and report.

    Args:
        folder: Folder for videos and for what the server writes.
        num_requests: Number of requests, eight at a time.
        num_uploads: Number of uploads, one after another while requests go on.
        seed: Seed of what is sent.
    """
    videos = write_class_folders(folder / "videos", videos_per_class=5, num_frames=30, image_size=64)
    server = LiveServer(videos, folder / "home", options=("--no-open",))
    try:
        return _load(server, videos, num_requests, num_uploads, seed)
    finally:
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)


def _load(server: LiveServer, videos: Path, num_requests: int, num_uploads: int, seed: int) -> LoadReport:
    report, home = LoadReport(), videos.parent / "home"
    indexing = server.errors.read_text()
    report.memory.append(server.resident_mib())
    ids = [segment["id"] for segment in json.loads(server.request("GET", "segments")[1])["segments"]]
    load = PageLoad(server, (videos / "dark" / "0.mp4").read_bytes(), ids, seed)
    requests, uploads = load.requests(), load.uploads()
    for warm_up in (*requests.values(), uploads["good video"]):
        warm_up()
    report.memory.append(server.resident_mib())
    report.worker_memory.append(sum(map(server.resident_mib, server.processes()[1:])))
    before, start, lock = _list_files(home), time.monotonic(), threading.Lock()

    def send(kind: str, function: Callable[[], int]) -> None:
        while (status := function()) == 429:  # the upload before is not over
            time.sleep(0.2)
        with lock:
            report.statuses[kind, status] += 1

    kinds = [list(requests)[i % len(requests)] for i in range(num_requests)]
    drops = sorted((list(uploads)[i % len(uploads)] for i in range(num_uploads)), key=_SLOW.__eq__)
    with ThreadPoolExecutor(9) as pool:
        all_uploads = pool.submit(lambda: [send(f"upload: {kind}", uploads[kind]) for kind in drops])
        list(pool.map(lambda kind: send(kind, requests[kind]), kinds))
        all_uploads.result()
    report.seconds = time.monotonic() - start
    time.sleep(6)  # longer than connections are kept
    report.memory.append(server.resident_mib())
    report.worker_memory.append(sum(map(server.resident_mib, server.processes()[1:])))
    processes = server.processes()
    _, report.stop_seconds = server.stop()
    report.processes = alive_after(5.0, processes)
    report.files = sorted(_list_files(home) - before)
    report.errors = server.errors.read_text().removeprefix(indexing)
    return report


def _list_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _mutate(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(50):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def _gif(side: int) -> bytes:
    """A small picture whose header claims so many pixels a side."""
    with tempfile.TemporaryFile() as file:
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(file, "GIF")
        file.seek(0)
        content = file.read()
    return content[:6] + side.to_bytes(2, "little") * 2 + content[10:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--uploads", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        report = run_page_load(
            Path(folder), num_requests=options.requests, num_uploads=options.uploads, seed=options.seed
        )
    print("\n".join(report.to_lines()))


if __name__ == "__main__":
    main()
