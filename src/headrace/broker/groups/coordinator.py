"""The group coordinator: all groups of the node, their log and their clocks.

Handlers call it. It looks up the group, lets it do its part (``group.py``), and carries out the effects: futures are
answered, metadata goes to the journal. Nothing waits for a thread: everything runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from uuid import uuid4

from headrace.broker.groups.codes import Code
from headrace.broker.groups.expiry import expired
from headrace.broker.groups.group import ClassicGroup
from headrace.broker.groups.journal import OFFSETS_TOPIC, Journal
from headrace.broker.groups.member import NEVER
from headrace.broker.groups.messages import (
    Answer,
    Effect,
    JoinAnswer,
    JoinRequest,
    Leaver,
    Phase,
    Store,
    SyncAnswer,
    SyncRequest,
)
from headrace.broker.groups.records import (
    Change,
    CommittedOffset,
    GroupChange,
    GroupMetadata,
    OffsetChange,
    TransactionalOffset,
    TransactionEnd,
)
from headrace.broker.groups.settings import GroupSettings
from headrace.clock import Clock
from headrace.errors import HeadraceError, InvalidRequest, StorageError, UnknownTopic
from headrace.log.group_commit import GroupCommit
from headrace.log.store import LogStore

__all__ = ["GroupCoordinator", "Timer", "Timers"]

log = logging.getLogger(__name__)

_STALL = 1.0
_MAX_NAME = 0x7FFF
_ID_SUFFIX = 64


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


class GroupCoordinator:
    """All that the group requests need; ``load`` it first."""

    def __init__(
        self,
        store: LogStore,
        commit: GroupCommit,
        clock: Clock,
        timers: Timers,
        settings: GroupSettings | None = None,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self.settings = settings or GroupSettings()
        self.journal = Journal(store, commit, self.settings)
        self._store = store
        self._clock = clock
        self._timers = timers
        self._new_id = new_id
        self._groups: dict[str, ClassicGroup] = {}
        self._wakers: dict[str, tuple[float, Timer]] = {}
        self._excused: set[ClassicGroup] = set()
        self._expiry: Timer | None = None
        self._closed = False
        self.rebalances = 0
        """How many generations groups have agreed on."""

    # --- life ---

    def load(self) -> None:
        """Take up where the log says we were: members of stable groups have their session timeout to be heard of.

        A group that has become too large (``group.max.size`` was lowered) rebalances, and the last to join are refused.
        """
        self.journal.load()
        for group_id, metadata in list(self.journal.durable.groups.items()):
            group = self._find(group_id) if metadata.members else None
            if group is not None and len(metadata.members) > self.settings.max_size:
                self._carry_out(group, group.rebalance("the group is too large"))
        self._schedule_expiry()

    def ensure_log(self) -> None:
        """Make ``__consumer_offsets`` if there is none."""
        self.journal.partition()

    def close(self) -> None:
        """Answer everyone who waits and stop the clocks."""
        self._closed = True
        if self._expiry is not None:
            self._expiry.cancel()
        for group in list(self._groups.values()):
            self._drop(group, Code.NOT_COORDINATOR)

    # --- members ---

    async def join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        """JoinGroup."""
        settings = self.settings
        if not _is_name(group_id):
            return JoinAnswer(Code.INVALID_GROUP_ID, request.member_id)
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            return JoinAnswer(Code.INVALID_SESSION_TIMEOUT, request.member_id)
        if not _can_be_stored(request):
            return JoinAnswer(Code.INVALID_REQUEST, request.member_id)
        group = self._find(group_id)
        if group is None:
            if request.member_id:
                return JoinAnswer(Code.UNKNOWN_MEMBER_ID, request.member_id)
            group = self._groups[group_id] = self._new_group(group_id, None)
        future: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        self._carry_out(group, group.join(request, future))
        return await future

    async def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        """SyncGroup."""
        if not group_id:
            return SyncAnswer(Code.INVALID_GROUP_ID)
        group = self._find(group_id)
        if group is None:
            return SyncAnswer(Code.UNKNOWN_MEMBER_ID)
        future: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        self._carry_out(group, group.sync(request, future))
        return await future

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> Code:
        """Heartbeat."""
        if not group_id:
            return Code.INVALID_GROUP_ID
        group = self._find(group_id)
        if group is None:
            return Code.UNKNOWN_MEMBER_ID
        code = group.heartbeat(member_id, instance_id, generation)
        self._wake_in_time(group)
        return code

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> tuple[Code, list[Code]]:
        """LeaveGroup: a code for all, and one for each."""
        if not group_id:
            return Code.INVALID_GROUP_ID, []
        group = self._find(group_id)
        if group is None:
            return Code.NONE, [Code.UNKNOWN_MEMBER_ID for _ in leavers]
        codes, effects = group.leave(leavers)
        stored: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        if not self._carry_out(group, effects, stored):
            return Code.NONE, codes
        code = await stored
        return (code, []) if code else (Code.NONE, codes)

    # --- offsets ---

    async def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Sequence[tuple[str, int, CommittedOffset]],
    ) -> Code:
        """OffsetCommit of (topic, partition, offset): durable when it returns. One code for all of them."""
        group = self._find(group_id)
        if group is not None:
            code = group.check_commit(member_id, instance_id, generation)
            self._wake_in_time(group)
            if code:
                return code
        elif generation >= 0:
            return Code.GROUP_ID_NOT_FOUND
        elif not _fits(group_id):
            return Code.INVALID_GROUP_ID
        if not offsets:
            return Code.NONE
        return await self._store_all(
            [OffsetChange(group_id, topic, partition, value.as_stored()) for topic, partition, value in offsets]
        )

    async def commit_in_transaction(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Sequence[tuple[str, int, CommittedOffset]],
        producer: tuple[int, int],
    ) -> Code:
        """TxnOffsetCommit: durable when it returns, and committed when the transaction of (producer id, epoch) is."""
        group = self._find(group_id)
        if group is not None:
            code = group.check_transactional_commit(member_id, instance_id, generation)
            if code:
                return code
        elif generation >= 0:
            return Code.ILLEGAL_GENERATION
        elif not _fits(group_id):
            return Code.INVALID_GROUP_ID
        return await self._store_all(
            [TransactionalOffset(*producer, OffsetChange(group_id, *offset)) for offset in offsets]
        )

    def end_transaction(
        self, producer_id: int, epoch: int, commit: bool, done: Callable[[HeadraceError | None], None]
    ) -> None:
        """Write the marker of a transaction with offsets; ``done`` when it is durable. Raises if it cannot be written.

        Committed offsets are repeated before the marker (``journal.py`` says why), and those of topics that are gone
        are removed after it.
        """
        pending = self.journal.latest.pending.get(producer_id, {}) if commit else {}
        offsets = [OffsetChange(*place, value) for place, value in pending.items()]
        gone = [change._replace(value=None) for change in offsets if change.topic not in self._store.topics]
        self.journal.write([*offsets, TransactionEnd(producer_id, epoch, commit), *gone], done)

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may change this offset."""
        journal = self.journal
        states = (journal.latest, journal.durable)
        return any(state.pending and state.is_pending(group_id, topic, partition) for state in states)

    async def settle(self) -> Code:
        """Wait until what has been committed so far is durable: a fetch of stable offsets must not miss any."""
        try:
            await self.journal.settle()
        except HeadraceError as error:
            return _code(error)
        return Code.NONE

    def offsets(self, group_id: str) -> dict[tuple[str, int], CommittedOffset]:
        """A group's durable offsets by (topic, partition); only to look at."""
        return self.journal.durable.offsets.get(group_id, {})

    def offset(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """One durable offset; not if it is of an earlier topic of the same name."""
        committed = self.offsets(group_id).get((topic, partition))
        if committed is None or committed.topic_id.int == 0:
            return committed
        known = self._store.topics.get(topic)
        return committed if known is None or known.id == committed.topic_id else None

    async def delete_offsets(
        self, group_id: str, places: Sequence[tuple[str, int]]
    ) -> tuple[Code, dict[tuple[str, int], Code]]:
        """OffsetDelete: a code for all, and one for each (topic, partition)."""
        if not group_id:
            return Code.INVALID_GROUP_ID, {}
        group = self._find(group_id)
        if group is None:
            return Code.GROUP_ID_NOT_FOUND, {}
        if group.phase is not Phase.EMPTY and not group.uses_consumer_protocol():
            return Code.NON_EMPTY_GROUP, {}
        known = self.journal.latest.offsets.get(group_id, {})
        codes: dict[tuple[str, int], Code] = {}
        changes: list[Change] = []
        for place in places:
            codes[place] = Code.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed(place[0]) else Code.NONE
            if codes[place] is Code.NONE and place in known:
                changes.append(OffsetChange(group_id, *place, None))
        code = await self._store_all(changes)
        return (code, {}) if code else (Code.NONE, codes)

    # --- groups as a whole ---

    def group_ids(self) -> list[str]:
        """All groups, those of the log first."""
        return list(dict.fromkeys((*self.journal.durable.groups, *self._groups)))

    def describe(self, group_id: str) -> ClassicGroup | None:
        """A group, to look at."""
        group = self._groups.get(group_id)
        if group is not None:
            return group
        metadata = self.journal.durable.groups.get(group_id)
        return None if metadata is None else self._new_group(group_id, metadata)

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, Code]:
        """DeleteGroups: groups without members go, with their offsets."""
        codes: dict[str, Code] = {}
        changes: list[Change] = []
        for group_id in dict.fromkeys(group_ids):
            group = self._find(group_id)
            if group is None:
                codes[group_id] = Code.GROUP_ID_NOT_FOUND
            elif group.phase is not Phase.EMPTY:
                codes[group_id] = Code.NON_EMPTY_GROUP
            else:
                codes[group_id] = Code.NONE
                changes += self._removal(group_id)
                self._drop(group, Code.UNKNOWN_MEMBER_ID)
        failure = await self._store_all(changes)
        return {group_id: code or failure for group_id, code in codes.items()}

    def on_topic_deleted(self, name: str) -> None:
        """Offsets of a topic that is gone go, too."""
        if name == OFFSETS_TOPIC:
            for group in list(self._groups.values()):
                self._drop(group, Code.NOT_COORDINATOR)
            self.journal.reset()
            return
        self._write_quietly(
            [
                OffsetChange(group_id, *place, None)
                for group_id, offsets in self.journal.latest.offsets.items()
                for place in offsets
                if place[0] == name
            ],
            f"offsets of the deleted topic {name}",
        )

    def expire(self) -> None:
        """Remove offsets that are too old, and groups that have nothing left."""
        changes: list[Change] = []
        now_ms = self._clock.now_ms()
        latest = self.journal.latest
        for group_id in dict.fromkeys((*latest.groups, *self._groups)):
            group = self._groups.get(group_id) or self._new_group(group_id, latest.groups.get(group_id))
            offsets = latest.offsets.get(group_id, {})
            old = [
                place
                for place in expired(group, offsets, now_ms, self.settings.offsets_retention_ms)
                if not latest.is_pending(group_id, *place)
            ]
            if len(old) == len(offsets) and group.is_idle() and not latest.has_pending(group_id):
                changes += self._removal(group_id)
                self._drop(group, Code.UNKNOWN_MEMBER_ID)
            else:
                changes += [OffsetChange(group_id, *place, None) for place in old]
        self._write_quietly(changes, "expired offsets")

    # --- inside ---

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        if group is None:
            metadata = self.journal.latest.groups.get(group_id)
            if metadata is None:
                return None
            group = self._groups[group_id] = self._new_group(group_id, metadata)
            self._wake_in_time(group)
        return group

    def _new_group(self, group_id: str, metadata: GroupMetadata | None) -> ClassicGroup:
        return ClassicGroup(group_id, self.settings, self._clock, self._new_id, metadata)

    def _removal(self, group_id: str) -> list[Change]:
        latest = self.journal.latest
        changes: list[Change] = [OffsetChange(group_id, *place, None) for place in latest.offsets.get(group_id, {})]
        if group_id in latest.groups:
            changes.append(GroupChange(group_id, None))
        return changes

    def _drop(self, group: ClassicGroup, code: Code) -> None:
        """Forget a group's volatile side."""
        self._groups.pop(group.group_id, None)
        self._excused.discard(group)
        waker = self._wakers.pop(group.group_id, None)
        if waker is not None:
            waker[1].cancel()
        self._carry_out(group, group.close(code))

    def _carry_out(
        self, group: ClassicGroup, effects: Sequence[Effect], stored: asyncio.Future[Code] | None = None
    ) -> bool:
        """Do what the group wants done; True if something is being stored (``stored`` is told how that went)."""
        storing = False
        for effect in effects:
            if isinstance(effect, Store):
                storing = True
                self._store_metadata(group, effect, stored)
            else:
                _answer(effect)
        self._wake_in_time(group)
        return storing

    def _store_metadata(self, group: ClassicGroup, store: Store, stored: asyncio.Future[Code] | None) -> None:
        def done(error: HeadraceError | None) -> None:
            code = Code.NONE if error is None else _code(error)
            if not code and (before is None or before.generation != store.metadata.generation):
                self.rebalances += 1
            if group.phase is not Phase.DEAD:
                self._carry_out(group, group.stored(store, code))
            if stored is not None and not stored.done():
                stored.set_result(code)

        before = self.journal.latest.groups.get(group.group_id)
        try:
            self.journal.write([GroupChange(group.group_id, store.metadata)], done)
        except HeadraceError as error:
            log.warning("group %s could not be stored: %s", group.group_id, error)
            done(error)

    async def _store_all(self, changes: Sequence[Change]) -> Code:
        try:
            await self.journal.store(changes)
        except HeadraceError as error:
            return _code(error)
        return Code.NONE

    def _write_quietly(self, changes: Sequence[Change], what: str) -> None:
        def done(error: HeadraceError | None) -> None:
            if error is not None:
                log.warning("%s could not be removed: %s", what, error)

        try:
            self.journal.write(changes, done)
        except HeadraceError as error:
            done(error)

    def _wake_in_time(self, group: ClassicGroup) -> None:
        """Have a timer at or before the moment the group wants to be called."""
        wake_at = group.wake_at
        if wake_at == NEVER or self._closed or self._groups.get(group.group_id) is not group:
            return
        waker = self._wakers.get(group.group_id)
        if waker is not None:
            if waker[0] <= wake_at:
                return
            waker[1].cancel()
        delay = max(wake_at - self._clock.monotonic(), 0.0)
        self._wakers[group.group_id] = (wake_at, self._timers.call_later(delay, lambda: self._wake(group)))

    def _wake(self, group: ClassicGroup) -> None:
        if self._groups.get(group.group_id) is not group:
            return
        due, _ = self._wakers.pop(group.group_id)
        if self._clock.monotonic() - due > _STALL and group not in self._excused:
            # We were held up ourselves: heartbeats that lie in the sockets are read before anyone is called lost.
            self._excused.add(group)
            self._wakers[group.group_id] = (due, self._timers.call_later(_STALL / 2, lambda: self._wake(group)))
            return
        self._excused.discard(group)
        self._carry_out(group, group.tick())

    def _schedule_expiry(self) -> None:
        def expire() -> None:
            self.expire()
            self._schedule_expiry()

        if not self._closed:
            self._expiry = self._timers.call_later(self.settings.offsets_retention_check_interval_ms / 1000, expire)


def _answer(answer: Answer) -> None:
    future = answer.ticket
    assert isinstance(future, asyncio.Future)
    if not future.done():
        future.set_result(answer.response)


def _code(error: HeadraceError) -> Code:
    """What a client is told when the log refused: one that makes it look for the coordinator again and retry."""
    if isinstance(error, StorageError):
        return Code.NOT_COORDINATOR
    if isinstance(error, UnknownTopic):
        return Code.COORDINATOR_NOT_AVAILABLE
    return Code.INVALID_REQUEST if isinstance(error, InvalidRequest) else Code.UNKNOWN_SERVER_ERROR


def _can_be_stored(request: JoinRequest) -> bool:
    """Names have to fit into the records; ids get a suffix."""
    names = [request.protocol_type, request.client_host, *(name for name, _ in request.protocols)]
    return (
        all(map(_fits, names)) and _fits(request.client_id, _ID_SUFFIX) and _fits(request.instance_id or "", _ID_SUFFIX)
    )


def _is_name(group_id: str) -> bool:
    return bool(group_id) and _fits(group_id)


def _fits(name: str, suffix: int = 0) -> bool:
    most = _MAX_NAME - suffix
    return len(name) * 4 <= most or (len(name) <= most and len(name.encode()) <= most)
