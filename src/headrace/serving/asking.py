"""How handlers ask: the cluster, in threads, a few at a time and not for ever; and how they send streams."""

from __future__ import annotations

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
from headrace.serving.pool import Pool
from headrace.serving.sampler import Look, Sampler

__all__ = ["Asking", "group_of", "topic_of"]

AT_ONCE = 8
LOOKS_AT_ONCE = 4
STREAMS = 64

T = TypeVar("T")

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Asking:
    """What all handlers share. ``reads`` are threads that read views, ``looks`` those that look at the whole, and
    ``streaming`` those that fetch what streams tell."""

    def __init__(self, hub: Hub, feeds: Feeds, sampler: Sampler, asked: Callable[[], Asked]) -> None:
        self.hub, self.feeds, self.sampler, self.asked = hub, feeds, sampler, asked
        self.reads, self.looks = Pool("reads", AT_ONCE), Pool("looks", LOOKS_AT_ONCE, patience_s=None)
        self.streaming = Pool("streams", AT_ONCE, patience_s=None)
        self._questions = Pool("questions", AT_ONCE)
        self._streams = 0

    def close(self) -> None:
        """Begin nothing more."""
        for pool in (self.reads, self.looks, self.streaming, self._questions):
            pool.close()

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
        """Ask something of the log in a thread; ServerAway if it takes too long."""
        return await self._questions.run(work)

    def stream(self, events: Any) -> Response:
        """Send events for as long as somebody reads them."""
        if self._streams >= STREAMS:
            return json_response({"error": f"{STREAMS} streams are open already"}, 429)

        async def counted() -> Any:
            self._streams += 1
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
