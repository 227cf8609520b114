"""Requests of each kind against the page: proper ones get the right answer, and odd ones an error that is not ours."""

import http.client
import json
import os
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from tools.fault_injection.checks import digest_index, unchanged
from tools.fault_injection.commands import RunningCommand
from tools.fault_injection.kills import wait_for_address
from tools.fault_injection.outcomes import Outcome, attack

_TIMEOUT = 60.0
_MAX_GROWTH_BYTES = 200 * 2**20  # of the memory of the server
_NUM_CONCURRENT = 8  # requests, except for uploads, of which the page takes one at a time
_ODD_TEXTS = (
    *("", " ", "..", "../../etc/passwd", "%2e%2e%2f", "....//x", "C:\\x", "~", "%", "\0", "\n", "é", "\udcff", "²"),
    *("'", '"', "-1", "0", "1", "0x10", "1e999", "nan", "9" * 40, "9" * 5000, "x" * 3000, "null", "[]", "{}"),
    *("<script>", "motion", "appearance", "motion:0", "index.html", "page.js"),
)
_MESSAGE_BYTES = 64 * 1024
_PROPER = "proper"
_GIF_HEADER = b"GIF89aside\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0side\0\2\2D\1\0;"


class Page:
    """A served page.

    Args:
        port: Port of the server.
        path: Path of the page, with the token.
    """

    def __init__(self, port: int, path: str) -> None:
        self.port, self.path = port, path

    def request(
        self, method: str, path: str, *, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Send a request.

        Args:
            method: HTTP method.
            path: Path below the page; an absolute one begins with a slash.
            body: Body of the request.
            headers: Headers of the request.

        Returns:
            Status and body of the response.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT)
        try:
            connection.putrequest(method, path if path.startswith("/") else self.path + path)
            for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
                connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def get_json(self, path: str) -> object:
        """Get a path and parse the response; AssertionError if it is an error."""
        status, content = self.request("GET", path)
        assert status == 200, f"{path}: status {status}: {content[:200]!r}"
        return json.loads(content)


def request_pages(index: Path, videos: Path, work_dir: Path, *, count: int, seed: int) -> list[Outcome]:
    """Send requests of each kind to a page.

    Args:
        index: Index to serve.
        videos: Folder of its videos.
        work_dir: Folder to work in.
        count: Number of requests of each kind.
        seed: Seed of the requests.

    Returns:
        The outcome for each kind; what happened to the server itself is added to the last one.
    """
    failures: list[str] = []
    before = digest_index(index)
    command = RunningCommand(("browse", str(index), "--no-open", "--trust-index"), work_dir)
    address = wait_for_address(command)
    if address is None:
        return [Outcome("page", count, 0, [f"not served: {command.last_line}"], 0.0)]
    page = Page(*address)
    segments = page.get_json("segments")["segments"]  # type: ignore[index]
    with unchanged(videos, failures):
        kinds = _make_kinds(page, segments, videos)
        page.request("POST", "uploads", body=next(videos.rglob("*.mp4")).read_bytes())  # starts the process of uploads
        num_bytes = [_resident_bytes(command)]
        outcomes = []
        for kind, request in kinds.items():
            name, num_concurrent = f"page: {kind}", 1 if "upload" in kind else _NUM_CONCURRENT
            send = lambda _, rng, request=request: request(rng)  # noqa: E731
            outcomes.append(attack(name, count, seed, send, num_concurrent=num_concurrent))
        started = time.monotonic()
        num_bytes.append(_resident_bytes(command))
        memory = " → ".join(f"{each / 2**20:.0f}" for each in num_bytes) + " MiB"
        if num_bytes[1] - num_bytes[0] > _MAX_GROWTH_BYTES:
            failures.append(f"memory of the server grew: {memory}")
        if page.get_json("segments")["segments"] != segments:  # type: ignore[index]
            failures.append("the list of segments has changed")
        command.terminate()
        code = command.wait(30)
    if code != 143 or "bug in stillmotion" in command.output or "Traceback" in command.output:
        failures.append(f"the server ended with {code}: {command.last_line}")
    if living := command.living_processes(10.0):
        failures.append(f"{len(living)} processes live on")
    if left := command.temporary_files():
        failures.append(f"{len(left)} temporary files are left, such as {left[0]}")
    if digest_index(index) != before:
        failures.append("the index has changed")
    return [*outcomes, Outcome(f"page: the server, {memory}", 1, 1, failures, time.monotonic() - started)]


