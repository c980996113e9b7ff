"""Real producers to topics whose consumers cannot keep up."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka import admin

from tests.clients.test_librdkafka import drain, member
from tests.servers import Headrace, die_with_parent, java

Make = Callable[..., str]

BOUND = 100
BLOCK = {"headrace_overflow": "block", "headrace_overflow_groups": "slow", "headrace_overflow_max_lag": str(BOUND)}
MANY = 5_000
"""So many that a blocked producer, which gets a few through now and then, would take minutes."""


def producer(node: Headrace, throttled: list[Any], **settings: Any) -> ck.Producer:
    """One that sends a request for every few records."""
    return ck.Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "linger.ms": 0,
            "batch.num.messages": 5,
            "throttle_cb": throttled.append,
            **settings,
        }
    )


def catch_up(node: Headrace, topic: str) -> None:
    """The group has read everything, now and later."""
    group = member(node, "slow")
    group.commit(offsets=[ck.TopicPartition(topic, 0, 10**9)], asynchronous=False)
    group.close()


def end_of(node: Headrace, topic: str) -> int:
    reader = member(node, "nobody")
    _, end = reader.get_watermark_offsets(ck.TopicPartition(topic, 0), timeout=20)
    reader.close()
    assert isinstance(end, int)
    return end


def wait_until(is_so: Callable[[], bool], patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


@pytest.mark.parametrize("settings", [{"enable.idempotence": True}, {"acks": 1}], ids=["idempotent", "unlimited"])
def test_a_blocked_producer_waits_for_its_group_and_others_do_not(
    node: Headrace, new_topic: Make, settings: dict[str, Any]
) -> None:
    blocked, free = new_topic(**BLOCK), new_topic()
    throttled: list[Any] = []
    free_throttled: list[Any] = []
    failures: list[Any] = []
    slow = producer(node, throttled, **settings)
    for number in range(MANY):
        slow.produce(blocked, str(number), on_delivery=lambda error, _: failures.append(error) if error else None)
    wait_until(lambda: slow.poll(0) >= 0 and bool(throttled) and end_of(node, blocked) > BOUND)
    quick = producer(node, free_throttled, **settings)
    for number in range(1_000):
        quick.produce(free, str(number))
    assert quick.flush(60) == 0
    assert not free_throttled
    if "enable.idempotence" in settings:  # else all that the sockets hold gets through at once, now and then
        assert len(slow) > 0, "it was not slowed down"
    catch_up(node, blocked)
    assert slow.flush(60) == 0
    assert not failures
    reader = member(node, f"{blocked}-reader")
    reader.subscribe([blocked])
    values = [int(message.value() or b"") for message in drain(reader, MANY)]
    reader.close()
    assert values == list(range(MANY)), "lost, duplicated or out of order"


def verifiable_producer(node: Headrace, topic: str, folder: Path) -> subprocess.Popen[str]:
    config = folder / f"{topic}.properties"
    config.write_text("batch.size=0\n")
    where = ("--bootstrap-server", node.bootstrap, "--topic", topic)
    command = java(
        "org.apache.kafka.tools.VerifiableProducer",
        *where,
        *("--max-messages", str(MANY), "--command-config", str(config)),
    )
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)


def outcome(running: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = running.communicate(timeout=120)
    assert running.returncode == 0
    told = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert not [line for line in told if line["name"] == "producer_send_error"]
    return next(line for line in told if line["name"] == "tool_data")


def test_a_blocked_java_producer_waits_for_its_group_and_others_do_not(
    node: Headrace, new_topic: Make, tmp_path: Path
) -> None:
    blocked, free = new_topic(**BLOCK), new_topic()
    slow = verifiable_producer(node, blocked, tmp_path)
    wait_until(lambda: end_of(node, blocked) > BOUND)
    assert outcome(verifiable_producer(node, free, tmp_path))["acked"] == MANY
    assert slow.poll() is None, "it was not slowed down"
    assert end_of(node, blocked) < MANY
    catch_up(node, blocked)
    assert outcome(slow)["acked"] == MANY
    assert end_of(node, blocked) == MANY


def test_a_ring_keeps_the_newest_for_a_slow_consumer_and_counts_the_rest(tmp_path: Path) -> None:
    node = Headrace(tmp_path)
    topic = "ring"
    client = admin.AdminClient({"bootstrap.servers": node.bootstrap})
    bounds = {"headrace.overflow": "drop", "headrace.overflow.max.records": "100"}
    client.create_topics([admin.NewTopic(topic, 1, 1, config=bounds)])[topic].result(20)
    writer = producer(node, [])
    for number in range(50):
        writer.produce(topic, str(number))
    assert writer.flush(60) == 0
    reader = member(node, "slow")
    reader.subscribe([topic])
    seen = [int(message.value() or b"") for message in drain(reader, 10)]
    reader.commit(offsets=[ck.TopicPartition(topic, 0, 10)], asynchronous=False)
    reader.close()
    for number in range(50, 1_000):
        writer.produce(topic, str(number))
    assert writer.flush(60) == 0
    node.kill9()
    node.start()
    reader = member(node, "slow")
    reader.subscribe([topic])
    seen += [int(message.value() or b"") for message in drain(reader, 100)]
    reader.close()
    assert seen == [*range(10), *range(900, 1_000)]
    resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic)
    told = client.describe_configs([resource])[resource].result(20)
    assert told["headrace.overflow.dropped"].value == "900"
    node.stop()


def test_a_consumer_that_stops_costs_nothing_but_its_offset(node: Headrace, new_topic: Make) -> None:
    topic = new_topic()
    throttled: list[Any] = []
    writer = producer(node, throttled, **{"batch.num.messages": 1000})
    for number in range(1_000):
        writer.produce(topic, str(number))
    assert writer.flush(60) == 0
    stopped = member(node, f"{topic}-stopped")
    stopped.subscribe([topic])
    drain(stopped, 10)
    stopped.commit(offsets=[ck.TopicPartition(topic, 0, 10)], asynchronous=False)
    stopped.close()
    for number in range(1_000, 100_000):
        writer.produce(topic, str(number))
        writer.poll(0)
    assert writer.flush(60) == 0
    assert not throttled
    back = member(node, f"{topic}-stopped")
    back.subscribe([topic])
    assert [int(message.value() or b"") for message in drain(back, 99_990)] == list(range(10, 100_000))
    back.close()
