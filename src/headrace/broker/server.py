"""The listening socket and all its connections: who is let in, how much memory they get, and who is shown out.

Limits, all settings: connections in total and per address; the size of a request; bytes of requests being received,
over all connections (a connection that needs more waits, unread); the time that a half-received request may stand
still; the time that a connection may be idle.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from headrace import _kernel
from headrace.broker import wire
from headrace.broker.connection import Connection
from headrace.broker.dispatch import Api, load_apis

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

__all__ = ["Server"]

_logger = logging.getLogger(__name__)

SCRATCH_BYTES: Final = 128 << 10
_TICK_SECONDS: Final = 1.0
_REFUSALS_PER_TICK: Final = 10
_API_VERSIONS: Final = 18
_UNSUPPORTED_VERSION: Final = 35


class Server:
    """Accepts connections and keeps them within limits."""

    def __init__(self, broker: Broker) -> None:
        settings = broker.settings
        self.broker = broker
        self.apis: dict[int, Api] = load_apis()
        self.request_max_bytes: int = settings.value("socket.request.max.bytes")
        self.max_pending: int = settings.value("headrace.max.pending.responses")
        self.requests: Counter[int] = Counter()
        """How many requests have come, by API key."""
        self.tick = 0
        """Seconds since the start: what connections stamp their activity with."""
        self.connections: set[Connection] = set()
        self.congested: set[Connection] = set()
        """Those whose clients do not take their responses."""
        self.scratch_view = memoryview(_kernel.alloc(SCRATCH_BYTES))
        self._max_connections: int = settings.value("max.connections")
        self._max_per_host: int = settings.value("max.connections.per.ip")
        self._max_bytes = max(settings.value("headrace.max.inflight.bytes"), self.request_max_bytes)
        self._idle_ticks = settings.value("connections.max.idle.ms") / 1000 / _TICK_SECONDS
        self._frame_ticks = settings.value("headrace.frame.timeout.ms") / 1000 / _TICK_SECONDS
        self._per_host: Counter[str] = Counter()
        self._reserved_bytes = 0
        self._short: dict[Connection, int] = {}
        self._short_order: deque[Connection] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_id = 0
        self._listener: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._refusals = 0
        self._stopping = False

    # Life ------------------------------------------------------------------------------------------------------

    async def start(self) -> int:
        """Listen; the port."""
        settings = self.broker.settings
        self._listener = await self.broker.loop.create_server(
            self._new_connection,
            settings.host,
            settings.port,
            backlog=settings.value("socket.listen.backlog.size"),
            reuse_address=True,
        )
        self._schedule_tick()
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Stop listening, close every connection, and end what runs for them."""
        if self._ticker is not None:
            self._ticker.cancel()
        self._stopping = True
        if self._listener is not None:
            self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self.connections:
            for connection in list(self.connections):
                connection.close()
            await asyncio.sleep(0.001)
        if self._listener is not None:
            await self._listener.wait_closed()

    def _new_connection(self) -> Connection:
        self._next_id += 1
        return Connection(self, self._next_id)

    @property
    def accepted(self) -> int:
        """How many connections there have been."""
        return self._next_id

    # What connections call -------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for one more connection."""
        host = connection.peer_host
        self.connections.add(connection)
        self._per_host[host] += 1
        if self._stopping:
            return False
        if len(self.connections) > self._max_connections:
            self.log_refusal(f"refused a connection of {connection.peer}: there are {self._max_connections}")
            return False
        if self._per_host[host] > self._max_per_host:
            self.log_refusal(f"refused a connection of {connection.peer}: there are {self._max_per_host} from there")
            return False
        return True

    def forget(self, connection: Connection) -> None:
        """A connection is lost."""
        self.connections.discard(connection)
        self.congested.discard(connection)
        host = connection.peer_host
        self._per_host[host] -= 1
        if self._per_host[host] <= 0:
            del self._per_host[host]

    def reserve(self, connection: Connection, size: int) -> bool:
        """Count the memory of a frame; False if the connection must wait, unread, until there is that much."""
        if self._short or self._reserved_bytes + size > self._max_bytes:
            self._short[connection] = size
            self._short_order.append(connection)
            return False
        self._reserved_bytes += size
        return True

    def release(self, connection: Connection, size: int) -> None:
        """The memory of a frame is free again."""
        if self._short.pop(connection, None) is None:
            self._reserved_bytes -= size
        while self._short_order:
            first = self._short_order[0]
            wanted = self._short.get(first)
            if wanted is not None:
                if self._reserved_bytes + wanted > self._max_bytes:
                    return
                del self._short[first]
                self._reserved_bytes += wanted
            self._short_order.popleft()
            if wanted is not None:
                first.memory_is_free()

    def is_short(self, connection: Connection) -> bool:
        """Whether a connection waits for memory."""
        return connection in self._short

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the frames that are being received."""
        return self._reserved_bytes

    def unsent_bytes(self) -> int:
        """Bytes of responses that slow clients have not taken."""
        return sum(connection.unsent_bytes() for connection in self.congested)

    @property
    def is_full(self) -> bool:
        """Whether slow clients hold so much memory that large responses must wait."""
        return bool(self.congested) and self.unsent_bytes() > self._max_bytes

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run the rest of a handler."""
        task = self.broker.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def produce_without_answer(self, connection: Connection, frame: memoryview) -> None:
        """Handle a frame of a lost connection if it is a Produce request with acks=0."""
        from headrace.broker.handlers import produce

        produce.serve_orphan(connection, frame)

    def unsupported_api_versions(self, correlation_id: int) -> bytearray:
        """The answer to an ApiVersions request of a version that we don't have: version 0, with the error."""
        api = self.apis[_API_VERSIONS]
        own = {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}
        response = {"error_code": _UNSUPPORTED_VERSION, "api_keys": [own]}
        return wire.encode_response(_API_VERSIONS, 0, correlation_id, response)

    def log_refusal(self, text: str) -> None:
        """Say why a connection was closed or refused: some of them, so that nobody can fill the disk with it."""
        self._refusals += 1
        if self._refusals <= _REFUSALS_PER_TICK:
            _logger.warning("%s", text)

    # Time ------------------------------------------------------------------------------------------------------

    def _schedule_tick(self) -> None:
        self._ticker = self.broker.loop.call_later(_TICK_SECONDS, self._on_tick)

    def _on_tick(self) -> None:
        self.tick += 1
        if self._refusals > _REFUSALS_PER_TICK:
            _logger.warning("and %d more connections like these", self._refusals - _REFUSALS_PER_TICK)
        self._refusals = 0
        for connection in list(self.connections):
            idle = self.tick - connection.active_at
            if connection.is_stalling and idle > self._frame_ticks:
                connection.close("a request began and did not go on")
            elif 0 <= self._idle_ticks < idle and (connection.congested or not connection.pending):
                connection.close("it was idle for too long")
        self._schedule_tick()
