"""What the page asks for: moments and their likenesses, maps and groups, thumbnails and videos, by id alone."""

import io
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from stillmotion.browse.embedding_map import VECTOR_NAMES, EmbeddingMaps, VectorName
from stillmotion.browse.group_labels import GroupLabels
from stillmotion.browse.playback import VideoMissingError, VideoPlayback
from stillmotion.browse.token_auth import TokenAuthMiddleware
from stillmotion.browse.uploads import MAX_UPLOAD_BYTES, EmbedUpload, UploadedQueries
from stillmotion.data.loading.collate import print_message
from stillmotion.errors import StillmotionError
from stillmotion.utils.formatting import printable_name

if TYPE_CHECKING:
    from stillmotion.index import VideoIndex, VideoSegment

_MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_MAX_SEGMENTS = 1000  # moments in one answer
_SAMPLES_PER_GROUP = 4  # of a group, for a glance at it
_MAX_LABEL_BYTES = 4096  # bytes of a name and what is about it
_CACHE_HEADERS = {"cache-control": "private, max-age=86400"}  # an id tells the content, too


def create_app(
    index: "VideoIndex", token: str, *, embed_upload: EmbedUpload, max_upload_bytes: int = MAX_UPLOAD_BYTES
) -> TokenAuthMiddleware:
    """The page over an index and everything that it asks for, behind a token.

    embed_upload: embeds videos that are dropped on the page. limit: bytes of such a video.
    """
    desk = _Handlers(index, UploadedQueries(embed_upload, max_upload_bytes=max_upload_bytes))
    routes = [
        Route("/", desk.index_page),
        Route("/static/{name}", desk.static_file),
        Route("/about", desk.about),
        Route("/segments", desk.segments),
        Route("/segments/{id}", desk.segment),
        Route("/neighbors", desk.neighbors),
        Route("/map/{aspect}", desk.map),
        Route("/groups/{aspect}", desk.groups),
        Route("/groups/{aspect}/{number:int}", desk.set_group_label, methods=["PUT"]),
        Route("/thumbnails/{id}", desk.thumbnail),
        Route("/posters/{id}", desk.poster),
        Route("/videos/{id}", desk.video),
        Route("/previews/{id}", desk.preview),
        Route("/uploads", desk.upload, methods=["POST"]),
    ]
    handlers: Any = {
        HTTPException: _http_error,
        VideoMissingError: _video_missing,
        StillmotionError: _user_error,
        Exception: _internal_error,
    }
    return TokenAuthMiddleware(Starlette(routes=routes, exception_handlers=handlers), token=token)


