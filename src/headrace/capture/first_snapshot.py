"""The initial snapshot of a connector's tables: what is noted before it begins, and done once it is complete.

That it is still to come to its end, and whether its topics have rows already, is noted in the catalog before the worker
starts (``capture-sweep``). Once it is complete, keys that its last attempt did not see are deleted, if it had several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured
from headrace.capture.positions import stored_offset
from headrace.capture.snapshots import Snapshots
from headrace.capture.sweep import sweep
from headrace.feed.catalog import Catalog, read_catalog
from headrace.feed.cluster import Cluster

__all__ = ["FirstSnapshot"]

_KIND = "capture-sweep"


class FirstSnapshot:
    """Of one connector."""

    def __init__(self, cluster: Cluster, catalog: Catalog, connector: Connector) -> None:
        self._cluster, self._catalog, self._connector = cluster, catalog, connector
        self._notes: dict[str, dict[str, Any]] = {}

    def note(self) -> None:
        """Before the worker starts."""
        offset = stored_offset(self._cluster, self._connector)
        ours = {self._key(table): table for table in self._connector.tables if table.outbox is None}
        self._notes = {key: note for key, note in read_catalog(self._cluster, _KIND).items() if key in ours}
        if offset is not None and not offset.get("snapshot"):
            return
        for key, table in ours.items():
            has_rows = any(end > start for start, end in self._cluster.bounds(table.topic).values())
            if not self._notes.get(key, {}).get("repeated"):
                self._notes[key] = {"repeated": has_rows}
                self._catalog.put(f"{_KIND}/{key}", self._notes[key])
        self._catalog.flush()

    def is_to_be_closed(self, offset: Mapping[str, Any] | None) -> bool:
        """Whether it is complete, by the position that is stored, and what follows is still to be done."""
        return bool(self._notes) and offset is not None and not offset.get("snapshot")

    def repeated(self, snapshots: Snapshots) -> list[Captured]:
        """The tables that were read more than once."""
        again = snapshots.attempts.get(self._connector.name, 0) > 1
        return [table for table in self._noted if again or self._notes[self._key(table)]["repeated"]]

    def sweep(self, tables: list[Captured], snapshots: Snapshots, told: Callable[[str], None]) -> None:
        """Delete what vanished between two attempts. The connector stands still meanwhile."""
        for table in tables:
            seen = snapshots.of(self._connector.name, table.source.table_name)
            about = {"connector": "headrace", "name": self._connector.name, "table": table.source.table_name}
            nothing_read = seen is not None and seen.kind == "initial" and seen.rows == 0
            gone = sweep(self._cluster, table.topic, about, nothing_read=nothing_read)
            if gone:
                told(f"table {table.name}: {gone} rows had gone before its snapshot was repeated, and are deleted")

    def close(self) -> None:
        """Nothing is left to do: the notes go."""
        for table in self._noted:
            self._catalog.put(f"{_KIND}/{self._key(table)}", None)
        self._notes.clear()
        self._catalog.flush()

    @property
    def _noted(self) -> list[Captured]:
        return [table for table in self._connector.tables if self._key(table) in self._notes]

    def _key(self, table: Captured) -> str:
        return f"{self._connector.app}/{table.name}"
