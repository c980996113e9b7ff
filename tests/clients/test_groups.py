"""Consumer groups of real clients: members of several libraries in one group, static members that come back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import confluent_kafka as ck
import kafka
from aiokafka.coordinator.assignors import range as aiokafka_range
from kafka.coordinator.assignors import range as kafka_range

from tests.servers import Headrace, die_with_parent, java

Make = Callable[..., str]
PATIENCE = 60.0


def write(node: Headrace, topic: str, partitions: int, first: int, count: int) -> None:
    sender = ck.Producer({"bootstrap.servers": node.bootstrap, "enable.idempotence": True})
    for number in range(first, first + count):
        sender.produce(topic, str(number), partition=number % partitions)
    assert sender.flush(30) == 0


def until(done: Callable[[], Any], what: str, step: Callable[[], Any] = lambda: time.sleep(0.05)) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, what
        step()


class Seen:
    """What a group's members read, whoever they are; each reports from a thread of its own."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.members: Counter[str] = Counter()
        self.failed: list[BaseException] = []
        self.stop = threading.Event()

    def add(self, member: str, value: bytes | str | None) -> None:
        self.counts[int(value or b"-1")] += 1
        self.members[member] += 1


@contextlib.contextmanager
def threads(*works: Callable[[], None], seen: Seen) -> Iterator[None]:
    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            seen.failed.append(error)

    running = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for each in running:
        each.start()
    try:
        yield
    finally:
        seen.stop.set()
        for each in running:
            each.join(PATIENCE)
    assert seen.failed == []


def kafka_python(node: Headrace, topic: str, seen: Seen) -> None:
    source = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=node.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[kafka_range.RangePartitionAssignor],
        session_timeout_ms=6000,
    )
    while not seen.stop.is_set():
        for records in source.poll(200).values():
            for record in records:
                seen.add("kafka-python", record.value)
    source.close()


def aiokafka_member(node: Headrace, topic: str, seen: Seen) -> None:
    async def act() -> None:
        source = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=node.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[aiokafka_range.RangePartitionAssignor],
            session_timeout_ms=6000,
        )
        await source.start()
        while not seen.stop.is_set():
            for records in (await source.getmany(timeout_ms=200)).values():
                for record in records:
                    seen.add("aiokafka", record.value)
        await source.stop()

    asyncio.run(act())


def librdkafka(node: Headrace, topic: str, seen: Seen) -> None:
    source = ck.Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": 6000,
        }
    )
    source.subscribe([topic])
    while not seen.stop.is_set():
        for message in source.consume(100, 0.2):
            if message.error() is None:
                seen.add("librdkafka", message.value())
    source.close()


def java_member(node: Headrace, topic: str, seen: Seen) -> None:
    command = java(
        "org.apache.kafka.tools.VerifiableConsumer",
        *("--bootstrap-server", node.bootstrap, "--topic", topic, "--group-id", topic, "--session-timeout", "6000"),
        *("--reset-policy", "earliest", "--verbose"),
        *("--assignment-strategy", "org.apache.kafka.clients.consumer.RangeAssignor"),
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=die_with_parent)
    assert process.stdout is not None
    threading.Thread(target=lambda: (seen.stop.wait(), process.terminate())).start()
    for line in process.stdout:
        told = json.loads(line) if line.startswith(b"{") else {}
        if told.get("name") == "record_data":
            seen.add("java", told["value"])
    process.wait()
    process.stdout.close()


def test_members_of_four_libraries_share_one_group(node: Headrace, new_topic: Make) -> None:
    topic, seen = new_topic(8), Seen()
    members = (kafka_python, aiokafka_member, librdkafka, java_member)
    written = 0
    with threads(*(lambda each=each: each(node, topic, seen) for each in members), seen=seen):

        def more() -> None:
            nonlocal written
            write(node, topic, 8, written, 80)
            written += 80
            time.sleep(0.2)

        until(lambda: seen.failed or len(seen.members) == len(members), "not all members were given something", more)
        until(lambda: seen.failed or len(seen.counts) == written, "something was read by nobody")
    assert set(seen.counts) == set(range(written))


def test_pure_python_members_come_and_go_and_go_on_where_the_group_was(node: Headrace, new_topic: Make) -> None:
    topic = new_topic(4)
    for round, member in enumerate((kafka_python, aiokafka_member, kafka_python)):
        seen = Seen()
        write(node, topic, 4, round * 400, 400)
        with threads(*[lambda member=member, seen=seen: member(node, topic, seen)] * 2, seen=seen):
            until(lambda seen=seen: seen.failed or seen.counts.total() >= 400, "not everything was read")
        assert set(seen.counts) == set(range(round * 400, round * 400 + 400))


class Static:
    """A static member with cooperative rebalancing that remembers what was taken from it."""

    def __init__(self, node: Headrace, topic: str, instance: str) -> None:
        self.lost: list[int] = []
        self.consumer = ck.Consumer(
            {
                "bootstrap.servers": node.bootstrap,
                "group.id": topic,
                "group.instance.id": instance,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 200,
                "auto.offset.reset": "earliest",
            }
        )
        self.consumer.subscribe([topic], on_revoke=lambda _, gone: self.lost.extend(each.partition for each in gone))

    @property
    def has(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}


def test_static_members_with_cooperative_rebalancing_keep_what_they_have(node: Headrace, new_topic: Make) -> None:
    topic = new_topic(6)
    members = [Static(node, topic, f"instance-{number}") for number in range(3)]

    def poll() -> None:
        for each in members:
            each.consumer.poll(0.05)

    until(lambda: sorted(len(each.has) for each in members) == [2, 2, 2], "no even assignment", poll)
    before = [each.has for each in members]
    for each in members:
        each.lost.clear()
    members[0].consumer.close()
    members[0] = Static(node, topic, "instance-0")
    until(lambda: members[0].has == before[0], "it did not get back what it had", poll)
    assert [each.has for each in members] == before
    assert members[1].lost == members[2].lost == []
    members.pop(0).consumer.close()
    until(lambda: sorted(len(each.has) for each in members) == [3, 3], "what it had was not given to others", poll)
    assert members[0].lost == members[1].lost == []
    members.append(Static(node, topic, "instance-new"))
    until(lambda: sorted(len(each.has) for each in members) == [2, 2, 2], "the new one was not given its part", poll)
    assert len(members[0].lost) == len(members[1].lost) == 1, "each gave one away and kept the rest"
    for each in members:
        each.consumer.close()
