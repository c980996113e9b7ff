"""The coordinator's side of offsets: commits, in and outside of transactions, and their removal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.broker.groups.codes import Code
from headrace.broker.groups.messages import Phase
from headrace.broker.groups.modern_records import Assigned, GroupType
from headrace.broker.groups.modern_state import ModernState
from headrace.broker.groups.records import (
    Change,
    CommittedOffset,
    OffsetChange,
    TransactionalOffset,
    TransactionEnd,
)
from headrace.broker.groups.registry import DAMAGED, GroupRegistry, fits
from headrace.errors import HeadraceError

__all__ = ["GroupOffsets"]

Offsets = Sequence[tuple[str, int, CommittedOffset]]

_NEVER = 1 << 31

_MODERN_COMMIT_FROM = 9
"""The version of OffsetCommit from which on clients know the errors of member epochs."""


class GroupOffsets(GroupRegistry):
    """How far groups have come."""

    async def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Offsets,
        version: int = _MODERN_COMMIT_FROM,
    ) -> Code:
        """OffsetCommit of (topic, partition, offset): durable when it returns. One code for all of them.

        ``generation`` is the member epoch in a consumer group. ``version`` is the request's.
        """
        code = self._check_commit(group_id, member_id, instance_id, generation, offsets, version)
        if code or not offsets:
            return code
        return await self._store_all(
            [OffsetChange(group_id, topic, partition, value.as_stored()) for topic, partition, value in offsets]
        )

    async def commit_in_transaction(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Offsets,
        producer: tuple[int, int],
    ) -> Code:
        """TxnOffsetCommit: durable when it returns, and committed when the transaction of (producer id, epoch) is."""
        code = self._check_transactional_commit(group_id, member_id, instance_id, generation, offsets)
        if code:
            return code
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

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> Code:
        """OffsetFetch: may this member ask? Who names no member may always, except about a group that is damaged."""
        if self.is_damaged(group_id):
            return DAMAGED
        state = self.journal.durable.modern.get(group_id)
        if state is None or state.type is not GroupType.CONSUMER or (member_id is None and member_epoch < 0):
            return Code.NONE
        subscription = state.subscriptions.get(member_id or "")
        if subscription is None:
            return Code.UNKNOWN_MEMBER_ID
        if state.current_of(member_id or "").epoch == member_epoch:
            return Code.NONE
        return Code.STALE_MEMBER_EPOCH if subscription.classic is None else Code.ILLEGAL_GENERATION

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may change this offset."""
        journal = self.journal
        states = (journal.latest, journal.durable)
        return any(state.pending and state.is_pending(group_id, topic, partition) for state in states)

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
        if self.is_damaged(group_id):
            return DAMAGED, {}
        state = self.modern(group_id)
        if state is not None:
            if state.type is not GroupType.CONSUMER:
                return Code.GROUP_ID_NOT_FOUND, {}
            topics = state.topics()
            is_subscribed: Callable[[str], bool] = topics.__contains__
        else:
            group = self._find(group_id)
            if group is None:
                return Code.GROUP_ID_NOT_FOUND, {}
            if group.phase is not Phase.EMPTY and not group.uses_consumer_protocol():
                return Code.NON_EMPTY_GROUP, {}
            is_subscribed = group.is_subscribed
        known = self.journal.latest.offsets.get(group_id, {})
        codes: dict[tuple[str, int], Code] = {}
        changes: list[Change] = []
        for place in places:
            codes[place] = Code.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed(place[0]) else Code.NONE
            if codes[place] is Code.NONE and place in known:
                changes.append(OffsetChange(group_id, *place, None))
        code = await self._store_all(changes)
        return (code, {}) if code else (Code.NONE, codes)

    # --- who may commit ---

    def _check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Offsets,
        version: int,
    ) -> Code:
        if self.is_damaged(group_id):
            return DAMAGED
        state = self.modern(group_id)
        if state is not None:
            if generation < 0 and not state.subscriptions and state.type is GroupType.CONSUMER:
                return Code.NONE
            subscription = state.subscriptions.get(member_id)
            if subscription is not None and subscription.classic is None and version < _MODERN_COMMIT_FROM:
                return Code.UNSUPPORTED_VERSION
            return _check_epoch(state, member_id, generation, offsets)
        group = self._find(group_id)
        if group is not None:
            code = group.check_commit(member_id, instance_id, generation)
            self._watch(group)
            return code
        if generation >= 0:
            return Code.GROUP_ID_NOT_FOUND
        return Code.NONE if fits(group_id) else Code.INVALID_GROUP_ID

    def _check_transactional_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, offsets: Offsets
    ) -> Code:
        if self.is_damaged(group_id):
            return DAMAGED
        state = self.modern(group_id)
        if state is not None:
            names_nobody = not member_id and instance_id is None
            if generation < 0 and state.type is GroupType.CONSUMER and (names_nobody or not state.subscriptions):
                return Code.NONE
            code = _check_epoch(state, member_id, generation, offsets)
            return Code.ILLEGAL_GENERATION if code is Code.STALE_MEMBER_EPOCH else code
        group = self._find(group_id)
        if group is not None:
            return group.check_transactional_commit(member_id, instance_id, generation)
        if generation >= 0:
            return Code.ILLEGAL_GENERATION
        return Code.NONE if fits(group_id) else Code.INVALID_GROUP_ID


def _check_epoch(state: ModernState, member_id: str, epoch: int, offsets: Offsets) -> Code:
    """A member commits in its epoch, or in an older one in which it had these partitions and never lost them since."""
    if state.type is not GroupType.CONSUMER:
        return Code.GROUP_ID_NOT_FOUND
    subscription = state.subscriptions.get(member_id)
    if subscription is None:
        return Code.UNKNOWN_MEMBER_ID
    current = state.current_of(member_id)
    if epoch == current.epoch:
        return Code.NONE
    if epoch < current.epoch and all(
        _assigned_at(current.assigned, value, partition, _assigned_at(current.revoking, value, partition)) <= epoch
        for _, partition, value in offsets
    ):
        return Code.NONE
    return Code.STALE_MEMBER_EPOCH if subscription.classic is None else Code.ILLEGAL_GENERATION


def _assigned_at(assigned: Assigned, offset: CommittedOffset, partition: int, otherwise: int = _NEVER) -> int:
    return assigned.get(offset.topic_id, {}).get(partition, otherwise)
