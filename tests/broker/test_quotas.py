"""Quotas by client id: the windows as Kafka counts them, and requests that are over."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.quotas import WINDOW_S, WINDOWS, Quotas, Rate, throttle_ms
from headrace.clock import SystemClock
from headrace.log.files import DiskFiles
from headrace.testing.broker import EmbeddedBroker
from tests.broker.raw_client import RawClient
from tests.broker.test_overflow import PRODUCE, create, produce

ALTER = 49
histories = st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 10_000)), min_size=1, max_size=60)


# The window ---------------------------------------------------------------------------------------------------------


@given(histories)
def test_a_rate_is_what_came_within_the_windows_over_their_time(history: list[tuple[float, int]]) -> None:
    rate, now, windows = Rate(), 100.0, list[list[float]]()
    for pause, size in history:
        now += pause
        rate.add(size, now)
        if not windows or now - windows[-1][0] >= WINDOW_S:
            windows.append([now, 0])
        windows[-1][1] += size
        kept = [one for one in windows[-WINDOWS:] if now - one[0] < WINDOWS * WINDOW_S]
        elapsed = now - kept[0][0]
        whole = int(elapsed / WINDOW_S)
        span = elapsed + max(0, WINDOWS - 1 - whole) * WINDOW_S
        assert rate.value(now) == pytest.approx(sum(size for _, size in kept) / span)


@given(st.integers(1, 10**9), st.integers(1, 10**6))
def test_ten_seconds_worth_may_come_at_once_and_more_has_to_wait(allowed: int, more: int) -> None:
    rate = Rate()
    rate.add(10 * allowed, 0.0)
    assert throttle_ms(rate, allowed, 0.0) == 0
    rate.add(more, 0.0)
    assert throttle_ms(rate, allowed, 0.0) == pytest.approx(more / allowed * 1000, abs=1)


@given(histories, st.integers(1, 10_000))
def test_only_who_is_over_waits_and_nothing_lasts(history: list[tuple[float, int]], allowed: int) -> None:
    rate, now = Rate(), 0.0
    for pause, size in history:
        now += pause
        rate.add(size, now)
    before = rate.value(now)
    assert (throttle_ms(rate, allowed, now) > 0) <= (before > allowed)
    assert rate.value(now + WINDOWS * WINDOW_S + 0.001) == 0


def test_what_is_taken_back_was_never_counted() -> None:
    rate = Rate()
    rate.add(5, 0.0)
    rate.add(500, 0.5)
    rate.add(-500, 0.5)
    assert rate.value(0.5) == 5 / 10.5
    assert not rate.is_empty(0.5)
    assert rate.is_empty(12.0)


# What is set --------------------------------------------------------------------------------------------------------


def test_what_a_client_has_of_its_own_counts_and_all_of_it_survives_a_restart(tmp_path: Path) -> None:
    quotas = Quotas(SystemClock(), DiskFiles(), tmp_path)
    assert not quotas.limits_producers
    quotas.change(None, {"producer_byte_rate": 100.0})
    quotas.change("batch", {"producer_byte_rate": 7.0, "consumer_byte_rate": 8.0})
    quotas.change("batch", {"consumer_byte_rate": None})
    again = Quotas(SystemClock(), DiskFiles(), tmp_path)
    again.load()
    assert again.all == {None: {"producer_byte_rate": 100.0}, "batch": {"producer_byte_rate": 7.0}}
    assert again.allowed("producer_byte_rate", "batch") == 7.0
    assert again.allowed("producer_byte_rate", "") == 100.0
    assert again.allowed("consumer_byte_rate", "batch") is None
    assert (again.limits_producers, again.limits_consumers) == (True, False)


# Requests -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data", {"headrace.metrics.listener": "127.0.0.1:0"}) as embedded:
        yield embedded


def alter(client: RawClient, name: str | None, **rates: float | None) -> Any:
    ops = [{"key": key, "value": rate or 0.0, "remove": rate is None} for key, rate in rates.items()]
    entity = [{"entity_type": "client-id", "entity_name": name}]
    return client.call(ALTER, 1, {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}).entries[0]


def test_a_rate_that_is_no_number_is_refused(broker: EmbeddedBroker, client: RawClient) -> None:
    assert alter(client, "x", producer_byte_rate=float("nan")).error_code != 0
    assert broker.broker.quotas.all == {}


def test_a_producer_over_its_quota_is_told_to_wait_and_not_read_meanwhile(
    broker: EmbeddedBroker, client: RawClient
) -> None:
    create(client, "t")
    assert client.call(PRODUCE, 9, produce("t", 10)).throttle_time_ms == 0
    assert alter(client, None, producer_byte_rate=1.0).error_code == 0
    told = client.call(PRODUCE, 9, produce("t", 10))
    assert told.responses[0].partition_responses[0].error_code == 0, "what was sent is taken"
    assert told.throttle_time_ms > 0
    alter_another = RawClient(broker.port)
    assert alter(alter_another, None, producer_byte_rate=None).error_code == 0, "others are not held up"
    alter_another.close()
    assert broker.broker.quotas.throttled["producer_byte_rate"] == 1


@pytest.mark.system
def test_real_clients_are_slowed_down_and_lose_nothing(broker: EmbeddedBroker, client: RawClient) -> None:
    """A little more than ten seconds' worth: there is something to wait for, and every record is there."""
    create(client, "slow")
    rate, size, count = 8_000, 1_000, 76
    assert alter(client, "slowpoke", producer_byte_rate=float(rate), consumer_byte_rate=float(rate)).error_code == 0
    waits: list[float] = []
    config = {
        "bootstrap.servers": broker.bootstrap,
        "client.id": "slowpoke",
        "throttle_cb": lambda event: waits.append(event.throttle_time),
        "log_level": 0,
    }
    producer = ck.Producer({**config, "linger.ms": 0, "batch.size": 2 * size, "batch.num.messages": 1})
    for number in range(count):
        producer.produce("slow", b"%06d" % number + bytes(size))
    assert producer.flush(60) == 0
    producer.poll(0)
    assert max(waits) > 0
    producing = broker.broker.quotas.throttled["producer_byte_rate"]
    assert producing > 0
    consumer = ck.Consumer({**config, "group.id": "slow", "enable.auto.commit": False})
    consumer.assign([ck.TopicPartition("slow", 0, 0)])
    seen: list[int] = []
    deadline = time.monotonic() + 120
    while len(seen) < count and time.monotonic() < deadline:
        seen += [int((message.value() or b"")[:6]) for message in consumer.consume(10, 0.5) if message.error() is None]
    consumer.close()
    assert seen == list(range(count))
    assert broker.broker.quotas.throttled["consumer_byte_rate"] > 0
    assert broker.broker.quotas.throttled["producer_byte_rate"] == producing


@pytest.mark.system
def test_a_batch_that_is_larger_than_ever_allowed_still_comes(broker: EmbeddedBroker, client: RawClient) -> None:
    create(client, "huge")
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce("huge", bytes(50_000))
    assert producer.flush(30) == 0
    assert alter(client, "small", consumer_byte_rate=1000.0).error_code == 0
    config = {"bootstrap.servers": broker.bootstrap, "client.id": "small", "group.id": "h", "log_level": 0}
    consumer = ck.Consumer(config)
    consumer.assign([ck.TopicPartition("huge", 0, 0)])
    deadline, message = time.monotonic() + 60, None
    while message is None and time.monotonic() < deadline:
        message = consumer.poll(1.0)
    consumer.close()
    assert message is not None
    assert message.error() is None
    assert len(message.value() or b"") == 50_000


def test_the_file_is_plain(tmp_path: Path) -> None:
    quotas = Quotas(SystemClock(), DiskFiles(), tmp_path)
    quotas.change(None, {"producer_byte_rate": 1.0})
    assert json.dumps([[None, {"producer_byte_rate": 1.0}]]).encode() in (tmp_path / "client-quotas").read_bytes()
