"""DescribeProducers: who writes to a partition, and which of them has a transaction open there since when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext
    from headrace.log.producer_state import ProducerEntry

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 61
VERSIONS: Final = (0, 0)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each partition on its own."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_partition(broker, topic.name, index) for index in topic.partition_indexes],
            }
            for topic in request.topics
        ]
    }


def _partition(broker: Broker, topic: str, index: int) -> dict[str, Any]:
    try:
        producers = broker.store.partition(topic, index).producers()
    except HeadraceError as error:
        return {
            "partition_index": index,
            "error_code": error.kafka_code,
            "error_message": str(error),
            "active_producers": [],
        }
    return {
        "partition_index": index,
        "error_code": error_codes.NONE,
        "error_message": None,
        "active_producers": [_producer(entry) for entry in producers],
    }


def _producer(entry: ProducerEntry) -> dict[str, Any]:
    return {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.epoch,
        "last_sequence": entry.batches[-1].last_sequence if entry.batches else -1,
        "last_timestamp": entry.last_timestamp,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_start_offset": entry.transaction_start,
    }
