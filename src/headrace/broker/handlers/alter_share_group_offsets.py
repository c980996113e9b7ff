"""AlterShareGroupOffsets: a group without members begins anew from given offsets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.primitives import NO_UUID
from headrace.broker.refused import Refused, code_of
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext
    from headrace.log.store import Topic

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 91
VERSIONS: Final = (0, 0)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each partition on its own, if the group has no members."""
    group = request.group_id
    broker.shares.ensure_may_alter(group)
    responses = []
    for item in request.topics:
        topic = broker.store.topics.get(item.topic_name)
        partitions = await asyncio.gather(*(_alter(broker, group, topic, one) for one in item.partitions))
        responses.append(
            {
                "topic_name": item.topic_name,
                "topic_id": NO_UUID if topic is None else topic.id,
                "partitions": list(partitions),
            }
        )
    return {"responses": responses}


async def _alter(broker: Broker, group: str, topic: Topic | None, asked: Any) -> dict[str, Any]:
    index = asked.partition_index
    try:
        if topic is None:
            raise Refused(error_codes.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
        await broker.shares.reset(group, topic.id.bytes, index, asked.start_offset)
    except HeadraceError as error:
        return {"partition_index": index, "error_code": code_of(error), "error_message": str(error)}
    return {"partition_index": index, "error_code": error_codes.NONE}
