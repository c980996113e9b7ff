"""confluent-kafka (librdkafka) on Headrace: what an application does on a busy day."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest

from tests.servers import Headrace

Make = Callable[..., str]


def producer(node: Headrace, **settings: Any) -> ck.Producer:
    return ck.Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 5, "enable.idempotence": True, **settings})


def member(node: Headrace, group: str, **settings: Any) -> ck.Consumer:
    return ck.Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            **settings,
        }
    )


def drain(source: ck.Consumer, count: int, patience: float = 60.0) -> list[ck.Message]:
    found: list[ck.Message] = []
    deadline = time.monotonic() + patience
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        for message in source.consume(min(10_000, count - len(found)), 0.5):
            assert message.error() is None, message.error()
            found.append(message)
    return found


def test_messages_of_many_megabytes_come_back(node: Headrace, new_topic: Make) -> None:
    topic = new_topic(max_message_bytes=str(32 << 20))
    contents = [random.Random(n).randbytes(size) for n, size in enumerate((1, 1 << 20, 10 << 20, 25 << 20))]
    sender = producer(node, **{"message.max.bytes": 32 << 20})
    for content in contents:
        sender.produce(topic, content)
    assert sender.flush(60) == 0
    source = member(node, "big", **{"fetch.message.max.bytes": 1 << 20, "receive.message.max.bytes": 64 << 20})
    source.assign([ck.TopicPartition(topic, 0, 0)])
    assert [one.value() for one in drain(source, 4)] == contents
    source.close()


def test_five_hundred_partitions_are_written_and_read(node: Headrace, new_topic: Make) -> None:
    topic = new_topic(500)
    sender = producer(node)
    for number in range(5000):
        sender.produce(topic, str(number), partition=number % 500)
    assert sender.flush(60) == 0
    source = member(node, f"{topic}-readers")
    source.subscribe([topic])
    found = drain(source, 5000)
    source.close()
    assert sorted(int(one.value()) for one in found) == list(range(5000))
    for index in range(500):
        mine = [int(one.value()) for one in found if one.partition() == index]
        assert mine == sorted(mine)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go_and_every_record_is_read(node: Headrace, new_topic: Make, strategy: str) -> None:
    topic, settings = new_topic(6), {"partition.assignment.strategy": strategy}
    group = f"{topic}-{strategy}"
    sender = producer(node)
    for number in range(3000):
        sender.produce(topic, str(number))
    assert sender.flush(30) == 0
    seen: Counter[bytes] = Counter()

    def work(source: ck.Consumer, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and len(seen) < 3000:
            messages = [one for one in source.consume(100, 0.1) if one.error() is None]
            seen.update(one.value() for one in messages)
            ends = {one.partition(): one.offset() + 1 for one in messages}
            if ends:
                done = [ck.TopicPartition(topic, index, end) for index, end in ends.items()]
                source.commit(offsets=done, asynchronous=False)

    members = [member(node, group, **settings)]
    members[0].subscribe([topic])
    deadline = time.monotonic() + 60
    while len(seen) < 3000:
        assert time.monotonic() < deadline, f"{len(seen)} of 3000"
        for source in members:
            with contextlib.suppress(ck.KafkaException):  # a commit during a rebalance is refused
                work(source, 0.3)
        if len(members) < 3:
            members.append(member(node, group, **settings))
            members[-1].subscribe([topic])
        elif len(seen) > 1500:
            members.pop(0).close()
    for source in members:
        source.close()
    assert set(seen) == {str(n).encode() for n in range(3000)}


def test_a_static_member_comes_back_without_a_rebalance(node: Headrace, new_topic: Make) -> None:
    topic = new_topic(2)
    rebalances: list[str] = []
    other = member(node, f"{topic}-static", **{"group.instance.id": "other"})
    other.subscribe([topic], on_assign=lambda *_: rebalances.append("assign"))
    first = member(node, f"{topic}-static", **{"group.instance.id": "one"})
    first.subscribe([topic])
    deadline = time.monotonic() + 30
    while not (len(first.assignment()) == 1 and len(other.assignment()) == 1):
        assert time.monotonic() < deadline
        first.poll(0.1)
        other.poll(0.1)
    before = len(rebalances)
    first.close()
    again = member(node, f"{topic}-static", **{"group.instance.id": "one"})
    again.subscribe([topic])
    while len(again.assignment()) != 1:
        assert time.monotonic() < deadline
        again.poll(0.1)
        other.poll(0.1)
    assert len(rebalances) == before
    again.close()
    other.close()


def test_a_topic_is_made_by_writing_to_it(node: Headrace) -> None:
    sender = producer(node)
    sender.produce("made-by-writing", b"first")
    assert sender.flush(30) == 0
    source = member(node, "made-by-writing-readers")
    source.subscribe(["made-by-writing"])
    assert drain(source, 1)[0].value() == b"first"
    source.close()


def test_the_end_of_a_partition_is_reached_and_left(node: Headrace, new_topic: Make) -> None:
    topic = new_topic()
    sender = producer(node)
    source = member(node, "eof", **{"enable.partition.eof": True, "fetch.wait.max.ms": 100})
    source.assign([ck.TopicPartition(topic, 0, 0)])
    for number in range(3):
        sender.produce(topic, str(number))
        assert sender.flush(10) == 0
        kinds = []
        deadline = time.monotonic() + 20
        while kinds[-1:] != ["end"]:
            assert time.monotonic() < deadline
            if (message := source.poll(1)) is not None:
                kinds.append("end" if message.error() else "record")
        assert kinds[-2:] == ["record", "end"] or number == 0
    source.close()
