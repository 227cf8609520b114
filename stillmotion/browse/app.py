"""Starlette application of the page: segments, neighbors, maps, groups, thumbnails and videos, by segment id only."""

import io
import logging
from collections.abc import Mapping
from dataclasses import asdict
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from stillmotion.browse.embedding_map import EmbeddingMaps
from stillmotion.browse.group_labels import GroupLabels
from stillmotion.browse.playback import IndexedVideoFiles, VideoMissingError
from stillmotion.browse.token_auth import TokenAuthMiddleware
from stillmotion.browse.uploads import MAX_UPLOAD_BYTES, EmbedUpload, UploadedQueries, with_time_limit
from stillmotion.errors import StillmotionError
from stillmotion.index.video_segments import VECTOR_NAMES, VectorName, VideoSegment
from stillmotion.utils.formatting import printable_name

if TYPE_CHECKING:
    from stillmotion.index import VideoIndex

logger = logging.getLogger(__name__)

_MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_MAX_SEGMENTS = 1000  # segments in one response
_SAMPLES_PER_GROUP = 4
_MAX_LABEL_BYTES = 4096
_MAX_DIGITS, _MAX_LENGTH_DIGITS = 9, 18  # of the number of a group, and of a content length
_CACHE_HEADERS = {"cache-control": "private, max-age=86400"}  # an id changes with the content


def create_app(
    index: "VideoIndex", token: str, *, embed_upload: EmbedUpload, max_upload_bytes: int = MAX_UPLOAD_BYTES
) -> TokenAuthMiddleware:
    """Create the web application of an index.

    Args:
        index: The index.
        token: First part of every URL path.
        embed_upload: Function that embeds a video that is dropped on the page.
        max_upload_bytes: Maximum size of such a video.
    """
    handlers = _Handlers(index, UploadedQueries(embed_upload, max_upload_bytes=max_upload_bytes))
    routes = [
        Route("/", handlers.index_page),
        Route("/static/{name}", handlers.static_file),
        Route("/about", handlers.about),
        Route("/segments", handlers.segments),
        Route("/segments/{id}", handlers.segment),
        Route("/neighbors", handlers.neighbors),
        Route("/map/{vector}", handlers.map),
        Route("/groups/{vector}", handlers.groups),
        Route("/groups/{vector}/{number}", handlers.set_group_label, methods=["PUT"]),
        Route("/thumbnails/{id}", handlers.thumbnail),
        Route("/posters/{id}", handlers.poster),
        Route("/videos/{id}", handlers.video),
        Route("/previews/{id}", handlers.preview),
        Route("/uploads", handlers.upload, methods=["POST"]),
    ]
    error_handlers: Any = {
        HTTPException: _http_error,
        ClientDisconnect: _client_gone,
        VideoMissingError: _video_missing,
        StillmotionError: _user_error,
        Exception: _internal_error,
    }
    return TokenAuthMiddleware(Starlette(routes=routes, exception_handlers=error_handlers), token=token)


