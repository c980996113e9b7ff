"""Topics that pipelines and change capture need: made if they are not there, and small compacted ones read whole."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from headrace.errors import ServerAway
from headrace.feed.cluster import REQUEST_TIMEOUT_S, Cluster, raised

__all__ = ["CATALOG", "COMPACTED", "MARKS", "delete_topics", "ensure_topic", "read_table"]

CATALOG, MARKS = "headrace.catalog", "headrace.marks"
COMPACTED: Mapping[str, str] = {"cleanup.policy": "compact"}
_SMALL = {**COMPACTED, "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.1"}


def ensure_topic(cluster: Cluster, name: str, partitions: int = 1, config: Mapping[str, str] = _SMALL) -> None:
    """Make a topic unless there is one of that name."""
    made = cluster.admin.create_topics([NewTopic(name, partitions, config=dict(config))])
    try:
        made[name].result(REQUEST_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise raised(error.args[0], f"topic {name!r} could not be made", cluster.bootstrap) from None
    except TimeoutError:
        raise ServerAway(f"topic {name!r} could not be made: {cluster.bootstrap} did not answer.") from None


def delete_topics(cluster: Cluster, names: list[str]) -> None:
    """Delete those of these topics that exist."""
    for name, future in (cluster.admin.delete_topics(names) if names else {}).items():
        try:
            future.result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise raised(error.args[0], f"topic {name!r} could not be deleted", cluster.bootstrap) from None


def read_table(cluster: Cluster, topic: str, prefix: str = "", patience_s: float = 60.0) -> dict[str, bytes]:
    """The committed value of each key of a topic with one partition, up to its end as of now.

    Transactions that were open at the end are waited for: a committed record behind one of them must not be missed.
    """
    partition = TopicPartition(topic, 0)
    asked = cluster.admin.list_offsets(
        {partition: OffsetSpec.latest()},
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=REQUEST_TIMEOUT_S,
    )
    try:
        end = asked[partition].result(REQUEST_TIMEOUT_S + 5).offset
    except KafkaException as error:
        raise raised(error.args[0], f"topic {topic!r} could not be read", cluster.bootstrap) from None
    found: dict[str, bytes] = {}
    if end <= 0:
        return found
    deadline = time.monotonic() + patience_s
    consumer = cluster.consumer()
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while time.monotonic() < deadline:
            for message in consumer.consume(10_000, 0.05):
                failed = message.error()
                if failed is not None:
                    if failed.code() == KafkaError._PARTITION_EOF and (message.offset() or 0) >= end:
                        return found
                    continue
                _keep(found, message.key(), message.value(), prefix)
    finally:
        consumer.close()
    raise ServerAway(
        f"topic {topic!r} could not be read to its end in {patience_s:.0f} s.",
        hint=f"Is the broker at {cluster.bootstrap} up? A transaction that stays open holds readers back.",
    )


def _keep(found: dict[str, bytes], key: bytes | str | None, value: bytes | str | None, prefix: str) -> None:
    name = key.decode() if isinstance(key, bytes) else key or ""
    if not name.startswith(prefix):
        return
    if value is None:
        found.pop(name, None)
    else:
        found[name] = value if isinstance(value, bytes) else value.encode()
