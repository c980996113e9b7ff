"""Connections of the web server, over sockets: not too many, and not for long without a request."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

from headrace.serving import connections


class Served:
    """A server on a free port, whose answer has two parts: the second comes when ``go_on`` is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self._app = Starlette(routes=[Route("/", self._answer)])

    async def _answer(self, _: Any) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"begun"
            await self.go_on.wait()
            yield b"done"

        return StreamingResponse(parts())

    async def run(self, client: Callable[[], Awaitable[None]]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.address = listener.getsockname()
            server = uvicorn.Server(connections.server_config(self._app))
            serving = asyncio.create_task(server.serve([listener]))
            try:
                async with asyncio.timeout(60):
                    await client()
            finally:
                server.should_exit = True
                await serving

    async def said(self, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection over which this was said."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(text)
        return reader, writer


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def test_who_asks_nothing_is_not_kept_and_who_reads_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ASK_S", 0.05)
    served = Served()

    async def closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionResetError):
            while await reader.read(1000):
                pass
        writer.close()

    async def tried() -> None:
        reader, writer = await served.said(GET)
        await reader.readuntil(b"begun")
        for text in (b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost"):
            await closed(*await served.said(text))
        served.go_on.set()
        await reader.readuntil(b"done")
        writer.write(b"GET ")
        await closed(reader, writer)

    asyncio.run(served.run(tried))


def test_there_are_only_so_many_connections_and_those_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", 1)
    served = Served()

    async def tried() -> None:
        reader, writer = await served.said(GET)
        await reader.readuntil(b"begun")
        another, its_writer = await served.said(GET)
        assert b" 503 " in await another.readline()
        served.go_on.set()
        await reader.readuntil(b"done")
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(GET)
        await reader.readuntil(b"done")
        for one in (writer, its_writer):
            one.close()

    asyncio.run(served.run(tried))


class Transport:
    """What a connection is asked and told."""

    def __init__(self) -> None:
        self.unsent = 0
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.aborted = True


def test_who_takes_an_answer_slowly_is_not_cut_off_and_who_takes_none_is() -> None:
    async def tried() -> None:
        config = connections.server_config(Starlette())
        protocol = connections.PatientProtocol(config, uvicorn.server.ServerState(), {})
        transport = Transport()
        protocol.transport = transport  # type: ignore[assignment]
        for transport.unsent in (9, 8, 7):
            protocol._look_again()
            assert not transport.aborted
        protocol._look_again()
        assert transport.aborted

    asyncio.run(tried())
