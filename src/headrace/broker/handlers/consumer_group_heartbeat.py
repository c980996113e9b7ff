"""ConsumerGroupHeartbeat: a member of a consumer group joins, stays or leaves, and hears what it shall read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.assignors import CONSUMER_ASSIGNORS
from headrace.broker.groups.codes import Code
from headrace.broker.groups.modern_messages import JOIN, LEAVE, LEAVE_FOR_A_WHILE, HeartbeatRequest
from headrace.broker.membership import client_host, heartbeat_response, invalid

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

API_KEY: Final = 68
VERSIONS: Final = (0, 1)

_ID_BY_CLIENT_FROM = 1


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Answered when all that it says is on disk."""
    wrong = _wrong(request, context.version)
    if wrong is not None:
        return invalid(wrong)
    if request.server_assignor is not None and request.server_assignor not in CONSUMER_ASSIGNORS:
        message = (
            f"ServerAssignor {request.server_assignor} is not supported. Supported: {', '.join(CONSUMER_ASSIGNORS)}."
        )
        return {"error_code": Code.UNSUPPORTED_ASSIGNOR, "error_message": message}
    owned = request.topic_partitions
    names = request.subscribed_topic_names
    answer = await broker.groups.consumer_heartbeat(
        request.group_id,
        HeartbeatRequest(
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            client_id=context.client_id or "",
            client_host=client_host(context),
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=None if names is None else tuple(names),
            regex=request.subscribed_topic_regex,
            assignor=request.server_assignor,
            owned=None if owned is None else {topic.topic_id: frozenset(topic.partitions) for topic in owned},
        ),
    )
    return heartbeat_response(answer)


def _wrong(request: Any, version: int) -> str | None:
    epoch = request.member_epoch
    if (version >= _ID_BY_CLIENT_FROM or epoch > JOIN or epoch == LEAVE) and not request.member_id:
        return "MemberId can't be empty."
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value == "":
            return f"{name} can't be empty."
    if epoch == JOIN:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if request.topic_partitions is None or request.topic_partitions:
            return "TopicPartitions must be empty when (re-)joining."
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    if epoch == LEAVE_FOR_A_WHILE and request.instance_id is None:
        return "InstanceId can't be null."
    return "MemberEpoch is invalid." if epoch < LEAVE_FOR_A_WHILE else None
