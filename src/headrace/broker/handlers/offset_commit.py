"""OffsetCommit: how far a group has come. Answered once it is on disk; all partitions of a request in one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.codes import Code
from headrace.broker.groups.records import CommittedOffset
from headrace.errors import UnknownTopicId

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext
    from headrace.log.store import Topic

API_KEY: Final = 8
VERSIONS: Final = (2, 10)

_NOT_FOUND_FROM, _TOPIC_IDS_FROM = 9, 10


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Partitions that do not exist get an error of their own; the others share the group's."""
    by_id = context.version >= _TOPIC_IDS_FROM
    now_ms = broker.clock.now_ms()
    retention_ms = getattr(request, "retention_time_ms", -1)
    expire_ms = -1 if retention_ms == -1 else now_ms + retention_ms
    offsets: list[tuple[str, int, CommittedOffset]] = []
    open_answers: list[dict[str, Any]] = []
    topics = []
    for asked in request.topics:
        topic = _find(broker, asked, by_id)
        unknown = Code.UNKNOWN_TOPIC_ID if by_id and topic is None else Code.UNKNOWN_TOPIC_OR_PARTITION
        partitions = []
        for partition in asked.partitions:
            index, metadata = partition.partition_index, partition.committed_metadata or ""
            answer = {"partition_index": index, "error_code": unknown}
            partitions.append(answer)
            if topic is None or not 0 <= index < len(topic.partitions):
                continue
            open_answers.append(answer)
            if len(metadata) > broker.groups.settings.offset_metadata_max_bytes:
                answer["error_code"] = Code.OFFSET_METADATA_TOO_LARGE
                continue
            answer["error_code"] = Code.NONE
            leader_epoch = partition.committed_leader_epoch
            value = CommittedOffset(partition.committed_offset, leader_epoch, metadata, now_ms, expire_ms, topic.id)
            offsets.append((topic.name, index, value))
        topics.append({"topic_id": asked.topic_id, "name": "" if by_id else asked.name, "partitions": partitions})
    if open_answers:
        code = await broker.groups.commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            offsets,
            context.version,
        )
        if code is Code.GROUP_ID_NOT_FOUND and context.version < _NOT_FOUND_FROM:
            code = Code.ILLEGAL_GENERATION
        if code:
            for answer in open_answers:
                answer["error_code"] = code
    return {"topics": topics}


def _find(broker: Broker, asked: Any, by_id: bool) -> Topic | None:
    if not by_id:
        return broker.store.topics.get(asked.name)
    try:
        return broker.store.topic_by_id(asked.topic_id)
    except UnknownTopicId:
        return None
