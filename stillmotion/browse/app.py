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

from stillmotion.browse.atlas import ASPECTS, Aspect, Atlas
from stillmotion.browse.films import Films, GoneError
from stillmotion.browse.guard import Guard
from stillmotion.browse.names import Names
from stillmotion.browse.queries import LIMIT, Encode, Queries
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.told import readable, say

if TYPE_CHECKING:
    from stillmotion.index import Index, Moment

_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_MOST = 1000  # moments in one answer
_SHOWN = 4  # of a group, for a glance at it
_BODY = 4096  # bytes of a name and what is about it
_KEEP = {"cache-control": "private, max-age=86400"}  # an id tells the content, too


def app(index: "Index", token: str, *, encode: Encode, limit: int = LIMIT) -> Guard:
    """The page over an index and everything that it asks for, behind a token.

    encode: embeds videos that are dropped on the page. limit: bytes of such a video.
    """
    desk = _Desk(index, Queries(encode, limit=limit))
    routes = [
        Route("/", desk.page),
        Route("/page/{name}", desk.part),
        Route("/about", desk.about),
        Route("/moments", desk.moments),
        Route("/moments/{id}", desk.moment),
        Route("/near", desk.near),
        Route("/map/{aspect}", desk.map),
        Route("/groups/{aspect}", desk.groups),
        Route("/groups/{aspect}/{number:int}", desk.name, methods=["PUT"]),
        Route("/thumbnails/{id}", desk.thumbnail),
        Route("/stills/{id}", desk.still),
        Route("/films/{id}", desk.film),
        Route("/copies/{id}", desk.copy),
        Route("/queries", desk.query, methods=["POST"]),
    ]
    handlers: Any = {HTTPException: _told, GoneError: _gone, StillmotionError: _mendable, Exception: _fault}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), token=token)


