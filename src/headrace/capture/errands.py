"""What a connector is still to be told through its database: to read rows that were cut off, or tables that are new.

It is noted in the catalog (``capture-torn``, ``capture-new``) until it is told, for the database may be away just then,
or not let us. Told twice it does no harm: rows are read once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured
from headrace.feed.catalog import Catalog, iso_now, read_catalog
from headrace.feed.cluster import Cluster

__all__ = ["Errands"]

_ROWS, _TABLES = "capture-torn", "capture-new"


class Errands:
    """Of one connector."""

    def __init__(self, cluster: Cluster, catalog: Catalog, connector: Connector) -> None:
        self._cluster, self._catalog, self._connector = cluster, catalog, connector
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._tables: set[str] = set()

    def read(self) -> None:
        """Read what is noted, before the worker starts."""
        rows, tables = read_catalog(self._cluster, _ROWS), read_catalog(self._cluster, _TABLES)
        ours = [table.name for table in self._connector.tables]
        self._rows = {name: list(rows[self._key(name)]["keys"]) for name in ours if self._key(name) in rows}
        self._tables = {name for name in ours if self._key(name) in tables}

    @property
    def are_due(self) -> bool:
        """Whether anything is to be told."""
        return bool(self._rows or self._tables)

    def note_row(self, table: Captured, key: Mapping[str, Any]) -> None:
        """The row of a key is to be read."""
        keys = self._rows.setdefault(table.name, [])
        if dict(key) not in keys:
            keys.append(dict(key))
        self._catalog.put(f"{_ROWS}/{self._key(table.name)}", {"keys": keys})
        self._catalog.flush()

    def note_table(self, table: Captured) -> None:
        """All rows of a table are to be read, once the connector captures it."""
        self._tables.add(table.name)
        self._catalog.put(f"{_TABLES}/{self._key(table.name)}", {"at": iso_now()})
        self._catalog.flush()

    def tell_of_rows(self, read_row: Callable[[Captured, Mapping[str, Any]], None]) -> None:
        """Have rows read. What fails stays noted."""
        for table in self._connector.tables:
            keys = self._rows.get(table.name, [])
            while keys:
                read_row(table, keys[0])
                del keys[0]
                self._catalog.put(f"{_ROWS}/{self._key(table.name)}", {"keys": keys} if keys else None)
            self._rows.pop(table.name, None)

    def tell_of_tables(self, read_table: Callable[[Captured], None]) -> None:
        """Have tables read. What fails stays noted."""
        for table in self._connector.tables:
            if table.name in self._tables:
                read_table(table)
                self._tables.discard(table.name)
                self._catalog.put(f"{_TABLES}/{self._key(table.name)}", None)

    def _key(self, name: str) -> str:
        return f"{self._connector.app}/{name}"
