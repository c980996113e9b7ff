"""A broker inside a test: its own thread and event loop, any free port, a folder of the test's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import uvloop

from headrace.broker.broker import Broker
from headrace.clock import Clock
from headrace.log.files import Files
from headrace.settings import BrokerSettings

__all__ = ["EmbeddedBroker"]

T = TypeVar("T")


class EmbeddedBroker:
    """``with EmbeddedBroker(folder) as broker: connect(broker.bootstrap)``. Stopped cleanly at the end of the block."""

    def __init__(
        self,
        data: Path,
        properties: Mapping[str, str] | None = None,
        *,
        port: int = 0,
        clock: Clock | None = None,
        files: Files | None = None,
    ) -> None:
        self.data = data
        settings = BrokerSettings(data, port=port, properties=dict(properties or {}))
        self.broker = Broker(settings, clock=clock, files=files)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="embedded broker")

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self.broker.port

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.broker.port}"

    def start(self) -> None:
        """Start it; it listens when this returns."""
        self._thread.start()
        try:
            self.run(lambda broker: broker.start())
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Stop it cleanly."""
        try:
            self.run(lambda broker: broker.stop())
        finally:
            self._end()

    def run(self, action: Callable[[Broker], Awaitable[T]]) -> T:
        """Do something on the broker's own thread and wait for it."""

        async def act() -> T:
            return await action(self.broker)

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result()

    def look(self, action: Callable[[Broker], T]) -> T:
        """Like ``run``, for what need not wait."""

        async def act(broker: Broker) -> T:
            return action(broker)

        return self.run(act)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
