"""The coordinator's side of consumer groups and share groups: their requests, their timers, their changes of protocol.

Every request is a piece of work on the fold of the log (``consumer_group.py``, ``share_group.py``). Its changes are
appended at once, so that the next request sees them, and answered when they are on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from headrace.broker.groups import classic_members, migration
from headrace.broker.groups.codes import Code, Refusal
from headrace.broker.groups.consumer_group import ConsumerGroup
from headrace.broker.groups.deadlines import Deadlines, Why
from headrace.broker.groups.group import ClassicGroup
from headrace.broker.groups.messages import JoinAnswer, JoinRequest, Leaver, Phase, SyncAnswer, SyncRequest
from headrace.broker.groups.modern_group import ModernGroup, Surroundings
from headrace.broker.groups.modern_messages import JOIN, LEAVE_FOR_A_WHILE, HeartbeatAnswer, HeartbeatRequest
from headrace.broker.groups.modern_records import CurrentChange, GroupType, MemberState, TargetEpochChange
from headrace.broker.groups.modern_state import ModernState
from headrace.broker.groups.records import Change, GroupChange
from headrace.broker.groups.registry import DAMAGED, GroupRegistry
from headrace.broker.groups.share_group import ShareGroup
from headrace.errors import HeadraceError

__all__ = ["ModernMembers"]

log = logging.getLogger(__name__)

_DAMAGED_MESSAGE = "A record of the group cannot be read; the broker's log says which."


class ModernMembers(GroupRegistry):
    """Members of consumer groups and share groups."""

    # --- the newer protocols ---

    async def consumer_heartbeat(self, group_id: str, request: HeartbeatRequest) -> HeartbeatAnswer:
        """ConsumerGroupHeartbeat."""
        if self.is_damaged(group_id):
            return HeartbeatAnswer(DAMAGED, _DAMAGED_MESSAGE)
        try:
            if request.member_epoch < JOIN:
                return await self._consumer_leaves(group_id, request)
            group, classic = self._consumer_group(group_id, create=request.member_epoch == JOIN)
            answer = group.heartbeat(request)
        except Refusal as refusal:
            return HeartbeatAnswer(refusal.code, refusal.message)
        first: list[Change] = []
        if classic is not None and group_id in self.journal.latest.groups:
            first.append(GroupChange(group_id, None))
        code = await self._perform(group, first, answer.member_id, classic)
        return HeartbeatAnswer(code) if code else answer

    async def share_heartbeat(self, group_id: str, request: HeartbeatRequest) -> HeartbeatAnswer:
        """ShareGroupHeartbeat."""
        if self.is_damaged(group_id):
            return HeartbeatAnswer(DAMAGED, _DAMAGED_MESSAGE)
        state = self.modern(group_id)
        exists = state is not None or self._find(group_id) is not None
        if not exists and request.member_epoch != JOIN:
            return HeartbeatAnswer(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if exists and (state is None or state.type is not GroupType.SHARE):
            return HeartbeatAnswer(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        group = ShareGroup(group_id, state, self._around(group_id, GroupType.SHARE))
        try:
            answer = group.heartbeat(request)
        except Refusal as refusal:
            return HeartbeatAnswer(refusal.code, refusal.message)
        code = await self._perform(group, (), answer.member_id if request.member_epoch >= JOIN else None)
        return HeartbeatAnswer(code) if code else answer

    async def _consumer_leaves(self, group_id: str, request: HeartbeatRequest) -> HeartbeatAnswer:
        group, _ = self._consumer_group(group_id, create=False)
        member_id = group.leaving(request)
        if request.member_epoch == LEAVE_FOR_A_WHILE:
            answer = group.go_for_a_while(member_id)
            code = await self._perform(group)
        else:
            answer = HeartbeatAnswer(Code.NONE, None, member_id, request.member_epoch)
            code = await self._store_departure(group_id, self._let_go(group_id, [member_id]))
        return HeartbeatAnswer(code) if code else answer

    # --- the classic protocol in a consumer group ---

    def _has_consumers(self, group_id: str) -> bool:
        """Whether it is a consumer group with members: then it serves the classic protocol, too."""
        state = self.modern(group_id)
        return state is not None and state.type is GroupType.CONSUMER and bool(state.subscriptions)

    async def _classic_join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        group = self._consumer_work(group_id)
        try:
            answer = classic_members.join(group, request)
        except Refusal as refusal:
            return JoinAnswer(refusal.code, request.member_id)
        if answer.code:
            return answer
        code = await self._perform(group)
        if code:
            return JoinAnswer(code, request.member_id)
        deadlines = self._deadlines.get(group_id)
        if deadlines is not None:
            deadlines.clear(answer.member_id, Why.JOIN)
            deadlines.set(answer.member_id, Why.SESSION, request.session_timeout_ms)
            deadlines.set(answer.member_id, Why.SYNC, request.rebalance_timeout_ms)
            self._watch(deadlines)
        return answer

    def _classic_sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        group = self._consumer_work(group_id)
        deadlines = self._deadlines_of(group_id)
        try:
            classic_members.check_sync(group, request)
            subscription = group.known(request.member_id)
            if classic_members.rebalances(group, request.member_id):
                deadlines.set_if_none(request.member_id, Why.JOIN, subscription.rebalance_timeout_ms)
                self._watch(deadlines)
                return SyncAnswer(Code.REBALANCE_IN_PROGRESS)
            answer = classic_members.sync(group, request)
        except Refusal as refusal:
            return SyncAnswer(refusal.code)
        assert subscription.classic is not None
        deadlines.clear(request.member_id, Why.SYNC)
        deadlines.set(request.member_id, Why.SESSION, subscription.classic.session_timeout_ms)
        self._watch(deadlines)
        return answer

    def _classic_heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> Code:
        group = self._consumer_work(group_id)
        try:
            session_ms, rejoins = classic_members.must_rejoin(group, member_id, instance_id, generation)
        except Refusal as refusal:
            return refusal.code
        deadlines = self._deadlines_of(group_id)
        deadlines.set(member_id, Why.SESSION, session_ms)
        if rejoins:
            deadlines.set_if_none(member_id, Why.JOIN, group.known(member_id).rebalance_timeout_ms)
        self._watch(deadlines)
        return Code.REBALANCE_IN_PROGRESS if rejoins else Code.NONE

    async def _classic_leave(self, group_id: str, leavers: Sequence[Leaver]) -> tuple[Code, list[Code]]:
        group = self._consumer_work(group_id)
        codes: list[Code] = []
        going: list[str] = []
        for leaver in leavers:
            try:
                going.append(classic_members.leaving(group, leaver))
                codes.append(Code.NONE)
            except Refusal as refusal:
                codes.append(refusal.code)
        code = await self._store_departure(group_id, self._let_go(group_id, dict.fromkeys(going)))
        return (code, []) if code else (Code.NONE, codes)

    async def _return_to_classic(self, group_id: str, request: JoinRequest) -> None:
        """Before a classic join: an empty consumer group goes, and so does a static member's former self if with it the
        last one goes that did not speak the classic protocol."""
        state = self.modern(group_id)
        if state is None or state.type is not GroupType.CONSUMER:
            return
        if classic_members.replaces_last_consumer(state, request):
            former = state.instances[request.instance_id or ""]
            await self._store_departure(group_id, self._let_go(group_id, [former]))
            state = self.modern(group_id)
        if state is not None and not state.subscriptions:
            self._drop_deadlines(group_id)
            await self._store_all(state.removal(group_id))

    # --- inside ---

    def _consumer_group(self, group_id: str, *, create: bool) -> tuple[ConsumerGroup, ClassicGroup | None]:
        """Work on a consumer group; if ``create``, on a new one, or on one that a classic group (returned) becomes."""
        state = self.modern(group_id)
        around = self._around(group_id, GroupType.CONSUMER)
        if state is not None:
            if state.type is not GroupType.CONSUMER:
                raise Refusal(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
            return ConsumerGroup(group_id, state, around), None
        classic = self._find(group_id)
        if classic is None and not create:
            raise Refusal(Code.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        if classic is not None and not create:
            raise Refusal(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        group = ConsumerGroup(group_id, None, around)
        if classic is not None and classic.phase is not Phase.EMPTY:
            if not self.settings.may_upgrade:
                raise Refusal(
                    Code.GROUP_ID_NOT_FOUND,
                    f"Cannot upgrade classic group {group_id} to consumer group because online upgrade is disabled.",
                )
            migration.upgrade(classic, group)
        return group, classic

    def _consumer_work(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self.modern(group_id), self._around(group_id, GroupType.CONSUMER))

    def _around(self, group_id: str, group_type: GroupType) -> Surroundings:
        deadlines = self._deadlines.get(group_id)
        return Surroundings(
            self.topics,
            self._settings_of(group_type, group_id),
            self._clock.now_ms(),
            self._new_id,
            deadlines is None or deadlines.topics_version != self.topics.version,
        )

    async def _perform(
        self,
        group: ModernGroup,
        first: Sequence[Change] = (),
        heard_of: str | None = None,
        classic: ClassicGroup | None = None,
    ) -> Code:
        """Write the changes of a piece of work; return when they, and all that it saw, are on disk."""
        if classic is not None:
            self._drop(classic, Code.REBALANCE_IN_PROGRESS)
        self._follow(group, heard_of)
        changes = [*first, *group.changes]
        return await self._store_all(changes) if changes else await self.settle()

    def _follow(self, group: ModernGroup, heard_of: str | None = None) -> None:
        """Set the deadlines that follow from a piece of work."""
        state, settings = group.state, group.around.settings
        deadlines = self._deadlines_of(group.group_id, state)
        deadlines.keep_only(state.subscriptions)
        deadlines.topics_version = self.topics.version
        self.rebalances += any(isinstance(change, TargetEpochChange) for change in group.changes)
        for change in group.changes:
            if isinstance(change, CurrentChange) and change.member in state.subscriptions:
                subscription, current = state.subscriptions[change.member], state.current_of(change.member)
                if current.state is MemberState.UNREVOKED and subscription.classic is None:
                    timeout_ms = subscription.rebalance_timeout_ms
                    deadlines.set(change.member, Why.REVOCATION, timeout_ms, current.epoch)
                else:
                    deadlines.clear(change.member, Why.REVOCATION)
        if heard_of is not None:
            deadlines.set(heard_of, Why.SESSION, settings.session_timeout_ms)
        due_ms = group.assign_at_ms() or 0
        deadlines.assign_in(due_ms - group.around.now_ms if due_ms > group.around.now_ms else None)
        self._watch(deadlines)

    def _deadlines_of(self, group_id: str, state: ModernState | None = None) -> Deadlines:
        """A group's deadlines. If there were none (after a start, say), every member has all its time."""
        deadlines = self._deadlines.get(group_id)
        if deadlines is None:
            deadlines = self._deadlines[group_id] = Deadlines(group_id, self._clock)
            state = state or self.modern(group_id)
            if state is not None:
                self._give_time(deadlines, state)
        return deadlines

    def _give_time(self, deadlines: Deadlines, state: ModernState) -> None:
        session_ms = self._settings_of(state.type, deadlines.group_id).session_timeout_ms
        for member_id, subscription in state.subscriptions.items():
            classic = subscription.classic
            deadlines.set(member_id, Why.SESSION, session_ms if classic is None else classic.session_timeout_ms)
            current = state.current_of(member_id)
            if classic is None and current.state is MemberState.UNREVOKED:
                deadlines.set(member_id, Why.REVOCATION, subscription.rebalance_timeout_ms, current.epoch)

    def _let_go(self, group_id: str, member_ids: Collection[str]) -> list[Change]:
        """Members go: the changes to be written. If only classic ones stay, they have a classic group from now on."""
        state = self.modern(group_id)
        if state is None or not member_ids:
            return []
        settings = self.settings
        if state.type is GroupType.SHARE:
            shares = ShareGroup(group_id, state, self._around(group_id, GroupType.SHARE))
            shares.remove(member_ids)
            self._follow(shares)
            return list(shares.changes)
        if settings.may_downgrade and migration.can_be_downgraded(state, member_ids, settings.max_size):
            return self._downgrade(group_id, state, member_ids)
        group = self._consumer_work(group_id)
        group.go(list(member_ids))
        self._follow(group)
        return list(group.changes)

    def _downgrade(self, group_id: str, state: ModernState, without: Collection[str]) -> list[Change]:
        log.info("group %s: only members of the classic protocol are left, it is a classic group now", group_id)
        metadata, protocols = migration.downgraded(state, without, self.topics, self._clock.now_ms())
        self._drop_deadlines(group_id)
        group = self._groups[group_id] = self._new_group(group_id, metadata)
        group.learn_protocols(protocols)
        self._carry_out(group, group.rebalance("the last member of the consumer protocol left"))
        return [*state.removal(group_id), GroupChange(group_id, metadata)]

    async def _store_departure(self, group_id: str, changes: Sequence[Change]) -> Code:
        code = await self._store_all(changes)
        if code:
            self._undo_downgrade(group_id)
        return code

    def _undo_downgrade(self, group_id: str) -> None:
        """It could not be written, so it did not happen."""
        group = self._groups.get(group_id)
        if group is not None and self.modern(group_id) is not None:
            self._drop(group, Code.NOT_COORDINATOR)

    def _tick(self, group_id: str) -> None:
        """Members that are late go; a target that had to wait is made."""
        deadlines, state = self._deadlines[group_id], self.modern(group_id)
        late, assign = deadlines.take_due()
        if state is None:
            self._drop_deadlines(group_id)
            return
        going = {
            member_id: why
            for member_id, why, epoch in late
            if member_id in state.subscriptions
            and (why is not Why.REVOCATION or state.current_of(member_id).epoch == epoch)
        }
        for member_id, why in going.items():
            log.info("group %s: %s is out: it was too late (%s)", group_id, member_id, why.name.lower())
        if going:
            self._write_departure(group_id, self._let_go(group_id, going))
        elif assign:
            around = self._around(group_id, state.type)
            kind = ShareGroup if state.type is GroupType.SHARE else ConsumerGroup
            group = kind(group_id, state, around)
            group.assign()
            self._follow(group)
            self._write_quietly(group.changes, f"the target assignment of group {group_id}")
        else:
            self._watch(deadlines)

    def _write_departure(self, group_id: str, changes: Sequence[Change]) -> None:
        def done(error: HeadraceError | None) -> None:
            if error is not None:
                log.warning("group %s: members that are gone could not be removed: %s", group_id, error)
                self._undo_downgrade(group_id)

        try:
            self.journal.write(changes, done)
        except HeadraceError as error:
            done(error)
