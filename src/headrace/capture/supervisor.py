"""Supervising the Connect worker and its connectors: one thread, which starts, watches, restarts and obeys.

The order of things at a start: the stored position of each connector is compared with its database (going on from
a position that the database no longer has would lose changes: refused); the worker is started; a connector whose
configuration differs is stopped, given the new one, told to read tables that are new to it, and resumed. That a new
table is still to be read is noted in the catalog first, so a crash in between does not forget it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headrace.capture import databases
from headrace.capture.connectors import Connector, captures, topic_config
from headrace.capture.declarations import Captured, DatabaseSource, Snapshot
from headrace.capture.first_snapshot import FirstSnapshot
from headrace.capture.health import Health, alarm
from headrace.capture.jars import ensure_installed
from headrace.capture.positions import Positions, age_s, stored_offset
from headrace.capture.problems import Unreachable
from headrace.capture.rest import RestRefused, cause_of, patiently
from headrace.capture.settings import CaptureSettings
from headrace.capture.snapshots import Snapshots
from headrace.capture.status import TableStatus
from headrace.capture.torn import mend
from headrace.capture.watchdog import Action, Seen, Watchdog
from headrace.capture.worker import ConnectWorker, WorkerSettings, java_client_settings
from headrace.errors import HeadraceError, ServerAway
from headrace.feed.catalog import Catalog, iso_now, read_catalog
from headrace.feed.cluster import Cluster
from headrace.feed.topics import ensure_topic

__all__ = ["WAYS_OUT", "Supervisor"]

WAYS_OUT = (
    "to begin anew from what the database has now: `headrace capture remove FILE`, then run the app again "
    "(all rows are read again; keys that are gone are deleted); or bring back the server that has the changes"
)
_SIGNALS = {"snapshot": "execute-snapshot", "stop": "stop-snapshot", "hold": "pause-snapshot", "go": "resume-snapshot"}
_PERMANENT = ("Slot position", "slot is ahead", "offset is no longer available", "replication slot is ahead")


class _Watched:
    """A connector and what is known of it."""

    def __init__(self, connector: Connector, first: FirstSnapshot, settings: CaptureSettings, pid: int) -> None:
        self.connector = connector
        self.schema = ""
        self.watchdog = Watchdog(settings.hang_s, settings.silent_s)
        self.refusal: str | None = None
        self.health = Health()
        self.offset: dict[str, Any] | None = None
        self.partitions: dict[str, list[int]] = {}
        self.first = first
        self.state = "starting"
        self.error: str | None = None
        self.tables = {
            table.name: TableStatus(connector.app, table.name, connector.server, table.source.table_name, pid=pid)
            for table in connector.tables
        }


class Supervisor:
    """``start``, then ``stop``. In between ``ask`` from any thread."""

    def __init__(
        self,
        app: str,
        connectors: tuple[Connector, ...],
        settings: CaptureSettings,
        pid: int,
        told: Callable[[str], None],
    ) -> None:
        self.app, self.settings = app, settings
        self.cluster = Cluster(settings.bootstrap, settings.client)
        self.stop_asked, self.ready = threading.Event(), threading.Event()
        self.worker: ConnectWorker | None = None
        self.snapshots = Snapshots()
        self._told = told
        self._asked: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        self._catalog = Catalog(self.cluster)
        self._watched = [
            _Watched(connector, FirstSnapshot(self.cluster, self._catalog, connector), settings, pid)
            for connector in connectors
        ]
        self._told_up_to = 0
        self._positions: Positions | None = None
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)

    def start(self) -> None:
        """Begin, in a thread. What would lose changes is refused here."""
        ensure_installed(self.settings.home)
        for watched in self._watched:
            offset = stored_offset(self.cluster, watched.connector)
            refusal = databases.health(watched.connector, offset).refusal
            if refusal is not None:
                raise HeadraceError(f"{watched.connector.server}: {refusal}.", hint=WAYS_OUT)
            watched.schema = databases.prepare(watched.connector)
        self._make_topics()
        self._thread.start()

    def stop(self, patience_s: float = 25.0) -> None:
        """End the worker; captures go on where they were when they are started again."""
        self.stop_asked.set()
        if self._thread.ident is not None:
            self._thread.join(patience_s)

    def ask(self, name: str, action: str) -> None:
        """Do something with a table: ``pause``, ``resume``, ``snapshot`` or ``snapshot-stop|hold|go``."""
        with self._lock:
            self._asked.append((name, action))

    def wait_until_current(self, given_up: threading.Event, patience_s: float) -> bool:
        """Wait until all that is in the databases now is in the log; False if it was given up, or one has failed."""
        ends = {one.connector.name: databases.position(one.connector) for one in self._watched}
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and not given_up.wait(0.2):
            if any(one.state == "failed" for one in self.statuses):
                return False
            reached = [
                one.offset is not None
                and databases.has_reached(one.connector, one.offset, ends[one.connector.name])
                and all(status.state == "streaming" for status in one.tables.values())
                for one in self._watched
            ]
            if all(reached):
                return True
        return False

    @property
    def statuses(self) -> list[TableStatus]:
        """How all tables are doing."""
        return [status for watched in self._watched for status in watched.tables.values()]

    def _make_topics(self) -> None:
        for watched in self._watched:
            for table in watched.connector.tables:
                ensure_topic(self.cluster, table.topic, 1, topic_config(table))
            ensure_topic(self.cluster, watched.connector.heartbeat_topic)
            if watched.connector.kind != "postgres":
                schemas = {"cleanup.policy": "delete", "retention.ms": "-1"}
                ensure_topic(self.cluster, watched.connector.schema_topic, 1, schemas)

    def _run(self) -> None:
        pause_s = 1.0
        while not self.stop_asked.is_set():
            try:
                self._start_worker()
                pause_s = 1.0
                self._watch()
            except Exception as error:  # whatever it is, captures go on
                if self.stop_asked.is_set():
                    break
                self._told(f"capture: {error}")
                for watched in self._watched:
                    _fail(watched, str(error), state="waiting" if isinstance(error, ServerAway) else "failed")
                self._publish()
                self.stop_asked.wait(pause_s)
                pause_s = min(30.0, 2 * pause_s)
        self._end()

    def _end(self) -> None:
        if self.worker is not None:
            self.worker.stop()
        for status in self.statuses:
            status.state = "stopped"
        self._publish()
        self._catalog.flush(2.0)
        if self._positions is not None:
            self._positions.close()

    def _start_worker(self) -> None:
        if self.worker is not None:
            self.worker.kill()
        for watched in self._watched:
            watched.first.note()
            for table in watched.connector.tables:
                missing = mend(self.cluster, table.topic) if table.outbox is None else None
                if missing is not None:
                    self._read_row(watched, table, missing)
        kinds = {watched.connector.kind for watched in self._watched}
        self.worker = ConnectWorker(
            WorkerSettings(
                self.app,
                self.settings.bootstrap,
                self.settings.folder / "capture" / self.app,
                self.settings.home,
                tuple({"postgres" if kind == "postgres" else "binlog" for kind in kinds}),
                self.settings.client,
                {one.connector.secret: one.connector.source.password for one in self._watched},
                self.settings.heap,
            )
        )
        self.worker.start()
        self.worker.wait_until_ready(given_up=self.stop_asked.is_set)
        if self.stop_asked.is_set():
            return
        for watched in self._watched:
            self._configure(self.worker, watched)
            watched.watchdog.started(time.monotonic())
        self._drop_strangers(self.worker)
        self.ready.set()

    def _configure(self, worker: ConnectWorker, watched: _Watched) -> None:
        """Give a connector its configuration if it has another, and tell it to read the tables that are new to it."""
        connector, rest = watched.connector, worker.rest
        access = java_client_settings(self.settings.client)
        wanted = connector.config(watched.schema, self.settings.bootstrap, access)
        before = rest.config(connector.name)
        if before is None:
            patiently(lambda: rest.put_config(connector.name, wanted), self.stop_asked)
            return
        if before != wanted:
            for table in connector.tables:
                known = captures(before, table)
                if not known and isinstance(table.source, DatabaseSource) and table.source.snapshot == Snapshot.INITIAL:
                    self._catalog.put(f"capture-new/{self.app}/{table.name}", {"at": iso_now()})
            self._catalog.flush()
            patiently(lambda: rest.stop(connector.name), self.stop_asked)
            patiently(lambda: rest.put_config(connector.name, wanted), self.stop_asked)
        new = read_catalog(self.cluster, "capture-new")
        for table in connector.tables:
            if f"{self.app}/{table.name}" in new:
                self._signal(watched, table, "snapshot")
                self._catalog.put(f"capture-new/{self.app}/{table.name}", None)
                self._told(f"table {table.name} is new to its connector: its rows are read while changes go on")
        if before != wanted:
            patiently(lambda: rest.resume(connector.name), self.stop_asked)

    def _drop_strangers(self, worker: ConnectWorker) -> None:
        """Connectors of databases that the app no longer captures are stopped; their slots are told of."""
        ours = {watched.connector.name for watched in self._watched}
        for name in worker.rest.connectors():
            if name not in ours:
                patiently(partial(worker.rest.stop, name), self.stop_asked)
                self._told(
                    f"connector {name} belongs to a database that the app no longer captures: it is stopped, and its "
                    "replication slot holds the database's log until it is dropped"
                )

    def _watch(self) -> None:
        assert self.worker is not None
        while not self.stop_asked.is_set():
            if not self.worker.is_alive:
                self._told(f"the change capture process ended ({self.worker.last_words()[-200:]}): starting it anew")
                for watched in self._watched:
                    watched.watchdog.restarts += 1
                return
            self._obey(self.worker)
            self._read_notifications(self.worker)
            for watched in self._watched:
                if self._look(self.worker, watched) is Action.RESTART_WORKER:
                    self._told("change capture does not move: its process is killed and started anew")
                    return
            self._publish()
            self.stop_asked.wait(self.settings.look_every_s)

    def _look(self, worker: ConnectWorker, watched: _Watched) -> Action:
        connector = watched.connector
        seen, offset = self._see(worker, watched)
        watched.offset = offset or watched.offset
        database_away = None
        try:
            watched.health = databases.health(connector, offset)
        except Unreachable as away:
            database_away = str(away)
        refusal = watched.health.refusal
        if refusal is not None and watched.refusal is None:
            watched.refusal = refusal
            self._told(f"{connector.server}: {refusal}. {WAYS_OUT}")
            patiently(lambda: worker.rest.stop(connector.name), self.stop_asked)
        if watched.refusal is not None:
            _fail(watched, f"{watched.refusal}. {WAYS_OUT}")
            return Action.NOTHING
        moved = self._ends(watched)
        judged = database_away is None and moved is not None and seen.state in ("RUNNING", "FAILED")
        action = watched.watchdog.look(Seen(seen.answers, seen.state, moved, judged), time.monotonic())
        if action is Action.RESTART_TASK:
            self._told(f"connector of {connector.server}: its task is started anew ({watched.error or 'it hangs'})")
            patiently(lambda: worker.rest.restart(connector.name), self.stop_asked)
        self._describe(watched, seen.state, offset, database_away)
        if seen.state == "RUNNING" and watched.offset is not None and not watched.offset.get("snapshot"):
            watched.first.complete(worker.rest, self.snapshots, self._told, self.stop_asked)
        return action

    def _see(self, worker: ConnectWorker, watched: _Watched) -> tuple[Seen, dict[str, Any] | None]:
        try:
            status = worker.rest.status(watched.connector.name)
            self._positions = self._positions or Positions(self.cluster, self.app)
            offset = self._positions.of(watched.connector)
        except RestRefused:
            return Seen(True, "UNASSIGNED"), None
        except ServerAway:
            return Seen(False), None
        tasks = status.get("tasks") or []
        state = str(status["connector"]["state"]) if not tasks else str(tasks[0]["state"])
        if status["connector"]["state"] in ("FAILED", "PAUSED", "STOPPED"):
            state = str(status["connector"]["state"])
        trace = str((tasks[0] if tasks else {}).get("trace") or status["connector"].get("trace") or "")
        watched.error = cause_of(trace) if state == "FAILED" else None
        if watched.error and any(word in trace for word in _PERMANENT) and watched.refusal is None:
            watched.refusal = watched.error
        return Seen(True, state), offset

    def _ends(self, watched: _Watched) -> dict[str, int] | None:
        try:
            names = [watched.connector.heartbeat_topic, *(table.topic for table in watched.connector.tables)]
            for name in names:
                if name not in watched.partitions:
                    watched.partitions[name] = self.cluster.partitions(name)
            found = {name: sum(self.cluster.ends(name, watched.partitions[name]).values()) for name in names}
        except HeadraceError:
            self.cluster.close()
            return None
        for table in watched.connector.tables:
            watched.tables[table.name].records = found[table.topic]
        return found

    def _describe(self, watched: _Watched, state: str, offset: Mapping[str, Any] | None, away: str | None) -> None:
        told = alarm(watched.health)
        for table in watched.connector.tables:
            one = watched.tables[table.name]
            snapshot = self.snapshots.of(watched.connector.name, table.source.table_name)
            one.snapshot = f"{snapshot.kind} {snapshot.state}" if snapshot is not None else None
            one.snapshot_rows = snapshot.rows if snapshot is not None else None
            busy = snapshot is not None and snapshot.state == "running"
            reading = busy or (offset is not None and bool(offset.get("snapshot")))
            flowing = "snapshot" if reading else "streaming" if offset is not None else "starting"
            words = {"RUNNING": flowing, "PAUSED": "paused", "STOPPED": "paused", "FAILED": "failed"}
            one.state = "waiting" if away is not None else words.get(state, "starting")
            one.last_error = away or watched.error
            one.lag_bytes, one.slot_bytes = watched.health.lag_bytes, watched.health.retained_bytes
            one.lag_seconds = age_s(offset)
            if told is not None and one.alarm is None:
                self._told(f"ALARM table {table.name}: {told}")
            one.alarm = told
            one.restarts = watched.watchdog.restarts
            one.worker_pid = self.worker.pid if self.worker is not None else 0

    def _publish(self) -> None:
        for status in self.statuses:
            status.at = iso_now()
            self._catalog.put(f"capture/{self.app}/{status.name}", status.entry())

    def _read_notifications(self, worker: ConnectWorker) -> None:
        """Whole lines that were added since the last time."""
        try:
            with worker.notifications.open("rb") as file:
                file.seek(self._told_up_to)
                added = file.read()
        except OSError:
            return
        whole = added[: added.rfind(b"\n") + 1]
        self._told_up_to += len(whole)
        self.snapshots.read(whole.decode(errors="replace").splitlines())

    def _obey(self, worker: ConnectWorker) -> None:
        with self._lock:
            asked, self._asked = self._asked, []
        for name, action in asked:
            for watched in self._watched:
                for table in watched.connector.tables:
                    if table.name == name:
                        self._told(f"table {name}: {action} was asked for")
                        self._do(worker, watched, table, action)

    def _do(self, worker: ConnectWorker, watched: _Watched, table: Captured, action: str) -> None:
        name = watched.connector.name
        try:
            if action == "pause":
                worker.rest.stop(name)
            elif action == "resume":
                worker.rest.resume(name)
            elif action == "snapshot" or action.startswith("snapshot-"):
                self._signal(watched, table, action.removeprefix("snapshot-"))
        except HeadraceError as error:
            self._told(f"table {table.name}: {action} failed: {error}")

    def _read_row(self, watched: _Watched, table: Captured, key: Mapping[str, Any]) -> None:
        """Have one row read from its table."""
        self._told(f"table {table.name}: its end was torn, and the row {dict(key)} is read again")
        wanted = {"data-collection": table.source.table_name, "filter": databases.condition(watched.connector, key)}
        data = {"data-collections": [table.source.table_name], "type": "incremental", "additional-conditions": [wanted]}
        databases.signal(watched.connector, watched.schema, _SIGNALS["snapshot"], data)

    def _signal(self, watched: _Watched, table: Captured, action: str) -> None:
        collections = {"data-collections": [table.source.table_name], "type": "incremental"}
        data = {"type": "incremental"} if action in ("hold", "go") else collections
        databases.signal(watched.connector, watched.schema, _SIGNALS[action], data)


def _fail(watched: _Watched, error: str, state: str = "failed") -> None:
    for one in watched.tables.values():
        one.state, one.last_error = state, error
