"""How many rows a topic has: counted, not told from offsets, since the markers of transactions take offsets too.

Every record is counted once, and those of a partition anew when its oldest ones are gone.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import NotFound
from headrace.serving.feeds import Feeds
from headrace.serving.sampler import Look

if TYPE_CHECKING:
    from headrace.feed import Feed

__all__ = ["RowCounts", "rows_between"]

COUNTED_AT_ONCE = 20_000
"""Of more than so many offsets each is taken for a row: that many rows were not to be looked at one by one."""


def rows_between(feed: Feed, topic: str, index: int, start: int, end: int) -> int:
    """How many rows lie between two offsets of a partition."""
    if end - start > COUNTED_AT_ONCE:
        return end - start
    return sum(batch.num_rows for batch in feed.read(topic, index, start, end)) if start < end else 0


@dataclass
class _Counted:
    """How many rows a partition has from ``start`` to ``end``. ``exact``: all of them were looked at."""

    start: int
    end: int
    rows: int = 0
    exact: bool = True


class RowCounts:
    """Counts the rows of topics."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = feeds
        self._known: dict[tuple[str, int], _Counted] = {}
        self._lock = threading.Lock()

    def of(self, topic: str, look: Look) -> tuple[int, bool]:
        """The rows of a topic, and whether all of them were counted."""
        found = []
        with contextlib.suppress(NotFound):  # deleted since the look
            for (name, index), bounds in look.offsets.items():
                if name == topic:
                    found.append(self._counted(topic, index, bounds.start, bounds.end))
        return sum(one.rows for one in found), all(one.exact for one in found)

    def _counted(self, topic: str, index: int, start: int, end: int) -> _Counted:
        with self._lock:
            known = self._known.get((topic, index))
            if known is None or known.start != start or known.end > end:
                known = self._known[topic, index] = _Counted(start, start)
            if known.end < end:
                with self._feeds.one() as feed:
                    known.rows += rows_between(feed, topic, index, known.end, end)
                known.exact = known.exact and end - known.end <= COUNTED_AT_ONCE
                known.end = end
            return known
