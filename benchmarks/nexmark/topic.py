"""NEXMark's events in a topic: epochs of 50 in turn over the partitions, so that each has the proportions of the whole
and all advance together. A record's timestamp is its event time; there are no keys.
"""

from __future__ import annotations

import polars as pl
from confluent_kafka import KafkaError, Message, Producer, admin

from benchmarks.nexmark.generator import EVENTS_PER_EPOCH, Stream

__all__ = ["create_topic", "fill"]

_CHUNK = 50_000
_WAITING = 500_000


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """A topic that keeps everything: event times are long ago."""
    client = admin.AdminClient({"bootstrap.servers": bootstrap})
    settings = {"retention.ms": "-1", "retention.bytes": "-1"}
    client.create_topics([admin.NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)


def fill(bootstrap: str, topic: str, stream: Stream, events: range, partitions: int) -> None:
    """The events at these places of the stream."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 2 * _WAITING,
            "queue.buffering.max.kbytes": 2_000_000,
            "delivery.report.only.error": True,
            "on_delivery": delivered,
        }
    )
    for first in events[::_CHUNK]:
        last = min(first + _CHUNK, events.stop)
        records = stream.records(first, last).with_columns(
            partition=pl.int_range(first, last) // EVENTS_PER_EPOCH % partitions
        )
        while len(producer) > _WAITING:
            producer.poll(0.05)
        for value, timestamp, partition in records.select("value", "timestamp", "partition").iter_rows():
            producer.produce(topic, value, partition=partition, timestamp=timestamp)
        producer.poll(0)
    if producer.flush(300) or failed:
        raise RuntimeError(f"not all events could be sent: {failed[:1]}")
