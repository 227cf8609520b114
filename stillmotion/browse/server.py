"""The page on this machine: a free port of 127.0.0.1, an address with a token, and an end by Ctrl-C."""

import socket
import threading
import webbrowser
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn

from stillmotion.browse.app import create_app
from stillmotion.browse.token_auth import new_token
from stillmotion.browse.uploads import EmbedUpload
from stillmotion.errors import StillmotionError

if TYPE_CHECKING:
    from stillmotion.index import VideoIndex

_HOST = "127.0.0.1"


def serve(
    index: "VideoIndex",
    *,
    embed_upload: EmbedUpload,
    port: int = 0,
    open_browser: bool = True,
    say: Callable[[str], object] = print,
) -> None:
    """Show an index until Ctrl-C, which is raised as KeyboardInterrupt when the server has ended.

    embed_upload: embeds videos that are dropped on the page. port: 0 takes a free one.
    open_browser: open the page in the browser. say: told the address.
    """
    token = new_token()
    with _listen(port) as listening:
        address = f"http://{_HOST}:{listening.getsockname()[1]}/{token}/"
        settings = uvicorn.Config(
            create_app(index, token, embed_upload=embed_upload),
            lifespan="off",
            log_level="critical",  # what goes wrong is said by the application, in a line
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,  # a film that is being watched would keep its connection open
        )
        say(f"{len(index)} moments of {index.videos_dir}: {address} (Ctrl-C ends)")
        if open_browser:  # some browsers return only when they are closed
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        uvicorn.Server(settings).run(sockets=[listening])


def _listen(port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((_HOST, port))
    except (OSError, OverflowError) as error:
        opened.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise StillmotionError(f"port {port} cannot be had ({reason}); leave --port out for a free one") from None
    opened.listen(128)
    return opened
