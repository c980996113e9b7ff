"""How many rows were captured: the records with a value in the topics of tables, each counted once as it comes.

Where a topic ends does not tell it, for markers of transactions and tombstones take offsets too. What was counted is
noted in the catalog, with the offsets up to which: ``capture-rows/APP/NAME``, ``{"rows": 7, "offsets": {"0": 12}}``. So
a count goes on where it was, whatever compaction has taken from the topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.capture.declarations import Captured
from headrace.errors import UnknownTopic
from headrace.feed.catalog import Catalog, read_catalog
from headrace.feed.cluster import Cluster

if TYPE_CHECKING:
    from headrace.feed import Feed

__all__ = ["CapturedRows"]

KIND = "capture-rows"


@dataclass
class _Count:
    rows: int = 0
    offsets: dict[int, int] = field(default_factory=dict)
    """Up to where, of each partition."""
    noted: int = 0

    @property
    def entry(self) -> dict[str, Any]:
        return {"rows": self.rows, "offsets": {str(index): offset for index, offset in self.offsets.items()}}


class CapturedRows:
    """Counts the rows of an app's tables. ``look`` is for one thread, ``of`` for any."""

    def __init__(self, open_feed: Callable[[], Feed], cluster: Cluster, app: str, tables: Sequence[Captured]) -> None:
        self._open_feed, self._cluster, self._app = open_feed, cluster, app
        self._topics = {table.name: table.topic for table in tables}
        self._counts = {table.name: _Count() for table in tables}
        self._feed: Feed | None = None

    def of(self, name: str) -> int:
        """How many rows of a table were captured, as far as they were counted."""
        return self._counts[name].rows

    def end(self, name: str) -> int:
        """Where the table's topic ends, as far as it was counted."""
        return sum(self._counts[name].offsets.values())

    def look(self, seconds: float) -> None:
        """Count what has come, for about so long at most. The topics must be there; raises if the log is away."""
        feed = self._feed = self._feed or self._begin()
        deadline = time.monotonic() + seconds
        for name in self._topics:
            for index, (start, end) in self._bounds(feed, name).items():
                at = self._counts[name].offsets.get(index, start)
                self._count(feed, name, index, at if start <= at <= end else start, end, deadline)

    def note(self, catalog: Catalog) -> None:
        """Note what has changed."""
        for name, count in self._counts.items():
            if count.noted != count.rows:
                catalog.put(f"{KIND}/{self._app}/{name}", count.entry)
                count.noted = count.rows

    def close(self) -> None:
        """Stop following."""
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def _begin(self) -> Feed:
        noted, feed = read_catalog(self._cluster, KIND), self._open_feed()
        try:
            for name in self._topics:
                bounds, found = self._bounds(feed, name), noted.get(f"{self._app}/{name}")
                if found is not None and all(_is_within(bounds, index, at) for index, at in found["offsets"].items()):
                    offsets = {int(index): at for index, at in found["offsets"].items()}
                    self._counts[name] = _Count(found["rows"], offsets, noted=found["rows"])
        except BaseException:
            feed.close()
            raise
        return feed

    def _bounds(self, feed: Feed, name: str) -> dict[int, tuple[int, int]]:
        """Of each partition of a table's topic; none if somebody has deleted it."""
        try:
            return feed.bounds(self._topics[name])
        except UnknownTopic:
            return {}

    def _count(self, feed: Feed, name: str, index: int, start: int, end: int, deadline: float) -> None:
        count, topic = self._counts[name], self._topics[name]
        for batch in feed.read(topic, index, start, end):
            count.rows += batch.num_rows - batch.column("value").null_count
            count.offsets[index] = batch.column("offset")[-1].as_py() + 1
            if time.monotonic() > deadline:
                return
        count.offsets[index] = end


def _is_within(bounds: dict[int, tuple[int, int]], index: str, offset: int) -> bool:
    """Whether the topic has got as far: it is not another one of the same name."""
    return int(index) in bounds and offset <= bounds[int(index)][1]
