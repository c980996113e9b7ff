"""The group coordinator: all groups of the node, their log and their clocks.

Handlers call it. It looks up the group, lets it do its part (``group.py``, ``consumer_group.py``, ``share_group.py``),
and carries out the effects: futures are answered, changes go to the journal. Nothing waits for a thread: everything
runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.broker.groups.alarms import Timer
from headrace.broker.groups.codes import Code
from headrace.broker.groups.expiry import expired, expired_in_consumer_group
from headrace.broker.groups.group import ClassicGroup
from headrace.broker.groups.group_offsets import GroupOffsets
from headrace.broker.groups.journal import OFFSETS_TOPIC
from headrace.broker.groups.messages import JoinAnswer, JoinRequest, Leaver, Phase, SyncAnswer, SyncRequest
from headrace.broker.groups.modern_group import phase_of
from headrace.broker.groups.modern_members import ModernMembers
from headrace.broker.groups.modern_records import GroupType
from headrace.broker.groups.modern_state import ModernState
from headrace.broker.groups.records import Change, CommittedOffset, OffsetChange
from headrace.broker.groups.registry import DAMAGED, fits

__all__ = ["GroupCoordinator", "Listed"]

log = logging.getLogger(__name__)

_ID_SUFFIX = 64
_DAMAGED_STATE = "Damaged"


class Listed(NamedTuple):
    """A group in the list of groups."""

    group_id: str
    type: GroupType
    protocol_type: str
    state: str
    members: int


class GroupCoordinator(GroupOffsets, ModernMembers):
    """All that the group requests need; ``load`` it first."""

    _expiry: Timer | None = None

    # --- life ---

    def load(self) -> None:
        """Take up where the log says we were: members have their session timeout to be heard of.

        A group that has become too large (``group.max.size`` was lowered) rebalances, and the last to join are refused.
        """
        self.journal.load()
        for group_id, metadata in list(self.journal.durable.groups.items()):
            if self.is_damaged(group_id):
                continue
            group = self._find(group_id) if metadata.members else None
            if group is not None and len(metadata.members) > self.settings.max_size:
                self._carry_out(group, group.rebalance("the group is too large"))
        for group_id, state in self.journal.durable.modern.items():
            if state.subscriptions and not self.is_damaged(group_id):
                self._watch(self._deadlines_of(group_id))
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
        for group_id in list(self._deadlines):
            self._drop_deadlines(group_id)

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
        if self.is_damaged(group_id):
            return JoinAnswer(DAMAGED, request.member_id)
        await self._return_to_classic(group_id, request)
        if self._has_consumers(group_id):
            return await self._classic_join(group_id, request)
        if self.modern(group_id) is not None:
            return JoinAnswer(Code.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
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
        if self.is_damaged(group_id):
            return SyncAnswer(DAMAGED)
        if self._has_consumers(group_id):
            return self._classic_sync(group_id, request)
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
        if self.is_damaged(group_id):
            return DAMAGED
        if self._has_consumers(group_id):
            return self._classic_heartbeat(group_id, member_id, instance_id, generation)
        group = self._find(group_id)
        if group is None:
            return Code.UNKNOWN_MEMBER_ID
        code = group.heartbeat(member_id, instance_id, generation)
        self._watch(group)
        return code

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> tuple[Code, list[Code]]:
        """LeaveGroup: a code for all, and one for each."""
        if not group_id:
            return Code.INVALID_GROUP_ID, []
        if self.is_damaged(group_id):
            return DAMAGED, []
        if self._has_consumers(group_id):
            return await self._classic_leave(group_id, leavers)
        group = self._find(group_id)
        if group is None:
            return Code.NONE, [Code.UNKNOWN_MEMBER_ID for _ in leavers]
        codes, effects = group.leave(leavers)
        stored: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        if not self._carry_out(group, effects, stored):
            return Code.NONE, codes
        code = await stored
        return (code, []) if code else (Code.NONE, codes)

    # --- groups as a whole ---

    def group_ids(self) -> list[str]:
        """The names of all groups, those of the log first."""
        durable = self.journal.durable
        return list(dict.fromkeys((*durable.groups, *self._groups, *durable.modern, *self.journal.damaged)))

    def listed(self, group_id: str) -> Listed | None:
        """A group as it stands in the list of groups; None if there is none of this name."""
        if self.is_damaged(group_id):
            return Listed(group_id, GroupType.CLASSIC, "", _DAMAGED_STATE, 0)
        state = self.describe_modern(group_id)
        if state is not None:
            return Listed(group_id, state.type, state.type, phase_of(state), len(state.subscriptions))
        group = self.describe(group_id)
        if group is None:
            return None
        return Listed(group_id, GroupType.CLASSIC, group.protocol_type or "", group.phase, len(group.members))

    def describe(self, group_id: str) -> ClassicGroup | None:
        """A classic group, to look at."""
        group = self._groups.get(group_id)
        if group is not None:
            return group
        metadata = self.journal.durable.groups.get(group_id)
        return None if metadata is None else self._new_group(group_id, metadata)

    def describe_modern(self, group_id: str) -> ModernState | None:
        """A consumer group or share group as it is on disk, to look at."""
        return self.journal.durable.modern.get(group_id)

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, Code]:
        """DeleteGroups: groups without members go, with their offsets."""
        codes: dict[str, Code] = {}
        changes: list[Change] = []
        for group_id in dict.fromkeys(group_ids):
            codes[group_id] = self._can_be_deleted(group_id)
            if codes[group_id] is Code.NONE:
                changes += self._removal(group_id)
                self._forget(group_id)
        failure = await self._store_all(changes)
        return {group_id: code or failure for group_id, code in codes.items()}

    def _can_be_deleted(self, group_id: str) -> Code:
        if self.is_damaged(group_id):
            return DAMAGED
        state = self.modern(group_id)
        if state is not None:
            return Code.NON_EMPTY_GROUP if state.subscriptions else Code.NONE
        group = self._find(group_id)
        if group is None:
            return Code.GROUP_ID_NOT_FOUND
        return Code.NONE if group.phase is Phase.EMPTY else Code.NON_EMPTY_GROUP

    def _forget(self, group_id: str) -> None:
        """Drop what is not in the log of a group that goes."""
        self._drop_deadlines(group_id)
        group = self._groups.get(group_id)
        if group is not None:
            self._drop(group, Code.UNKNOWN_MEMBER_ID)

    def on_topic_deleted(self, name: str) -> None:
        """Offsets of a topic that is gone go, too."""
        if name == OFFSETS_TOPIC:
            for group_id in (*self._groups, *self._deadlines):
                self._drop_deadlines(group_id)
                if group_id in self._groups:
                    self._drop(self._groups[group_id], Code.NOT_COORDINATOR)
            self.journal.reset()
            return
        self._write_quietly(
            [
                OffsetChange(group_id, *place, None)
                for group_id, offsets in self.journal.latest.offsets.items()
                if not self.is_damaged(group_id)
                for place in offsets
                if place[0] == name
            ],
            f"the removal of offsets of the deleted topic {name}",
        )

    def expire(self) -> None:
        """Remove offsets that are too old, and groups that have nothing left."""
        changes: list[Change] = []
        latest = self.journal.latest
        for group_id in dict.fromkeys((*latest.groups, *self._groups, *latest.modern)):
            if self.is_damaged(group_id):
                continue
            offsets = latest.offsets.get(group_id, {})
            found, idle = self._expired(group_id, offsets)
            old = [place for place in found if not latest.is_pending(group_id, *place)]
            if len(old) == len(offsets) and idle and not latest.has_pending(group_id):
                changes += self._removal(group_id)
                self._forget(group_id)
            else:
                changes += [OffsetChange(group_id, *place, None) for place in old]
        self._write_quietly(changes, "the removal of expired offsets")

    def _expired(
        self, group_id: str, offsets: dict[tuple[str, int], CommittedOffset]
    ) -> tuple[Iterable[tuple[str, int]], bool]:
        """Offsets of a group that are too old, and whether without any the group is of no use. A share group is."""
        now_ms, retention_ms = self._clock.now_ms(), self.settings.offsets_retention_ms
        state = self.modern(group_id)
        if state is not None:
            found = expired_in_consumer_group(state, offsets, now_ms, retention_ms)
            return found, state.type is GroupType.CONSUMER and not state.subscriptions
        group = self._groups.get(group_id) or self._new_group(group_id, self.journal.latest.groups.get(group_id))
        return expired(group, offsets, now_ms, retention_ms), group.is_idle()

    # --- inside ---

    def _schedule_expiry(self) -> None:
        def expire() -> None:
            self.expire()
            self._schedule_expiry()

        if not self._closed:
            self._expiry = self._timers.call_later(self.settings.offsets_retention_check_interval_ms / 1000, expire)


def _can_be_stored(request: JoinRequest) -> bool:
    """Names have to fit into the records; ids get a suffix."""
    names = [request.protocol_type, request.client_host, *(name for name, _ in request.protocols)]
    return all(map(fits, names)) and fits(request.client_id, _ID_SUFFIX) and fits(request.instance_id or "", _ID_SUFFIX)


def _is_name(group_id: str) -> bool:
    return bool(group_id) and fits(group_id)
