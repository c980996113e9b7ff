"""A connector under supervision: what is known of it, and how its tables are described."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.capture import databases
from headrace.capture.beats import Beats
from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured
from headrace.capture.errands import Errands
from headrace.capture.first_snapshot import FirstSnapshot
from headrace.capture.health import Health, alarm
from headrace.capture.positions import age_s
from headrace.capture.problems import DATABASE_TROUBLE, Unreachable
from headrace.capture.rest import cause_of
from headrace.capture.settings import CaptureSettings
from headrace.capture.snapshots import Snapshots
from headrace.capture.status import TableStatus
from headrace.capture.watchdog import Seen, Watchdog
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.capture.truncations import Truncations

__all__ = ["Watched"]

_SIGNALS = {"snapshot": "execute-snapshot", "stop": "stop-snapshot", "hold": "pause-snapshot", "go": "resume-snapshot"}
_PERMANENT = ("Slot position", "slot is ahead", "offset is no longer available", "replication slot is ahead")


class Watched:
    """A connector and what is known of it."""

    def __init__(
        self,
        connector: Connector,
        first: FirstSnapshot,
        beats: Beats,
        errands: Errands,
        settings: CaptureSettings,
        pid: int,
    ) -> None:
        self.connector = connector
        self.schema = ""
        self.watchdog = Watchdog(settings.hang_s, settings.silent_s)
        self.is_paused = False
        """Whether somebody has asked for it to stand still: noted in the catalog, for Connect's word is not enough."""
        self.refusal: str | None = None
        """Why going on would lose changes."""
        self.has_told_refusal = False
        self.health = Health()
        self.offset: dict[str, Any] | None = None
        self.partitions: dict[str, list[int]] = {}
        self.first, self.beats, self.errands = first, beats, errands
        self.trouble: HeadraceError | None = None
        """What its database did not do when it was asked last."""
        self.truncations: Truncations | None = None
        self.error: str | None = None
        self.tables = {
            table.name: TableStatus(
                connector.app,
                table.name,
                connector.server,
                table.source.table_name,
                pid=pid,
                is_outbox=table.outbox is not None,
            )
            for table in connector.tables
        }

    @property
    def is_to_run(self) -> bool:
        """Whether it should run now."""
        return not self.is_paused and self.refusal is None

    @property
    def unconfirmed(self) -> int | None:
        """Up to where its database was told that it is captured, if a transaction that ends behind that is stored."""
        offset, confirmed = self.offset or {}, self.health.confirmed
        if confirmed is None or offset.get("snapshot") or int(offset.get("lsn_commit") or 0) <= confirmed:
            return None
        return confirmed

    def seen(self, status: Mapping[str, Any], port: int) -> Seen:
        """What Connect says of it. What it said of a worker that is gone does not count."""
        connector, tasks = status["connector"], status.get("tasks") or []
        told = connector if not tasks or connector["state"] in ("FAILED", "PAUSED", "STOPPED") else tasks[0]
        if not str(told.get("worker_id", "")).endswith(f":{port}"):
            return Seen(True, "UNASSIGNED")
        state = str(told["state"])
        trace = str((tasks[0] if tasks else {}).get("trace") or connector.get("trace") or "")
        self.error = cause_of(trace) if state == "FAILED" else None
        if self.error and any(word in trace for word in _PERMANENT) and self.refusal is None:
            self.refusal = self.error
        return Seen(True, state)

    def look_at_health(self, offset: Mapping[str, Any] | None) -> None:
        """Ask the database how it is doing; a refusal stays one."""
        self.health = databases.health(self.connector, offset)
        self.refusal = self.refusal or self.health.refusal or self.beats.refusal(self.health)
        if self.refusal is None:
            self.beats.note(self.health, offset)

    def try_to_look(self, offset: Mapping[str, Any] | None, told: Callable[[str], None]) -> None:
        """The same, and say what is still to be said. What fails is its ``trouble``, and tried again the next time."""
        before, self.trouble = self.trouble, None
        try:
            self.look_at_health(offset)
            if self.errands.are_due:
                self.tell_of_rows()
                self.tell_of_tables(told)
        except DATABASE_TROUBLE as trouble:
            self.trouble = trouble
            if not isinstance(trouble, Unreachable) and str(trouble) != str(before):
                told(str(trouble))

    def tell_of_rows(self) -> None:
        """Have the rows read that were cut off."""
        self.errands.tell_of_rows(self.read_row)

    def tell_of_tables(self, told: Callable[[str], None]) -> None:
        """Have the tables read that are new to the connector."""

        def read_table(table: Captured) -> None:
            self.signal(table, "snapshot")
            told(f"table {table.name} is new to its connector: its rows are read while changes go on")

        self.errands.tell_of_tables(read_table)

    def signal(self, table: Captured, action: str) -> None:
        """Have a table read again, while changes go on (``snapshot``), or ``stop``, ``hold`` or ``go`` on with that."""
        collections = {"data-collections": [table.source.table_name], "type": "incremental"}
        data = {"type": "incremental"} if action in ("hold", "go") else collections
        databases.signal(self.connector, self.schema, _SIGNALS[action], data)

    def read_row(self, table: Captured, key: Mapping[str, Any]) -> None:
        """Have one row read from its table."""
        name = table.source.table_name
        wanted = {"data-collection": name, "filter": databases.condition(self.connector, key)}
        data = {"data-collections": [name], "type": "incremental", "additional-conditions": [wanted]}
        databases.signal(self.connector, self.schema, _SIGNALS["snapshot"], data)

    def fail(self, error: str, state: str = "failed") -> None:
        """Say of all its tables that something is wrong."""
        for one in self.tables.values():
            one.state, one.last_error = state, error

    def describe(
        self,
        state: str,
        snapshots: Snapshots,
        worker_pid: int,
        told: Callable[[str], None],
    ) -> None:
        """Say of all its tables how they are doing."""
        warning, offset = alarm(self.health), self.offset
        for table in self.connector.tables:
            one = self.tables[table.name]
            snapshot = snapshots.of(self.connector.name, table.source.table_name)
            one.snapshot = f"{snapshot.kind} {snapshot.state}" if snapshot is not None else None
            one.snapshot_rows = snapshot.rows if snapshot is not None else None
            busy = snapshot is not None and snapshot.state == "running"
            reading = busy or (offset is not None and bool(offset.get("snapshot")))
            flowing = "snapshot" if reading else "streaming" if offset is not None else "starting"
            words = {"RUNNING": flowing, "PAUSED": "paused", "STOPPED": "paused", "FAILED": "failed"}
            one.state = words.get(state, "starting")
            if self.trouble is not None:
                one.state = "waiting" if isinstance(self.trouble, Unreachable) else "failed"
            one.last_error = str(self.trouble) if self.trouble is not None else self.error
            one.lag_bytes, one.slot_bytes = self.health.lag_bytes, self.health.retained_bytes
            one.lag_seconds = age_s(offset)
            if warning is not None and one.alarm is None:
                told(f"ALARM table {table.name}: {warning}")
            one.alarm = warning
            one.restarts = self.watchdog.restarts
            one.worker_pid = worker_pid
