"""ShareGroupHeartbeat: a member of a share group joins, stays or leaves, and hears what it may fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.modern_messages import JOIN, LEAVE, HeartbeatRequest
from headrace.broker.membership import client_host, heartbeat_response, invalid

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

API_KEY: Final = 76
VERSIONS: Final = (1, 1)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Answered when all that it says is on disk."""
    wrong = _wrong(request)
    if wrong is not None:
        return invalid(wrong)
    names = request.subscribed_topic_names
    answer = await broker.groups.share_heartbeat(
        request.group_id,
        HeartbeatRequest(
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            client_id=context.client_id or "",
            client_host=client_host(context),
            rack_id=request.rack_id,
            topics=None if names is None else tuple(names),
        ),
    )
    return heartbeat_response(answer)


def _wrong(request: Any) -> str | None:
    for name, value in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if value == "":
            return f"{name} can't be empty."
    if request.member_epoch == JOIN and not request.subscribed_topic_names:
        return "SubscribedTopicNames must be set in first request."
    return "MemberEpoch is invalid." if request.member_epoch < LEAVE else None
