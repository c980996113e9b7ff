"""The capture of one SQLite table as a thread: it drains, waits, tries again, and does what it is told."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.capture.declarations import Captured
from headrace.capture.problems import Unreachable
from headrace.capture.sqlite import SQLiteFile
from headrace.capture.sqlite_drain import SourceMoved, SQLiteDrain
from headrace.errors import HeadraceError, ServerAway
from headrace.feed.cluster import Cluster

__all__ = ["SQLiteCapture", "SQLiteStatus"]

RETRY_S = 1.0
WAIT_S = 0.5


@dataclass(frozen=True, slots=True)
class SQLiteStatus:
    """How a capture is doing."""

    state: str
    """``starting``, ``snapshot``, ``streaming``, ``paused``, ``waiting`` (for the log, or for who locks the file),
    ``failed`` or ``stopped``."""
    rows: int = 0
    """Changes carried since the start."""
    pending: int | None = None
    """Changes that are noted in the file and not in the log; None: not known yet."""
    oldest_ms: int | None = None
    """When the oldest of them was made."""
    error: str | None = None

    def lag_seconds(self, now_ms: int | None = None) -> float | None:
        """How old that is: how far behind the log is."""
        if self.pending is None:
            return None
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        return 0.0 if self.oldest_ms is None else max(0.0, round((now_ms - self.oldest_ms) / 1000, 1))


class SQLiteCapture:
    """``start``, then ``stop``; in between ``pause``, ``resume`` and ``snapshot``, from any thread."""

    def __init__(
        self, app: str, captured: Captured, cluster: Cluster, told: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self.app, self.captured = app, captured
        self._cluster, self._told = cluster, told
        self._stopping, self._running, self._snapshot = threading.Event(), threading.Event(), threading.Event()
        self._running.set()
        self._status = SQLiteStatus("starting")
        self._drains: SQLiteDrain | None = None
        self._thread = threading.Thread(target=self._run, name=f"capture of {captured.name}", daemon=True)

    @property
    def status(self) -> SQLiteStatus:
        """How it is doing."""
        is_dead, now = self._thread.ident is not None and not self._thread.is_alive(), self._status
        if is_dead and now.state != "stopped":
            return replace(now, state="failed", error=now.error or "it has ended")
        return now

    def has_carried_all(self) -> bool:
        """Whether all that is in the file now is in the log; not, while the file cannot be asked."""
        drain = self._drains
        if drain is None or self.status.state != "streaming":
            return False
        try:
            with contextlib.closing(SQLiteFile(drain.source)) as file:
                return file.last_id(file.watched(self.app, self.captured)) <= drain.position
        except HeadraceError:  # which the capture comes upon too, and tells
            return False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, patience_s: float = 10.0) -> None:
        """End; it goes on where it was when it is started again."""
        self._stopping.set()
        self._running.set()
        if self._thread.ident is not None:
            self._thread.join(patience_s)

    def pause(self) -> None:
        """Carry nothing until ``resume``: changes stay in the file."""
        self._running.clear()

    def resume(self) -> None:
        """Go on after ``pause``."""
        self._running.set()

    def snapshot(self) -> None:
        """Capture all rows anew, while writes go on. The file is taken for the truth, also if it was refused."""
        self._snapshot.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                drain = SQLiteDrain(self.app, self.captured, self._cluster, told=self._told)
                with contextlib.closing(drain):
                    self._drain(drain)
            except Exception as error:  # whatever it is, it is told and tried again
                self._failed(error)
        self._status = replace(self._status, state="stopped", error=None)

    def _drain(self, drain: SQLiteDrain) -> None:
        asked = self._snapshot.is_set()
        drain.open(as_truth=asked)
        self._drains = drain
        before = self._status.rows
        while not self._stopping.is_set():
            if self._snapshot.is_set():
                drain.snapshot()
                self._snapshot.clear()
            if not self._running.is_set():
                self._status = SQLiteStatus("paused", before + drain.rows_captured, *drain.pending())
                self._running.wait(WAIT_S)
                continue
            more = drain.step()
            waits = drain.pending() if more else (0, None)
            self._status = SQLiteStatus(drain.state, before + drain.rows_captured, *waits)
            if not more:
                drain.wait(WAIT_S, self._stopping)
                self._waits(drain.pending())  # to carry them takes long while the log is away

    def _look_what_waits(self) -> None:
        """The log is away, say, while changes come."""
        drain = self._drains
        if drain is not None:
            with contextlib.suppress(HeadraceError), contextlib.closing(SQLiteFile(drain.source)) as file:
                waits = file.pending(file.watched(self.app, self.captured), drain.position)
                self._waits(waits)

    def _waits(self, found: tuple[int, int | None]) -> None:
        self._status = replace(self._status, pending=found[0], oldest_ms=found[1])

    def _failed(self, error: Exception) -> None:
        state = "waiting" if isinstance(error, ServerAway) else "failed"
        sentence = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
        if self._status.error != sentence:
            self._told(f"table {self.captured.name}: {sentence}")
        self._status = replace(self._status, state=state, error=sentence)
        if not isinstance(error, Unreachable):
            self._look_what_waits()
        until = time.monotonic() + RETRY_S
        refused = isinstance(error, SourceMoved)
        while not self._stopping.is_set() and (refused or time.monotonic() < until):
            if refused and self._snapshot.is_set():
                return
            self._stopping.wait(0.05)
