"""Fetch sessions (KIP-227): the broker remembers what a reader fetches, so that requests name only what changed.

A session is made by a full fetch (epoch 0) and goes on with epochs 1, 2, ...; a request of another epoch is an error,
after which the client makes a new one. Epoch -1 is a full fetch without a session. When there is no room for one more,
the one that was used longest ago goes, if that was more than two minutes ago; otherwise the new reader gets no
session, which only costs it larger requests.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from headrace.broker import error_codes
from headrace.broker.codecs.fetch import FetchRequest, PartitionWish, TopicKey
from headrace.clock import Clock

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.log.partition import PartitionLog

__all__ = ["FetchSession", "FetchSessions", "Followed", "SessionError", "follow"]

FULL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
EVICT_AFTER_SECONDS: Final = 120.0
_MAX_ID: Final = 2**31 - 1


class SessionError(Exception):
    """A request that does not fit its session."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Followed:
    """A partition as a reader follows it, with what it was last told, so that it is only told news."""

    __slots__ = (
        "error",
        "index",
        "key",
        "leader_epoch",
        "max_bytes",
        "offset",
        "partition",
        "told_high_watermark",
        "told_log_start",
    )

    def __init__(self, key: TopicKey, wish: PartitionWish) -> None:
        self.key = key
        self.index = wish.partition
        self.partition: PartitionLog | None = None
        self.error = error_codes.NONE
        self.told_high_watermark = -1
        self.told_log_start = -1
        self.update(wish)

    def update(self, wish: PartitionWish) -> None:
        """The reader goes on from elsewhere."""
        self.leader_epoch = wish.leader_epoch
        self.offset = wish.offset
        self.max_bytes = wish.max_bytes

    def resolve(self, broker: Broker) -> None:
        """Find the partition, or why there is none. A topic named by id is never found again once it is deleted."""
        self.partition = None
        topic, self.error = broker.find_topic(self.key)
        if topic is not None:
            if 0 <= self.index < len(topic.partitions):
                self.partition = topic.partitions[self.index]
            else:
                self.error = error_codes.UNKNOWN_TOPIC_OR_PARTITION


def follow(topics: Iterable[tuple[TopicKey, list[PartitionWish]]]) -> list[Followed]:
    """What a full request asks for."""
    return [Followed(key, wish) for key, wishes in topics for wish in wishes]


class FetchSession:
    """One reader's session."""

    __slots__ = ("by_id", "epoch", "followed", "id", "used_at")

    def __init__(self, session_id: int, followed: Iterable[Followed], by_id: bool, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.by_id = by_id
        self.used_at = now
        self.followed: OrderedDict[tuple[TopicKey, int], Followed] = OrderedDict(
            ((item.key, item.index), item) for item in followed
        )

    def update(self, request: FetchRequest) -> None:
        """Take in what a request adds, changes and forgets."""
        followed = self.followed
        for key, wishes in request.topics:
            for wish in wishes:
                item = followed.get((key, wish.partition))
                if item is None:
                    followed[key, wish.partition] = Followed(key, wish)
                else:
                    item.update(wish)
        for key, indexes in request.forgotten:
            for index in indexes:
                followed.pop((key, index), None)

    def to_the_back(self, item: Followed) -> None:
        """A partition that just gave data comes last next time, so that all get their turn."""
        if (item.key, item.index) in self.followed:
            self.followed.move_to_end((item.key, item.index))


class FetchSessions:
    """All sessions of the broker, the one that was used longest ago first."""

    def __init__(self, clock: Clock, slots: int) -> None:
        self._clock = clock
        self._slots = slots
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: int) -> bool:
        return session_id in self._sessions

    def resume(self, request: FetchRequest, by_id: bool) -> FetchSession:
        """The session that an incremental request goes on with, brought up to date; SessionError if it does not fit."""
        session = self._sessions.get(request.session_id)
        if session is None:
            raise SessionError(error_codes.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise SessionError(error_codes.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise SessionError(error_codes.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        if not session.followed:
            self.end(session.id)
            return session
        session.epoch = session.epoch + 1 if session.epoch < _MAX_ID else 1
        session.used_at = self._clock.monotonic()
        self._sessions.move_to_end(session.id)
        return session

    def create(self, followed: list[Followed], by_id: bool) -> FetchSession | None:
        """A new session, or None if there is no room for it."""
        if self._slots == 0:
            return None
        now = self._clock.monotonic()
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.used_at < EVICT_AFTER_SECONDS:
                return None
            self.end(oldest.id)
        session_id = random.randint(1, _MAX_ID)
        while session_id in self._sessions:
            session_id = random.randint(1, _MAX_ID)
        session = FetchSession(session_id, followed, by_id, now)
        self._sessions[session_id] = session
        return session

    def end(self, session_id: int) -> None:
        """Forget a session, if there is one of this id."""
        self._sessions.pop(session_id, None)
