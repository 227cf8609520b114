"""Who may ask: a random token begins every address, the host is this machine, and nothing is loaded from elsewhere.

The token is a part of the path, so that every address of the page, being relative, carries it and no cookie is needed.
"""

import hmac
import secrets
from types import MappingProxyType

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A name of another host that leads here (DNS rebinding) is refused; a port may be forwarded, and is not looked at.
ALLOWED_HOSTS = frozenset({"127.0.0.1", "localhost"})
SECURITY_HEADERS = MappingProxyType(
    {
        "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }
)


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(24)


class TokenAuthMiddleware:
    """An application behind a token: `/<token>/moments` is its `/moments`, and everything else is refused."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self.app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        given, slash, rest = scope["path"].removeprefix("/").partition("/")
        answer = self._refusal(Headers(scope=scope).get("host", ""), given)
        if answer is None and not slash:
            answer = RedirectResponse(f"/{given}/")  # the page's addresses are relative to its folder
        if answer is not None:
            await answer(scope, receive, guarded)
            return
        await self.app({**scope, "path": f"/{rest}", "root_path": ""}, receive, guarded)

    def _refusal(self, host: str, given: str) -> Response | None:
        if host.rpartition(":")[0] not in ALLOWED_HOSTS and host not in ALLOWED_HOSTS:
            return PlainTextResponse("this page is shown under 127.0.0.1 and localhost only", 403)
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token):
            return PlainTextResponse("the address lacks its token: open the one that `stillmotion browse` printed", 403)
        return None
