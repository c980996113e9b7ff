"""DescribeTopicPartitions: like Metadata, but in pages, in the order of topic names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.authorized import TOPIC_OPERATIONS
from headrace.broker.handlers.metadata import partition_metadata
from headrace.broker.primitives import NO_UUID
from headrace.errors import InvalidTopicName
from headrace.log.store import ensure_topic_name

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 75
VERSIONS: Final = (0, 0)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """From the cursor on, up to the limit."""
    cursor = request.cursor
    asked = {item.name for item in request.topics}
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        return {"topics": [{"error_code": error_codes.INVALID_REQUEST, "name": name} for name in sorted(asked)]}
    names = sorted(asked or broker.store.topics)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    left = max(1, min(broker.settings.value("max.request.partition.size.limit"), request.response_partition_limit))
    topics: list[dict[str, Any]] = []
    for name in names:
        if left == 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        topic = broker.store.topics.get(name)
        if topic is None:
            topics.append(_unknown(name))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        indexes = range(first, min(len(topic.partitions), first + left))
        left -= len(indexes)
        topics.append(
            {
                "error_code": error_codes.NONE,
                "name": name,
                "topic_id": topic.id,
                "is_internal": topic.internal,
                "partitions": [
                    partition_metadata(broker, topic, index) | {"eligible_leader_replicas": [], "last_known_elr": []}
                    for index in indexes
                ],
                "topic_authorized_operations": TOPIC_OPERATIONS,
            }
        )
        if indexes and indexes[-1] + 1 < len(topic.partitions):
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": indexes[-1] + 1}}
    return {"topics": topics, "next_cursor": None}


def _unknown(name: str) -> dict[str, Any]:
    try:
        ensure_topic_name(name)
        code = error_codes.UNKNOWN_TOPIC_OR_PARTITION
    except InvalidTopicName:
        code = error_codes.INVALID_TOPIC
    return {
        "error_code": code,
        "name": name,
        "topic_id": NO_UUID,
        "partitions": [],
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }
