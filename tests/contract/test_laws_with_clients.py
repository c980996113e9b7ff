"""What applications rely on, held by both brokers: seen through confluent-kafka, kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka as ck
import kafka
import pytest
from confluent_kafka import admin

from tests.servers import Server

_numbers = itertools.count(1)
QUIET = {"log_level": 0}


@pytest.fixture
def topic(broker: Server) -> str:
    name = f"law-{next(_numbers)}"
    make(broker, name, 3)
    return name


def make(broker: Server, name: str, partitions: int = 1, **configs: str) -> None:
    client = admin.AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    copies = len(broker.bootstrap.split(","))
    client.create_topics([admin.NewTopic(name, partitions, copies, config=settings)])[name].result(20)
    deadline = time.monotonic() + 20
    while not _ready(client, name, partitions):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _ready(client: admin.AdminClient, name: str, partitions: int) -> bool:
    """Whether every partition has a leader that answers."""
    latest = {ck.TopicPartition(name, number): admin.OffsetSpec.latest() for number in range(partitions)}
    try:
        return all(found.result(20) for found in client.list_offsets(latest).values())
    except ck.KafkaException:
        return False


def produce(broker: Server, topic: str, count: int, *, partition: int = 0, **settings: Any) -> list[ck.Message]:
    done: list[ck.Message] = []

    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        assert error is None, error
        done.append(message)

    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, **QUIET, "linger.ms": 5, **settings})
    for number in range(count):
        producer.produce(topic, b"v%d" % number, b"k%d" % number, partition=partition, on_delivery=delivered)
    assert producer.flush(30) == 0
    return done


def consumer(broker: Server, group: str, **settings: Any) -> ck.Consumer:
    return ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
            "session.timeout.ms": 10_000,
            "topic.metadata.refresh.interval.ms": 500,
            **settings,
        }
    )


def take(source: ck.Consumer, count: int, patience: float = 30.0) -> list[ck.Message]:
    found: list[ck.Message] = []
    deadline = time.monotonic() + patience
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        for message in source.consume(count - len(found), 0.5):
            assert message.error() is None, message.error()
            found.append(message)
    return found


@pytest.fixture
def reader(broker: Server) -> Iterator[ck.Consumer]:
    source = consumer(broker, f"law-group-{next(_numbers)}")
    yield source
    source.close()


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_what_is_produced_is_consumed_in_order(broker: Server, topic: str, reader: ck.Consumer, acks: str) -> None:
    produce(broker, topic, 500, acks=acks)
    reader.assign([ck.TopicPartition(topic, 0, 0)])
    found = take(reader, 500)
    assert [(one.offset(), one.value()) for one in found] == [(n, b"v%d" % n) for n in range(500)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_of_librdkafka_comes_back(broker: Server, topic: str, reader: ck.Consumer, codec: str) -> None:
    produce(broker, topic, 200, **{"compression.type": codec})
    reader.assign([ck.TopicPartition(topic, 0, 0)])
    assert [one.value() for one in take(reader, 200)] == [b"v%d" % n for n in range(200)]


def test_idempotent_producers_number_their_records(broker: Server, topic: str) -> None:
    done = produce(broker, topic, 1000, **{"enable.idempotence": True, "batch.num.messages": 10})
    assert [one.offset() for one in done] == list(range(1000))


def test_offsets_are_found_by_time(broker: Server, topic: str, reader: ck.Consumer) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    start = int(time.time() * 1000) - 100_000
    for number in range(10):
        producer.produce(topic, b"v", partition=0, timestamp=start + number * 1000)
    assert producer.flush(20) == 0
    for asked, offset in ((start, 0), (start + 1, 1), (start + 4500, 5), (start + 9000, 9), (start + 9001, -1)):
        (found,) = reader.offsets_for_times([ck.TopicPartition(topic, 0, asked)], 10)
        assert found.offset == offset


def test_watermarks_are_the_ends_of_the_log(broker: Server, topic: str, reader: ck.Consumer) -> None:
    assert reader.get_watermark_offsets(ck.TopicPartition(topic, 0), 10) == (0, 0)
    produce(broker, topic, 7)
    assert reader.get_watermark_offsets(ck.TopicPartition(topic, 0), 10) == (0, 7)


def test_a_group_goes_on_where_it_was(broker: Server, topic: str) -> None:
    group = f"law-group-{next(_numbers)}"
    produce(broker, topic, 20)
    first = consumer(broker, group)
    first.subscribe([topic])
    take(first, 10)
    first.commit(offsets=[ck.TopicPartition(topic, 0, 10)], asynchronous=False)
    first.close()
    second = consumer(broker, group)
    second.subscribe([topic])
    assert take(second, 10)[0].offset() == 10
    second.close()


def test_members_of_a_group_share_the_partitions(broker: Server, topic: str) -> None:
    group = f"law-group-{next(_numbers)}"
    members = [consumer(broker, group) for _ in range(3)]
    for member in members:
        member.subscribe([topic])
    deadline = time.monotonic() + 30
    while sorted(one.partition for member in members for one in member.assignment()) != [0, 1, 2] or not all(
        member.assignment() for member in members
    ):
        assert time.monotonic() < deadline
        for member in members:
            member.poll(0.1)
    for member in members:
        member.close()


def test_a_message_too_large_is_refused_and_the_next_is_not(broker: Server) -> None:
    name = f"law-{next(_numbers)}"
    make(broker, name, 1, max_message_bytes="2000")
    errors: list[ck.KafkaError | None] = []
    producer = ck.Producer(
        {"bootstrap.servers": broker.bootstrap, **QUIET, "message.max.bytes": 100_000, "linger.ms": 0}
    )
    for size in (5000, 10):
        producer.produce(name, b"x" * size, on_delivery=lambda error, _: errors.append(error))
        producer.flush(20)
    assert errors[0] is not None
    assert errors[0].code() == ck.KafkaError.MSG_SIZE_TOO_LARGE
    assert errors[1] is None


def test_headers_keys_and_nothing_come_back(broker: Server, topic: str, reader: ck.Consumer) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None)]
    producer.produce(topic, None, b"key", partition=0, headers=headers)
    producer.produce(topic, b"", None, partition=0)
    producer.produce(topic, b"v", b"", partition=0)
    assert producer.flush(20) == 0
    reader.assign([ck.TopicPartition(topic, 0, 0)])
    first, second, third = take(reader, 3)
    assert (first.key(), first.value(), first.headers()) == (b"key", None, headers)
    assert (second.key(), second.value(), second.headers()) == (None, b"", None)
    assert (third.key(), third.value()) == (b"", b"v")


def test_an_admin_sees_what_it_made(broker: Server) -> None:
    name = f"law-{next(_numbers)}"
    make(broker, name, 2, retention_ms="123456")
    client = admin.AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, name)
    configs = client.describe_configs([resource])[resource].result(20)
    assert configs["retention.ms"].value == "123456"
    assert configs["segment.bytes"].is_default
    client.create_partitions([admin.NewPartitions(name, 4)])[name].result(20)
    client.delete_topics([name])[name].result(20)
    with pytest.raises(ck.KafkaException) as raised:
        client.delete_topics([name])[name].result(20)
    assert raised.value.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_an_admin_sees_groups_and_moves_their_offsets(broker: Server, topic: str) -> None:
    group = f"law-group-{next(_numbers)}"
    produce(broker, topic, 5)
    member = consumer(broker, group)
    member.subscribe([topic])
    take(member, 5)
    member.commit(asynchronous=False)
    client = admin.AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    listed = client.list_consumer_groups(request_timeout=20).result(20)
    assert group in {one.group_id for one in listed.valid}
    described = client.describe_consumer_groups([group], request_timeout=20)[group].result(20)
    assert described.state == ck.ConsumerGroupState.STABLE
    assert len(described.members) == 1
    member.close()
    asked = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, 0, 2)])
    client.alter_consumer_group_offsets([asked])[group].result(20)
    (found,) = (
        client.list_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(group)])[group].result(20).topic_partitions
    )
    assert (found.partition, found.offset) == (0, 2)
    client.delete_consumer_groups([group], request_timeout=20)[group].result(20)


def test_deleted_records_are_out_of_reach(broker: Server, topic: str, reader: ck.Consumer) -> None:
    produce(broker, topic, 10)
    client = admin.AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    partition = ck.TopicPartition(topic, 0, 4)
    assert client.delete_records([partition])[partition].result(20).low_watermark == 4
    reader.assign([ck.TopicPartition(topic, 0, 0)])
    assert [one.offset() for one in take(reader, 6)] == [4, 5, 6, 7, 8, 9]


def test_kafka_python_produces_and_consumes_in_a_group(broker: Server, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=5)
    sent = [producer.send(topic, b"v%d" % n, b"k%d" % n, headers=[("h", b"1")]) for n in range(300)]
    producer.flush(30)
    assert sum(one.get(10).offset >= 0 for one in sent) == 300
    producer.close()
    source = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=f"law-group-{next(_numbers)}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    found = list(itertools.islice(source, 300))
    source.commit()
    source.close()
    assert {one.value for one in found} == {b"v%d" % n for n in range(300)}
    assert all(list(one.headers) == [("h", b"1")] for one in found)


def test_aiokafka_produces_and_consumes_in_a_group(broker: Server, topic: str) -> None:
    async def run() -> list[Any]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, enable_idempotence=True, compression_type="gzip"
        )
        await producer.start()
        await asyncio.gather(*[producer.send_and_wait(topic, b"v%d" % n, b"k%d" % n) for n in range(300)])
        await producer.stop()
        source = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=f"law-group-{next(_numbers)}",
            auto_offset_reset="earliest",
        )
        await source.start()
        found: list[Any] = []
        while len(found) < 300:
            for batch in (await source.getmany(timeout_ms=5000)).values():
                found += batch
        await source.commit()
        await source.stop()
        return found

    found = asyncio.run(asyncio.wait_for(run(), 60))
    assert {one.value for one in found} == {b"v%d" % n for n in range(300)}
