"""Token in the URL path, host check and security headers.

The token is part of the path: relative URLs of the page carry it, and no cookie is needed.
"""

import hmac
import secrets
from types import MappingProxyType

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Other host names that resolve to this machine (DNS rebinding) are refused; the port may be forwarded and is ignored.
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
    """Return a random token."""
    return secrets.token_urlsafe(24)


class TokenAuthMiddleware:
    """Serve an application below a token: `/<token>/segments` is its `/segments`; everything else is refused.

    Args:
        app: The application.
        token: The token.
    """

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self.app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        given, slash, rest = scope["path"].removeprefix("/").partition("/")
        answer = self._refusal(Headers(scope=scope).get("host", ""), given)
        if answer is None and not slash:
            answer = RedirectResponse(f"/{given}/")  # URLs of the page are relative to its folder
        if answer is not None:
            await answer(scope, receive, send_secured)
            return
        await self.app({**scope, "path": f"/{rest}", "root_path": ""}, receive, send_secured)

    def _refusal(self, host: str, given: str) -> Response | None:
        if host.rpartition(":")[0] not in ALLOWED_HOSTS and host not in ALLOWED_HOSTS:
            return PlainTextResponse("This page is served under 127.0.0.1 and localhost only.", 403)
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token):
            return PlainTextResponse("The token is missing: open the address that `stillmotion browse` printed.", 403)
        return None
