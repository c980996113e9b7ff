"""Topics of every shape on a node, and how to look at them from outside."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import confluent_kafka as ck
from confluent_kafka import admin

from headrace.feed.cluster import Cluster

Seen = list[tuple[int, int, int, bytes | None, bytes | None, Any]]
"""Partition, offset, timestamp, key, value, headers of each record."""

BEGIN_MS = int(time.time() * 1000) - 3 * 86_400_000


@cache
def client(bootstrap: str) -> admin.AdminClient:
    return admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def make_topic(bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    asked = client(bootstrap).create_topics([admin.NewTopic(name, partitions, 1, config=dict(config or {}))])
    asked[name].result(30)


def producer(bootstrap: str, **settings: Any) -> ck.Producer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, "log_level": 0, **named})


def write_records(bootstrap: str, topic: str, count: int, *, partitions: int = 1, codec: str = "none") -> None:
    """Records with and without keys, values and headers, with times of their own that do not grow."""
    made = producer(bootstrap, compression_type=codec)
    rng = random.Random(count)
    for number in range(count):
        headers: list[tuple[str, str | bytes | None]] = (
            [("n", b"%d" % number), ("none", None)] if number % 3 == 0 else []
        )
        made.produce(
            topic,
            value=None if number % 7 == 0 else b"v%d" % number + b"." * rng.randrange(40),
            key=None if number % 5 == 0 else b"k%d" % number,
            partition=number % partitions,
            headers=headers,
            timestamp=BEGIN_MS + rng.randrange(10**8),
        )
    assert made.flush(30) == 0


def write_transactions(bootstrap: str, topic: str, rounds: int) -> None:
    """Transactions of two producers, some aborted, and records of none between them."""
    plain = producer(bootstrap)
    two = [producer(bootstrap, transactional_id=f"{topic}-{number}") for number in range(2)]
    for one in two:
        one.init_transactions(30)
    rng = random.Random(rounds)
    for number in range(rounds):
        open_now = [one for one in two if rng.random() < 0.7]
        for one in open_now:
            one.begin_transaction()
            for row in range(rng.randrange(1, 12)):
                one.produce(topic, b"%d/%d" % (number, row), b"key")
            one.flush(30)
        plain.produce(topic, b"plain %d" % number)
        plain.flush(30)
        for one in open_now:
            if rng.random() < 0.5:
                one.abort_transaction(30)
            else:
                one.commit_transaction(30)


def write_compacted(bootstrap: str, topic: str) -> None:
    """A topic that compaction has made many gaps in, between which there are few and many records."""
    config = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "20000",
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "0",
        "file.delete.delay.ms": "0",
    }
    make_topic(bootstrap, topic, 1, config)
    made, rng = producer(bootstrap), random.Random(7)
    for number in range(4_000):
        key = number if number % 50 == 0 else rng.randrange(40)
        value = None if number % 90 == 3 else b"%d" % number + b"." * 50
        made.produce(topic, value, b"%d" % key)
        if number % 20 == 0:
            made.flush(30)
    assert made.flush(30) == 0
    deadline = time.monotonic() + 60
    while len(seen(bootstrap, topic)) > 2_000:
        assert time.monotonic() < deadline, "nothing is compacted"
        time.sleep(0.2)


def seen(bootstrap: str, topic: str) -> Seen:
    """All committed records."""
    cluster = Cluster(bootstrap, {})
    ends = {index: end for index, (start, end) in cluster.bounds(topic).items() if end > start}
    consumer = cluster.consumer()
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in ends])
    found: Seen = []
    deadline = time.monotonic() + 60
    while ends:
        assert time.monotonic() < deadline, f"{topic} has no end: {ends}"
        for message in consumer.consume(10_000, 0.2):
            index, offset = message.partition() or 0, message.offset() or 0
            if message.error() is not None:
                if offset >= ends.get(index, offset + 1):
                    del ends[index]
                continue
            key, value = message.key(), message.value()
            found.append((index, offset, message.timestamp()[1], key, value, message.headers()))
    consumer.close()
    return sorted(found, key=lambda record: record[:2])


def bounds(bootstrap: str, topic: str) -> dict[int, tuple[int, int]]:
    return Cluster(bootstrap, {}).bounds(topic)


def commit(bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int], **more: Any) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0, **more}
    consumer = ck.Consumer(settings)
    wanted = [ck.TopicPartition(topic, index, offset, "said") for (topic, index), offset in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def next_of_group(bootstrap: str, group: str, topic: str, **more: Any) -> tuple[int, bytes | None]:
    """Offset and value of what a group gets first."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "error", "log_level": 0, **more}
    consumer = ck.Consumer(settings)
    consumer.subscribe([topic])
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                return message.offset() or 0, message.value()
        raise AssertionError(f"group {group} gets nothing")
    finally:
        consumer.close()
