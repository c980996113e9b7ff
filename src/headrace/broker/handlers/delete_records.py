"""DeleteRecords: move the start of a partition forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.refused import Refused, code_of
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 21
VERSIONS: Final = (0, 2)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each partition on its own."""
    return {
        "topics": [
            {"name": topic.name, "partitions": [_delete(broker, topic.name, item) for item in topic.partitions]}
            for topic in request.topics
        ]
    }


def _delete(broker: Broker, name: str, item: Any) -> dict[str, Any]:
    low_watermark, code = -1, error_codes.NONE
    try:
        partition = broker.store.partition(name, item.partition_index)
        if broker.store.topic(name).internal:
            raise Refused(error_codes.INVALID_TOPIC, f"records of the internal topic '{name}' cannot be deleted")
        if partition.config.compact and not partition.config.delete:
            raise Refused(error_codes.POLICY_VIOLATION, f"topic '{name}' is compacted, and only that")
        low_watermark = partition.delete_records(item.offset)
    except HeadraceError as error:
        code = code_of(error)
    return {"partition_index": item.partition_index, "low_watermark": low_watermark, "error_code": code}
