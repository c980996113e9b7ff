"""Groups of real clients over a node that is stopped and killed."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import admin
from kafka import KafkaConsumer

from tests.servers import Headrace, java

PARTITIONS = 4
RECORDS = 400


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Headrace]:
    server = Headrace(tmp_path / "node")
    client = admin.AdminClient({"bootstrap.servers": server.bootstrap})
    client.create_topics([admin.NewTopic("work", PARTITIONS, 1)])["work"].result(20)
    yield server
    server.stop()


def produce(node: Headrace, start: int, count: int) -> None:
    producer = ck.Producer({"bootstrap.servers": node.bootstrap})
    for number in range(start, start + count):
        producer.produce("work", str(number), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def consumer(node: Headrace, group: str = "readers", **more: str | int) -> ck.Consumer:
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": node.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 500,
        "reconnect.backoff.max.ms": 200,
    }
    return ck.Consumer(settings | more)


def until(condition: Callable[[], object], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"


def stop(node: Headrace) -> None:
    node.stop()


def kill(node: Headrace) -> None:
    node.kill9()


@pytest.mark.parametrize("end", [stop, kill])
def test_a_group_goes_on_over_a_restart_in_the_same_generation(node: Headrace, end: Callable[[Headrace], None]) -> None:
    produce(node, 0, RECORDS)
    rebalances: list[str] = []
    first, second = consumer(node), consumer(node)
    for one in (first, second):
        one.subscribe(["work"], on_assign=lambda *_: rebalances.append("assigned"))
    seen: list[int] = []

    def work() -> int:
        for one in (first, second):
            for message in one.consume(50, 0.1):
                if message.error() is None:
                    seen.append(int(message.value()))
                    with contextlib.suppress(ck.KafkaException):
                        one.commit(message, asynchronous=False)
        return len(set(seen))

    until(lambda: work() >= RECORDS and len(first.assignment()) == len(second.assignment()) == 2)
    before = len(rebalances)
    end(node)
    node.restart()
    produce(node, RECORDS, RECORDS)
    until(lambda: work() >= 2 * RECORDS)
    assert len(rebalances) == before
    first.close()
    second.close()
    assert set(seen) == set(range(2 * RECORDS))


@pytest.mark.parametrize("end", [stop, kill])
def test_kafka_pythons_and_aiokafkas_groups_go_on_where_they_were(
    node: Headrace, end: Callable[[Headrace], None]
) -> None:
    produce(node, 0, RECORDS)

    def read_with_kafka_python(count: int) -> set[int]:
        source = KafkaConsumer(
            "work",
            bootstrap_servers=node.bootstrap,
            group_id="kp",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        found: set[int] = set()
        deadline = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline:
            for messages in source.poll(timeout_ms=200).values():
                found.update(int(message.value) for message in messages)
        source.commit()
        source.close()
        return found

    async def read_with_aiokafka(count: int) -> set[int]:
        source = AIOKafkaConsumer(
            "work",
            bootstrap_servers=node.bootstrap,
            group_id="ak",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await source.start()
        found: set[int] = set()
        try:
            while len(found) < count:
                found.add(int((await asyncio.wait_for(source.getone(), 30)).value))
            await source.commit()
        finally:
            await source.stop()
        return found

    assert read_with_kafka_python(RECORDS) == set(range(RECORDS))
    assert asyncio.run(read_with_aiokafka(RECORDS)) == set(range(RECORDS))
    end(node)
    node.restart()
    produce(node, RECORDS, 100)
    expected = set(range(RECORDS, RECORDS + 100))
    assert read_with_kafka_python(100) == expected
    assert asyncio.run(read_with_aiokafka(100)) == expected


def test_no_acknowledged_commit_is_lost_when_the_node_is_killed_again_and_again(node: Headrace) -> None:
    produce(node, 0, PARTITIONS)
    acknowledged = dict.fromkeys(range(PARTITIONS), -1)
    attempted = dict(acknowledged)
    offset = 0
    for _ in range(5):
        committer = consumer(node, "simple")
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            offset += 1
            partition = offset % PARTITIONS
            attempted[partition] = offset
            committer.commit(offsets=[ck.TopicPartition("work", partition, offset)], asynchronous=False)
            acknowledged[partition] = offset
        for _ in range(20):
            offset += 1
            attempted[offset % PARTITIONS] = offset
            committer.commit(offsets=[ck.TopicPartition("work", offset % PARTITIONS, offset)], asynchronous=True)
        node.kill9()
        node.restart()
        committer.close()
        reader = consumer(node, "simple")
        places = [ck.TopicPartition("work", partition) for partition in range(PARTITIONS)]
        for place in reader.committed(places, timeout=30):
            assert acknowledged[place.partition] <= place.offset <= attempted[place.partition]
        reader.close()
    assert min(acknowledged.values()) > 0


def test_kafkas_own_tool_reads_our_group_records(node: Headrace) -> None:
    produce(node, 0, PARTITIONS)
    source = consumer(node, "readers", **{"client.id": "reader-1"})
    source.subscribe(["work"])
    until(lambda: source.poll(0.2) is not None)
    places = [ck.TopicPartition("work", partition, 7, metadata="note") for partition in range(PARTITIONS)]
    source.commit(offsets=places, asynchronous=False)
    node.stop()
    (segment,) = (node.data / "topics" / "__consumer_offsets" / "0").glob("*.log")
    dumped = subprocess.run(
        java("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(segment)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    node.restart()
    source.close()
    assert '"type":"2","data":{"group":"readers"}' in dumped
    assert '"clientId":"reader-1"' in dumped
    assert '"protocolType":"consumer"' in dumped
    assert '"type":"1","data":{"group":"readers","topic":"work","partition":3}' in dumped
    assert '"offset":7,"leaderEpoch":' in dumped
    assert '"metadata":"note' in dumped
    assert "Could not decode" not in dumped
