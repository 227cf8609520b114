"""Serve the page on 127.0.0.1 and open it in the browser."""

import asyncio
import contextlib
import os
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from stillmotion.browse.app import create_app
from stillmotion.browse.token_auth import new_token
from stillmotion.browse.uploads import MAX_SILENT_SECONDS, EmbedUpload
from stillmotion.errors import StillmotionError
from stillmotion.utils.file_lock import sweep_temp_dir, temp_prefix
from stillmotion.utils.files import report_disk_errors
from stillmotion.utils.formatting import format_count, printable_name

if TYPE_CHECKING:
    from stillmotion.index import VideoIndex

_HOST = "127.0.0.1"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def serve(
    index: "VideoIndex",
    *,
    embed_upload: EmbedUpload,
    port: int = 0,
    open_browser: bool = True,
) -> None:
    """Serve the page of an index until Ctrl-C, which is raised as KeyboardInterrupt when the server has stopped.

    Args:
        index: The index.
        embed_upload: Function that embeds a video that is dropped on the page.
        port: Port to listen on; 0 picks a free one.
        open_browser: Open the page in the default browser.

    Raises:
        StillmotionError: If the port cannot be used.
    """
    token = new_token()
    close = getattr(embed_upload, "close", lambda: None)
    sweep_temp_dir()
    with _listen(port) as listener:
        address = f"http://{_HOST}:{listener.getsockname()[1]}/{token}/"
        settings = uvicorn.Config(
            create_app(index, token, embed_upload=embed_upload),
            http=_TimedProtocol,
            lifespan="off",
            log_level="critical",  # errors are logged by the application
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,  # a video that is playing keeps its connection open
        )
        folder = printable_name(str(index.videos_dir))
        print(f"{format_count(len(index), 'segment')} of {folder}: {address} (Ctrl-C stops)", flush=True)
        with contextlib.ExitStack() as stack:
            stack.callback(close)
            if open_browser:  # in a thread, because some browsers return only when they are closed
                target = stack.enter_context(_redirect_file(address)).as_uri()
                threading.Thread(target=webbrowser.open, args=(target,), daemon=True).start()
            _Server(settings, close).run(sockets=[listener])


class _TimedProtocol(H11Protocol):
    """Connection that is closed if its client takes too long for the head of a request; uvicorn would wait for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._check_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()  # it would keep the connection in memory
        super().connection_lost(exc)

    def _check_later(self) -> None:
        self._timer = self.loop.call_later(MAX_SILENT_SECONDS, self._check_progress, self.cycle)

    def _check_progress(self, last_cycle: object) -> None:
        is_waiting = self.cycle is None or self.cycle.response_complete
        if is_waiting and self.cycle is last_cycle:
            self.transport.close()
        else:
            self._check_later()


class _Server(uvicorn.Server):
    """Server that ends the embedding of a dropped video when it is asked to stop."""

    def __init__(self, settings: uvicorn.Config, close: Callable[[], object]) -> None:
        super().__init__(settings)
        self._close = close

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._close()
        super().handle_exit(sig, frame)


@contextlib.contextmanager
def _redirect_file(address: str) -> Iterator[Path]:
    """Write a file that leads to an address and that only this user can read.

    A browser is started with the name of the file. Every user of the machine can read its command line, which would
    otherwise hold the token.
    """
    with report_disk_errors(tempfile.gettempdir(), option_name="TMPDIR"):
        folder = tempfile.TemporaryDirectory(prefix=temp_prefix("open"))
    with folder as name:
        file = Path(name, "open.html")
        with report_disk_errors(file, option_name="TMPDIR"), open(os.open(file, _NEW_FILE, 0o600), "w") as opened:
            opened.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">')
        yield file


def _listen(port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((_HOST, port))
    except (OSError, OverflowError) as error:
        opened.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise StillmotionError(f"cannot listen on port {port} ({reason}); omit --port to pick a free one") from None
    opened.listen(128)
    return opened
