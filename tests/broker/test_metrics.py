"""What GET /metrics says, read by Prometheus' own parser."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headrace.errors import InvalidConfig
from headrace.exposition import Family, Histogram, lines
from headrace.settings import BrokerSettings
from headrace.testing.broker import EmbeddedBroker
from headrace.testing.clock import ManualClock
from tests.broker.raw_client import RawClient
from tests.broker.test_overflow import PRODUCE, commit, create, produce
from tests.shares.member import ACCEPT, REJECT, Bench, until

FETCH, JOIN, SYNC, INIT_PRODUCER_ID, CONSUMER_HEARTBEAT = 1, 11, 14, 22, 68
START_MS = 1_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now_ms=START_MS)


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedBroker]:
    properties = {"headrace.metrics.listener": "127.0.0.1:0", "group.initial.rebalance.delay.ms": "0"}
    with EmbeddedBroker(tmp_path / "data", properties, clock=clock) as embedded:
        yield embedded


def get(broker: EmbeddedBroker, path: str) -> str:
    with urllib.request.urlopen(f"http://{broker.broker.metrics_address}{path}", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def scrape(broker: EmbeddedBroker) -> dict[tuple[str, ...], float]:
    """Every sample by name and values of its labels."""
    found = {}
    for family in text_string_to_metric_families(get(broker, "/metrics")):
        for sample in family.samples:
            key = (sample.name, *sample.labels.values())
            assert key not in found, "said twice"
            found[key] = sample.value
    return found


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=30)
@given(st.lists(st.tuples(names, names), unique=True, max_size=5), st.floats(allow_nan=False) | st.integers(0, 2**53))
def test_any_text_comes_through_as_a_label(values: list[tuple[str, str]], value: float) -> None:
    family = Family("f", "gauge", "Help.", ("a", "b"), [(pair, value) for pair in values])
    (read,) = text_string_to_metric_families("".join(lines(family)))
    assert [(sample.labels["a"], sample.labels["b"]) for sample in read.samples] == values
    assert all(sample.value == float(value) for sample in read.samples)


def test_a_histogram_counts_each_value_in_all_buckets_that_it_fits() -> None:
    one = Histogram((0.5, 1.0))
    for value in (0.25, 0.5, 0.75, 4.0):
        one.observe(value)
    again = Histogram.from_json(one.to_json())
    family = Family("f", "histogram", "Help.", ("a",), [(("x",), again)])
    (read,) = text_string_to_metric_families("".join(lines(family)))
    assert {(sample.name, sample.labels.get("le")): sample.value for sample in read.samples} == {
        ("f_bucket", "0.5"): 2,
        ("f_bucket", "1.0"): 3,
        ("f_bucket", "+Inf"): 4,
        ("f_sum", None): 5.5,
        ("f_count", None): 4,
    }
    assert all(sample.labels["a"] == "x" for sample in read.samples)


def test_partitions_and_traffic_are_told(broker: EmbeddedBroker, client: RawClient) -> None:
    create(client, "t")
    for _ in range(3):
        client.call(PRODUCE, 9, produce("t", 10))
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topics = [{"topic": "t", "partitions": [partition]}]
    client.call(FETCH, 11, {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "topics": topics})
    found = scrape(broker)
    assert found["kafka_topic_partitions", "t"] == 1
    assert found["kafka_topic_partition_current_offset", "t", "0"] == 30
    assert found["kafka_topic_partition_oldest_offset", "t", "0"] == 0
    size = found["headrace_partition_bytes", "t", "0"]
    assert size == found["headrace_topic_bytes_in_total", "t"] == found["headrace_topic_bytes_out_total", "t"] > 0
    assert found["headrace_requests_total", "produce"] == 3
    assert found["headrace_requests_total", "fetch"] == 1
    assert found["headrace_requests_total", "heartbeat"] == 0
    assert found["headrace_connections",] == found["headrace_connections_total",] == 1
    for name in ("headrace_fsync_seconds", "headrace_group_commit_seconds"):
        assert found[f"{name}_bucket", "+Inf"] == found[f"{name}_count",] >= 1
        assert found[f"{name}_sum",] > 0


def test_lag_is_told_in_records_and_in_seconds(broker: EmbeddedBroker, client: RawClient, clock: ManualClock) -> None:
    create(client, "t")
    for _ in range(3):
        client.call(PRODUCE, 9, produce("t", 10))
    commit(client, "g", "t", 10)
    commit(client, "done", "t", 30)
    clock.jump(5_000)
    for _ in range(2):
        found = scrape(broker)
        assert found["kafka_consumergroup_current_offset", "g", "t", "0"] == 10
        assert found["kafka_consumergroup_lag", "g", "t", "0"] == found["kafka_consumergroup_lag_sum", "g", "t"] == 20
        written = 1_000  # the timestamp that produce() gives
        assert found["headrace_consumergroup_lag_seconds", "g", "t", "0"] == (START_MS + 5_000 - written) / 1000
        assert found["kafka_consumergroup_lag", "done", "t", "0"] == 0
        assert found["headrace_consumergroup_lag_seconds", "done", "t", "0"] == 0
    assert found["headrace_groups", "classic", "Empty"] == 2


def test_share_groups_lag_by_what_they_have_not_settled(broker: EmbeddedBroker) -> None:
    bench = Bench(broker)
    bench.fill(*(b"%d" % number for number in range(10)))
    member = bench.member()
    member.opened()
    assert member.settle((0, 3, ACCEPT)) == 0
    found = scrape(broker)
    bench.close()
    assert found["kafka_consumergroup_current_offset", bench.group, bench.topic, "0"] == 4
    assert found["kafka_consumergroup_lag", bench.group, bench.topic, "0"] == 6
    assert found["headrace_topic_bytes_out_total", bench.topic] > 0
    assert found["headrace_consumergroup_lag_seconds", bench.group, bench.topic, "0"] > 0


def test_dead_letters_are_counted(broker: EmbeddedBroker) -> None:
    bench = Bench(broker, headrace_dead_letter_topic="dead")
    bench.fill(b"a", b"b", b"c")
    member = bench.member()
    member.opened()
    assert member.settle((0, 1, REJECT)) == 0
    until(lambda: scrape(broker).get(("headrace_dead_letters_total", bench.group)) == 2)
    until(lambda: ("headrace_dead_letters_waiting", bench.group) not in scrape(broker))
    bench.close()


def join(client: RawClient, member_id: str = "") -> Any:
    request = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    return client.call(JOIN, 3, request)


def test_groups_and_rebalances_are_told(broker: EmbeddedBroker, client: RawClient) -> None:
    joined = join(client)
    assignment = {"member_id": joined.member_id, "assignment": b""}
    request = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
    client.call(SYNC, 2, {**request, "assignments": [assignment]})
    found = scrape(broker)
    assert found["headrace_groups", "classic", "Stable"] == 1
    assert found["kafka_consumergroup_members", "g"] == 1
    assert found["headrace_rebalances_total",] == 1


def test_groups_of_the_newer_protocol_are_told(broker: EmbeddedBroker, client: RawClient) -> None:
    create(client, "t")
    request = {
        "group_id": "newer",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    assert client.call(CONSUMER_HEARTBEAT, 1, request).error_code == 0
    found = scrape(broker)
    assert found["kafka_consumergroup_members", "newer"] == 1
    assert [key for key in found if key[:2] == ("headrace_groups", "consumer")]
    assert found["headrace_rebalances_total",] == 1


def test_what_overflows_is_told(broker: EmbeddedBroker, client: RawClient) -> None:
    block = {"headrace.overflow": "block", "headrace.overflow.groups": "g", "headrace.overflow.max.lag": "5"}
    create(client, "blocked", **block)
    create(client, "ring", **{"headrace.overflow": "drop", "headrace.overflow.max.records": "4"})
    client.call(PRODUCE, 9, produce("ring", 10))
    client.call(PRODUCE, 9, produce("blocked", 6))
    client.call(PRODUCE, 9, produce("blocked", 1))
    found = scrape(broker)
    assert found["headrace_dropped_records_total", "ring", "0"] == 6
    assert found["headrace_throttled_requests_total", "blocked"] >= 1
    assert found["headrace_held_producers", "blocked"] == 0


def test_transactions_are_told(broker: EmbeddedBroker, client: RawClient) -> None:
    client.call(INIT_PRODUCER_ID, 4, {"transactional_id": "x", "transaction_timeout_ms": 1000, "producer_id": -1})
    found = scrape(broker)
    assert found["headrace_transactional_ids", "empty"] == 1
    assert found["headrace_transactions_total", "commit"] == found["headrace_transactions_total", "abort"] == 0
    assert found["headrace_transactions_timed_out_total",] == 0


# The server --------------------------------------------------------------------------------------------------------


def exchange(broker: EmbeddedBroker, request: bytes) -> bytes:
    host, port = str(broker.broker.metrics_address).split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
        return answer


def test_a_ping_is_answered(broker: EmbeddedBroker) -> None:
    assert get(broker, "/ping?really") == "pong\n"


def test_there_is_nothing_else(broker: EmbeddedBroker) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(broker, "/")
    assert exchange(broker, b"POST /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405 ")
    assert exchange(broker, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_a_request_without_end_is_cut_off(broker: EmbeddedBroker) -> None:
    assert exchange(broker, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000) == b""
    assert get(broker, "/ping") == "pong\n"


def test_only_so_many_are_served_at_a_time(broker: EmbeddedBroker) -> None:
    host, port = str(broker.broker.metrics_address).split(":")
    idle = [socket.create_connection((host, int(port)), timeout=10) for _ in range(40)]
    refused = 0
    for connection in idle[16:]:
        try:
            refused += connection.recv(1) == b""
        except ConnectionResetError:
            refused += 1
    assert refused == 24
    for connection in idle:
        connection.close()


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig):
        BrokerSettings(tmp_path, properties={"headrace.metrics.listener": "127.0.0.1:http"})


def test_an_address_in_use_stops_the_start(tmp_path: Path, broker: EmbeddedBroker) -> None:
    properties = {"headrace.metrics.listener": str(broker.broker.metrics_address)}
    with pytest.raises(InvalidConfig, match="metrics cannot be served"), EmbeddedBroker(tmp_path / "other", properties):
        pass
