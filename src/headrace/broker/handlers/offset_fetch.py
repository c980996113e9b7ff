"""OffsetFetch: how far groups have come, of given partitions or of all. Only what is on disk is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.groups.codes import Code
from headrace.errors import UnknownTopicId

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext
    from headrace.broker.groups.records import CommittedOffset

API_KEY: Final = 9
VERSIONS: Final = (1, 10)

_ERROR_OF_ALL_FROM, _GROUPS_FROM, _TOPIC_IDS_FROM = 2, 8, 10


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """With ``require_stable`` commits that are under way are waited for, and those of open transactions are errors."""
    version = context.version
    failure = await broker.groups.settle() if request.require_stable else Code.NONE
    asked = request.groups if version >= _GROUPS_FROM else (request,)
    groups = [_group(broker, item.group_id, item.topics, version, failure or _check(broker, item)) for item in asked]
    if request.require_stable:
        for group in groups:
            _mark_unstable(broker, group)
    if version >= _GROUPS_FROM:
        return {"groups": groups}
    return {"topics": groups[0]["topics"], "error_code": groups[0]["error_code"]}


def _check(broker: Broker, asked: Any) -> Code:
    member_id, epoch = getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1)
    return broker.groups.check_fetch(asked.group_id, member_id, epoch)


def _mark_unstable(broker: Broker, group: dict[str, Any]) -> None:
    for topic in group["topics"]:
        for partition in topic["partitions"]:
            index = partition["partition_index"]
            if broker.groups.is_unstable(group["group_id"], topic["name"], index):
                partition.update(_partition(index, None), error_code=Code.UNSTABLE_OFFSET_COMMIT)


def _group(broker: Broker, group_id: str, asked: Any, version: int, failure: Code) -> dict[str, Any]:
    if failure:
        topics = _failed(asked, failure) if version < _ERROR_OF_ALL_FROM else []
        return {"group_id": group_id, "topics": topics, "error_code": failure}
    by_id = version >= _TOPIC_IDS_FROM
    topics = _all_topics(broker, group_id, by_id) if asked is None else _given_topics(broker, group_id, asked, by_id)
    return {"group_id": group_id, "topics": topics, "error_code": Code.NONE}


def _all_topics(broker: Broker, group_id: str, by_id: bool) -> list[dict[str, Any]]:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for topic, index in broker.groups.offsets(group_id):
        committed = broker.groups.offset(group_id, topic, index)
        if committed is not None:
            by_topic.setdefault(topic, []).append(_partition(index, committed))
    answers = []
    for name, partitions in by_topic.items():
        known = broker.store.topics.get(name)
        if known is not None or not by_id:
            topic_id = None if known is None else known.id
            answers.append({"topic_id": topic_id, "name": name, "partitions": partitions})
    return answers


def _given_topics(broker: Broker, group_id: str, asked: Any, by_id: bool) -> list[dict[str, Any]]:
    answers, unknown = [], []
    for topic in asked:
        if by_id:
            try:
                name = broker.store.topic_by_id(topic.topic_id).name
            except UnknownTopicId:
                unknown.append(topic)
                continue
        else:
            name = topic.name
        partitions = [
            _partition(index, broker.groups.offset(group_id, name, index)) for index in topic.partition_indexes
        ]
        answers.append({"topic_id": topic.topic_id if by_id else None, "name": name, "partitions": partitions})
    return answers + _failed(unknown, Code.UNKNOWN_TOPIC_ID)


def _failed(asked: Any, code: Code) -> list[dict[str, Any]]:
    return [
        {
            "topic_id": getattr(topic, "topic_id", None),
            "name": getattr(topic, "name", ""),
            "partitions": [_partition(index, None) | {"error_code": code} for index in topic.partition_indexes],
        }
        for topic in asked or ()
    ]


def _partition(index: int, committed: CommittedOffset | None) -> dict[str, Any]:
    if committed is None:
        return {"partition_index": index, "committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
    }
