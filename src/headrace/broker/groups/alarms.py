"""Wakes groups when they want to be woken.

A group says by ``wake_at`` (on the monotonic clock) when that is. It may be too early, never too late. When the process
itself was held up, a group is woken a little later than due, once: heartbeats that lie in the sockets are read before
anyone is called lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace.broker.groups.member import NEVER
from headrace.clock import Clock

__all__ = ["Alarms", "Sleeper", "Timer", "Timers"]

_STALL = 1.0


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """It shall not come."""
        ...


class Timers(Protocol):
    """Calls back later: an event loop, or a test's."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer:
        """Call after so many seconds."""
        ...


class Sleeper(Protocol):
    """What can be woken."""

    @property
    def group_id(self) -> str:
        """Whose alarm it is: a group has one."""
        ...

    @property
    def wake_at(self) -> float:
        """When it wants to be woken."""
        ...


class Alarms:
    """One alarm for each group."""

    def __init__(self, clock: Clock, timers: Timers, wake: Callable[[str], None]) -> None:
        self._clock = clock
        self._timers = timers
        self._wake = wake
        self._set: dict[str, tuple[float, Timer]] = {}
        self._excused: set[str] = set()

    def watch(self, sleeper: Sleeper) -> None:
        """Have an alarm at or before the moment it wants to be woken."""
        wake_at, group_id = sleeper.wake_at, sleeper.group_id
        if wake_at == NEVER:
            return
        alarm = self._set.get(group_id)
        if alarm is not None:
            if alarm[0] <= wake_at:
                return
            alarm[1].cancel()
        delay = max(wake_at - self._clock.monotonic(), 0.0)
        self._set[group_id] = (wake_at, self._timers.call_later(delay, lambda: self._ring(group_id)))

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._excused.discard(group_id)
        alarm = self._set.pop(group_id, None)
        if alarm is not None:
            alarm[1].cancel()

    def _ring(self, group_id: str) -> None:
        due, _ = self._set.pop(group_id)
        if self._clock.monotonic() - due > _STALL and group_id not in self._excused:
            self._excused.add(group_id)
            self._set[group_id] = (due, self._timers.call_later(_STALL / 2, lambda: self._ring(group_id)))
            return
        self._excused.discard(group_id)
        self._wake(group_id)
