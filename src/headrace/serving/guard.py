"""Who may ask: browsers only from our own page, and only under a name that is ours.

A node that listens on the loopback interface and asks for no token answers only to loopback names: so a page of a
stranger whose name was pointed at 127.0.0.1 gets nothing. One that asks for a token answers to any name, as a proxy
beside it has another: the stranger's page has neither the token nor the cookie, which the browser keeps by name.

What changes something must come from the page that we serve. A browser says so (Sec-Fetch-Site, which no page can
set), whatever names a proxy has put in between; one that does not say it sends an Origin that is the name asked for.

Every answer forbids what pages do not need, also where something broke: then it says that, and the log says what.
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
    """Around the app: refuses what is not ours to answer. ``host`` is where the node listens, ``token_needed`` whether
    it asks for one."""

    def __init__(self, app: ASGIApp, host: str, *, token_needed: bool) -> None:
        self._app = app
        self._loopback_only = _is_loopback(host) and not token_needed

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
        name = _name_in(host)
        if name is None or (self._loopback_only and not _is_loopback(name)):
            return f"this node does not answer to the name {host!r}"
        if method in ("GET", "HEAD", "OPTIONS") or _is_of_our_page(host, headers):
            return None
        return "requests from other sites are refused"


def _is_of_our_page(host: str, headers: Headers) -> bool:
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site == "same-origin":
        return True
    return site in (None, "none") and origin in (None, f"http://{host}", f"https://{host}")


def _name_in(host: str) -> str | None:
    """The name without its port; None if it can be none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
