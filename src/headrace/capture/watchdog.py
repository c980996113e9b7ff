"""When a connector or its worker is started anew: pure, decided from what moves and not from what a state is called.

A connector sends a heartbeat every few seconds, so while the database and the log answer something moves. When nothing
has for a while, the task is started anew; if that does not help, the worker is killed. A heartbeat also writes to the
database, and should come back through its log: a connector that beats and whose position stands still is started anew
too, with more patience, for the database may be busy with one large transaction; each time the patience is doubled. So
is one that does not confirm to the database what is stored: the database would keep its log for it until its disk is
full. A task that has failed is started anew after a pause that grows, once the database and the log are there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["HANG_S", "SILENT_S", "STALL_S", "Action", "Seen", "Watchdog"]

HANG_S = 60.0
SILENT_S = 45.0
STALL_S = 300.0
MOST_STALL_S = 7200.0
PAUSES_S = (1.0, 2.0, 5.0, 15.0, 30.0)


class Action(Enum):
    """What is to be done."""

    NOTHING = "nothing"
    RESTART_TASK = "restart the task"
    RESTART_WORKER = "restart the worker"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a connector at one moment."""

    answers: bool
    """Whether the worker's REST interface answered."""
    state: str = "RUNNING"
    """What Connect says of the task; ``FAILED`` counts, other words are only told."""
    moved: object = None
    """Where topics and heartbeats end: anything that is different when something was written."""
    progress: object = None
    """The position and where the tables' topics end: anything that is different when changes have come."""
    unconfirmed: object = None
    """Where the database was told last that it was captured to, if that is before what is stored; else None."""
    judged: bool = True
    """Whether moving can be expected: the database and the log answer, and nobody has paused it."""


@dataclass(slots=True)
class Watchdog:
    """Watches one connector."""

    hang_s: float = HANG_S
    silent_s: float = SILENT_S
    stall_s: float = STALL_S
    restarts: int = 0
    _moved: object = None
    _moved_at: float | None = None
    _answered_at: float | None = None
    _failed_at: float | None = None
    _failures: int = 0
    _restarted: bool = field(default=False)
    _progress: object = None
    _progressed_at: float | None = None
    _stalls: int = 0
    _unconfirmed: object = None
    _confirmed_at: float | None = None
    _unconfirmed_stalls: int = 0

    def look(self, seen: Seen, now: float) -> Action:
        """What to do, given what is seen now."""
        if seen.answers or self._answered_at is None:
            self._answered_at = now
        elif now - self._answered_at > self.silent_s:
            return self._restart_worker(now)
        if not seen.answers:
            return Action.NOTHING
        if not seen.judged or self._moved_at is None or seen.moved != self._moved:
            if self._moved_at is not None and seen.judged and seen.moved != self._moved:
                self._failures, self._restarted = 0, False
            self._moved, self._moved_at = seen.moved, now
        self._note_progress(seen, now)
        self._note_confirmed(seen, now)
        if seen.state == "FAILED" and seen.judged:
            return self._failed(now)
        self._failed_at = None
        if self._has_stalled(now):
            self._stalls, self._progressed_at = self._stalls + 1, now
            return self._restart_worker(now)
        if self._has_not_confirmed(now):
            self._unconfirmed_stalls, self._confirmed_at = self._unconfirmed_stalls + 1, now
            return self._restart_task()
        if now - self._moved_at <= self.hang_s:
            return Action.NOTHING
        if self._restarted:
            return self._restart_worker(now)
        self._restarted, self._moved_at = True, now
        return self._restart_task()

    def started(self, now: float) -> None:
        """The worker was started: everything has time again."""
        self._moved_at = self._answered_at = self._progressed_at = self._confirmed_at = now
        self._failed_at = None

    def _note_progress(self, seen: Seen, now: float) -> None:
        if seen.judged and self._progressed_at is not None and seen.progress != self._progress:
            self._stalls = 0
        if not seen.judged or self._progressed_at is None or seen.progress != self._progress:
            self._progress, self._progressed_at = seen.progress, now

    def _has_stalled(self, now: float) -> bool:
        return self._progressed_at is not None and now - self._progressed_at > self._patience(self._stalls)

    def _note_confirmed(self, seen: Seen, now: float) -> None:
        is_confirmed = seen.unconfirmed is None or seen.unconfirmed != self._unconfirmed
        if is_confirmed and seen.judged:
            self._unconfirmed_stalls = 0
        if is_confirmed or not seen.judged:
            self._unconfirmed, self._confirmed_at = seen.unconfirmed, now

    def _has_not_confirmed(self, now: float) -> bool:
        return self._confirmed_at is not None and now - self._confirmed_at > self._patience(self._unconfirmed_stalls)

    def _patience(self, stalls: int) -> float:
        return min(MOST_STALL_S, self.stall_s * 2.0**stalls)

    def _failed(self, now: float) -> Action:
        if self._failed_at is None:
            self._failed_at = now
        if now - self._failed_at < PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]:
            return Action.NOTHING
        self._failures, self._failed_at, self._moved_at = self._failures + 1, None, now
        return self._restart_task()

    def _restart_task(self) -> Action:
        self.restarts += 1
        return Action.RESTART_TASK

    def _restart_worker(self, now: float) -> Action:
        self._restarted = False
        self.restarts += 1
        self.started(now)
        return Action.RESTART_WORKER
