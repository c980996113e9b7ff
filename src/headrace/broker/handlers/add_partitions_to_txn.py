"""AddPartitionsToTxn: partitions that a client is about to write to in its transaction. Answered once it is on disk.

Versions up to 3 are for clients, with one transaction; later ones are what brokers ask each other, for many, perhaps
only whether the partitions have been added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.transactional import failure_code
from headrace.broker.transactions.coordinator import Producer
from headrace.broker.transactions.transitions import VERSION_2
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext
    from headrace.broker.transactions.records import Place

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 24
VERSIONS: Final = (0, 5)

_FENCED_SINCE, _MANY_SINCE, _VERSION_2_SINCE = 2, 4, 5


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """All partitions of a transaction or none of them."""
    if context.version < _MANY_SINCE:
        producer = Producer(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        answers = await _add(broker, producer, request.v3_and_below_topics, context)
        return {"results_by_topic_v3_and_below": answers}
    results = []
    for asked in request.transactions:
        producer = Producer(asked.transactional_id, asked.producer_id, asked.producer_epoch)
        if asked.verify_only:
            answers = _verify(broker, producer, asked.topics)
        else:
            answers = await _add(broker, producer, asked.topics, context)
        results.append({"transactional_id": asked.transactional_id, "topic_results": answers})
    return {"error_code": error_codes.NONE, "results_by_transaction": results}


async def _add(broker: Broker, producer: Producer, topics: Any, context: RequestContext) -> list[dict[str, Any]]:
    unknown = {place: code for place in _places(topics) if (code := _code_of(broker, place))}
    if unknown:
        rest = error_codes.OPERATION_NOT_ATTEMPTED
        return _answers(topics, lambda place: unknown.get(place, rest))
    version = VERSION_2 if context.version >= _VERSION_2_SINCE else 0
    code = error_codes.NONE
    try:
        await broker.transactions.add_partitions(
            producer, _places(topics), version=version, connection_id=context.connection_id
        )
    except HeadraceError as error:
        code = failure_code(error, knows_fenced=context.version >= _FENCED_SINCE)
    return _answers(topics, lambda place: code)


def _verify(broker: Broker, producer: Producer, topics: Any) -> list[dict[str, Any]]:
    def verify(place: Place) -> int:
        try:
            added = broker.transactions.verify_partition(producer, place)
        except HeadraceError as error:
            return failure_code(error, knows_fenced=True)
        return error_codes.NONE if added else error_codes.TRANSACTION_ABORTABLE

    return _answers(topics, verify)


def _code_of(broker: Broker, place: Place) -> int:
    topic = broker.store.topics.get(place[0])
    if topic is None or not 0 <= place[1] < len(topic.partitions):
        return error_codes.UNKNOWN_TOPIC_OR_PARTITION
    return error_codes.INVALID_TOPIC if topic.internal else error_codes.NONE


def _places(topics: Any) -> list[Place]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _answers(topics: Any, code_of: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": code_of((topic.name, index))}
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]
