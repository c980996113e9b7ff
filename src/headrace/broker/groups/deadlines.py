"""By when a consumer group or share group must hear of its members.

Lost in a crash: then everybody has new time.
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum, auto
from typing import NamedTuple

from headrace.broker.groups.member import NEVER
from headrace.clock import Clock

__all__ = ["Deadlines", "Why"]


class Why(Enum):
    """What a member has to do in time."""

    SESSION = auto()
    """Send a heartbeat."""
    REVOCATION = auto()
    """Give up what it was told to give up."""
    JOIN = auto()
    """Join again (classic protocol)."""
    SYNC = auto()
    """Ask for its assignment (classic protocol)."""


class _Deadline(NamedTuple):
    at: float
    epoch: int


class Deadlines:
    """The deadlines of one group. ``topics_version`` is how new the topics were when it last looked at them."""

    def __init__(self, group_id: str, clock: Clock) -> None:
        self.group_id = group_id
        self.wake_at = NEVER
        self.topics_version = -1
        self._clock = clock
        self._members: dict[str, dict[Why, _Deadline]] = {}
        self._assign_at = NEVER

    def set(self, member_id: str, why: Why, within_ms: int, epoch: int = -1) -> None:
        """A member has so long."""
        at = self._clock.monotonic() + max(within_ms, 0) / 1000
        self._members.setdefault(member_id, {})[why] = _Deadline(at, epoch)
        self.wake_at = min(self.wake_at, at)

    def set_if_none(self, member_id: str, why: Why, within_ms: int) -> None:
        """A member has so long, unless it was told before."""
        if why not in self._members.get(member_id, {}):
            self.set(member_id, why, within_ms)

    def clear(self, member_id: str, why: Why) -> None:
        """A member has done what it had to do."""
        self._members.get(member_id, {}).pop(why, None)

    def keep_only(self, member_ids: Container[str]) -> None:
        """Forget all other members: they are gone."""
        for member_id in [each for each in self._members if each not in member_ids]:
            del self._members[member_id]

    def assign_in(self, delay_ms: int | None) -> None:
        """A target assignment that had to wait is due in so long; None if there is none."""
        self._assign_at = NEVER if delay_ms is None else self._clock.monotonic() + max(delay_ms, 0) / 1000
        self.wake_at = min(self.wake_at, self._assign_at)

    def take_due(self) -> tuple[list[tuple[str, Why, int]], bool]:
        """Who is late by now (or within a millisecond: timers round), with what and since which epoch; and whether a
        target assignment is due."""
        now = self._clock.monotonic() + 0.001
        late = [
            (member_id, why, deadline.epoch)
            for member_id, deadlines in self._members.items()
            for why, deadline in deadlines.items()
            if deadline.at <= now
        ]
        for member_id, why, _ in late:
            del self._members[member_id][why]
        assign = self._assign_at <= now
        if assign:
            self._assign_at = NEVER
        ahead = [deadline.at for deadlines in self._members.values() for deadline in deadlines.values()]
        self.wake_at = min([self._assign_at, *ahead])
        return late, assign
