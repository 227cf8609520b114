"""Videos that are dropped on the page: their limits, embedding, and vectors."""

import asyncio
import contextlib
import secrets
import tempfile
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from stillmotion.errors import VideoError
from stillmotion.utils.file_lock import temp_prefix
from stillmotion.utils.files import report_disk_errors

if TYPE_CHECKING:
    from stillmotion.index import Query

MAX_UPLOAD_BYTES = 2 * 2**30
MAX_SILENT_SECONDS = 30.0  # after which an upload is given up
_MIN_BYTES = 2**18  # that an upload sends within that time, unless it ends
_MAX_STORED_QUERIES = 32  # the oldest are dropped

EmbedUpload = Callable[[Path], "Query"]


async def with_time_limit(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks of a request's body.

    Args:
        body: The chunks.

    Raises:
        HTTPException: If the client sends hardly anything for half a minute.
    """
    deadline, num_bytes = time.monotonic() + MAX_SILENT_SECONDS, 0
    while True:
        try:
            chunk = await asyncio.wait_for(anext(body, None), deadline - time.monotonic())
        except TimeoutError:
            raise HTTPException(
                408, f"Hardly anything was sent for {MAX_SILENT_SECONDS:g} seconds; drop it again."
            ) from None
        if chunk is None:
            return
        num_bytes += len(chunk)
        if num_bytes >= _MIN_BYTES:
            deadline, num_bytes = time.monotonic() + MAX_SILENT_SECONDS, 0
        yield chunk


@contextlib.contextmanager
def _temporary_file() -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        with report_disk_errors(tempfile.gettempdir(), option_name="TMPDIR"):
            file = stack.enter_context(tempfile.NamedTemporaryFile(prefix=temp_prefix("query")))
        yield file


class UploadedQueries:
    """Query vectors of dropped videos by key. A video is stored in a temporary file while it is embedded.

    Args:
        embed_upload: Function that embeds a video.
        max_upload_bytes: Maximum size of a video.
    """

    def __init__(self, embed_upload: EmbedUpload, *, max_upload_bytes: int = MAX_UPLOAD_BYTES) -> None:
        self.max_upload_bytes = max_upload_bytes
        self._embed_upload = embed_upload
        self._lock = asyncio.Lock()
        self._queries: OrderedDict[str, Query] = OrderedDict()

    def __getitem__(self, key: str) -> "Query":
        return self._queries[key]

    async def add(self, body: AsyncIterator[bytes], *, size: int | None, name: str) -> str:
        """Embed a video.

        Args:
            body: Its content in chunks.
            size: Its size in bytes, if known beforehand.
            name: Its file name, for errors.

        Returns:
            The key of its query vectors.

        Raises:
            HTTPException: If another upload is being processed, or the video is too large or cannot be read.
        """
        if size is not None and size > self.max_upload_bytes:
            raise self._too_large()
        if self._lock.locked():
            raise HTTPException(429, "Another upload is being processed; try again in a moment.")
        async with self._lock:
            with _temporary_file() as file:
                num_bytes = 0
                async for chunk in with_time_limit(body):
                    num_bytes += len(chunk)
                    if num_bytes > self.max_upload_bytes:
                        raise self._too_large()
                    with report_disk_errors(file.name, option_name="TMPDIR"):
                        file.write(chunk)
                        file.flush()
                try:
                    query = await run_in_threadpool(self._embed_upload, Path(file.name))
                except VideoError as error:
                    raise HTTPException(422, str(error).replace(file.name, name)) from None
        key = secrets.token_urlsafe(12)
        self._queries[key] = query
        while len(self._queries) > _MAX_STORED_QUERIES:
            self._queries.popitem(last=False)
        return key

    def _too_large(self) -> HTTPException:
        return HTTPException(
            413, f"The video is larger than {self.max_upload_bytes / 2**20:,.0f} MiB; drop a shorter part of it."
        )
