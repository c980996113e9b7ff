"""The records of a topic with one partition, from its start and then as they come. For small topics."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from headrace.feed.cluster import Cluster

__all__ = ["TopicTail"]


class TopicTail:
    """Follows a topic; what a broker that is away has is read when it is back."""

    def __init__(self, cluster: Cluster, topic: str, offset: int = 0) -> None:
        self._consumer = cluster.consumer()
        self._consumer.assign([TopicPartition(topic, 0, offset)])

    def poll(self, seconds: float) -> list[tuple[bytes, bytes | None]]:
        """Keys and values that have come, waiting so long at most for the first."""
        return [
            (_bytes(message.key()) or b"", _bytes(message.value()))
            for message in self._consumer.consume(10_000, seconds)
            if message.error() is None
        ]

    def close(self) -> None:
        """Stop following."""
        self._consumer.close()


def _bytes(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
