"""A part of a topic, read once from where it starts to where it ends: for looking at what a capture has written."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import KafkaError, Message, TopicPartition

from headrace.errors import ServerAway
from headrace.feed.cluster import Cluster

__all__ = ["committed", "keyed"]

PATIENCE_S = 60.0


def committed(
    cluster: Cluster, topic: str, partition: int, start: int, end: int, patience_s: float = PATIENCE_S
) -> Iterator[Message]:
    """The committed records from one offset to another; raises if none of them comes for a while."""
    consumer = cluster.consumer()
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        came_at = time.monotonic()
        while time.monotonic() - came_at < patience_s:
            for message in consumer.consume(10_000, 0.2):
                failed = message.error()
                if failed is None:
                    came_at = time.monotonic()
                    yield message
                elif failed.code() == KafkaError._PARTITION_EOF and (message.offset() or 0) >= end:
                    return
    finally:
        consumer.close()
    raise ServerAway(f"topic {topic!r} could not be read to its end: nothing came for {patience_s:.0f} s.")


def keyed(
    cluster: Cluster, topic: str, partition: int, start: int, end: int
) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of those of them that have a key."""
    for message in committed(cluster, topic, partition, start, end):
        key, value = message.key(), message.value()
        if isinstance(key, bytes) and (value is None or isinstance(value, bytes)):
            yield message.offset() or 0, key, value
