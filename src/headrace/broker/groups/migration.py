"""A group changes its protocol while its members work: classic to consumer and back.

*Upgrade*: a member of the consumer protocol comes to a classic group of consumers. Everyone in it becomes a member of
the consumer group, with the generation as epoch and with what the last leader gave it. *Downgrade*: the last member of
the consumer protocol has gone, and only classic ones are left. Either way the old group's records are removed and the
new one's written in the same batch.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from headrace.broker.groups.classic_members import assignment_of, embedded_partitions
from headrace.broker.groups.codes import Code, Refusal
from headrace.broker.groups.consumer_group import ConsumerGroup
from headrace.broker.groups.group import ClassicGroup
from headrace.broker.groups.member import Member
from headrace.broker.groups.messages import Protocols
from headrace.broker.groups.modern_group import Topics
from headrace.broker.groups.modern_records import (
    ClassicSide,
    CurrentAssignment,
    CurrentChange,
    EpochChange,
    GroupEpoch,
    MemberState,
    Partitions,
    Subscription,
    SubscriptionChange,
    TargetChange,
    TargetEpoch,
    TargetEpochChange,
)
from headrace.broker.groups.modern_state import ModernState
from headrace.broker.groups.records import GroupMetadata
from headrace.broker.groups.roster import Roster
from headrace.broker.groups.subscription import CONSUMER_PROTOCOL, decode_subscription
from headrace.errors import CorruptMessage

__all__ = ["can_be_downgraded", "downgraded", "upgrade"]


def upgrade(classic: ClassicGroup, group: ConsumerGroup) -> None:
    """Make a consumer group of a classic one. Refusal if its members are not consumers, or use an assignor of their
    own that keeps data in the assignment."""
    if not classic.uses_consumer_protocol():
        raise _cannot(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > group.around.settings.max_size:
        raise _cannot(classic, "the group size exceeds the consumer group maximum size")
    epoch, kind = classic.generation, group.type
    for member in classic.members.values():
        subscription, partitions = _taken_over(classic, member, group.around.topics)
        has = {topic: dict.fromkeys(numbers, epoch) for topic, numbers in partitions.items()}
        current = CurrentAssignment(epoch, epoch, MemberState.STABLE, has, {})
        group.do(SubscriptionChange(kind, classic.group_id, member.member_id, subscription))
        group.do(TargetChange(kind, classic.group_id, member.member_id, partitions))
        group.do(CurrentChange(kind, classic.group_id, member.member_id, current))
    group.do(TargetEpochChange(kind, classic.group_id, TargetEpoch(epoch)))
    group.do(EpochChange(kind, classic.group_id, GroupEpoch(epoch, group.metadata_hash())))


def _taken_over(classic: ClassicGroup, member: Member, topics: Topics) -> tuple[Subscription, Partitions]:
    try:
        said = decode_subscription(member.metadata(classic.protocol) or member.protocols[0][1])
        partitions = embedded_partitions(member.assignment, topics)
    except CorruptMessage as error:
        raise _cannot(classic, str(error)) from None
    subscription = Subscription(
        member.client_id,
        member.client_host,
        said.rack_id,
        tuple(sorted(set(said.topics))),
        member.instance_id,
        "",
        member.rebalance_timeout_ms,
        None,
        ClassicSide(member.session_timeout_ms, member.protocols),
    )
    return subscription, partitions


def _cannot(classic: ClassicGroup, why: str) -> Refusal:
    return Refusal(
        Code.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}."
    )


def can_be_downgraded(state: ModernState, without: Container[str], max_size: int) -> bool:
    """Whether without these members only classic ones are left, and any at all."""
    left = [subscription for member_id, subscription in state.subscriptions.items() if member_id not in without]
    return 0 < len(left) <= max_size and all(subscription.classic is not None for subscription in left)


def downgraded(
    state: ModernState, without: Container[str], topics: Topics, now_ms: int
) -> tuple[GroupMetadata, Mapping[str, Protocols]]:
    """The classic group that is left, as it is stored; and all protocols that its members know."""
    roster = Roster(None)
    assignments: dict[str, bytes] = {}
    for member_id, subscription in state.subscriptions.items():
        side = subscription.classic
        if member_id in without or side is None:
            continue
        roster.add(
            Member(
                member_id,
                subscription.instance_id,
                subscription.client_id,
                subscription.client_host,
                subscription.rebalance_timeout_ms,
                side.session_timeout_ms,
                side.protocols,
            )
        )
        assignments[member_id] = assignment_of(state.current_of(member_id).assigned, side, topics)
    protocol = roster.choose_protocol()
    metadata = GroupMetadata(
        CONSUMER_PROTOCOL,
        state.epoch.epoch,
        protocol,
        roster.leader,
        now_ms,
        tuple(member.stored(protocol, assignments[member.member_id]) for member in roster.members.values()),
    )
    return metadata, {member.member_id: member.protocols for member in roster.members.values()}