class _Handlers:
    """One index and what has been worked out about it, asked over HTTP."""

    def __init__(self, index: "VideoIndex", uploads: UploadedQueries) -> None:
        self._index, self._uploads = index, uploads
        self._maps, self._playback, self._labels = (
            EmbeddingMaps(index),
            VideoPlayback(index),
            GroupLabels(index.local_dir),
        )
        self._segments = index.segments()
        self._has_several_videos = (
            len({moment.path for moment in self._segments}) > 1
        )  # one video is searched within itself
        # The page is a few files of the package; they are read once, so that no request names a path.
        folder = resources.files("stillmotion.browse") / "static"
        self._static_files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}

    def index_page(self, request: Request) -> Response:
        return self._static_response("index.html")

    def static_file(self, request: Request) -> Response:
        return self._static_response(request.path_params["name"])

    def _static_response(self, name: str) -> Response:
        kind = _MEDIA_TYPES.get(f".{name.rpartition('.')[2]}")
        if name not in self._static_files or kind is None:
            raise HTTPException(404, "there is nothing of this name")
        return Response(self._static_files[name], media_type=kind, headers={"cache-control": "no-cache"})

    def about(self, request: Request) -> Response:
        return JSONResponse(
            {
                "folder": printable_name(str(self._index.videos_dir)),
                "encoder": printable_name(self._index.encoder_spec),
                "segments": len(self._segments),
                "videos": len({moment.path for moment in self._segments}),
                "skipped": {
                    printable_name(name): printable_name(why) for name, why in self._index.failed_videos().items()
                },
                "limit": self._uploads.max_upload_bytes,
            }
        )

    def segments(self, request: Request) -> Response:
        """A part of the moments by path and time; of those whose path has these words, and of one group."""
        first = int(_number_param(request, "first", 0, 0, len(self._segments)))
        count = int(_number_param(request, "count", 200, 1, _MAX_SEGMENTS))
        found = self._segments
        if group := request.query_params.get("group"):
            aspect, _, number = group.partition(":")
            groups = self._maps.map_for(_vector_name(aspect)).groups
            found = [moment for moment, own in zip(found, groups.tolist(), strict=True) if str(own) == number]
        words = request.query_params.get("name", "").casefold().split()
        if words:
            found = [moment for moment in found if all(word in moment.path.casefold() for word in words)]
        return JSONResponse({"total": len(found), "segments": [_segment_json(m) for m in found[first : first + count]]})

    def segment(self, request: Request) -> Response:
        id = self._known_id(request.path_params["id"])
        moment = self._index.segment(id)
        same = [_segment_json(other) for other in self._segments if other.path == moment.path]
        return JSONResponse(
            _segment_json(moment) | {"playback": self._playback.playback_mode(id), "segments_of_video": same}
        )

    def neighbors(self, request: Request) -> Response:
        """The moments most like one of them, or like a dropped video; mix: 0 by look alone, 1 by motion alone."""
        mix = _number_param(request, "motion_weight", 0.5, 0, 1)
        top = int(_number_param(request, "top_k", 12, 1, _MAX_SEGMENTS))
        asked: Any
        if key := request.query_params.get("query"):
            try:
                asked = self._uploads[key]
            except KeyError:
                raise HTTPException(404, "this video is not remembered any more; drop it again") from None
        else:
            asked = self._known_id(request.query_params.get("id", ""))
        found = self._index.neighbors(asked, motion_weight=mix, top_k=top, exclude_same_video=self._has_several_videos)
        return JSONResponse(
            [
                _segment_json(f.segment)
                | {
                    "similarity": _json_float(f.similarity),
                    "appearance": _json_float(f.appearance),
                    "motion": _json_float(f.motion),
                }
                for f in found
            ]
        )

    def map(self, request: Request) -> Response:
        plane = self._maps.map_for(_vector_name(request.path_params["aspect"]))
        return JSONResponse(
            {
                "ids": [moment.id for moment in self._segments],
                "coordinates": plane.coordinates.round(4).tolist(),
                "groups": plane.groups.tolist(),
            }
        )

    def groups(self, request: Request) -> Response:
        """The groups, each with a name if it has been given one, and some of its moments, evenly spaced."""
        aspect = _vector_name(request.path_params["aspect"])
        groups = self._ids_by_group(aspect)
        return JSONResponse(
            [
                {"number": number, "name": name, "count": len(ids), "sample_ids": _sample_ids(ids)}
                for number, (ids, name) in enumerate(zip(groups, self._labels.labels_for(aspect, groups), strict=True))
            ]
        )

    async def set_group_label(self, request: Request) -> Response:
        aspect, number = _vector_name(request.path_params["aspect"]), request.path_params["number"]
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _MAX_LABEL_BYTES:
                raise HTTPException(413, f"a name in more than {_MAX_LABEL_BYTES} bytes")
        try:
            name = body.decode()
        except UnicodeDecodeError:
            raise HTTPException(422, "a name is text in UTF-8") from None
        groups = await run_in_threadpool(self._ids_by_group, aspect)
        if number >= len(groups):
            raise HTTPException(404, f"there is no group {number} by {aspect}")
        await run_in_threadpool(self._labels.set_label, aspect, groups, number, name)
        return Response(status_code=204)

    def _ids_by_group(self, aspect: VectorName) -> list[list[str]]:
        groups = self._maps.map_for(aspect).groups
        found: list[list[str]] = [[] for _ in range(int(groups.max(initial=-1)) + 1)]
        for moment, number in zip(self._segments, groups.tolist(), strict=True):
            found[number].append(moment.id)
        return found

    def thumbnail(self, request: Request) -> Response:
        id = self._known_id(request.path_params["id"])
        return Response(self._index.thumbnail(id), media_type="image/webp", headers=_CACHE_HEADERS)

    def poster(self, request: Request) -> Response:
        """A thumbnail's middle frame, for those who do not want things to move."""
        content = self._index.thumbnail(self._known_id(request.path_params["id"]))
        file = io.BytesIO()
        with Image.open(io.BytesIO(content)) as picture:
            picture.seek(getattr(picture, "n_frames", 1) // 2)
            picture.save(file, "WEBP", quality=60)
        return Response(file.getvalue(), media_type="image/webp", headers=_CACHE_HEADERS)

    def video(self, request: Request) -> Response:
        place, kind = self._playback.playable_file(self._known_id(request.path_params["id"]))
        return FileResponse(place, media_type=kind, headers={"cache-control": "private, no-cache"})

    def preview(self, request: Request) -> Response:
        content = self._playback.preview(self._known_id(request.path_params["id"]))
        return Response(content, media_type="video/mp4", headers={"cache-control": "private, no-cache"})

    async def upload(self, request: Request) -> Response:
        said = request.headers.get("content-length", "")
        key = await self._uploads.add(request.stream(), size=int(said) if said.isdigit() else None)
        return JSONResponse({"query": key})

    def _known_id(self, id: str) -> str:
        try:
            return self._index.segment(id).id
        except KeyError:
            raise HTTPException(404, "there is no such segment in the index") from None


def _segment_json(moment: "VideoSegment") -> dict[str, Any]:
    return {
        "id": moment.id,
        "path": printable_name(moment.path),
        "start": moment.start,
        "end": moment.end,
        "duration": moment.duration,
    }


def _sample_ids(ids: list[str]) -> list[str]:
    places = np.unique(np.linspace(0, len(ids) - 1, min(_SAMPLES_PER_GROUP, len(ids))).round().astype(int))
    return [ids[place] for place in places]


def _json_float(value: float) -> float:
    return round(float(value), 4) if np.isfinite(value) else 0.0  # a vector of zeros has no cosine


def _vector_name(text: str) -> VectorName:
    if text not in VECTOR_NAMES:
        raise HTTPException(404, f"there is no map by {text!r}; choose one of {', '.join(VECTOR_NAMES)}")
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
        raise HTTPException(422, f"{name} is {text!r}; it is a number from {low:g} to {high:g}")
    return value


def _http_error(request: Request, error: HTTPException) -> Response:
    return _error_response(error.status_code, error.detail, error.headers)


def _video_missing(request: Request, error: VideoMissingError) -> Response:
    return _error_response(410, str(error))


def _user_error(request: Request, error: StillmotionError) -> Response:
    return _error_response(422, str(error))


def _internal_error(request: Request, error: Exception) -> Response:
    words = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}. This is a fault of stillmotion's"
    print_message(words)
    return _error_response(500, words)


def _error_response(code: int, words: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": printable_name(words)}, code, headers)
