"""What has become of the rows of alerts: sent, waiting, given up.

They are counted, not told from offsets: the markers of transactions take offsets too, so that an alert whose rows were
all sent would wait for ever, and each of its batches would be a row more. Every record is counted once, and what waits
again whenever it has changed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import NotFound
from headrace.serving.feeds import Feeds
from headrace.serving.row_counts import RowCounts, rows_between
from headrace.serving.sampler import Look

__all__ = ["Deliveries"]


@dataclass
class _Place:
    """A partition of an alert's topic: how many rows lie before ``at``, and how many wait from there to ``end``."""

    at: int
    end: int = -1
    before: int = 0
    waiting: int = 0


class Deliveries:
    """Counts the rows of alerts."""

    def __init__(self, feeds: Feeds) -> None:
        self._feeds = feeds
        self._counts = RowCounts(feeds)
        self._places: dict[tuple[str, int], _Place] = {}
        self._lock = threading.Lock()

    def of(self, alert: Mapping[str, Any], look: Look) -> dict[str, Any]:
        """The rows of an alert: how many there are, were sent, wait (None: it has not begun), and were given up."""
        full = f"{alert['app']}.{alert['name']}"
        topic = str(alert.get("topic") or full)
        dead = look.topics.get(f"{full}.dead", {}).get("records", 0)
        committed = look.committed.get(f"{full}.delivery")
        if not committed:
            rows, _ = self._counts.of(topic, look)
            return {"rows": rows, "sent": None, "waiting": None, "dead": dead}
        found = []
        with contextlib.suppress(NotFound):  # deleted since the look
            for (name, index), bounds in look.offsets.items():
                if name == topic:
                    stands = committed.get((topic, index), bounds.start)
                    found.append(self._counted(topic, index, stands, bounds.start, bounds.end))
        before, waiting = sum(one.before for one in found), sum(one.waiting for one in found)
        return {"rows": before + waiting, "sent": max(0, before - dead), "waiting": waiting, "dead": dead}

    def _counted(self, topic: str, index: int, committed: int, start: int, end: int) -> _Place:
        with self._lock:
            place = self._places.get((topic, index))
            if place is None or place.at > committed:  # the group was moved back, or the topic is another one
                place = self._places[topic, index] = _Place(start)
            if (place.at, place.end) != (committed, end):
                with self._feeds.one() as feed:
                    place.before += rows_between(feed, topic, index, max(start, place.at), committed)
                    place.waiting = rows_between(feed, topic, index, max(start, committed), end)
                place.at, place.end = max(place.at, committed), end
            return place
