"""Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat for them.

They are members like all others: their join carries the subscription and what they own, their generation is the member
epoch, and their sync fetches what they were assigned. Nobody leads, nobody waits for the others. A heartbeat tells them
to join again when there is a step to take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headrace.broker.groups.codes import Code, Refusal
from headrace.broker.groups.consumer_group import ConsumerGroup
from headrace.broker.groups.messages import JoinAnswer, JoinRequest, Leaver, Protocols, SyncAnswer, SyncRequest
from headrace.broker.groups.modern_group import Topics
from headrace.broker.groups.modern_records import Assigned, ClassicSide, MemberState, Partitions, Subscription
from headrace.broker.groups.modern_state import ModernState
from headrace.broker.groups.subscription import (
    CONSUMER_PROTOCOL,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from headrace.errors import CorruptMessage

__all__ = [
    "assignment_of",
    "check_sync",
    "embedded_partitions",
    "join",
    "leaving",
    "must_rejoin",
    "partitions_by_id",
    "rebalances",
    "replaces_last_consumer",
    "sync",
]


def join(group: ConsumerGroup, request: JoinRequest) -> JoinAnswer:
    """JoinGroup. Refusal if the member cannot be taken in."""
    member_id = request.member_id or group.around.new_id()
    group.ensure_room(member_id)
    if request.protocol_type != CONSUMER_PROTOCOL or not _has_in_common(group.state, request.protocols):
        raise Refusal(Code.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")
    if not request.member_id and request.instance_id is None and request.must_know_id:
        return JoinAnswer(Code.MEMBER_ID_REQUIRED, member_id)
    try:
        said = decode_subscription(request.protocols[0][1])
    except CorruptMessage as error:
        raise Refusal(Code.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None
    known: Subscription | None
    if request.instance_id is None:
        known = group.state.subscriptions.get(member_id)
    elif not request.member_id:
        known = group.take_place(request.instance_id, member_id, speaks_classic=True)
    else:
        group.ensure_holder(request.instance_id, member_id)
        known = group.known(member_id)
    subscription = Subscription(
        request.client_id,
        request.client_host,
        said.rack_id or (known.rack_id if known else None),
        tuple(sorted(set(said.topics))),
        request.instance_id,
        "",
        request.rebalance_timeout_ms,
        known.assignor if known else None,
        ClassicSide(request.session_timeout_ms, request.protocols),
    )
    group.update(member_id, subscription, partitions_by_id(said.owned, group.around.topics))
    epoch = group.state.current_of(member_id).epoch
    return JoinAnswer(Code.NONE, member_id, epoch, CONSUMER_PROTOCOL, request.protocols[0][0])


def sync(group: ConsumerGroup, request: SyncRequest) -> SyncAnswer:
    """SyncGroup of a member that need not join again: what it has."""
    side = _classic_side(group, request.member_id)
    assignment = assignment_of(group.state.current_of(request.member_id).assigned, side, group.around.topics)
    return SyncAnswer(Code.NONE, CONSUMER_PROTOCOL, side.protocols[0][0], assignment)


def check_sync(group: ConsumerGroup, request: SyncRequest) -> None:
    """Refuse a sync of a stranger, of another generation, or for another protocol than was agreed on."""
    side = _check(group, request.member_id, request.instance_id, request.generation)
    if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol not in (None, side.protocols[0][0]):
        raise Refusal(Code.INCONSISTENT_GROUP_PROTOCOL, "The protocol is not the one that was agreed on.")


def rebalances(group: ConsumerGroup, member_id: str) -> bool:
    """Whether a sync is too late because there is a newer target. Who gives something up must do that first."""
    current = group.state.current_of(member_id)
    return current.epoch < group.state.target_epoch.epoch and current.state is not MemberState.UNREVOKED


def must_rejoin(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> tuple[int, bool]:
    """Heartbeat: the member's session timeout, and whether it has to join again. Refusal if it is not a member."""
    side = _check(group, member_id, instance_id, generation)
    state = group.state
    current = state.current_of(member_id)
    rejoins = (
        current.epoch < state.target_epoch.epoch
        or current.state is MemberState.UNREVOKED
        or (current.state is MemberState.UNRELEASED and not _waits_for_others(state, member_id))
    )
    return side.session_timeout_ms, rejoins


def leaving(group: ConsumerGroup, leaver: Leaver) -> str:
    """LeaveGroup: the member that is named. Refusal if there is none. An operator names only the instance."""
    if leaver.instance_id is None:
        group.known(leaver.member_id)
        return leaver.member_id
    if leaver.member_id:
        group.ensure_holder(leaver.instance_id, leaver.member_id)
    elif leaver.instance_id not in group.state.instances:
        raise Refusal(Code.UNKNOWN_MEMBER_ID, f"Instance id {leaver.instance_id} is unknown.")
    return group.state.instances[leaver.instance_id]


def replaces_last_consumer(state: ModernState, request: JoinRequest) -> bool:
    """Whether a static member comes back with the classic protocol, and was the last that spoke the other one."""
    holder = state.instances.get(request.instance_id or "")
    if holder is None or request.member_id or state.subscriptions[holder].classic is not None:
        return False
    return len(state.classic_members()) == len(state.subscriptions) - 1


def assignment_of(assigned: Assigned, side: ClassicSide, topics: Topics) -> bytes:
    """What a member has, as its consumer protocol writes it."""
    named = {topics.name_of(topic_id): tuple(partitions) for topic_id, partitions in assigned.items()}
    try:
        version = decode_subscription(side.protocols[0][1]).version
    except CorruptMessage:
        version = 0
    return encode_assignment(version, {name: numbers for name, numbers in named.items() if name is not None})


def partitions_by_id(named: Mapping[str, tuple[int, ...]], topics: Topics) -> Partitions:
    """Partitions of those topics that exist."""
    found = {topics.find(name): numbers for name, numbers in named.items()}
    return {info.id: frozenset(numbers) for info, numbers in found.items() if info is not None and numbers}


def embedded_partitions(assignment: bytes, topics: Topics) -> Partitions:
    """What a classic group's leader gave a member. CorruptMessage if that cannot be read, or would not be all of it."""
    read = decode_assignment(assignment)
    if read.user_data:
        raise CorruptMessage("an assignor keeps data of its own in the assignment")
    return partitions_by_id(read.partitions, topics)


def _has_in_common(state: ModernState, protocols: Protocols) -> bool:
    classic = [each.classic for each in state.subscriptions.values() if each.classic is not None]
    counts = Counter(name for side in classic for name, _ in side.protocols)
    return any(counts[name] == len(classic) for name, _ in protocols)


def _check(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ClassicSide:
    if instance_id is not None:
        group.ensure_holder(instance_id, member_id)
    side = _classic_side(group, member_id)
    epoch = group.state.current_of(member_id).epoch
    if epoch != generation:
        raise Refusal(Code.ILLEGAL_GENERATION, f"The generation is {generation}, the member epoch is {epoch}.")
    return side


def _classic_side(group: ConsumerGroup, member_id: str) -> ClassicSide:
    side = group.known(member_id).classic
    if side is None:
        raise Refusal(Code.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    return side


def _waits_for_others(state: ModernState, member_id: str) -> bool:
    has = state.current_of(member_id).assigned
    return any(
        (topic, partition) in state.owners and partition not in has.get(topic, ())
        for topic, partitions in state.target_of(member_id).items()
        for partition in partitions
    )
