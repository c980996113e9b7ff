"""Feeds for requests: a feed serves one reader at a time, so there are a few, opened when they are needed."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, NotFound, ServerAway

if TYPE_CHECKING:
    from headrace.feed import Feed

__all__ = ["Feeds"]

AT_ONCE = 4
PATIENCE_S = 10.0


class Feeds:
    """At most ``AT_ONCE`` feeds of the log."""

    def __init__(self, open_feed: Callable[[], Feed]) -> None:
        self._open_feed = open_feed
        self._idle: queue.LifoQueue[Feed] = queue.LifoQueue()
        self._turns = threading.BoundedSemaphore(AT_ONCE)

    @contextlib.contextmanager
    def one(self) -> Iterator[Feed]:
        """A feed for as long as the block runs. One that failed is not used again."""
        if not self._turns.acquire(timeout=PATIENCE_S):
            raise ServerAway("too many readers at once", hint="ask again in a moment")
        try:
            feed = self._taken()
            try:
                yield feed
            except NotFound:
                self._idle.put(feed)
                raise
            except BaseException:
                with contextlib.suppress(HeadraceError):
                    feed.close()
                raise
            self._idle.put(feed)
        finally:
            self._turns.release()

    def _taken(self) -> Feed:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return self._open_feed()

    def close(self) -> None:
        """Close those that are idle."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()
