"""Supervising the Connect worker and its connectors: one thread, which starts, watches, restarts and obeys.

The order of things at a start: the stored position of each connector is compared with its database (going on from
a position that the database no longer has would lose changes: refused); what a worker that was killed left open is
decided, and what it tore is mended; the worker is started; a connector whose configuration differs is stopped, given
the new one, told to read tables that are new to it, and resumed. That a new table is still to be read is noted in the
catalog first, so a crash in between does not forget it.

Whether a connector is to run is our word (it is, unless somebody has paused it, which is noted in the catalog, or it is
refused), and not what Connect remembers: one that a crash left stopped is resumed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.capture import databases
from headrace.capture.beats import Beats
from headrace.capture.connectors import Connector, captures
from headrace.capture.declarations import Captured, DatabaseSource, Snapshot
from headrace.capture.errands import Errands
from headrace.capture.fencing import fence
from headrace.capture.first_snapshot import FirstSnapshot
from headrace.capture.health import boundless
from headrace.capture.jars import ensure_installed
from headrace.capture.keeping import ensure_topics
from headrace.capture.positions import Positions, stored_offset
from headrace.capture.problems import DATABASE_TROUBLE
from headrace.capture.rest import RestRefused, patiently
from headrace.capture.settings import CaptureSettings
from headrace.capture.snapshots import Snapshots
from headrace.capture.status import TableStatus
from headrace.capture.strangers import left_behind
from headrace.capture.torn import mend
from headrace.capture.watchdog import Action, Seen
from headrace.capture.watched import Watched
from headrace.capture.worker import ConnectWorker, WorkerSettings, hidden, java_client_settings
from headrace.errors import HeadraceError, ServerAway
from headrace.feed.catalog import Catalog, iso_now, read_catalog
from headrace.feed.cluster import Cluster

__all__ = ["WAYS_OUT", "Supervisor"]

WAYS_OUT = (
    "to begin anew from what the database has now: `headrace capture remove FILE`, then run the app again "
    "(all rows are read again; keys that are gone are deleted); or bring back the server that has the changes"
)
_PAUSED = "capture-paused"


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
            Watched(
                connector,
                FirstSnapshot(self.cluster, self._catalog, connector),
                Beats(self.cluster, self._catalog, connector),
                Errands(self.cluster, self._catalog, connector),
                settings,
                pid,
            )
            for connector in connectors
        ]
        self._told_up_to = 0
        self._positions: Positions | None = None
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)

    def start(self) -> None:
        """Begin, in a thread. What would lose changes is refused here."""
        ensure_installed(self.settings.home)
        for watched in self._watched:
            fence(self.cluster, watched.connector)
            watched.beats.read()
            watched.look_at_health(stored_offset(self.cluster, watched.connector))
            if watched.refusal is not None:
                raise HeadraceError(f"{watched.connector.server}: {watched.refusal}.", hint=WAYS_OUT)
            warning = boundless(watched.health)
            if warning is not None:
                self._told(f"{watched.connector.server}: {warning}")
            watched.schema = databases.prepare(watched.connector)
        ensure_topics(self.cluster, [watched.connector for watched in self._watched], self._told)
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
                    watched.fail(str(error), state="waiting" if isinstance(error, ServerAway) else "failed")
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
        self._catalog.drain()
        if self._positions is not None:
            self._positions.close()

    def _start_worker(self) -> None:
        if self.worker is not None:
            self.worker.kill()
        paused = read_catalog(self.cluster, _PAUSED)
        for watched in self._watched:
            watched.is_paused = f"{self.app}/{watched.connector.name}" in paused
            watched.errands.read()
            self._settle(watched)
            watched.first.note()
            watched.truncations = databases.truncations(watched.connector, self.cluster, self._catalog)
            if watched.truncations is not None:
                watched.truncations.note(stored_offset(self.cluster, watched.connector))
        kinds = {watched.connector.kind for watched in self._watched}
        self.worker = ConnectWorker(
            WorkerSettings(
                self.app,
                self.settings.bootstrap,
                self.settings.folder / "capture" / self.app,
                self.settings.home,
                tuple({"postgres" if kind == "postgres" else "binlog" for kind in kinds}),
                self.settings.client,
                {one.connector.secret: one.connector.source.password for one in self._watched}
                | hidden(java_client_settings(self.settings.client))[1],
                self.settings.heap,
                self.cluster.brokers.replication,
                self.cluster.brokers.settings,
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

    def _configure(self, worker: ConnectWorker, watched: Watched) -> None:
        """Give a connector its configuration if it has another, and tell it to read the tables that are new to it."""
        connector, rest = watched.connector, worker.rest
        access, _ = hidden(java_client_settings(self.settings.client))
        wanted = {
            **connector.config(watched.schema, self.settings.bootstrap, access),
            "topic.creation.default.replication.factor": str(self.cluster.brokers.replication),
            **{f"topic.creation.default.{name}": value for name, value in self.cluster.brokers.settings.items()},
        }
        before = rest.config(connector.name)
        if before is None:
            patiently(lambda: rest.put_config(connector.name, wanted), self.stop_asked)
        elif before != wanted:
            for table in connector.tables:
                known = captures(before, table)
                if not known and isinstance(table.source, DatabaseSource) and table.source.snapshot == Snapshot.INITIAL:
                    watched.errands.note_table(table)
            rest.stop_and_wait(connector.name, self.stop_asked)  # or it would take, and lose, what the new one is told
            patiently(lambda: rest.put_config(connector.name, wanted), self.stop_asked)
            self._settle(watched)
        if before is None and watched.is_to_run:
            return
        with contextlib.suppress(*DATABASE_TROUBLE):  # the next look tries again, and says what is wrong
            watched.tell_of_tables(self._told)
        have = rest.resume if watched.is_to_run else rest.stop
        patiently(lambda: have(connector.name), self.stop_asked)

    def _settle(self, watched: Watched) -> None:
        """While its task does not run: end what the task has left open, mend what it tore."""
        fence(self.cluster, watched.connector)
        for table in watched.connector.tables:
            missing = mend(self.cluster, table.topic) if table.outbox is None else None
            if missing is not None:
                self._told(f"table {table.name}: its end was torn, and the row {missing} is read again")
                watched.errands.note_row(table, missing)
        with contextlib.suppress(*DATABASE_TROUBLE):  # the next look tries again, and says what is wrong
            watched.tell_of_rows()

    def _drop_strangers(self, worker: ConnectWorker) -> None:
        """Connectors of databases that the app no longer captures are stopped; their slots are told of."""
        ours = {watched.connector.name for watched in self._watched}
        for name in worker.rest.connectors():
            if name not in ours:
                patiently(partial(worker.rest.stop, name), self.stop_asked)
                self._told(left_behind(name, worker.rest.config(name) or {}))

    def _watch(self) -> None:
        assert self.worker is not None
        while not self.stop_asked.is_set():
            if not self.worker.is_alive:
                self._told(f"the change capture process ended ({self.worker.last_words()[-200:]}): starting it anew")
                for watched in self._watched:
                    watched.watchdog.restarts += 1
                    watched.fail("its process ended and is started anew", state="starting")
                return
            self._obey()
            self._read_notifications(self.worker)
            for watched in self._watched:
                if self._look(self.worker, watched) is Action.RESTART_WORKER:
                    self._told("change capture does not move: its process is killed and started anew")
                    return
            self._publish()
            self.stop_asked.wait(self.settings.look_every_s)

    def _look(self, worker: ConnectWorker, watched: Watched) -> Action:
        connector = watched.connector
        seen, offset = self._see(worker, watched)
        watched.offset = offset or watched.offset
        watched.try_to_look(offset, self._told)
        self._have_it_as_wanted(worker, watched, seen.state)
        if watched.refusal is not None:
            watched.describe(seen.state, self.snapshots, worker.pid, self._told)
            watched.fail(f"{watched.refusal}. {WAYS_OUT}")
            return Action.NOTHING
        moved = self._ends(watched)
        judged = watched.trouble is None and moved is not None and watched.is_to_run
        progress = {**(moved or {}), connector.heartbeat_topic: watched.offset}
        found = Seen(seen.answers, seen.state, moved, progress, watched.unconfirmed, judged)
        action = watched.watchdog.look(found, time.monotonic())
        if action is Action.RESTART_TASK:
            action = self._restart_task(worker, watched, seen.state)
        watched.describe(seen.state, self.snapshots, worker.pid, self._told)
        if seen.state == "RUNNING" and watched.first.is_to_be_closed(watched.offset):
            self._close_first_snapshot(worker, watched)
        if seen.state == "RUNNING" and watched.truncations is not None and watched.truncations.are_due(watched.offset):
            self._halt(worker, watched)
            watched.truncations.delete(self._told)
            worker.rest.resume_and_wait(connector.name, self.stop_asked)
        return action

    def _see(self, worker: ConnectWorker, watched: Watched) -> tuple[Seen, dict[str, Any] | None]:
        try:
            seen = watched.seen(worker.rest.status(watched.connector.name), worker.port)
            self._positions = self._positions or Positions(self.cluster, self.app)
            return seen, self._positions.of(watched.connector)
        except RestRefused:
            return Seen(True, "UNASSIGNED"), None
        except ServerAway:
            return Seen(False), None

    def _have_it_as_wanted(self, worker: ConnectWorker, watched: Watched, state: str) -> None:
        """Whatever has stopped a connector that is to run, or runs one that is not: a kill halfway, say."""
        name = watched.connector.name
        if watched.refusal is not None and not watched.has_told_refusal:
            watched.has_told_refusal = True
            self._told(f"{watched.connector.server}: {watched.refusal}. {WAYS_OUT}")
        if watched.is_to_run and state in ("STOPPED", "PAUSED"):
            self._halt(worker, watched)
            worker.rest.resume_and_wait(name, self.stop_asked)
        elif not watched.is_to_run and state in ("RUNNING", "FAILED"):
            patiently(lambda: worker.rest.stop(name), self.stop_asked)

    def _halt(self, worker: ConnectWorker, watched: Watched) -> None:
        worker.rest.stop_and_wait(watched.connector.name, self.stop_asked)
        self._settle(watched)

    def _restart_task(self, worker: ConnectWorker, watched: Watched, state: str) -> Action:
        """Not by Connect's own restart: what the task that ends tears is mended before another begins."""
        name = watched.connector.name
        self._told(f"connector of {watched.connector.server}: its task is started anew ({watched.error or 'it hangs'})")
        try:
            if state == "FAILED" and worker.rest.status(name)["connector"]["state"] == "FAILED":
                worker.rest.restart(name)  # such a one cannot be stopped
            else:
                self._halt(worker, watched)
                worker.rest.resume_and_wait(name, self.stop_asked)
        except HeadraceError as error:
            self._told(f"connector of {watched.connector.server}: {error}")
            return Action.RESTART_WORKER
        return Action.RESTART_TASK

    def _close_first_snapshot(self, worker: ConnectWorker, watched: Watched) -> None:
        repeated = watched.first.repeated(self.snapshots)
        if repeated:
            self._halt(worker, watched)
            watched.first.sweep(repeated, self.snapshots, self._told)
        watched.first.close()
        if repeated:
            worker.rest.resume_and_wait(watched.connector.name, self.stop_asked)

    def _ends(self, watched: Watched) -> dict[str, int] | None:
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

    def _obey(self) -> None:
        with self._lock:
            asked, self._asked = self._asked, []
        for name, action in asked:
            for watched in self._watched:
                for table in watched.connector.tables:
                    if table.name == name:
                        self._told(f"table {name}: {action} was asked for")
                        self._do(watched, table, action)

    def _do(self, watched: Watched, table: Captured, action: str) -> None:
        name = watched.connector.name
        try:
            if action in ("pause", "resume"):
                watched.is_paused = action == "pause"
                note = {"at": iso_now()} if watched.is_paused else None
                self._catalog.put(f"{_PAUSED}/{self.app}/{name}", note)
                self._catalog.flush()  # the next look has it as is wanted
            elif action == "snapshot" or action.startswith("snapshot-"):
                watched.signal(table, action.removeprefix("snapshot-"))
        except HeadraceError as error:
            self._told(f"table {table.name}: {action} failed: {error}")