def _make_kinds(
    page: Page, segments: list[dict[str, object]], videos: Path
) -> dict[str, Callable[[random.Random], str | None]]:
    """A function of a random generator for each kind of request, which returns what went wrong, or None."""
    ids = [str(segment["id"]) for segment in segments]
    files = {str(segment["id"]): videos / str(segment["path"]) for segment in segments}
    contents = {id: file.read_bytes() for id, file in files.items()}
    uploads = sorted(videos.rglob("*.mp4"))

    def id_of(rng: random.Random) -> tuple[str, str]:
        """An id and whether it is a proper one."""
        return (rng.choice(ids), _PROPER) if rng.random() < 0.5 else (_odd_text(rng), "")

    def get(
        path: str, expected: str = "", *, headers: dict[str, str] | None = None, content: bytes = b""
    ) -> str | None:
        status, body = page.request("GET", path, headers=headers)
        if expected == _PROPER and (status not in (200, 206, 416) or (content and status == 200 and body != content)):
            return f"{path}: status {status} and {len(body)} bytes for a proper request"
        return _judge(status, body, path)

    def of_segment(route: str) -> Callable[[random.Random], str | None]:
        def request(rng: random.Random) -> str | None:
            id, expected = id_of(rng)
            return get(f"{route}/{id}", expected)

        return request

    def listing(rng: random.Random) -> str | None:
        options = {name: _odd_text(rng) for name in rng.sample(("first", "count", "group", "name"), rng.randrange(3))}
        return get(
            "segments?" + "&".join(f"{name}={value}" for name, value in options.items()), "" if options else _PROPER
        )

    def neighbors(rng: random.Random) -> str | None:
        id, expected = id_of(rng)
        odd = {name: _odd_text(rng) for name in rng.sample(("motion_weight", "top_k", "query"), rng.randrange(2))}
        options = {"id": id, "motion_weight": f"{rng.random():.3f}"} | odd
        path = "neighbors?" + "&".join(f"{name}={value}" for name, value in options.items())
        return get(path, "" if odd else expected)

    def of_vector(route: str) -> Callable[[random.Random], str | None]:
        def request(rng: random.Random) -> str | None:
            is_proper = rng.random() < 0.5
            vector = rng.choice(("appearance", "motion")) if is_proper else _odd_text(rng)
            return get(f"{route}/{vector}", _PROPER if is_proper else "")

        return request

    def name_group(rng: random.Random) -> str | None:
        number = rng.choice(("0", "0", _odd_text(rng)))
        body = rng.choice((b"running", b"", b"\xff", "é".encode(), b"x" * 5000, rng.randbytes(30)))
        path = f"groups/{rng.choice(('motion', 'appearance', _odd_text(rng)))}/{number}"
        return _judge(*page.request("PUT", path, body=body), path)

    def video(rng: random.Random) -> str | None:
        id, expected = id_of(rng)
        ranges = ("bytes=0-10", "bytes=-5", "bytes=5-2", "bytes=9999999-", "bytes=0-1,4-9", "x=1", f"bytes={'9' * 30}-")
        headers = {"Range": rng.choice(ranges)} if rng.random() < 0.5 else None
        status_is_free = headers is not None
        return get(f"videos/{id}", "" if status_is_free else expected, headers=headers, content=contents.get(id, b""))

    def upload(rng: random.Random) -> str | None:
        content = rng.choice(uploads).read_bytes()
        is_proper = rng.random() < 0.4
        if not is_proper:
            start = rng.randrange(len(content))
            content = rng.choice(
                (
                    content[:start],
                    content[:start] + bytes(len(content) - start),
                    rng.randbytes(2000),
                    b"",
                    b"PK\3\4" + rng.randbytes(500),
                    b"ffconcat version 1.0\nfile /etc/passwd\n",
                    _GIF_HEADER.replace(b"side", rng.choice((8000, 65000)).to_bytes(2, "little") * 2),
                )
            )
        path = f"uploads?name={_odd_text(rng)}"
        status, body = page.request("POST", path, body=content)
        if is_proper and status == 200:
            return get(f"neighbors?query={json.loads(body)['query']}", _PROPER)
        return f"an upload got status {status}: {body[:100]!r}" if is_proper else _judge(status, body, path)

    def broken_upload(rng: random.Random) -> str | None:
        """Claim too much, or close the connection within an upload; the server must be free for the next one."""
        if rng.random() < 0.2:
            status, _ = page.request("POST", "uploads", headers={"Content-Length": str(rng.choice((2**32, 10**17)))})
            return None if status == 413 else f"an upload of that size got status {status}"
        with socket.create_connection(("127.0.0.1", page.port), _TIMEOUT) as client:
            client.sendall(
                f"POST {page.path}uploads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000\r\n\r\n".encode()
            )
            client.sendall(rng.randbytes(rng.randrange(1, 8000)))
        return get("about", _PROPER)

    def stranger(rng: random.Random) -> str | None:
        """Ask without the token, or under another host name."""
        path, headers = rng.choice(
            (
                ("/", {}),
                ("/about", {}),
                (f"/{quote(_odd_text(rng), errors='surrogateescape')}/about", {}),
                (page.path[:-2] + "/about", {}),
                (page.path + "about", {"Host": "example.com"}),
                (page.path + "about", {"Host": f"127.0.0.1.{rng.choice(('nip.io', 'evil.org:80'))}"}),
            )
        )
        status, _ = page.request(rng.choice(("GET", "POST", "PUT")), path, headers=headers)
        return None if status in (400, 403, 404) else f"{path}, {headers}: status {status}"

    def raw_bytes(rng: random.Random) -> str | None:
        """Send what is not HTTP, or headers and bodies that contradict each other."""
        method, route = rng.choice(("GET", "POST", "BREW", "PUT")), rng.choice(("about", "uploads", "segments"))
        head = f"{method} {page.path}{route} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n".encode()
        message = rng.choice(
            (
                rng.randbytes(rng.randrange(1, 3000)),
                head + b"Content-Length: -5\r\n\r\nabc",
                head + b"Content-Length: 5\r\nContent-Length: 9\r\n\r\nabcde",
                head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
                head + b"X: " + b"y" * _MESSAGE_BYTES + b"\r\n\r\n",
                head + b"Range: bytes=\xff\xfe\r\n\r\n",
                head[: rng.randrange(1, len(head))],
            )
        )
        with socket.create_connection(("127.0.0.1", page.port), 5.0) as client:
            try:
                client.sendall(message)
                client.shutdown(socket.SHUT_WR)
                answer = client.recv(_MESSAGE_BYTES)
            except OSError:
                answer = b""
        if answer.startswith(b"HTTP/1.1 500"):
            return f"{message[:80]!r}: {answer[:100]!r}"
        return get("about", _PROPER)

    def static(rng: random.Random) -> str | None:
        return get(f"static/{_odd_text(rng)}")

    return {
        "the page": lambda rng: get(f"?{_odd_text(rng)}", _PROPER),
        "static files": static,
        "about": lambda rng: get(f"about?{_odd_text(rng)}", _PROPER),
        "lists of segments": listing,
        "segments": of_segment("segments"),
        "neighbors": neighbors,
        "maps": of_vector("map"),
        "groups": of_vector("groups"),
        "names of groups": name_group,
        "thumbnails": of_segment("thumbnails"),
        "posters": of_segment("posters"),
        "videos": video,
        "previews": of_segment("previews"),
        "uploads": upload,
        "broken uploads": broken_upload,
        "strangers": stranger,
        "raw bytes": raw_bytes,
    }


def _odd_text(rng: random.Random) -> str:
    """Text in a URL that is quoted, or is as it is where that is allowed."""
    text = rng.choice(_ODD_TEXTS)
    return quote(text, safe=rng.choice(("", "/:")), errors="surrogateescape")


def _judge(status: int, body: bytes, path: str) -> str | None:
    """What is wrong with a response to a request that may be odd: an error of ours, or one without a reason."""
    if status >= 500:
        return f"{path}: status {status}: {body[:160]!r}"
    if status >= 400 and status not in (405, 416) and not body:
        return f"{path}: status {status} without a reason"
    return None


def _resident_bytes(command: RunningCommand) -> int:
    """Memory of the server process."""
    pages = int(Path(f"/proc/{command.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
