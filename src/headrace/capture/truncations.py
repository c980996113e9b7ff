"""TRUNCATE in MariaDB and MySQL: noticed in the server's log, and the rows that it took are deleted from the topic.

The log has one statement for it, no rows, and Debezium could tell of it only in a record without a key, which
a compacted topic does not take. So the server is asked how often anything was truncated; when that has changed, its
log is searched from where it was searched before. Once the connector is past a TRUNCATE, it stands still while every
key that was last written before that place is deleted. What is still to be searched and to be done is noted in the
catalog (``capture-truncate``); doing it twice does no harm.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from headrace.capture.binlog import Place, Truncation, end_of_log, truncate_count, truncations
from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured, MariaDB
from headrace.capture.deletions import delete_keys
from headrace.capture.mariadb import open_database
from headrace.capture.problems import DATABASE_TROUBLE, Refusing
from headrace.capture.reading import keyed
from headrace.errors import ServerAway
from headrace.feed.catalog import Catalog, read_catalog
from headrace.feed.cluster import Cluster

__all__ = ["LastWritten", "Truncations"]

SEARCHED_ON_S = 600.0
"""A TRUNCATE is counted when it begins, and may wait for others before it is in the log."""
SAVE_EVERY_S = 60.0
_KIND = "capture-truncate"


class LastWritten:
    """Where in the database's log each live key of a topic was last written: a fold over the records."""

    def __init__(self) -> None:
        self._places: dict[bytes, Place] = {}

    def read(self, key: bytes, value: bytes | None) -> None:
        """Take in a record."""
        record = None if value is None else json.loads(value)
        if record is None or record.get("op") == "d":
            self._places.pop(key, None)
        else:
            source = record.get("source") or {}
            self._places[key] = Place.of(source.get("file"), source.get("pos"))

    def before(self, place: Place) -> list[bytes]:
        """The live keys that were last written before a place."""
        return [key for key, written in self._places.items() if written <= place]


class Truncations:
    """Of the tables of one connector."""

    def __init__(self, cluster: Cluster, catalog: Catalog, connector: Connector) -> None:
        self._cluster, self._catalog, self._connector = cluster, catalog, connector
        self._tables = {table.source.table_name: table for table in connector.tables if table.outbox is None}
        self._searched: Place | None = None
        self._count: int | None = None
        self._search_until = self._saved_at = 0.0
        self._pending: list[Truncation] = []
        self._due: list[Truncation] = []

    def note(self, offset: Mapping[str, Any] | None) -> None:
        """Before the worker starts; ``offset`` is the position that is stored."""
        found = read_catalog(self._cluster, _KIND).get(self._key)
        self._count = None
        if found is not None:
            self._searched = Place(*found["searched"])
            self._pending = [Truncation(name, Place(*at), Place(*end)) for name, at, end in found["pending"]]
            return
        self._searched = None if offset is None else Place.of(offset.get("file"), offset.get("pos"))
        if offset is None:
            with contextlib.suppress(*DATABASE_TROUBLE), open_database(self._source) as connection:
                self._searched = Place.of(*end_of_log(connection))
        if self._searched is not None:  # or it is where the log ends at the first look
            self._save()

    def are_due(self, offset: Mapping[str, Any] | None) -> bool:
        """Whether the connector is past any. The server is looked at for new ones."""
        try:
            self._search()
        except (Refusing, ServerAway):  # of the database or of the log: what was not noted is searched for again
            self._count = None  # it may be started anew, and count anew
        self._due = []
        if offset is not None and not offset.get("snapshot"):
            reached = Place.of(offset.get("file"), offset.get("pos"))
            self._due = [one for one in self._pending if one.end <= reached]
        return bool(self._due)

    def delete(self, told: Callable[[str], None]) -> None:
        """Delete from the topics what those that are due took. The connector stands still meanwhile."""
        for name, table in self._tables.items():
            places = [one.at for one in self._due if one.table == name]
            if places:
                count = self._delete_before(max(places), table)
                told(f"table {table.name} was truncated: {count} rows are deleted from its topic")
        self._pending = [one for one in self._pending if one not in self._due]
        self._save()

    def _search(self) -> None:
        now = time.monotonic()
        with open_database(self._source) as connection:
            end, count = Place.of(*end_of_log(connection)), truncate_count(connection)
            if count != self._count:
                self._count, self._search_until = count, now + SEARCHED_ON_S
            known = len(self._pending)
            if now < self._search_until:
                for one in truncations(connection, self._searched or end, end):
                    table = self._named(one.table)
                    if table is not None:
                        self._pending.append(one._replace(table=table))
        self._searched = end
        if len(self._pending) > known or now - self._saved_at > SAVE_EVERY_S:
            self._save()

    def _named(self, table: str) -> str | None:
        """A table as it was declared: servers may not care for capitals."""
        alike = [name for name in self._tables if name.lower() == table.lower()]
        return table if table in alike else alike[0] if alike else None

    def _delete_before(self, place: Place, table: Captured) -> int:
        about = {"connector": "headrace", "name": self._connector.name, "table": table.source.table_name}
        count = 0
        for partition, (start, end) in self._cluster.bounds(table.topic).items():
            written = LastWritten()
            if start < end:
                for _, key, value in keyed(self._cluster, table.topic, partition, start, end):
                    written.read(key, value)
            count += delete_keys(self._cluster, table.topic, written.before(place), about)
        return count

    def _save(self) -> None:
        self._saved_at = time.monotonic()
        self._catalog.put(f"{_KIND}/{self._key}", {"searched": self._searched, "pending": self._pending})
        self._catalog.flush()

    @property
    def _key(self) -> str:
        return f"{self._connector.app}/{self._connector.name}"

    @property
    def _source(self) -> MariaDB:
        source = self._connector.source
        assert isinstance(source, MariaDB)
        return source
