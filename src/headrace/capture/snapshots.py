"""How snapshots are going: a fold over what the connectors tell in ``notifications.log``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SnapshotState", "Snapshots"]

_LINE = re.compile(
    r"aggregateType='(?P<kind>Initial Snapshot|Incremental Snapshot)', type='(?P<word>\w+)', "
    r"additionalData=\{(?P<more>.*)\}, timestamp="
)
_FIELDS = {
    name: re.compile(rf"(?:^|, ){name}=(.*?)(?:, \w+=|$)")
    for name in (
        "connector_name",
        "scanned_collection",
        "current_collection_in_progress",
        "data_collections",
        "total_rows_scanned",
    )
}


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """The last snapshot of a table."""

    kind: str
    """``initial`` or ``incremental``."""
    state: str
    """``running``, ``paused``, ``stopped`` or ``complete``."""
    rows: int | None = None


@dataclass(slots=True)
class Snapshots:
    """The last snapshot of each table, by connector and the database's name of the table."""

    tables: dict[tuple[str, str], SnapshotState] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    """How often each connector has begun its initial snapshot."""

    def read(self, lines: Iterable[str]) -> None:
        """Take in lines of the notifications."""
        for line in lines:
            found = _LINE.search(line)
            if found is not None:
                kind = "initial" if found["kind"] == "Initial Snapshot" else "incremental"
                more = {name: one[1] for name, field in _FIELDS.items() if (one := field.search(found["more"]))}
                self._take(kind, found["word"], more)

    def of(self, connector: str, table: str) -> SnapshotState | None:
        """The last snapshot of a table."""
        return self.tables.get((connector, table))

    def _take(self, kind: str, word: str, more: Mapping[str, Any]) -> None:
        connector = str(more.get("connector_name", ""))
        if (kind, word) == ("initial", "STARTED"):
            self.attempts[connector] = self.attempts.get(connector, 0) + 1
        states = {
            "STARTED": "running",
            "IN_PROGRESS": "running",
            "RESUMED": "running",
            "PAUSED": "paused",
            "ABORTED": "stopped",
            "COMPLETED": "complete",
            "SKIPPED": "",
        }
        if word == "TABLE_SCAN_COMPLETED":
            rows = more.get("total_rows_scanned")
            self._put(connector, str(more.get("scanned_collection", "")), kind, "complete", rows)
        elif states.get(word):
            named = more.get("current_collection_in_progress") or more.get("data_collections") or ""
            for name in [part.strip() for part in str(named).split(",") if part.strip()]:
                self._put(connector, name, kind, states[word], None)

    def _put(self, connector: str, table: str, kind: str, state: str, rows: Any) -> None:
        plain = ".".join(table.replace('"', "").replace("`", "").split(".")[-2:])
        before = self.tables.get((connector, plain))
        kept = before.rows if before is not None and rows is None and before.kind == kind else None
        if state == "complete" and before is not None and rows is None:
            rows = before.rows
        self.tables[(connector, plain)] = SnapshotState(kind, state, int(rows) if rows is not None else kept)
