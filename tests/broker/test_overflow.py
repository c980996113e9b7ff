"""Producers to a topic whose groups cannot keep up: how they are slowed down, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import _kernel
from headrace.broker.overflow import HOLD_S, OPEN_S, Overflow, Pace, judge, lag
from headrace.testing.broker import EmbeddedBroker
from tests.broker.raw_client import RawClient
from tests.shares.member import ACCEPT
from tests.shares.member import Bench as Sharing

PRODUCE, CREATE_TOPICS, OFFSET_COMMIT, CONFIGS, ALTER_CONFIGS = 0, 19, 8, 32, 44
REQUEST_TIMEOUT_S = 30.0

partitions = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 50), st.none() | st.integers(0, 150)).map(
        lambda drawn: (drawn[0], drawn[0] + drawn[1], drawn[2])
    ),
    max_size=5,
)


@given(partitions)
def test_the_lag_is_what_can_be_read_and_was_not(drawn: list[tuple[int, int, int | None]]) -> None:
    places = [
        SimpleNamespace(index=at, log_start=start, high_watermark=end) for at, (start, end, _) in enumerate(drawn)
    ]
    unread = sum(
        position is None or offset >= position for start, end, position in drawn for offset in range(start, end)
    )
    assert lag(places, lambda index: drawn[index][2]) == unread


# The decision ------------------------------------------------------------------------------------------------------


def test_the_first_answer_comes_at_once_and_asks_for_quiet() -> None:
    pace, verdict = judge(None, 100.0)
    assert verdict == (100, 0.0)
    assert pace.quiet_until == pytest.approx(100.1)


def test_who_keeps_quiet_is_not_made_to_wait_at_first() -> None:
    pace, _ = judge(None, 100.0)
    _, verdict = judge(pace, pace.quiet_until + 0.01)
    assert verdict.hold_s == 0


def test_who_does_not_keep_quiet_waits_for_that_long() -> None:
    pace, _ = judge(None, 100.0)
    _, verdict = judge(pace, 100.04)
    assert verdict.hold_s == pytest.approx(0.06)


def test_when_it_goes_on_even_the_quiet_wait() -> None:
    _, verdict = judge(Pace(100.0, 101.2, 0.0), 101.5)
    assert verdict.hold_s == HOLD_S
    _, verdict = judge(Pace(100.0, 101.2, 0.0), 200.0)
    assert verdict.hold_s == 0, "after a long silence it starts anew"


@given(
    arrivals=st.lists(st.floats(0, 3, allow_nan=False), min_size=1, max_size=60),
    under_way=st.integers(1, 20),
)
def test_no_request_waits_until_its_client_gives_up(arrivals: list[float], under_way: int) -> None:
    """Requests wait in a row: the wait of one is a wait of all behind it. The client sends until ``under_way`` of them
    are not answered, and the lag never gets better."""
    pace: Pace | None = None
    free_at = 0.0
    answered: list[float] = []
    sent = 0.0
    for number, gap in enumerate(arrivals):
        sent = max(sent + gap, answered[number - under_way] if number >= under_way else 0.0)
        now = max(sent, free_at)
        pace, verdict = judge(pace, now)
        free_at = now + verdict.hold_s
        answered.append(free_at)
        assert free_at - sent < REQUEST_TIMEOUT_S / 2
        assert 100 <= verdict.throttle_ms <= 1000


def test_a_producer_that_never_stops_is_let_through_only_now_and_then() -> None:
    pace: Pace | None = None
    now, taken = 0.0, 0
    while now < 300:
        pace, verdict = judge(pace, now)
        now += max(verdict.hold_s, 0.001)
        taken += 1
    in_a_window = OPEN_S / 0.001 + 2
    assert taken < 300 / HOLD_S * in_a_window + 50


# Those who wait ----------------------------------------------------------------------------------------------------


class FakeLoop:
    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Any:
        entry = (self.now + delay, callback)
        self.calls.append(entry)
        return SimpleNamespace(cancel=lambda: self.calls.remove(entry))

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [entry for entry in self.calls if entry[0] <= end]:
            entry = min(due, key=lambda entry: entry[0])
            self.calls.remove(entry)
            self.now = entry[0]
            entry[1]()
        self.now = end


@dataclass(eq=False)
class FakeConnection:
    held: bool = False
    on_close: dict[object, Callable[[], None]] = field(default_factory=dict)

    def hold(self) -> None:
        self.held = True

    def let_go(self) -> None:
        self.held = False


class Bench:
    """One topic with one partition that a group named ``slow`` reads."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.partition = SimpleNamespace(index=0, log_start=0, high_watermark=0)
        config = SimpleNamespace(blocks=True, overflow_groups=("slow",), overflow_max_lag=10)
        self.topic: Any = SimpleNamespace(name="t", partitions=[self.partition], config=config)
        self.position: int | None = None
        self.overflow = Overflow(lambda group, partition: self.position, self.loop)
        self.connection: Any = FakeConnection()

    def send(self, connection: Any = None) -> Any:
        return self.overflow.brake(connection or self.connection, [self.topic])

    def overflow_for_long(self) -> Any:
        """Until an answer waits."""
        self.partition.high_watermark = 11
        self.send()
        self.loop.advance(2.0)
        brake = self.send()
        assert self.connection.held
        return brake


