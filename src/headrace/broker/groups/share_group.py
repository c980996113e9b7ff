"""A share group (KIP-932): the membership side of queues.

Members share partitions, so nothing needs to be revoked first. A member is told what it may fetch; whose turn a record
is, is decided where records are handed out.
"""

from __future__ import annotations

from headrace.broker.groups.assignors import Assignor, assign_simple
from headrace.broker.groups.codes import Code, Refusal
from headrace.broker.groups.modern_group import ModernGroup
from headrace.broker.groups.modern_messages import JOIN, LEAVE, HeartbeatAnswer, HeartbeatRequest
from headrace.broker.groups.modern_records import (
    CurrentAssignment,
    GroupType,
    MemberState,
    Subscription,
    partitions_of,
)

__all__ = ["ShareGroup"]


class ShareGroup(ModernGroup):
    """A piece of work on a share group."""

    type = GroupType.SHARE

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """ShareGroupHeartbeat: join, stay, or leave. Refusal if that is not possible."""
        member_id = request.member_id
        if request.member_epoch == LEAVE:
            self.known(member_id)
            self.remove([member_id])
            return HeartbeatAnswer(Code.NONE, None, member_id, LEAVE)
        self.ensure_room(member_id)
        old = self._check(request)
        before = self.state.current_of(member_id)
        changed = self.subscribe(
            member_id,
            Subscription(
                request.client_id,
                request.client_host,
                old.rack_id if request.rack_id is None else request.rack_id,
                old.topics if request.topics is None else tuple(sorted(set(request.topics))),
            ),
        )
        self.refresh(bump=changed)
        self.assign()
        self._follow(member_id, changed)
        now = self.state.current_of(member_id)
        told = request.member_epoch == JOIN or request.topics is not None or now.assigned != before.assigned
        return HeartbeatAnswer(
            Code.NONE,
            None,
            member_id,
            now.epoch,
            self.around.settings.heartbeat_interval_ms,
            partitions_of(now.assigned) if told else None,
        )

    def assignor(self) -> Assignor:
        """There is one."""
        return assign_simple

    def _check(self, request: HeartbeatRequest) -> Subscription:
        if request.member_epoch == JOIN:
            return self.state.subscriptions.get(request.member_id) or Subscription("", "")
        known = self.known(request.member_id)
        current = self.state.current_of(request.member_id)
        if request.member_epoch not in (current.epoch, current.previous_epoch):
            raise Refusal(
                Code.FENCED_MEMBER_EPOCH,
                f"The share group member has member epoch {request.member_epoch}, the group coordinator knows "
                f"{current.epoch}. The member must abandon all its partitions and rejoin.",
            )
        return known

    def _follow(self, member_id: str, changed: bool) -> None:
        """A member takes its target over at once, as far as it subscribes to it."""
        state = self.state
        current = state.current_of(member_id)
        if not changed and state.is_reconciled(member_id):
            return
        wanted = self.subscribed_ids(state.subscriptions[member_id])
        assigned = {
            topic: dict.fromkeys(partitions, 0)
            for topic, partitions in state.target_of(member_id).items()
            if topic in wanted
        }
        epoch = state.target_epoch.epoch
        if (epoch, assigned) != (current.epoch, current.assigned):
            self.set_current(member_id, CurrentAssignment(epoch, current.epoch, MemberState.STABLE, assigned, {}))
