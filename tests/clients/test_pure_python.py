"""kafka-python and aiokafka on Headrace, with their admin sides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import aiokafka.admin
import kafka
import kafka.admin
import pytest

from tests.servers import Headrace

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
Make = Callable[..., str]


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_what_it_wrote(node: Headrace, new_topic: Make, codec: str | None) -> None:
    topic = new_topic()
    sender = kafka.KafkaProducer(bootstrap_servers=node.bootstrap, compression_type=codec, linger_ms=5)
    for number in range(500):
        sender.send(topic, b"v%d" % number, b"k")
    sender.flush(30)
    sender.close()
    source = kafka.KafkaConsumer(bootstrap_servers=node.bootstrap, consumer_timeout_ms=10_000)
    partition = kafka.TopicPartition(topic, 0)
    source.assign([partition])
    source.seek(partition, 100)
    found = [next(source).value for _ in range(400)]
    assert found == [b"v%d" % n for n in range(100, 500)]
    assert source.end_offsets([partition]) == {partition: 500}
    assert source.beginning_offsets([partition]) == {partition: 0}
    source.close()


def test_kafka_pythons_admin_makes_and_describes(node: Headrace) -> None:
    client = kafka.admin.KafkaAdminClient(bootstrap_servers=node.bootstrap)
    name = "kafka-python-made"
    client.create_topics([kafka.admin.NewTopic(name=name, num_partitions=2, replication_factor=1)])
    assert name in client.list_topics()
    (described,) = client.describe_topics([name])
    assert len(described["partitions"]) == 2
    client.delete_topics([name])
    assert name not in client.list_topics()
    client.close()


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_what_it_wrote(node: Headrace, new_topic: Make, codec: str | None) -> None:
    topic = new_topic()

    async def run() -> list[Any]:
        sender = aiokafka.AIOKafkaProducer(bootstrap_servers=node.bootstrap, compression_type=codec, linger_ms=5)
        await sender.start()
        for number in range(500):
            await sender.send(topic, b"v%d" % number)
        await sender.flush()
        await sender.stop()
        source = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=node.bootstrap, auto_offset_reset="earliest")
        await source.start()
        found = [await source.getone() for _ in range(500)]
        await source.stop()
        return found

    found = asyncio.run(asyncio.wait_for(run(), 60))
    assert [(one.offset, one.value) for one in found] == [(n, b"v%d" % n) for n in range(500)]


def test_aiokafka_finds_offsets_by_time(node: Headrace, new_topic: Make) -> None:
    topic = new_topic()
    start = int(time.time() * 1000) - 10_000

    async def run() -> int:
        sender = aiokafka.AIOKafkaProducer(bootstrap_servers=node.bootstrap)
        await sender.start()
        for number in range(10):
            await sender.send_and_wait(topic, b"v", timestamp_ms=start + number * 100)
        await sender.stop()
        source = aiokafka.AIOKafkaConsumer(bootstrap_servers=node.bootstrap)
        await source.start()
        partition = aiokafka.TopicPartition(topic, 0)
        found = await source.offsets_for_times({partition: start + 450})
        await source.stop()
        return int(found[partition].offset)

    assert asyncio.run(asyncio.wait_for(run(), 60)) == 5


def test_aiokafkas_admin_makes_and_deletes(node: Headrace) -> None:
    async def run() -> None:
        client = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=node.bootstrap)
        await client.start()
        await client.create_topics([aiokafka.admin.NewTopic("aiokafka-made", 2, 1)])
        assert "aiokafka-made" in await client.list_topics()
        await client.delete_topics(["aiokafka-made"])
        assert "aiokafka-made" not in await client.list_topics()
        await client.close()

    asyncio.run(asyncio.wait_for(run(), 60))
