"""DescribeShareGroupOffsets: where groups are in the partitions that they share, and how much is left to settle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.primitives import NO_UUID
from headrace.broker.shares.records import ShareKey

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext
    from headrace.log.store import Topic

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 90
VERSIONS: Final = (0, 1)

_UNKNOWN: Final = -1


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each group on its own; all that a group shares if no topics are named."""
    return {"groups": [_describe(broker, group.group_id, group.topics) for group in request.groups]}


def _describe(broker: Broker, group: str, asked: Any) -> dict[str, Any]:
    if asked is None:
        topics = [_of_topic(broker, group, topic, None) for topic in broker.shares.topics(group)]
    else:
        topics = [
            _of_topic(broker, group, broker.store.topics.get(item.topic_name), item.partitions, item.topic_name)
            for item in asked
        ]
    return {"group_id": group, "topics": topics}


def _of_topic(
    broker: Broker, group: str, topic: Topic | None, indexes: list[int] | None, name: str = ""
) -> dict[str, Any]:
    if topic is None:
        partitions = [_nothing(index) for index in indexes or ()]
        return {"topic_name": name, "topic_id": NO_UUID, "partitions": partitions}
    if indexes is None:
        indexes = broker.shares.indexes(group, topic.id.bytes)
    partitions = [_of_partition(broker, ShareKey(group, topic.id.bytes, index)) for index in indexes]
    return {"topic_name": topic.name, "topic_id": topic.id, "partitions": partitions}


def _of_partition(broker: Broker, key: ShareKey) -> dict[str, Any]:
    share = broker.shares.look(key)
    if share is None:
        return _nothing(key.partition)
    return {
        "partition_index": key.partition,
        "start_offset": share.window.start,
        "leader_epoch": share.log.leader_epoch,
        "lag": share.lag,
    }


def _nothing(index: int) -> dict[str, Any]:
    return {"partition_index": index, "start_offset": _UNKNOWN, "leader_epoch": 0, "lag": _UNKNOWN}
