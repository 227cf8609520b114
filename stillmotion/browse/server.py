"""Serve the page on 127.0.0.1 and open it in the browser."""

import socket
import threading
import webbrowser
from typing import TYPE_CHECKING

import uvicorn

from stillmotion.browse.app import create_app
from stillmotion.browse.token_auth import new_token
from stillmotion.browse.uploads import EmbedUpload
from stillmotion.errors import StillmotionError
from stillmotion.utils.formatting import format_count, printable_name

if TYPE_CHECKING:
    from stillmotion.index import VideoIndex

_HOST = "127.0.0.1"


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
    with _listen(port) as listener:
        address = f"http://{_HOST}:{listener.getsockname()[1]}/{token}/"
        settings = uvicorn.Config(
            create_app(index, token, embed_upload=embed_upload),
            lifespan="off",
            log_level="critical",  # errors are logged by the application
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,  # a video that is playing keeps its connection open
        )
        folder = printable_name(str(index.videos_dir))
        print(f"{format_count(len(index), 'segment')} of {folder}: {address} (Ctrl-C stops)", flush=True)
        if open_browser:  # in a thread, because some browsers return only when they are closed
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        uvicorn.Server(settings).run(sockets=[listener])


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
