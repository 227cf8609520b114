"""Videos that are dropped on the page: looked at one at a time, from a file that is removed at once."""

import asyncio
import secrets
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from stillmotion.utils.files import report_disk_errors

if TYPE_CHECKING:
    from stillmotion.index import Query

MAX_UPLOAD_BYTES = 2 * 2**30  # bytes of a dropped video
_MAX_KEPT_UPLOADS = 32  # queries that can still be asked for; a query is two vectors

EmbedUpload = Callable[[Path], "Query"]


class UploadedQueries:
    """What dropped videos were embedded to, by the keys that the page asks with.

    embed_upload: a video's vectors. limit: bytes of a video.
    """

    def __init__(self, embed_upload: EmbedUpload, *, max_upload_bytes: int = MAX_UPLOAD_BYTES) -> None:
        self.max_upload_bytes = max_upload_bytes
        self._embed_upload = embed_upload
        self._one = asyncio.Lock()
        self._kept: OrderedDict[str, Query] = OrderedDict()

    def __getitem__(self, key: str) -> "Query":
        return self._kept[key]

    async def add(self, body: AsyncIterator[bytes], *, size: int | None) -> str:
        """Embed the video that arrives in pieces, and give the key of its vectors. size: what is said of its bytes."""
        if self._one.locked():
            raise HTTPException(429, "another video is being looked at; drop this one again in a moment")
        if size is not None and size > self.max_upload_bytes:
            raise self._too_large()
        async with self._one:
            with tempfile.NamedTemporaryFile(prefix="stillmotion-query-") as file:
                taken = 0
                async for piece in body:
                    taken += len(piece)
                    if taken > self.max_upload_bytes:
                        raise self._too_large()
                    with report_disk_errors(file.name, option_name="TMPDIR"):
                        file.write(piece)
                        file.flush()
                query = await run_in_threadpool(self._embed_upload, Path(file.name))
        key = secrets.token_urlsafe(12)
        self._kept[key] = query
        while len(self._kept) > _MAX_KEPT_UPLOADS:
            self._kept.popitem(last=False)
        return key

    def _too_large(self) -> HTTPException:
        return HTTPException(
            413, f"the video is larger than {self.max_upload_bytes / 2**20:,.0f} MiB; drop a shorter piece of it"
        )
