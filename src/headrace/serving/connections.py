"""Connections of the web server: so many at once, and none for long that asks nothing.

Who connects has ``ASK_S`` to send the head of a request; so has who sends another one after an answer (an idle one is
closed sooner, by uvicorn). A body has its own time (``bodies``). Streams may last.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["PatientProtocol", "server_config"]

MOST = 1000
"""So many connections; whoever comes then is answered with 503, and the others go on."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
ASK_S = 30.0
GRACE_S = 1


def server_config(app: ASGIApp) -> uvicorn.Config:
    """How the server serves an app."""
    return uvicorn.Config(
        app,
        http=PatientProtocol,
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )


class PatientProtocol(H11Protocol):
    """One connection."""

    _last: Any = None
    """The request that was under way, or answered, when it was last looked at."""
    _look: asyncio.TimerHandle | None = None
    _unsent = 0
    """Bytes of answers that waited to be sent at that time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It begins."""
        super().connection_made(transport)
        if len(self.connections) > MOST:
            transport.write(_FULL)
            transport.close()
            return
        self._look = self.loop.call_later(ASK_S, self._look_again)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _look_again(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        answered = self.cycle is None or self.cycle.response_complete
        if self.cycle is self._last and answered and (not unsent or unsent == self._unsent):
            self.transport.abort()
            return
        self._last, self._unsent = self.cycle, unsent
        self._look = self.loop.call_later(ASK_S, self._look_again)