def test_nothing_is_slowed_while_the_group_keeps_up() -> None:
    bench = Bench()
    bench.partition.high_watermark = 10
    assert bench.send() is None
    assert not bench.overflow.slowed


def test_a_group_that_nobody_has_seen_counts_from_the_log_start() -> None:
    bench = Bench()
    bench.partition.high_watermark = 11
    assert bench.send() is not None
    bench.partition.log_start = 5
    assert bench.send() is None


def test_an_answer_waits_until_the_group_has_caught_up() -> None:
    bench = Bench()
    answers: list[int] = []
    brake = bench.overflow_for_long()
    brake.when_off(lambda: answers.append(brake.throttle_ms))
    bench.loop.advance(1.0)
    assert bench.connection.held
    assert not answers
    assert bench.overflow.held() == {"t": 1}
    bench.position = 11
    bench.loop.advance(0.1)
    assert answers == [0]
    assert not bench.connection.held
    assert not bench.loop.calls, "nobody waits, so nobody looks"


def test_an_answer_waits_no_longer_than_it_may() -> None:
    bench = Bench()
    answers: list[int] = []
    brake = bench.overflow_for_long()
    brake.when_off(lambda: answers.append(brake.throttle_ms))
    bench.loop.advance(HOLD_S + 0.1)
    assert answers == [1000]
    assert not bench.connection.held


def test_other_connections_do_not_wait_with_it() -> None:
    bench = Bench()
    bench.overflow_for_long()
    other: Any = FakeConnection()
    brake = bench.send(other)
    assert not other.held
    assert brake.throttle_ms > 0


def test_a_connection_that_is_lost_is_forgotten() -> None:
    bench = Bench()
    bench.overflow_for_long()
    for callback in bench.connection.on_close.values():
        callback()
    bench.loop.advance(HOLD_S + 1)
    assert bench.connection.held
    assert not bench.overflow.held()
    assert not bench.loop.calls


def test_everyone_is_answered_at_the_end() -> None:
    bench = Bench()
    answers: list[int] = []
    brake = bench.overflow_for_long()
    brake.when_off(lambda: answers.append(brake.throttle_ms))
    bench.overflow.close()
    assert len(answers) == 1
    assert not bench.loop.calls


# A broker ----------------------------------------------------------------------------------------------------------


def create(client: RawClient, name: str, **configs: str) -> None:
    topic = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
    request = {"topics": [topic], "timeout_ms": 1000, "validate_only": False}
    assert client.call(CREATE_TOPICS, 5, request).topics[0].error_code == 0


