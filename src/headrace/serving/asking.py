"""How handlers ask: the cluster, in threads, a few at a time and not for ever; and how they send streams."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.responses import Response, StreamingResponse

from headrace.errors import NotFound, ServerAway, UnknownTopic
from headrace.feed.cluster import Cluster as Asked
from headrace.operations.cluster import Cluster
from headrace.serving.answers import json_response
from headrace.serving.endpoints import EVENTS, Said
from headrace.serving.feeds import Feeds
from headrace.serving.hub import Hub
from headrace.serving.sampler import Look, Sampler

__all__ = ["Asking", "group_of", "topic_of"]

AT_ONCE = 8
PATIENCE_S = 25.0
STREAMS = 64

T = TypeVar("T")

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Asking:
    """What all handlers share."""

    def __init__(self, hub: Hub, feeds: Feeds, sampler: Sampler, asked: Callable[[], Asked]) -> None:
        self.hub, self.feeds, self.sampler, self.asked = hub, feeds, sampler, asked
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._streams = 0

    def look(self) -> Look:
        """What was last seen of the cluster; ServerAway if nothing was."""
        if self.sampler.look is None:
            raise ServerAway(self.sampler.trouble or "the cluster was not asked yet")
        return self.sampler.look

    async def ask(self, question: Callable[[Cluster], T]) -> T:
        """Ask the cluster, in a thread; a connection that failed is opened anew next time."""

        def asked() -> T:
            try:
                return question(self.sampler.cluster())
            except ServerAway:
                self.sampler.forget()
                raise

        return await self.threaded(asked)

    async def threaded(self, work: Callable[[], T]) -> T:
        """Do something in a thread; ServerAway if it takes too long."""
        try:
            async with asyncio.timeout(PATIENCE_S), self._turns:
                return await asyncio.to_thread(work)
        except TimeoutError:
            raise ServerAway(f"there was no answer within {PATIENCE_S:.0f} s") from None

    def stream(self, events: Any) -> Response:
        """Send events for as long as somebody reads them."""
        if self._streams >= STREAMS:
            return json_response({"error": f"{STREAMS} streams are open already"}, 429)
        self._streams += 1

        async def counted() -> Any:
            try:
                async for one in events:
                    yield one
            finally:
                self._streams -= 1

        return StreamingResponse(counted(), media_type=EVENTS, headers={"X-Accel-Buffering": "no"})


def topic_of(said: Said) -> str:
    """The topic that a request names; no other text reaches the client library."""
    name = str(said["topic"])
    if not _TOPIC.fullmatch(name):
        raise UnknownTopic(f"there is no topic {name!r}", hint="names have letters, digits, dots, _ and -")
    return name


def group_of(said: Said) -> str:
    """The group that a request names."""
    name = str(said["group"])
    if not name or len(name) > 249 or not name.isprintable():
        raise NotFound(f"there is no group {name!r}")
    return name
