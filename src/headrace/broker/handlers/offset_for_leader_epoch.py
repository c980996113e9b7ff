"""OffsetForLeaderEpoch: where an epoch of the log ended, for clients that check whether theirs was cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.handlers.list_offsets import epoch_error
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 23
VERSIONS: Final = (2, 4)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each partition on its own."""
    return {
        "topics": [
            {"topic": topic.topic, "partitions": [_end(broker, topic.topic, item) for item in topic.partitions]}
            for topic in request.topics
        ]
    }


def _end(broker: Broker, name: str, item: Any) -> dict[str, Any]:
    epoch, end_offset, code = -1, -1, error_codes.NONE
    try:
        partition = broker.store.partition(name, item.partition)
        code = epoch_error(partition, item.current_leader_epoch)
        if not code:
            epoch, end_offset = partition.epoch_end(item.leader_epoch)
    except HeadraceError as error:
        code = error.kafka_code
    return {"partition": item.partition, "error_code": code, "leader_epoch": epoch, "end_offset": end_offset}
