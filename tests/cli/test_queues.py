"""``headrace queue`` and ``headrace dlq``, on Headrace and, as far as it has them, on Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import confluent_kafka as ck
import pytest

from headrace.broker.shares.window import Kept, State
from headrace.operations.share_states import Shared, laid_over
from tests.cli.command import Cli, on_both

system = pytest.mark.system
NewName = Callable[[str], str]


def set_group(cli: Cli, group: str, settings: Mapping[str, str]) -> None:
    cli("queue", "alter", group, *(word for name, value in settings.items() for word in ("--set", f"{name}={value}")))


def worked(cli: Cli, topic: str, group: str, how: Mapping[str, ck.AcknowledgeType], count: int) -> None:
    """A consumer settles records by their value, accepting what is not named, until it has settled so many."""
    consumer = ck.ShareConsumer(
        {
            "bootstrap.servers": cli.server,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    seen, deadline = 0, time.monotonic() + 60
    while seen < count:
        assert time.monotonic() < deadline
        for message in consumer.poll(0.5) or ():
            assert message.error() is None
            seen += 1
            consumer.acknowledge(message, how.get(message.value().decode(), ck.AcknowledgeType.ACCEPT))
        consumer.commit_sync(10.0)
    consumer.close()


@pytest.fixture
def queue(cli: Cli, new_name: NewName) -> str:
    """A topic of six records and a group of the same name that accepted two of them and released one."""
    name = new_name("queue")
    cli("topic", "create", name, "-p", "1")
    cli("produce", name, "--key-separator", ":", stdin="".join(f"k{n}:v{n}\n" for n in range(6)))
    set_group(cli, name, {"share.auto.offset.reset": "earliest"})
    release = ck.AcknowledgeType.RELEASE
    worked(cli, name, name, {f"v{n}": release for n in (1, 3, 4, 5)}, 6)
    return name


@system
@on_both
def test_a_queue_is_listed_described_and_looked_into(cli: Cli, queue: str) -> None:
    [listed] = [row for row in cli("queue", "list", "-o", "json").json if row["group"] == queue]
    assert (listed["topics"], listed["lag"], listed["dead_letters_waiting"]) == ([queue], 4, 0)
    described = cli("queue", "describe", queue, "-o", "json").json
    [partition] = described["partitions"]
    assert (partition["topic"], partition["end"], partition["lag"]) == (queue, 6, 4)
    assert described["settings"] == {"share.auto.offset.reset": "earliest"}
    records = cli("queue", "peek", queue, "-o", "json").json
    assert [(one["offset"], one["state"], one["value"]) for one in records] == [
        (number, "available", f"v{number}") for number in (1, 3, 4, 5)
    ]
    assert {one["attempts"] for one in records} <= {1, 2}
    assert len(cli("queue", "peek", queue, "--max", "2", "-o", "json").json) == 2
    states = [one["state"] for one in cli("queue", "peek", queue, "--all", "-o", "json").json]
    assert states.count("acknowledged") >= 1
    assert queue in cli("queue", "describe", queue).lines[0]
    assert cli("queue", "peek", queue).lines[1].split()[:3] == [queue, "0", "1"]
    assert "no group 'nobody' shares a topic" in cli.fails("queue", "peek", "nobody")
    assert "were not changed" in cli.fails("queue", "alter", queue, "--set", "share.isolation.level=x")
    cli("queue", "alter", queue, "--unset", "share.auto.offset.reset")
    assert cli("queue", "describe", queue, "-o", "json").json["settings"] == {}


@system
def test_dead_letters_are_listed_shown_and_sent_back_once(cli: Cli, new_name: NewName) -> None:
    name, dead = new_name("jobs"), new_name("dlq")
    cli("topic", "create", name, "-p", "1")
    cli("produce", name, "--key-separator", ":", stdin="".join(f"k{n}:v{n}\n" for n in range(4)))
    set_group(cli, name, {"share.auto.offset.reset": "earliest", "headrace.dead.letter.topic": dead})
    reject = ck.AcknowledgeType.REJECT
    worked(cli, name, name, {"v1": reject, "v2": reject, "v3": reject}, 4)

    def listed() -> list[object]:
        return [
            (row["letters"], row["waiting"]) for row in cli("dlq", "list", "-o", "json").json if row["topic"] == dead
        ]

    deadline = time.monotonic() + 30
    while listed() != [(3, 0)] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert listed() == [(3, 0)]
    shown = cli("dlq", "show", dead, "-o", "json").json
    assert [(one["letter"], one["from"]["offset"], one["key"], one["attempts"]) for one in shown] == [
        ("0:0", 1, "k1", 1),
        ("0:1", 2, "k2", 1),
        ("0:2", 3, "k3", 1),
    ]
    assert (shown[0]["group"], shown[0]["reason"]) == (name, "rejected by a consumer")
    assert "k3" in cli("dlq", "show", dead).out
    assert cli("dlq", "redrive", dead, "0:1").out == f"Redrove 1 record of {dead}\n"
    assert "redriven already" in cli.fails("dlq", "redrive", dead, "0:1")
    assert cli("dlq", "redrive", dead, "--all", "-o", "json").json == {
        "topic": dead,
        "redriven": 2,
        "without_topic": 0,
    }
    assert cli("dlq", "redrive", dead, "--all").out == f"Redrove 0 records of {dead}\n"
    assert listed() == [(0, 0)]
    assert cli("consume", name, "-e", "--format", "%k %s %h\n").lines[4:] == ["k2 v2 ", "k1 v1 ", "k3 v3 "]
    assert "say which" in cli.fails("dlq", "redrive", dead)
    assert "'x' is not PARTITION:OFFSET" in cli.fails("dlq", "redrive", dead, "x")


@system
@on_both
def test_letters_whose_topic_is_gone_stay(cli: Cli, new_name: NewName) -> None:
    dead, home = new_name("dlq"), new_name("home")
    cli("topic", "create", dead, "-p", "2")
    cli("topic", "create", home, "-p", "1")
    producer = ck.Producer({"bootstrap.servers": cli.server, "log_level": 0})
    for number, topic in enumerate((home, "nowhere", home)):
        said = {"topic": topic, "partition": "0", "offset": str(number), "group": "g"}
        headers = [("own", b"\xff"), *((f"__dlq.errors.{key}", value.encode()) for key, value in said.items())]
        producer.produce(dead, f"v{number}", partition=number % 2, headers=headers)
    producer.produce(dead, "not a letter")
    assert producer.flush(20) == 0
    expected = {"topic": dead, "redriven": 2, "without_topic": 1}
    assert cli("dlq", "redrive", dead, "--all", "-o", "json").json == expected
    assert sorted(cli("consume", home, "-e", "--format", "%s\n").lines) == ["v0", "v2"]
    assert cli("dlq", "redrive", dead, "--all", "-o", "json").json == {**expected, "redriven": 0}


def test_an_update_is_laid_over_what_was_known() -> None:
    runs = (Kept(0, 9, State.AVAILABLE, 1), Kept(12, 14, State.ARCHIVED, 0))
    assert laid_over(runs, Kept(4, 12, State.ACKNOWLEDGED, 1)) == (
        Kept(0, 3, State.AVAILABLE, 1),
        Kept(4, 12, State.ACKNOWLEDGED, 1),
        Kept(13, 14, State.ARCHIVED, 0),
    )
    shared = Shared("g", "t", 0, 0, 20, laid_over(runs, Kept(4, 12, State.ACKNOWLEDGED, 1)))
    assert (shared.lag, shared.retried) == (9, 4)
    assert shared.state_of(2) == ("available", 1)
    assert shared.state_of(17) == ("available", 0)