def produce(topic: str, records: int, acks: int = -1) -> dict[str, Any]:
    batch = _kernel.build_batch([(1_000, None, b"value", ())] * records)
    partition = {"index": 0, "records": batch}
    topics = [{"name": topic, "partition_data": [partition]}]
    return {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": topics}


def commit(client: RawClient, group: str, topic: str, offset: int) -> None:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    request = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": topic, "partitions": [partition]}],
    }
    assert client.call(OFFSET_COMMIT, 8, request).topics[0].partitions[0].error_code == 0


BLOCK = {"headrace.overflow": "block", "headrace.overflow.groups": "slow", "headrace.overflow.max.lag": "10"}


@pytest.mark.parametrize("acks", [1, -1])
def test_producers_are_throttled_then_held_then_let_go(broker: EmbeddedBroker, client: RawClient, acks: int) -> None:
    create(client, "blocked", **BLOCK)
    create(client, "free")
    with RawClient(broker.port, timeout=20) as other:
        answer = client.call(PRODUCE, 9, produce("blocked", 10, acks))
        assert answer.throttle_time_ms == 0
        throttles = [client.call(PRODUCE, 9, produce("blocked", 1, acks)).throttle_time_ms for _ in range(2)]
        assert all(throttle >= 100 for throttle in throttles[acks == -1 :]), "acks=all: the first may still be unseen"
        waiting = client.send(PRODUCE, 9, produce("blocked", 1, acks))
        for _ in range(20):
            assert other.call(PRODUCE, 9, produce("free", 100)).throttle_time_ms == 0
        commit(other, "slow", "blocked", 13)
        answer = client.receive(PRODUCE, 9, waiting)
        assert answer.responses[0].partition_responses[0].base_offset == 12
        assert client.call(PRODUCE, 9, produce("blocked", 1, acks)).throttle_time_ms == 0
        assert broker.look(lambda inside: inside.overflow.slowed["blocked"]) >= 2


def test_producers_can_wait_for_a_share_group(broker: EmbeddedBroker, client: RawClient) -> None:
    sharing = Sharing(broker)
    settings = {**BLOCK, "headrace.overflow.groups": sharing.group}
    configs = [{"name": name, "config_operation": 0, "value": value} for name, value in settings.items()]
    resource = {"resource_type": 2, "resource_name": sharing.topic, "configs": configs}
    client.call(ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})

    def is_over() -> bool:
        return broker.look(lambda inside: inside.overflow.is_over(inside.store.topic(sharing.topic)))

    sharing.fill(*(b"%d" % number for number in range(20)))
    member = sharing.member()
    member.opened()
    assert is_over()
    assert member.settle((0, 9, ACCEPT)) == 0
    assert not is_over()
    sharing.close()


def test_records_that_want_no_answer_are_all_taken(broker: EmbeddedBroker, client: RawClient) -> None:
    create(client, "blocked", **BLOCK)
    for _ in range(20):
        client.send(PRODUCE, 9, produce("blocked", 5, acks=0))
    waiting = client.send(PRODUCE, 9, produce("blocked", 1, acks=1))
    with RawClient(broker.port) as other:
        commit(other, "slow", "blocked", 1000)
    answer = client.receive(PRODUCE, 9, waiting)
    assert answer.responses[0].partition_responses[0].base_offset == 100


def test_dropped_records_are_told_in_the_settings(client: RawClient) -> None:
    create(client, "ring", **{"headrace.overflow": "drop", "headrace.overflow.max.records": "10"})
    create(client, "plain")
    client.call(PRODUCE, 9, produce("ring", 25))
    name = "headrace.overflow.dropped"
    resources = [
        {"resource_type": 2, "resource_name": topic, "configuration_keys": keys}
        for topic, keys in (("ring", [name]), ("ring", None), ("ring", ["retention.ms"]), ("plain", None))
    ]
    results = client.call(CONFIGS, 4, {"resources": resources}).results
    told = [{item.name: item for item in result.configs}.get(name) for result in results]
    assert [item.value if item else None for item in told] == ["15", "15", None, None]
    assert told[0].read_only
