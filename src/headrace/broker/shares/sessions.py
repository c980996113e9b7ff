"""Share sessions: the broker remembers which partitions a member fetches, so that requests name only what changed.

A session belongs to a member of a group and to the connection that it was opened on. It is opened with epoch 0 and
goes on with epochs 1, 2, ...; epoch -1 closes it. When it is closed, or its connection is lost, the member's records
are given back.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from headrace.broker import error_codes

if TYPE_CHECKING:
    from headrace.broker.shares.partition import SharePartition

__all__ = ["FINAL_EPOCH", "OPENING_EPOCH", "Place", "SessionRefused", "ShareSession", "ShareSessions", "are_names"]

OPENING_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1
_MAX_MEMBER: Final = 36

Place = tuple[bytes, int]
"""Topic id and partition."""


def are_names(group: str | None, member: str | None) -> bool:
    """Whether there can be such a member of such a group."""
    return bool(group) and bool(member) and len(member or "") <= _MAX_MEMBER


class SessionRefused(Exception):
    """A request that does not fit its session."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ShareSession:
    """What one member fetches, what it had before included: ``held`` are the partitions it was given records of."""

    __slots__ = ("closed", "epoch", "followed", "group", "held", "member")

    def __init__(self, group: str, member: str) -> None:
        self.group = group
        self.member = member
        self.closed = False
        self.epoch = 1
        self.followed: OrderedDict[Place, None] = OrderedDict()
        self.held: set[SharePartition] = set()

    def to_the_back(self, place: Place) -> None:
        """A partition that just gave records comes last next time, so that all get their turn."""
        if place in self.followed:
            self.followed.move_to_end(place)


class ShareSessions:
    """All sessions of the broker."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group: str, member: str) -> ShareSession:
        """A new session in place of the member's old one, whose records it keeps."""
        old = self._sessions.pop((group, member), None)
        if old is None and len(self._sessions) >= self._limit:
            raise SessionRefused(error_codes.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(group, member)
        if old is not None:
            session.held, old.held, old.closed = old.held, set(), True
        self._sessions[group, member] = session
        return session

    def resume(self, group: str, member: str, epoch: int) -> ShareSession:
        """The session that a request goes on with."""
        session = self._find(group, member)
        if epoch != session.epoch:
            raise SessionRefused(error_codes.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = session.epoch + 1 if session.epoch < _MAX_EPOCH else 1
        return session

    def close(self, group: str, member: str) -> ShareSession:
        """End a session, at its member's wish."""
        session = self._find(group, member)
        del self._sessions[group, member]
        session.closed = True
        return session

    def drop(self, session: ShareSession) -> bool:
        """Its connection is lost; False if it was replaced or closed before."""
        key = (session.group, session.member)
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        session.closed = True
        return True

    def of_group(self, group: str) -> list[ShareSession]:
        """The sessions of a group's members."""
        return [session for session in self._sessions.values() if session.group == group]

    def _find(self, group: str, member: str) -> ShareSession:
        session = self._sessions.get((group, member))
        if session is None:
            raise SessionRefused(error_codes.SHARE_SESSION_NOT_FOUND)
        return session
