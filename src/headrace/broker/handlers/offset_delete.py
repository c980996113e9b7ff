"""OffsetDelete: forget how far a group has come in topics that none of its members reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.codes import Code

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

API_KEY: Final = 47
VERSIONS: Final = (0, 0)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Partitions that do not exist get an error of their own."""
    topics = broker.store.topics
    places = [
        (asked.name, partition.partition_index)
        for asked in request.topics
        for partition in asked.partitions
        if asked.name in topics and 0 <= partition.partition_index < len(topics[asked.name].partitions)
    ]
    code, codes = await broker.groups.delete_offsets(request.group_id, places)
    if code:
        return {"error_code": code, "topics": []}
    return {
        "error_code": Code.NONE,
        "topics": [
            {
                "name": asked.name,
                "partitions": [
                    {
                        "partition_index": partition.partition_index,
                        "error_code": codes.get(
                            (asked.name, partition.partition_index), Code.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    }
                    for partition in asked.partitions
                ],
            }
            for asked in request.topics
        ],
    }
