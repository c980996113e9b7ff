"""ShareGroupDescribe: share groups and what their members may fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.modern_records import GroupType, partitions_of
from headrace.broker.membership import ALL_OPERATIONS, NOT_ASKED_FOR, describe, named

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext
    from headrace.broker.groups.modern_state import ModernState

API_KEY: Final = 77
VERSIONS: Final = (1, 1)

_ASSIGNOR = "simple"


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Only what is on disk is told."""
    operations = ALL_OPERATIONS if request.include_authorized_operations else NOT_ASKED_FOR
    groups = describe(broker, request.group_ids, GroupType.SHARE, operations)
    for group in groups:
        state = broker.groups.describe_modern(group["group_id"])
        if state is not None and "group_epoch" in group:
            group["assignor_name"] = _ASSIGNOR
            group["members"] = [_member(broker, state, member_id) for member_id in state.subscriptions]
    return {"groups": groups}


def _member(broker: Broker, state: ModernState, member_id: str) -> dict[str, Any]:
    subscription, current = state.subscriptions[member_id], state.current_of(member_id)
    return {
        "member_id": member_id,
        "rack_id": subscription.rack_id,
        "member_epoch": current.epoch,
        "client_id": subscription.client_id,
        "client_host": subscription.client_host,
        "subscribed_topic_names": subscription.topics,
        "assignment": named(broker, partitions_of(current.assigned)),
    }
