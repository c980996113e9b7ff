"""Who may ask: browsers only from our own page, and only under a name that is ours.

A node that listens on the loopback interface answers only to loopback names, so a page of a stranger whose name was
pointed at 127.0.0.1 gets nothing. A POST with an Origin must come from the page that we serve. Every answer forbids
what pages do not need, also where something broke: then it says that, and the log says what.
"""

from __future__ import annotations

import ipaddress
import logging
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.errors import HeadraceError, InvalidInput
from headrace.serving.answers import failure

__all__ = ["Guard"]

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_BROKE = HeadraceError("this could not be answered: a mistake in Headrace", hint="the node's own output says more")
_logger = logging.getLogger(__name__)


class Guard:
    """Around the app: refuses what is not ours to answer. ``host`` is where the node listens."""

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
        self._loopback = _is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                given = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    given.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope["method"], headers)
        if refusal is not None:
            await failure(InvalidInput(refusal), 403)(scope, receive, send_guarded)
            return
        try:
            await self._app(scope, receive, send_guarded)
        except Exception:
            if begun:
                raise
            _logger.exception("%s %s broke", scope["method"], scope["path"])
            await failure(_BROKE, 500)(scope, receive, send_guarded)

    def _refusal(self, method: str, headers: Headers) -> str | None:
        host = headers.get("host", "")
        if self._loopback and not _is_loopback(urlsplit(f"//{host}").hostname or ""):
            return f"this node does not answer to the name {host!r}"
        if method in ("GET", "HEAD", "OPTIONS"):
            return None
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return "requests from other sites are refused"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "requests from other sites are refused"
        return None


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
