"""A Hugging Face hub on loopback that serves the models of a folder."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class _HubHandler(BaseHTTPRequestHandler):
    root: Path
    requested: list[str]

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def _respond(self, *, with_body: bool) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        self.requested.append(f"{self.command} /{'/'.join(parts)}")
        content, missing = self._find_content(parts)
        self.send_response(404 if content is None else 200)
        if content is None:
            self.send_header("X-Error-Code", missing)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha1(content or b"").hexdigest()}"')
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if with_body and content:
            self.wfile.write(content)

    def _find_content(self, parts: list[str]) -> tuple[bytes | None, str]:
        """Return the requested content, or None and the error code of a missing one."""
        if parts[0] != "api":
            file = self.root / parts[0] / parts[1] / parts[-1]
            return file.read_bytes() if file.is_file() else None, "EntryNotFound"
        folder = self.root.joinpath(*parts[2:4])
        if parts[1] != "models" or not folder.is_dir():
            return None, "RepoNotFound"
        files = sorted(folder.iterdir())
        if parts[4] == "tree":
            entries = [{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": "0" * 40} for f in files]
            return json.dumps(entries).encode(), ""
        info = {"id": "/".join(parts[2:4]), "sha": COMMIT, "siblings": [{"rfilename": f.name} for f in files]}
        return json.dumps(info).encode(), ""

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def fake_hub(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Run a hub with the models root/<owner>/<name>; yields its address and the list of requests."""
    requests: list[str] = []
    handler = type("HubHandler", (_HubHandler,), {"root": root, "requested": requests})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()
