"""Pages in a real browser: headless Chromium, spoken to over a pair of pipes (the DevTools protocol)."""

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--mute-audio", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"),
]


def chromium() -> str | None:
    """Where the browser is, if there is one."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Page:
    """One open page, and every error that its console was told."""

    def __init__(self, send: int, receive: Any) -> None:
        self._send, self._receive, self._number = send, receive, 0
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.call(f"{domain}.enable")

    def open(self, file: Path) -> None:
        self.call("Page.navigate", url=file.resolve().as_uri())
        self.evaluate(
            "new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))"
        )

    def evaluate(self, expression: str) -> Any:
        """What a piece of script gives; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        session = {"sessionId": self._session} if hasattr(self, "_session") else {}
        message = {"id": self._number, "method": method, "params": params} | session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _next(self) -> bytes:
        text = bytearray()
        while (byte := self._receive.read(1)) != b"\0":
            assert byte, "the browser has gone"
            text += byte
        return bytes(text)

    def _note(self, event: dict[str, Any]) -> None:
        kind, said = event.get("method"), event.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.errors.append(str(said["exceptionDetails"]))
        elif kind == "Runtime.consoleAPICalled" and said["type"] in ("error", "assert"):
            self.errors.append(str(said["args"]))
        elif kind == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.errors.append(said["entry"]["text"])
        elif kind == "Network.requestWillBeSent" and not said["request"]["url"].startswith(
            ("data:", "file:", "about:")
        ):
            self.errors.append(f"fetched {said['request']['url']}")


@contextmanager
def new_page() -> Iterator[Page]:
    """An empty page in a browser of its own, which is closed at the end."""
    program = chromium()
    assert program is not None
    (their_in, send), (receive, their_out) = os.pipe(), os.pipe()
    # The browser reads from 3 and writes to 4: the shell moves high numbers there.
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (their_in, their_out)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen(
            [
                *("bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "browser", program, *_QUIET),
                *(f"--user-data-dir={profile}", "--remote-debugging-pipe"),
            ],
            pass_fds=ends,
            stderr=subprocess.DEVNULL,
        )
        for end in (*ends, their_in, their_out):
            os.close(end)
        try:
            with os.fdopen(receive, "rb") as answers:
                yield Page(send, answers)
        finally:
            os.close(send)
            browser.terminate()
            browser.wait(60)
