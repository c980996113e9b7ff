"""ListOffsets: where a partition begins and ends, and which offset belongs to a time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext
    from headrace.log.partition import PartitionLog

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 2
VERSIONS: Final = (1, 11)

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_SINCE: Final = {_MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9, _EARLIEST_PENDING_UPLOAD: 11}
_UNKNOWN: Final = (-1, -1, -1)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each partition on its own; one that is asked for twice is refused."""
    counts = Counter((topic.name, item.partition_index) for topic in request.topics for item in topic.partitions)
    committed = request.isolation_level == 1
    topics: dict[str, dict[int, dict[str, Any]]] = {}
    for topic in request.topics:
        answers = topics.setdefault(topic.name, {})
        for item in topic.partitions:
            times_asked = counts[topic.name, item.partition_index]
            answers[item.partition_index] = _answer(broker, topic.name, item, times_asked, committed, context)
    return {"topics": [{"name": name, "partitions": list(answers.values())} for name, answers in topics.items()]}


def _answer(
    broker: Broker, name: str, item: Any, times_asked: int, committed: bool, context: RequestContext
) -> dict[str, Any]:
    code, found = error_codes.NONE, _UNKNOWN
    if times_asked > 1:
        code = error_codes.INVALID_REQUEST
    elif context.version < _SINCE.get(item.timestamp, 0) or item.timestamp < _EARLIEST_PENDING_UPLOAD:
        code = error_codes.UNSUPPORTED_VERSION
    else:
        try:
            partition = broker.store.partition(name, item.partition_index)
            code = epoch_error(partition, item.current_leader_epoch)
            if not code:
                found = _find(partition, item.timestamp, committed)
        except HeadraceError as error:
            code = error.kafka_code
    offset, timestamp, epoch = found
    return {
        "partition_index": item.partition_index,
        "error_code": code,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": epoch,
    }


def epoch_error(partition: PartitionLog, epoch: int) -> int:
    """What is wrong with the leader epoch that a client believes in; -1 is no belief."""
    if epoch == -1 or epoch == partition.leader_epoch:
        return error_codes.NONE
    return error_codes.FENCED_LEADER_EPOCH if epoch < partition.leader_epoch else error_codes.UNKNOWN_LEADER_EPOCH


def _find(partition: PartitionLog, timestamp: int, committed: bool) -> tuple[int, int, int]:
    """Offset, timestamp (-1 where it was not asked for) and leader epoch."""
    if timestamp == _LATEST:
        offset = partition.last_stable_offset if committed else partition.high_watermark
        return offset, -1, partition.leader_epoch
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return partition.log_start, -1, partition.epoch_at(partition.log_start)
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _UNKNOWN
    if timestamp == _MAX_TIMESTAMP:
        return partition.max_timestamp() or _UNKNOWN
    return partition.offset_for_timestamp(timestamp, committed) or _UNKNOWN
