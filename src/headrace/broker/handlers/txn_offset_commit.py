"""TxnOffsetCommit: how far a group has come, if and when the transaction is committed. Answered once it is on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.groups.codes import Code
from headrace.broker.groups.records import CommittedOffset
from headrace.broker.transactional import failure_code
from headrace.broker.transactions.coordinator import OFFSETS_PLACE, Producer
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 28
VERSIONS: Final = (0, 5)

_ABORTABLE_SINCE, _IMPLICIT_SINCE = 4, 5


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Partitions that do not exist get an error of their own; the others share the transaction's and the group's."""
    now_ms = broker.clock.now_ms()
    offsets: list[tuple[str, int, CommittedOffset]] = []
    open_answers: list[dict[str, Any]] = []
    topics = []
    for asked in request.topics:
        topic = broker.store.topics.get(asked.name)
        partitions = []
        for partition in asked.partitions:
            index, metadata = partition.partition_index, partition.committed_metadata or ""
            answer = {"partition_index": index, "error_code": int(Code.UNKNOWN_TOPIC_OR_PARTITION)}
            partitions.append(answer)
            if topic is None or not 0 <= index < len(topic.partitions):
                continue
            open_answers.append(answer)
            if len(metadata) > broker.groups.settings.offset_metadata_max_bytes:
                answer["error_code"] = Code.OFFSET_METADATA_TOO_LARGE
                continue
            answer["error_code"] = Code.NONE
            value = CommittedOffset(
                partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms, topic_id=topic.id
            )
            offsets.append((topic.name, index, value))
        topics.append({"name": asked.name, "partitions": partitions})
    if open_answers:
        code = await _commit(broker, request, offsets, context.version)
        if code:
            for answer in open_answers:
                answer["error_code"] = code
    return {"topics": topics}


async def _commit(broker: Broker, request: Any, offsets: list[tuple[str, int, CommittedOffset]], version: int) -> int:
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    broker.groups.ensure_log()
    try:
        broker.transactions.admit(producer, OFFSETS_PLACE, implicit=version >= _IMPLICIT_SINCE)
        code = await broker.groups.commit_in_transaction(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            offsets,
            (producer.producer_id, producer.epoch),
        )
        await broker.transactions.until_durable(producer.transactional_id)
    except HeadraceError as error:
        failure = failure_code(error, knows_fenced=False)
        if failure == error_codes.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
            return error_codes.INVALID_TXN_STATE
        return failure
    return code
