"""Records of known ranges of partitions, read once and in order."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.errors import ServerAway
from headrace.operations.cluster import REQUEST_TIMEOUT_S, Cluster, Partition, failure

__all__ = ["messages_in"]


def messages_in(cluster: Cluster, ranges: Mapping[Partition, tuple[int, int]]) -> Iterator[Any]:
    """The committed messages from each start to before each end; offsets may be missing in between."""
    from confluent_kafka import KafkaError, TopicPartition

    left = {place: end for place, (start, end) in ranges.items() if start < end}
    if not left:
        return
    consumer = cluster.consumer(
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        enable_partition_eof=True,
        isolation_level="read_committed",
    )
    try:
        consumer.assign([TopicPartition(topic, index, ranges[topic, index][0]) for topic, index in left])
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while left:
            for message in consumer.consume(500, 0.05):
                deadline = time.monotonic() + REQUEST_TIMEOUT_S
                place: Partition = (str(message.topic()), message.partition() or 0)
                error, offset = message.error(), message.offset() or 0
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise failure(error, f"{place[0]} could not be read", cluster.server)
                if place in left and error is None and offset < left[place]:
                    yield message
                if place in left and (error is not None or offset >= left[place] - 1):
                    del left[place]
            if time.monotonic() > deadline:
                raise ServerAway(f"{cluster.server} stopped sending records of {', '.join(t for t, _ in left)}.")
    finally:
        consumer.close()
