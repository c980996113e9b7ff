"""Requests as the tests send them, with the fields that they don't care about filled in."""

from __future__ import annotations

import time
from typing import Any

from headrace import _kernel
from tests.broker.raw_client import RawClient

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 18, 19, 20
DELETE_RECORDS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, CREATE_PARTITIONS = 21, 22, 23, 37
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44


def batch(count: int = 1, *, key: bytes | None = b"k", value: bytes = b"v", **options: Any) -> bytes:
    now = int(time.time() * 1000)
    return bytes(_kernel.build_batch([(now, key, value, []) for _ in range(count)], **options))


def create(client: RawClient, name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic; underscores in setting names stand for dots."""
    answer = client.call(CREATE_TOPICS, 7, new_topic(name, partitions, configs))
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message


def new_topic(name: str, partitions: int = 1, configs: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in (configs or {}).items()],
        **more,
    }
    return {"topics": [topic], "timeout_ms": 1000, "validate_only": False}


def produce(topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, **more: Any) -> dict[str, Any]:
    data = {"name": topic, "partition_data": [{"index": partition, "records": records}]}
    return {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": [data], **more}


def send(client: RawClient, topic: str, records: bytes | None, *, version: int = 9, **more: Any) -> Any:
    """Produce one batch; the partition's answer."""
    answer = client.call(PRODUCE, version, produce(topic, records, **more))
    return answer.responses[0].partition_responses[0]


def wish(partition: int = 0, offset: int = 0, *, max_bytes: int = 1 << 20, epoch: int = -1) -> dict[str, Any]:
    return {
        "partition": partition,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "partition_max_bytes": max_bytes,
    }


def fetch(
    topics: dict[str, list[dict[str, Any]]],
    *,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 24,
    session: tuple[int, int] = (0, -1),
    forgotten: dict[str, list[int]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "max_wait_ms": wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{"topic": name, "partitions": wishes} for name, wishes in topics.items()],
        "forgotten_topics_data": [{"topic": name, "partitions": p} for name, p in (forgotten or {}).items()],
        **more,
    }


def read(client: RawClient, topic: str, offset: int = 0, *, version: int = 11, **more: Any) -> Any:
    """Fetch from partition 0; the partition's answer."""
    wishes = [wish(0, offset, max_bytes=more.pop("partition_max_bytes", 1 << 20), epoch=more.pop("epoch", -1))]
    answer = client.call(FETCH, version, fetch({topic: wishes}, **more))
    return answer.responses[0].partitions[0]


def list_offset(client: RawClient, topic: str, timestamp: int, *, version: int = 11, **more: Any) -> Any:
    item = {"partition_index": more.pop("partition", 0), "current_leader_epoch": -1, "timestamp": timestamp, **more}
    answer = client.call(LIST_OFFSETS, version, {"replica_id": -1, "topics": [{"name": topic, "partitions": [item]}]})
    return answer.topics[0].partitions[0]
