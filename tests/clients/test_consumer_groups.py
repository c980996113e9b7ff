"""Consumers of the newer protocol (KIP-848): librdkafka and Java, and a group that changes its protocol on the way."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka import admin

from tests.servers import KAFKA_LIBS, Headrace, java

HERE = Path(__file__).resolve().parent
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.assignment.interval.ms": "0",
}
"""Heartbeats every 0.2 s instead of every 5 s: the tests are quicker."""


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    chosen = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    server = Headrace(tmp_path_factory.mktemp("quick"), options=chosen)
    yield server
    server.stop()


@pytest.fixture
def make(quick: Headrace, request: pytest.FixtureRequest) -> Callable[[str, int], str]:
    """Makes a topic whose name begins with the test's."""
    client = admin.AdminClient({"bootstrap.servers": quick.bootstrap})

    def made(suffix: str, partitions: int) -> str:
        name = f"{request.node.name[5:40]}-{suffix}"
        client.create_topics([admin.NewTopic(name, partitions, 1)])[name].result(20)
        return name

    return made


def member(node: Headrace, group: str, **settings: Any) -> ck.Consumer:
    return ck.Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **settings,
        }
    )


def fill(node: Headrace, topic: str, partitions: int, count: int, start: int = 0) -> None:
    sender = ck.Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
    for number in range(start, start + count):
        sender.produce(topic, str(number), partition=number % partitions)
    assert sender.flush(30) == 0


def shares(members: Sequence[ck.Consumer]) -> list[int]:
    return sorted(len(each.assignment()) for each in members)


def poll_until(
    members: Sequence[ck.Consumer], condition: Callable[[], bool], what: str, found: set[str] | None = None
) -> None:
    """Polls all of them, commits what came and adds it to ``found``."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"{what}: {shares(members)}"
        for each in members:
            message = each.poll(0.05)
            if message is not None and message.error() is None:
                each.commit(message, asynchronous=True)
                if found is not None:
                    found.add(message.value().decode())


def test_members_share_partitions_and_take_over_where_others_left(quick: Headrace, make: Any) -> None:
    topic = make("t", 6)
    fill(quick, topic, 6, 300)
    found: set[str] = set()
    revoked: list[Any] = []
    one = member(quick, topic)
    one.subscribe([topic], on_revoke=lambda _, places: revoked.extend(places))
    poll_until([one], lambda: len(one.assignment()) == 6, "alone", found)
    two, three = member(quick, topic), member(quick, topic, **{"group.remote.assignor": "range"})
    for each in (two, three):
        each.subscribe([topic])
    poll_until([one, two, three], lambda: shares([one, two, three]) == [2, 2, 2], "three", found)
    assert len(revoked) == 4, "only what others get is given up"
    two.close()
    poll_until([one, three], lambda: shares([one, three]) == [3, 3], "two", found)
    poll_until([one, three], lambda: found == set(map(str, range(300))), "records", found)
    one.close()
    three.close()


def test_regular_expressions_find_topics_that_come_later(quick: Headrace, make: Any) -> None:
    topic = make("x1", 2)
    reader = member(quick, topic)
    reader.subscribe([f"^{topic[:-1]}[0-9]$"])
    poll_until([reader], lambda: len(reader.assignment()) == 2, "one topic")
    make("x2", 3)
    make("y", 3)
    poll_until([reader], lambda: len(reader.assignment()) == 5, "two topics")
    reader.close()


def test_a_static_member_comes_back_to_what_it_had(quick: Headrace, make: Any) -> None:
    topic = make("t", 4)
    instance = {"group.instance.id": "one"}
    one, two = member(quick, topic, **instance), member(quick, topic)
    for each in (one, two):
        each.subscribe([topic])
    poll_until([one, two], lambda: shares([one, two]) == [2, 2], "two members")
    had = sorted(place.partition for place in one.assignment())
    one.close()
    lost: list[Any] = []
    two.poll(1.0)
    assert len(two.assignment()) == 2, "what a static member had is kept for it"
    again = member(quick, topic, **instance)
    again.subscribe([topic], on_lost=lambda _, places: lost.extend(places))
    poll_until([again, two], lambda: shares([again, two]) == [2, 2], "back again")
    assert sorted(place.partition for place in again.assignment()) == had
    again.close()
    poll_until([two], lambda: len(two.assignment()) == 4, "gone for longer than its session")
    two.close()
    assert not lost


def test_members_go_on_when_the_node_was_killed(quick: Headrace, make: Any) -> None:
    topic = make("t", 4)
    fill(quick, topic, 4, 100)
    members = [member(quick, topic, **{"reconnect.backoff.max.ms": 200}) for _ in range(2)]
    for each in members:
        each.subscribe([topic])
    poll_until(members, lambda: shares(members) == [2, 2], "before")
    had = [sorted(place.partition for place in each.assignment()) for each in members]
    quick.kill9()
    quick.restart()
    fill(quick, topic, 4, 100, 1000)
    found: set[str] = set()
    poll_until(members, lambda: found >= set(map(str, range(1000, 1100))), "after", found)
    assert [sorted(place.partition for place in each.assignment()) for each in members] == had
    for each in members:
        each.close()


def test_java_consumers_are_replaced_one_by_one_across_both_protocols(quick: Headrace, make: Any) -> None:
    topic = make("t", 6)
    program = HERE / "java" / "RollingMigration.java"
    command = java("ignored", "ignored")
    jvm = command[: command.index("-cp")]
    run = [*jvm, "-cp", f"{KAFKA_LIBS}/*", str(program), quick.bootstrap, topic, "6"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    settled = [line.removeprefix("settled: ") for line in done.stdout.splitlines() if line.startswith("settled")]
    assert settled == ["classic", "mixed", "consumer", "mixed", "classic"]
    assert "missed 0 of many" in done.stdout
