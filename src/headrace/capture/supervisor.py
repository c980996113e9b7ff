"""Supervising the Connect worker and its connectors: one thread, which starts, watches, restarts and obeys.

The order of things at a start: the stored position of each connector is compared with its database (going on from
a position that the database no longer has would lose changes: refused); the worker is started; a connector whose
configuration differs is stopped, given the new one, told to read tables that are new to it, and resumed. That a new
table is still to be read is noted in the catalog first, so a crash in between does not forget it.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headrace.capture import databases
from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured, DatabaseSource, Snapshot
from headrace.capture.health import Health, alarm
from headrace.capture.jars import ensure_installed
from headrace.capture.problems import Unreachable
from headrace.capture.rest import RestRefused
from headrace.capture.settings import CaptureSettings
from headrace.capture.snapshots import Snapshots
from headrace.capture.status import TableStatus
from headrace.capture.sweep import sweep
from headrace.capture.watchdog import Action, Seen, Watchdog
from headrace.capture.worker import ConnectWorker, WorkerSettings, java_client_settings
from headrace.errors import HeadraceError, ServerAway
from headrace.feed.catalog import Catalog, iso_now, read_catalog
from headrace.feed.cluster import Cluster
from headrace.feed.tail import TopicTail
from headrace.feed.topics import ensure_topic, read_table

__all__ = ["WAYS_OUT", "Supervisor", "stored_offset", "topic_config"]

WAYS_OUT = (
    "to begin anew from what the database has now: `headrace capture remove FILE`, then run the app again "
    "(all rows are read again; keys that are gone are deleted); or bring back the server that has the changes"
)
_SIGNALS = {"snapshot": "execute-snapshot", "stop": "stop-snapshot", "hold": "pause-snapshot", "go": "resume-snapshot"}
_PERMANENT = ("Slot position", "slot is ahead", "offset is no longer available", "replication slot is ahead")


class _Watched:
    """A connector and what is known of it."""

    def __init__(self, connector: Connector, pid: int) -> None:
        self.connector = connector
        self.schema = ""
        self.watchdog = Watchdog()
        self.refusal: str | None = None
        self.health = Health()
        self.offset: dict[str, Any] | None = None
        self.partitions: dict[str, list[int]] = {}
        self.sweeps: dict[str, dict[str, Any]] = {}
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
        self._watched = [_Watched(connector, pid) for connector in connectors]
        self._told = told
        self._asked: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        self._catalog = Catalog(self.cluster)
        self._tail: TopicTail | None = None
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
            kept = {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * 3_600_000)}
            ensure_topic(self.cluster, watched.connector.notification_topic, 1, kept)
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
            except HeadraceError as error:
                if self.stop_asked.is_set():
                    break
                self._told(f"capture: {error}")
                for watched in self._watched:
                    self._fail(watched, str(error), state="waiting" if isinstance(error, ServerAway) else "failed")
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
        if self._tail is not None:
            self._tail.close()

    def _start_worker(self) -> None:
        if self.worker is not None:
            self.worker.kill()
        for watched in self._watched:
            self._note_first_snapshot(watched)
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
            _patiently(lambda: rest.put_config(connector.name, wanted), self.stop_asked)
            return
        if before != wanted:
            for table in connector.tables:
                known = _includes(before, table)
                if not known and isinstance(table.source, DatabaseSource) and table.source.snapshot == Snapshot.INITIAL:
                    self._catalog.put(f"capture-new/{self.app}/{table.name}", {"at": iso_now()})
            self._catalog.flush()
            _patiently(lambda: rest.stop(connector.name), self.stop_asked)
            _patiently(lambda: rest.put_config(connector.name, wanted), self.stop_asked)
        new = read_catalog(self.cluster, "capture-new")
        for table in connector.tables:
            if f"{self.app}/{table.name}" in new:
                self._signal(watched, table, "snapshot")
                self._catalog.put(f"capture-new/{self.app}/{table.name}", None)
                self._told(f"table {table.name} is new to its connector: its rows are read while changes go on")
        if before != wanted:
            _patiently(lambda: rest.resume(connector.name), self.stop_asked)

    def _note_first_snapshot(self, watched: _Watched) -> None:
        """Remember that an initial snapshot is still to come to its end, and if its topics have rows already."""
        offset = stored_offset(self.cluster, watched.connector)
        watched.sweeps = read_catalog(self.cluster, "capture-sweep")
        if offset is not None and not offset.get("snapshot"):
            return
        for table in watched.connector.tables:
            name = f"{self.app}/{table.name}"
            has_rows = any(end > start for start, end in self.cluster.bounds(table.topic).values())
            if table.outbox is None and not watched.sweeps.get(name, {}).get("repeated"):
                watched.sweeps[name] = {"repeated": has_rows}
                self._catalog.put(f"capture-sweep/{name}", watched.sweeps[name])
        self._catalog.flush()

    def _sweep(self, worker: ConnectWorker, watched: _Watched, state: str) -> None:
        """Once the initial snapshot is complete: delete what its last attempt did not see, if there were several."""
        if not watched.sweeps or state != "RUNNING" or watched.offset is None or watched.offset.get("snapshot"):
            return
        connector = watched.connector
        again = self.snapshots.attempts.get(connector.name, 0) > 1
        tables = [table for table in connector.tables if f"{self.app}/{table.name}" in watched.sweeps]
        repeated = [table for table in tables if again or watched.sweeps[f"{self.app}/{table.name}"]["repeated"]]
        if repeated:
            _patiently(lambda: worker.rest.stop(connector.name), self.stop_asked)
            _until_stopped(worker, connector.name, self.stop_asked)
            for table in repeated:
                seen = self.snapshots.of(connector.name, table.source.table_name)
                about = {"connector": "headrace", "name": connector.name, "table": table.source.table_name}
                nothing = seen is not None and seen.kind == "initial" and seen.rows == 0
                gone = sweep(self.cluster, table.topic, about, nothing_read=nothing)
                if gone:
                    self._told(f"table {table.name}: {gone} rows had gone before the snapshot was repeated; deleted")
        for table in tables:
            self._catalog.put(f"capture-sweep/{self.app}/{table.name}", None)
            del watched.sweeps[f"{self.app}/{table.name}"]
        self._catalog.flush()
        if repeated:
            _patiently(lambda: worker.rest.resume(connector.name), self.stop_asked)

    def _drop_strangers(self, worker: ConnectWorker) -> None:
        """Connectors of databases that the app no longer captures are stopped; their slots are told of."""
        ours = {watched.connector.name for watched in self._watched}
        for name in worker.rest.connectors():
            if name not in ours:
                _patiently(partial(worker.rest.stop, name), self.stop_asked)
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
            self._read_notifications()
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
            _patiently(lambda: worker.rest.stop(connector.name), self.stop_asked)
        if watched.refusal is not None:
            self._fail(watched, f"{watched.refusal}. {WAYS_OUT}")
            return Action.NOTHING
        moved = self._ends(watched)
        judged = database_away is None and moved is not None and seen.state in ("RUNNING", "FAILED")
        action = watched.watchdog.look(Seen(seen.answers, seen.state, moved, judged), time.monotonic())
        if action is Action.RESTART_TASK:
            self._told(f"connector of {connector.server}: its task is started anew ({watched.error or 'it hangs'})")
            _patiently(lambda: worker.rest.restart(connector.name), self.stop_asked)
        self._describe(watched, seen.state, offset, database_away)
        self._sweep(worker, watched, seen.state)
        return action

    def _see(self, worker: ConnectWorker, watched: _Watched) -> tuple[Seen, dict[str, Any] | None]:
        try:
            status = worker.rest.status(watched.connector.name)
            offset = worker.rest.offsets(watched.connector.name)
        except RestRefused:
            return Seen(True, "UNASSIGNED"), None
        except ServerAway:
            return Seen(False), None
        tasks = status.get("tasks") or []
        state = str(status["connector"]["state"]) if not tasks else str(tasks[0]["state"])
        if status["connector"]["state"] in ("FAILED", "PAUSED", "STOPPED"):
            state = str(status["connector"]["state"])
        trace = str((tasks[0] if tasks else {}).get("trace") or status["connector"].get("trace") or "")
        watched.error = _cause(trace) if state == "FAILED" else None
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
            words = {"RUNNING": "snapshot" if reading else "streaming", "PAUSED": "paused", "STOPPED": "paused"}
            one.state = (
                "waiting" if away is not None else words.get(state, "starting" if state != "FAILED" else "failed")
            )
            one.last_error = away or watched.error
            one.lag_bytes, one.slot_bytes = watched.health.lag_bytes, watched.health.retained_bytes
            one.lag_seconds = _age_s(offset)
            if told is not None and one.alarm is None:
                self._told(f"ALARM table {table.name}: {told}")
            one.alarm = told
            one.restarts = watched.watchdog.restarts
            one.worker_pid = self.worker.pid if self.worker is not None else 0

    def _fail(self, watched: _Watched, error: str, state: str = "failed") -> None:
        for one in watched.tables.values():
            one.state, one.last_error = state, error

    def _publish(self) -> None:
        for status in self.statuses:
            status.at = iso_now()
            self._catalog.put(f"capture/{self.app}/{status.name}", status.entry())

    def _read_notifications(self) -> None:
        if self._tail is None and self._watched:
            self._tail = TopicTail(self.cluster, self._watched[0].connector.notification_topic)
        if self._tail is not None:
            self.snapshots.read(self._tail.poll(0.0))

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

    def _signal(self, watched: _Watched, table: Captured, action: str) -> None:
        collections = {"data-collections": [_pattern(table)], "type": "incremental"}
        data = {"type": "incremental"} if action in ("hold", "go") else collections
        databases.signal(watched.connector, watched.schema, _SIGNALS[action], data)


def stored_offset(cluster: Cluster, connector: Connector) -> dict[str, Any] | None:
    """The position that Connect has stored for a connector, read from its topic: no worker needs to run."""
    topic = f"headrace.connect.{connector.app}.offsets"
    if topic not in cluster.admin.list_topics(timeout=10.0).topics:
        return None
    for key, value in read_table(cluster, topic).items():
        name, _ = json.loads(key)
        if name == connector.name:
            found: dict[str, Any] = json.loads(value)
            return found
    return None


def topic_config(table: Captured) -> dict[str, str]:
    """The settings of a captured table's topic: the latest version of each key, or all of them."""
    if table.outbox is not None:
        return {}
    if table.history:
        return {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    return {"cleanup.policy": "compact"}


def _pattern(table: Captured) -> str:
    return table.source.table_name


def _includes(config: Mapping[str, str], table: Captured) -> bool:
    return re.escape(table.source.table_name) in config.get("table.include.list", "").split(",")


def _cause(trace: str) -> str:
    """The innermost reason of a Java trace, in one line."""
    lines = [line.strip() for line in trace.splitlines() if line and not line.startswith(("\t", "    at"))]
    causes = [line.removeprefix("Caused by: ") for line in lines]
    return causes[-1][:500] if causes else "unknown"


def _age_s(offset: Mapping[str, Any] | None) -> float | None:
    """How long ago the newest thing that was captured happened in the database."""
    if offset is None:
        return None
    at_us = offset.get("ts_usec") or (offset["ts_sec"] * 1_000_000 if "ts_sec" in offset else None)
    return None if at_us is None else round(max(0.0, time.time() - at_us / 1e6), 1)


def _until_stopped(worker: ConnectWorker, name: str, stop: threading.Event, patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and not stop.is_set():
        status = worker.rest.status(name)
        if status["connector"]["state"] == "STOPPED" and not status.get("tasks"):
            return
        time.sleep(0.1)
    raise ServerAway(f"connector {name} does not stop.")


def _patiently(ask: Callable[[], None], stop: threading.Event, patience_s: float = 60.0) -> None:
    """Ask Connect again while it rebalances (409) or is busy."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return ask()
        except RestRefused as refused:
            if refused.status not in (409, 500, 503) or time.monotonic() > deadline or stop.is_set():
                raise
        time.sleep(0.2)
