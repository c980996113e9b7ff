"""ConsumerGroupDescribe: consumer groups, what their members have and what they are to have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.consumer_group import assignor_of
from headrace.broker.groups.modern_records import GroupType, partitions_of
from headrace.broker.membership import ALL_OPERATIONS, NOT_ASKED_FOR, describe, named

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext
    from headrace.broker.groups.modern_state import ModernState

API_KEY: Final = 69
VERSIONS: Final = (0, 1)

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Only what is on disk is told."""
    operations = ALL_OPERATIONS if request.include_authorized_operations else NOT_ASKED_FOR
    groups = describe(broker, request.group_ids, GroupType.CONSUMER, operations)
    for group in groups:
        state = broker.groups.describe_modern(group["group_id"])
        if state is not None and "group_epoch" in group:
            group["assignor_name"] = assignor_of(state)
            group["members"] = [_member(broker, state, member_id) for member_id in state.subscriptions]
    return {"groups": groups}


def _member(broker: Broker, state: ModernState, member_id: str) -> dict[str, Any]:
    subscription, current = state.subscriptions[member_id], state.current_of(member_id)
    return {
        "member_id": member_id,
        "instance_id": subscription.instance_id,
        "rack_id": subscription.rack_id,
        "member_epoch": current.epoch,
        "client_id": subscription.client_id,
        "client_host": subscription.client_host,
        "subscribed_topic_names": subscription.topics,
        "subscribed_topic_regex": subscription.regex or "",
        "assignment": named(broker, partitions_of(current.assigned)),
        "target_assignment": named(broker, state.target_of(member_id)),
        "member_type": _CONSUMER_MEMBER if subscription.classic is None else _CLASSIC_MEMBER,
    }
