"""When a connector or its worker is started anew: pure, decided from what moves and not from what a state is called.

A connector sends a heartbeat every few seconds, through the database's log and through ours, so while the database and
the log answer something moves. When nothing has for a while, the task is started anew; if that does not help, the
worker is killed. A task that has failed is started anew after a pause that grows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["HANG_S", "SILENT_S", "Action", "Seen", "Watchdog"]

HANG_S = 60.0
SILENT_S = 45.0
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
    judged: bool = True
    """Whether moving can be expected: the database and the log answer, and nobody has paused it."""


@dataclass(slots=True)
class Watchdog:
    """Watches one connector."""

    hang_s: float = HANG_S
    silent_s: float = SILENT_S
    restarts: int = 0
    _moved: object = None
    _moved_at: float | None = None
    _answered_at: float | None = None
    _failed_at: float | None = None
    _failures: int = 0
    _restarted: bool = field(default=False)

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
        if seen.state == "FAILED":
            return self._failed(now)
        self._failed_at = None
        if now - self._moved_at <= self.hang_s:
            return Action.NOTHING
        if self._restarted:
            return self._restart_worker(now)
        self._restarted, self._moved_at = True, now
        self.restarts += 1
        return Action.RESTART_TASK

    def started(self, now: float) -> None:
        """The worker was started: everything has time again."""
        self._moved_at = self._answered_at = now
        self._failed_at = None

    def _failed(self, now: float) -> Action:
        if self._failed_at is None:
            self._failed_at = now
        if now - self._failed_at < PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]:
            return Action.NOTHING
        self._failures, self._failed_at, self._moved_at = self._failures + 1, None, now
        self.restarts += 1
        return Action.RESTART_TASK

    def _restart_worker(self, now: float) -> Action:
        self._restarted = False
        self.restarts += 1
        self.started(now)
        return Action.RESTART_WORKER
