"""A tiny HTTP server for ``GET /metrics`` and ``GET /ping``, and nothing else.

One request for a connection, of a few kilobytes, within a few seconds, and few connections at a time: a scraper needs
no more, and nobody else can hurt the node through it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from headrace.exposition import CONTENT_TYPE

__all__ = ["MetricsServer"]

_logger = logging.getLogger(__name__)

_MAX_REQUEST_BYTES: Final = 8 << 10
_MAX_CONNECTIONS: Final = 16
_PATIENCE_S: Final = 5.0
_PLAIN: Final = "text/plain; charset=utf-8"

Answer = tuple[HTTPStatus, str, str]
"""Status, type of the content, content."""


class MetricsServer:
    """Listens from ``start`` to ``stop``."""

    def __init__(self, text: Callable[[], Awaitable[str]]) -> None:
        self._text = text
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; the port."""
        self._server = await asyncio.start_server(self._on_connection, host, port, limit=_MAX_REQUEST_BYTES)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        """Stop listening and drop who is connected."""
        if self._server is None:
            return
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= _MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                request = await reader.readuntil(b"\r\n\r\n")
            answer = await self._answer(request)
            async with asyncio.timeout(_PATIENCE_S):
                writer.write(_encoded(answer))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        except Exception:
            _logger.exception("a request for metrics failed")
        finally:
            writer.transport.abort()

    async def _answer(self, request: bytes) -> Answer:
        first = request.split(b"\r\n", 1)[0].split(b" ")
        if len(first) != 3 or not first[2].startswith(b"HTTP/1."):
            return HTTPStatus.BAD_REQUEST, _PLAIN, "not an HTTP request\n"
        method, target = first[0], first[1].split(b"?", 1)[0]
        if target not in (b"/metrics", b"/ping"):
            return HTTPStatus.NOT_FOUND, _PLAIN, "there are /metrics and /ping\n"
        if method != b"GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, _PLAIN, "GET is all there is\n"
        if target == b"/ping":
            return HTTPStatus.OK, _PLAIN, "pong\n"
        return HTTPStatus.OK, CONTENT_TYPE, await self._text()


def _encoded(answer: Answer) -> bytes:
    status, kind, text = answer
    body = text.encode()
    allow = "Allow: GET\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"{allow}Connection: close\r\n\r\n"
    )
    return head.encode() + body
