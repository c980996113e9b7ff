"""The values of a topic with one partition, from its start and then as they come. For small topics."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from headrace.feed.cluster import Cluster

__all__ = ["TopicTail"]


class TopicTail:
    """Follows a topic; what a broker that is away has is read when it is back."""

    def __init__(self, cluster: Cluster, topic: str, offset: int = 0) -> None:
        self._consumer = cluster.consumer()
        self._consumer.assign([TopicPartition(topic, 0, offset)])

    def poll(self, seconds: float) -> list[bytes]:
        """The values that have come, waiting so long at most for the first."""
        found = []
        for message in self._consumer.consume(10_000, seconds):
            value = message.value()
            if message.error() is None and value is not None:
                found.append(value if isinstance(value, bytes) else value.encode())
        return found

    def close(self) -> None:
        """Stop following."""
        self._consumer.close()
