"""Whether a database is the one that was captured, and not an older copy of it that was written to since.

The log of such a copy may go far beyond the stored position. But only the connector moves the heartbeat in a database,
and only on, so one whose heartbeat is older than another that was captured lacks what was captured since. The newest
heartbeat whose place in the log is behind the stored position is noted in the catalog (``capture-beat``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from headrace.capture import databases
from headrace.capture.connectors import Connector
from headrace.capture.health import Health
from headrace.feed.catalog import Catalog, read_catalog
from headrace.feed.cluster import Cluster

__all__ = ["Beats"]

_KIND = "capture-beat"


class Beats:
    """The heartbeats of one connector."""

    def __init__(self, cluster: Cluster, catalog: Catalog, connector: Connector) -> None:
        self._cluster, self._catalog, self._connector = cluster, catalog, connector
        self._captured: int | None = None
        self._coming: tuple[int, Any] | None = None
        """One that was seen in the database, and where the log ended then."""

    def read(self) -> None:
        """Read the note, before anything is judged."""
        found = read_catalog(self._cluster, _KIND).get(self._key)
        self._captured = None if found is None else int(found["beat"])

    def refusal(self, health: Health) -> str | None:
        """Why going on would lose changes."""
        if self._captured is None or health.beat is None or health.beat >= self._captured:
            return None
        return (
            f"the database's heartbeat is of {_time(health.beat)}, and one of {_time(self._captured)} was captured "
            "already: this is an older copy of the database (a failover, or a backup that was restored)"
        )

    def note(self, health: Health, offset: Mapping[str, Any] | None) -> None:
        """What is seen of the database, and the position that is stored."""
        if self._coming is None and health.beat is not None and health.beat != self._captured:
            self._coming = health.beat, health.end
        if self._coming is None or offset is None:
            return
        beat, end = self._coming
        if databases.has_reached(self._connector, offset, end):
            self._captured, self._coming = beat, None
            self._catalog.put(f"{_KIND}/{self._key}", {"beat": beat})

    @property
    def _key(self) -> str:
        return f"{self._connector.app}/{self._connector.name}"


def _time(microseconds: int) -> str:
    return dt.datetime.fromtimestamp(microseconds / 1e6, dt.UTC).isoformat(sep=" ", timespec="seconds")
