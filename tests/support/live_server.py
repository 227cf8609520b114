"""The page's server as a user starts it, in a process and folders of its own."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from support.process_tree import descendants


class LiveServer:
    """`stillmotion browse VIDEOS`, from its start to the address that it prints.

    Args:
        videos: Folder of videos.
        home: Folder for the cache and for temporary files.
        environment: Further environment variables.
        options: Further arguments.
    """

    def __init__(
        self, videos: Path, home: Path, environment: dict[str, str] | None = None, options: tuple[str, ...] = ()
    ) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        # Near the root: the path of a socket has at most 107 characters.
        self.temp_dir = Path(tempfile.gettempdir()) / f"live-{zlib.crc32(bytes(home)):08x}"
        self.temp_dir.mkdir(exist_ok=True)
        directories = {"TMPDIR": str(self.temp_dir), "XDG_CACHE_HOME": str(home / "cache")}
        self.errors = home / "stderr"
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stillmotion", "browse", str(videos), "--encoder", "flow", *options],
                env=os.environ | directories | (environment or {}),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "http://" in line, self.errors.read_text()
        address = urlsplit("http://" + line.partition("http://")[2].split()[0])
        assert address.port is not None
        self.port, self.token = address.port, address.path.strip("/")

    def connect(self, seconds: float = 120.0) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=seconds)

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Send a request to a path relative to the token; returns the status and body of the response."""
        connection = self.connect()
        try:
            connection.request(method, f"/{self.token}/{path}", body)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def processes(self) -> list[int]:
        return [self.process.pid, *descendants(self.process.pid)]

    def stop(self, sig: signal.Signals = signal.SIGINT) -> tuple[int, float]:
        """Stop the server by a signal; returns the exit code and the seconds until it ended."""
        start = time.monotonic()
        self.process.send_signal(sig)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code, time.monotonic() - start
