"""Running the captures of an app: everything is checked first, then the worker and the threads of SQLite run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from confluent_kafka import KafkaException

from headrace.capture import databases
from headrace.capture.commands import refusal
from headrace.capture.connectors import connectors_of
from headrace.capture.counting import CapturedRows
from headrace.capture.declarations import Captured, SQLite
from headrace.capture.jars import ensure_installed
from headrace.capture.keeping import ensure_table_topic
from headrace.capture.problems import Problem, refused
from headrace.capture.settings import CaptureSettings
from headrace.capture.sqlite_capture import SQLiteCapture
from headrace.capture.status import TableStatus
from headrace.capture.supervisor import Supervisor
from headrace.capture.worker import java_client_settings
from headrace.errors import FolderInUse, HeadraceError
from headrace.feed import Feed, open_feed
from headrace.feed.catalog import Catalog, Commands, iso_now, read_catalog
from headrace.feed.cluster import Cluster

__all__ = ["COMMANDS", "CaptureRun", "locked", "preflight"]

COMMANDS = "capture-command"
PAUSED = "capture-paused"
LISTEN_S = 0.5
PUBLISH_EVERY_S = 2.0
COUNT_S = 0.1
"""How long rows are counted at a time: those of a large snapshot not at once, but their capture is not held up."""
COUNT_AT_LAST_S = 2.0


def preflight(app: str, tables: Sequence[Captured], settings: CaptureSettings) -> None:
    """Check the jars and every database, before anything is published; raises with all cures."""
    connectors = connectors_of(app, tables)
    if connectors:
        ensure_installed(settings.home)
        java_client_settings(settings.client)  # which says so if the worker would not get into the log
    found: list[tuple[str, list[Problem]]] = []
    for connector in connectors:
        problems = databases.problems(connector)
        if problems:
            found.append((connector.server, problems))
    if len(found) == 1:
        raise refused(*found[0])
    if found:
        every = [Problem(f"{server}: {one.sentence}", one.cure) for server, several in found for one in several]
        raise refused(" and ".join(server for server, _ in found), every)


class CaptureRun:
    """All captures of one app: ``start``, then ``stop``."""

    def __init__(
        self,
        app: str,
        tables: Sequence[Captured],
        settings: CaptureSettings,
        told: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.app, self.tables, self.settings = app, tuple(tables), settings
        self.cluster = Cluster(settings.bootstrap, settings.client)
        connectors = connectors_of(app, tables)
        self.supervisor = Supervisor(app, connectors, settings, os.getpid(), told) if connectors else None
        self._sqlite = [SQLiteCapture(app, one, self.cluster, told) for one in tables if isinstance(one.source, SQLite)]
        self._told = told
        self._stopping = threading.Event()
        self._catalog = Catalog(self.cluster)
        self._rows = CapturedRows(self._open_feed, self.cluster, app, tables)
        self._listener = threading.Thread(target=self._listen, name="capture commands", daemon=True)
        self._uncounted = ""
        self._lock: int | None = None

    def start(self) -> None:
        """Check, then begin. Returns when everything that can be refused was checked; rows come later."""
        self._lock = _locked(self.settings, self.app)
        try:
            preflight(self.app, self.tables, self.settings)
            paused = read_catalog(self.cluster, PAUSED) if self._sqlite else {}
            for one in self._sqlite:
                ensure_table_topic(self.cluster, one.captured, self._told)
                if f"{self.app}/{one.captured.name}" in paused:
                    one.pause()
            if self.supervisor is not None:
                self.supervisor.start()
            for one in self._sqlite:
                one.start()
            self._listener.start()
        except BaseException:
            self._unlock()
            raise

    def stop(self) -> None:
        """End everything; it goes on where it was when it is started again."""
        for one in self._sqlite:
            one.stop()
        if self.supervisor is not None:
            self.supervisor.stop()
        self._stopping.set()  # and the listener counts what came at last
        if self._listener.ident is not None:
            self._listener.join(COUNT_AT_LAST_S + 5.0)
        self._publish(self.statuses)
        self._catalog.drain()
        self._unlock()

    @property
    def statuses(self) -> list[TableStatus]:
        """How all captured tables are doing."""
        jvm = self.supervisor.statuses if self.supervisor is not None else []
        return [*jvm, *(self._sqlite_status(one) for one in self._sqlite)]

    def wait_until_current(self, given_up: threading.Event, patience_s: float = 3600.0) -> bool:
        """Wait until all that is in the databases now is in the log; False if it was given up, or one has failed
        (``trouble`` says why)."""
        deadline = time.monotonic() + patience_s
        if self.supervisor is not None and not self.supervisor.wait_until_current(given_up, patience_s):
            return False
        for one in self._sqlite:
            while not one.has_carried_all():
                if one.status.state == "failed" or time.monotonic() > deadline or given_up.wait(0.05):
                    return False
        return all(one.status.state != "failed" for one in self._sqlite)

    @property
    def trouble(self) -> str | None:
        """What those say that do not flow."""
        ill = [one for one in self.statuses if one.state in ("failed", "waiting") and one.last_error is not None]
        return " ".join(f"table {one.name}: {one.last_error}" for one in ill) or None

    def ask(self, name: str, action: str) -> None:
        """Do something with a table: ``pause``, ``resume``, ``snapshot``, ``snapshot-stop|hold|go``."""
        for status in self.statuses:
            refused = refusal(status.entry(), action) if status.name == name else None
            if refused is not None:
                self._told(f"table {name}: {action} is refused: {refused.sentence}")
                return
        for one in self._sqlite:
            if one.captured.name == name:
                self._do(one, action)
        if self.supervisor is not None:
            self.supervisor.ask(name, action)

    def _do(self, one: SQLiteCapture, action: str) -> None:
        asked = {"pause": one.pause, "resume": one.resume, "snapshot": one.snapshot}
        if action in asked:
            asked[action]()
        if action in ("pause", "resume"):  # which holds at the next start too
            note = {"at": iso_now()} if action == "pause" else None
            self._catalog.put(f"{PAUSED}/{self.app}/{one.captured.name}", note)
            try:
                self._catalog.flush()
            except HeadraceError as error:
                self._told(f"table {one.captured.name}: {action} holds now, and perhaps not after a restart: {error}")

    def _listen(self) -> None:
        """Obey commands from the catalog, count rows, and tell how SQLite's captures are doing."""
        commands: Commands | None = None
        waited = PUBLISH_EVERY_S
        while not self._stopping.is_set():
            try:
                commands = commands or Commands(self.cluster, self.app, COMMANDS)
                for name, action in commands.poll(LISTEN_S):
                    self.ask(name, action)
            except HeadraceError:
                self._stopping.wait(LISTEN_S)
            self._count_rows(COUNT_S)
            waited += LISTEN_S
            if waited >= PUBLISH_EVERY_S:
                self._publish([one for one in self.statuses if one.name in self._files])
                self._rows.note(self._catalog)
                waited = 0.0
        self._count_rows(COUNT_AT_LAST_S)
        self._rows.note(self._catalog)
        self._rows.close()
        if commands is not None:
            commands.close()

    def _open_feed(self) -> Feed:
        return open_feed(self.settings.bootstrap, self.settings.log_data, self.settings.client)

    def _count_rows(self, seconds: float) -> None:
        try:
            self._rows.look(seconds)
        except (HeadraceError, KafkaException):
            pass  # the log is away, say: tried again
        except Exception as error:  # whatever it is, captures go on
            if str(error) != self._uncounted:
                self._told(f"captured rows are not counted for now: {error}")
            self._uncounted = str(error)
        for one in self.supervisor.statuses if self.supervisor is not None else []:
            one.rows = self._rows.of(one.name)

    def _publish(self, statuses: Iterable[TableStatus]) -> None:
        """Those of the supervisor it publishes itself, while it runs."""
        for status in statuses:
            self._catalog.put(f"capture/{self.app}/{status.name}", status.entry())

    @property
    def _files(self) -> set[str]:
        return {one.captured.name for one in self._sqlite}

    def _sqlite_status(self, one: SQLiteCapture) -> TableStatus:
        now = one.status
        source = one.captured.source
        return TableStatus(
            self.app,
            one.captured.name,
            source.server,
            source.table_name,
            now.state,
            self._rows.end(one.captured.name),
            lag_seconds=now.lag_seconds(),
            rows=self._rows.of(one.captured.name),
            pending=now.pending,
            snapshot="initial running" if now.state == "snapshot" else None,
            last_error=now.error,
            pid=os.getpid(),
            at=iso_now(),
            is_outbox=one.captured.outbox is not None,
        )

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@contextlib.contextmanager
def locked(settings: CaptureSettings, app: str) -> Iterator[None]:
    """Hold an app's captures while the block runs: nobody else runs them from this folder."""
    lock = _locked(settings, app)
    try:
        yield
    finally:
        os.close(lock)


def _locked(settings: CaptureSettings, app: str) -> int:
    folder = settings.folder / "capture" / app
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise FolderInUse(
            f"the tables of app {app!r} are being captured already, from {folder}.", hint="stop that run first"
        ) from None
    return lock