class _Desk:
    """One index and what has been worked out about it, asked over HTTP."""

    def __init__(self, index: "Index", queries: Queries) -> None:
        self._index, self._queries = index, queries
        self._atlas, self._films, self._names = Atlas(index), Films(index), Names(index.folder)
        self._moments = index.moments()
        self._several = len({moment.path for moment in self._moments}) > 1  # one video is searched within itself
        # The page is a few files of the package; they are read once, so that no request names a path.
        folder = resources.files("stillmotion.browse") / "page"
        self._parts = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}

    def page(self, request: Request) -> Response:
        return self._part("page.html")

    def part(self, request: Request) -> Response:
        return self._part(request.path_params["name"])

    def _part(self, name: str) -> Response:
        kind = _KINDS.get(f".{name.rpartition('.')[2]}")
        if name not in self._parts or kind is None:
            raise HTTPException(404, "there is nothing of this name")
        return Response(self._parts[name], media_type=kind, headers={"cache-control": "no-cache"})

    def about(self, request: Request) -> Response:
        return JSONResponse(
            {
                "folder": readable(str(self._index.videos)),
                "encoder": readable(self._index.encoder),
                "moments": len(self._moments),
                "videos": len({moment.path for moment in self._moments}),
                "skipped": {readable(name): readable(why) for name, why in self._index.skipped().items()},
                "limit": self._queries.limit,
            }
        )

    def moments(self, request: Request) -> Response:
        """A part of the moments by path and time; of those whose path has these words, and of one group."""
        first = int(_number(request, "first", 0, 0, len(self._moments)))
        count = int(_number(request, "count", 200, 1, _MOST))
        found = self._moments
        if group := request.query_params.get("group"):
            aspect, _, number = group.partition(":")
            groups = self._atlas.plane(_aspect(aspect)).groups
            found = [moment for moment, own in zip(found, groups.tolist(), strict=True) if str(own) == number]
        words = request.query_params.get("name", "").casefold().split()
        if words:
            found = [moment for moment in found if all(word in moment.path.casefold() for word in words)]
        return JSONResponse({"total": len(found), "moments": [_told_of(m) for m in found[first : first + count]]})

    def moment(self, request: Request) -> Response:
        id = self._known(request.path_params["id"])
        moment = self._index.moment(id)
        same = [_told_of(other) for other in self._moments if other.path == moment.path]
        return JSONResponse(_told_of(moment) | {"film": self._films.shown_as(id), "same": same})

    def near(self, request: Request) -> Response:
        """The moments most like one of them, or like a dropped video; mix: 0 by look alone, 1 by motion alone."""
        mix = _number(request, "mix", 0.5, 0, 1)
        top = int(_number(request, "top", 12, 1, _MOST))
        asked: Any
        if key := request.query_params.get("query"):
            try:
                asked = self._queries[key]
            except KeyError:
                raise HTTPException(404, "this video is not remembered any more; drop it again") from None
        else:
            asked = self._known(request.query_params.get("id", ""))
        found = self._index.near(asked, mix=mix, top=top, apart=self._several)
        return JSONResponse(
            [
                _told_of(f.moment)
                | {"similarity": _finite(f.similarity), "look": _finite(f.look), "motion": _finite(f.motion)}
                for f in found
            ]
        )

    def map(self, request: Request) -> Response:
        plane = self._atlas.plane(_aspect(request.path_params["aspect"]))
        return JSONResponse(
            {
                "ids": [moment.id for moment in self._moments],
                "places": plane.places.round(4).tolist(),
                "groups": plane.groups.tolist(),
            }
        )

    def groups(self, request: Request) -> Response:
        """The groups, each with a name if it has been given one, and some of its moments, evenly spaced."""
        aspect = _aspect(request.path_params["aspect"])
        groups = self._grouped(aspect)
        return JSONResponse(
            [
                {"number": number, "name": name, "count": len(ids), "shown": _some(ids)}
                for number, (ids, name) in enumerate(zip(groups, self._names.of(aspect, groups), strict=True))
            ]
        )

    async def name(self, request: Request) -> Response:
        aspect, number = _aspect(request.path_params["aspect"]), request.path_params["number"]
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _BODY:
                raise HTTPException(413, f"a name in more than {_BODY} bytes")
        try:
            name = body.decode()
        except UnicodeDecodeError:
            raise HTTPException(422, "a name is text in UTF-8") from None
        groups = await run_in_threadpool(self._grouped, aspect)
        if number >= len(groups):
            raise HTTPException(404, f"there is no group {number} by {aspect}")
        await run_in_threadpool(self._names.give, aspect, groups, number, name)
        return Response(status_code=204)

    def _grouped(self, aspect: Aspect) -> list[list[str]]:
        groups = self._atlas.plane(aspect).groups
        found: list[list[str]] = [[] for _ in range(int(groups.max(initial=-1)) + 1)]
        for moment, number in zip(self._moments, groups.tolist(), strict=True):
            found[number].append(moment.id)
        return found

    def thumbnail(self, request: Request) -> Response:
        id = self._known(request.path_params["id"])
        return Response(self._index.thumbnail(id), media_type="image/webp", headers=_KEEP)

    def still(self, request: Request) -> Response:
        """A thumbnail's middle frame, for those who do not want things to move."""
        content = self._index.thumbnail(self._known(request.path_params["id"]))
        file = io.BytesIO()
        with Image.open(io.BytesIO(content)) as picture:
            picture.seek(getattr(picture, "n_frames", 1) // 2)
            picture.save(file, "WEBP", quality=60)
        return Response(file.getvalue(), media_type="image/webp", headers=_KEEP)

    def film(self, request: Request) -> Response:
        place, kind = self._films.file(self._known(request.path_params["id"]))
        return FileResponse(place, media_type=kind, headers={"cache-control": "private, no-cache"})

    def copy(self, request: Request) -> Response:
        content = self._films.copy(self._known(request.path_params["id"]))
        return Response(content, media_type="video/mp4", headers={"cache-control": "private, no-cache"})

    async def query(self, request: Request) -> Response:
        said = request.headers.get("content-length", "")
        key = await self._queries.take(request.stream(), size=int(said) if said.isdigit() else None)
        return JSONResponse({"query": key})

    def _known(self, id: str) -> str:
        try:
            return self._index.moment(id).id
        except KeyError:
            raise HTTPException(404, "there is no such moment in the index") from None


def _told_of(moment: "Moment") -> dict[str, Any]:
    return {
        "id": moment.id,
        "path": readable(moment.path),
        "start": moment.start,
        "end": moment.end,
        "duration": moment.duration,
    }


def _some(ids: list[str]) -> list[str]:
    places = np.unique(np.linspace(0, len(ids) - 1, min(_SHOWN, len(ids))).round().astype(int))
    return [ids[place] for place in places]


def _finite(value: float) -> float:
    return round(float(value), 4) if np.isfinite(value) else 0.0  # a vector of zeros has no cosine


def _aspect(text: str) -> Aspect:
    if text not in ASPECTS:
        raise HTTPException(404, f"there is no map by {text!r}; choose one of {', '.join(ASPECTS)}")
    return text


def _number(request: Request, name: str, default: float, low: float, high: float) -> float:
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


def _told(request: Request, error: HTTPException) -> Response:
    return _answer(error.status_code, error.detail, error.headers)


def _gone(request: Request, error: GoneError) -> Response:
    return _answer(410, str(error))


def _mendable(request: Request, error: StillmotionError) -> Response:
    return _answer(422, str(error))


def _fault(request: Request, error: Exception) -> Response:
    words = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}. This is a fault of stillmotion's"
    say(words)
    return _answer(500, words)


def _answer(code: int, words: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": readable(words)}, code, headers)