class _Handlers:
    """HTTP handlers over one index."""

    def __init__(self, index: "VideoIndex", uploads: UploadedQueries) -> None:
        self._index, self._uploads = index, uploads
        self._maps, self._playback = EmbeddingMaps(index), IndexedVideoFiles(index)
        self._labels = GroupLabels(index.local_dir)
        self._segments = index.segments()
        self._num_videos = len({segment.path for segment in self._segments})
        # The files of the page are read once, so that no request names a path.
        folder = resources.files("stillmotion.browse") / "static"
        self._static_files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}

    def index_page(self, request: Request) -> Response:
        return self._static_response("index.html")

    def static_file(self, request: Request) -> Response:
        return self._static_response(request.path_params["name"])

    def _static_response(self, name: str) -> Response:
        media_type = _MEDIA_TYPES.get(f".{name.rpartition('.')[2]}")
        if name not in self._static_files or media_type is None:
            raise HTTPException(404, "The page has no such file.")
        return Response(self._static_files[name], media_type=media_type, headers={"cache-control": "no-cache"})

    def about(self, request: Request) -> Response:
        failed = self._index.failed_videos()
        return JSONResponse(
            {
                "folder": printable_name(str(self._index.videos_dir)),
                "encoder": printable_name(self._index.encoder_spec),
                "segments": len(self._segments),
                "videos": self._num_videos,
                "failed": {printable_name(name): printable_name(reason) for name, reason in failed.items()},
                "max_upload_bytes": self._uploads.max_upload_bytes,
            }
        )

    def segments(self, request: Request) -> Response:
        """A page of the segments, ordered by path and time; optionally those of a group or with words in the path."""
        first = int(_number_param(request, "first", 0, 0, len(self._segments)))
        count = int(_number_param(request, "count", 200, 1, _MAX_SEGMENTS))
        segments = self._segments
        if group_key := request.query_params.get("group"):
            vector, _, number = group_key.partition(":")
            groups = self._maps.map_for(_vector_name(vector)).groups.tolist()
            segments = [segment for segment, group in zip(segments, groups, strict=True) if str(group) == number]
        words = request.query_params.get("name", "").casefold().split()
        if words:
            segments = [segment for segment in segments if all(word in segment.path.casefold() for word in words)]
        page = [_segment_json(segment) for segment in segments[first : first + count]]
        return JSONResponse({"total": len(segments), "segments": page})

    def segment(self, request: Request) -> Response:
        id = self._known_id(request.path_params["id"])
        segment = self._index.segment(id)
        siblings = [_segment_json(other) for other in self._segments if other.path == segment.path]
        playback = {"playback": self._playback.playback_mode(id), "segments_of_video": siblings}
        return JSONResponse(_segment_json(segment) | playback)

    def neighbors(self, request: Request) -> Response:
        """The segments most similar to a segment (id) or to a dropped video (query)."""
        motion_weight = _number_param(request, "motion_weight", 0.5, 0, 1)
        top_k = int(_number_param(request, "top_k", 12, 1, _MAX_SEGMENTS))
        query: Any
        if key := request.query_params.get("query"):
            try:
                query = self._uploads[key]
            except KeyError:
                raise HTTPException(404, "This upload is no longer stored; drop the video again.") from None
        else:
            query = self._known_id(request.query_params.get("id", ""))
        # A single video is searched within itself.
        results = self._index.neighbors(
            query, motion_weight=motion_weight, top_k=top_k, exclude_same_video=self._num_videos > 1
        )
        return JSONResponse([{key: _json_value(value) for key, value in r.to_dict().items()} for r in results])

    def map(self, request: Request) -> Response:
        embedding_map = self._maps.map_for(_vector_name(request.path_params["vector"]))
        return JSONResponse(
            {
                "ids": [segment.id for segment in self._segments],
                "coordinates": embedding_map.coordinates.round(4).tolist(),
                "groups": embedding_map.groups.tolist(),
            }
        )

    def groups(self, request: Request) -> Response:
        """The groups with their names and a few evenly spaced segments of each."""
        vector = _vector_name(request.path_params["vector"])
        groups = self._ids_by_group(vector)
        return JSONResponse(
            [
                {"number": number, "name": name, "count": len(ids), "sample_ids": _sample_ids(ids)}
                for number, (ids, name) in enumerate(zip(groups, self._labels.labels_for(vector, groups), strict=True))
            ]
        )

    async def set_group_label(self, request: Request) -> Response:
        vector, text = _vector_name(request.path_params["vector"]), request.path_params["number"]
        body = b""
        async for chunk in with_time_limit(request.stream()):
            body += chunk
            if len(body) > _MAX_LABEL_BYTES:
                raise HTTPException(413, f"The name is longer than {_MAX_LABEL_BYTES} bytes.")
        try:
            label = body.decode()
        except UnicodeDecodeError:
            raise HTTPException(422, "The name is not UTF-8.") from None
        groups = await run_in_threadpool(self._ids_by_group, vector)
        number = int(text) if text.isdecimal() and len(text) < _MAX_DIGITS else len(groups)
        if number >= len(groups):
            raise HTTPException(404, f"There is no group {text[:_MAX_DIGITS]} by {vector}.")
        await run_in_threadpool(self._labels.set_label, vector, groups, number, label)
        return Response(status_code=204)

    def _ids_by_group(self, vector: VectorName) -> list[list[str]]:
        numbers = self._maps.map_for(vector).groups
        groups: list[list[str]] = [[] for _ in range(int(numbers.max(initial=-1)) + 1)]
        for segment, number in zip(self._segments, numbers.tolist(), strict=True):
            groups[number].append(segment.id)
        return groups

    def thumbnail(self, request: Request) -> Response:
        id = self._known_id(request.path_params["id"])
        return Response(self._index.thumbnail(id), media_type="image/webp", headers=_CACHE_HEADERS)

    def poster(self, request: Request) -> Response:
        """The middle frame of a thumbnail, for users who prefer reduced motion."""
        content = self._index.thumbnail(self._known_id(request.path_params["id"]))
        file = io.BytesIO()
        with Image.open(io.BytesIO(content)) as image:
            image.seek(getattr(image, "n_frames", 1) // 2)
            image.save(file, "WEBP", quality=60)
        return Response(file.getvalue(), media_type="image/webp", headers=_CACHE_HEADERS)

    def video(self, request: Request) -> Response:
        path, media_type = self._playback.playable_file(self._known_id(request.path_params["id"]))
        return FileResponse(path, media_type=media_type, headers={"cache-control": "private, no-cache"})

    def preview(self, request: Request) -> Response:
        content = self._playback.preview(self._known_id(request.path_params["id"]))
        return Response(content, media_type="video/mp4", headers={"cache-control": "private, no-cache"})

    async def upload(self, request: Request) -> Response:
        length = request.headers.get("content-length", "")
        name = request.query_params.get("name", "") or "the dropped file"
        size = int(length) if length.isdecimal() and len(length) <= _MAX_LENGTH_DIGITS else None
        key = await self._uploads.add(request.stream(), size=size, name=name)
        return JSONResponse({"query": key})

    def _known_id(self, id: str) -> str:
        try:
            return self._index.segment(id).id
        except KeyError:
            raise HTTPException(404, "The index has no such segment.") from None


def _segment_json(segment: VideoSegment) -> dict[str, Any]:
    return asdict(segment) | {"path": printable_name(segment.path)}


def _sample_ids(ids: list[str]) -> list[str]:
    positions = np.unique(np.linspace(0, len(ids) - 1, min(_SAMPLES_PER_GROUP, len(ids))).round().astype(int))
    return [ids[position] for position in positions]


def _json_value(value: Any) -> Any:
    return _json_float(value) if isinstance(value, float) else value


def _json_float(value: float) -> float:
    return round(value, 4) if np.isfinite(value) else 0.0  # a vector of zeros has no cosine


def _vector_name(text: str) -> VectorName:
    if text not in VECTOR_NAMES:
        raise HTTPException(404, f"There is no map by {text!r}; choose one of {', '.join(VECTOR_NAMES)}.")
    return text


def _number_param(request: Request, name: str, default: float, low: float, high: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise HTTPException(422, f"{name} must be a number from {low:g} to {high:g}, got {text!r}.")
    return value


def _http_error(request: Request, error: HTTPException) -> Response:
    return _error_response(error.status_code, error.detail, error.headers)


def _client_gone(request: Request, error: ClientDisconnect) -> Response:
    return Response(status_code=400)  # nobody reads it


def _video_missing(request: Request, error: VideoMissingError) -> Response:
    return _error_response(410, str(error))


def _user_error(request: Request, error: StillmotionError) -> Response:
    return _error_response(422, str(error))


def _internal_error(request: Request, error: Exception) -> Response:
    first_line = str(error).strip().partition(chr(10))[0]
    message = f"{type(error).__name__}: {first_line}. This is a bug in stillmotion, please report it"
    logger.error(message)
    return _error_response(500, message)


def _error_response(code: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": printable_name(message)}, code, headers)
