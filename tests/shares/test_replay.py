"""Whatever members do and wherever the power fails: settled stays settled, the rest comes back, dead letters come once.

Random writes, fetches, acknowledgements of every kind, time-outs, syncs and crashes (of the process and of the
machine), over a disk that loses what was not synced. Always:

- what was accepted or rejected, and answered, is never handed out again;
- no dead letter is there twice, and none of a record that was not given up;
- after a restart the state is the fold of what was found.

In the end, when a last member accepts all that it is given, everything is settled: each record was accepted, or given
up, and then it is in the dead-letter topic, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.group_configs import GroupConfigs
from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.shares.coordinator import ShareCoordinator
from headrace.broker.shares.journal import ShareJournal
from headrace.broker.shares.partition import SharePartition, Wish
from headrace.broker.shares.sessions import ShareSession
from headrace.broker.shares.window import Ack, AckBatch
from headrace.errors import HeadraceError
from headrace.log.store import LogStore
from headrace.settings import BrokerSettings
from headrace.testing.clock import ManualClock
from headrace.testing.files import LossyFiles
from tests.groups.bench import HandCommit, HandTimers

FOLDER = Path("/data")
SETTINGS = {
    "share.auto.offset.reset": "earliest",
    "share.delivery.count.limit": "2",
    "share.partition.max.record.locks": "100",
    "headrace.dead.letter.topic": "dead",
}


class HandLoop(HandTimers):
    """Calls that come when they are let."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None], /) -> None:
        self.soon.append(callback)


class Bench:
    """A share coordinator over the real log, on a disk in memory, with time, timers and syncs moved by hand."""

    def __init__(self, **more: str) -> None:
        self.clock = ManualClock()
        self.files = LossyFiles()
        self.own = {**SETTINGS, **{name.replace("_", "."): value for name, value in more.items()}}
        self.written = 0
        self.final: set[int] = set()
        self.given_up: set[int] = set()
        self.handed: list[int] = []
        self.open()

    def open(self) -> None:
        broker = BrokerSettings(FOLDER)
        self.store = LogStore.open(FOLDER, files=self.files, clock=self.clock)
        if "t" not in self.store.topics:
            self.store.create_topic("t", 1)
        self.log = self.store.partition("t", 0)
        self.commit: Any = HandCommit()
        self.loop = HandLoop(self.clock)
        configs = GroupConfigs(broker, self.files, FOLDER)
        configs.load()
        if not configs.groups():
            configs.change("g", self.own)
        groups = GroupCoordinator(self.store, self.commit, self.clock, self.loop)
        self.shares = ShareCoordinator(self.store, self.commit, groups, configs, self.clock, self.loop, broker)
        self.shares.load()
        self.sessions = {name: ShareSession("g", name) for name in "ab"}
        self.settle()
        self.ensure_folded()

    @property
    def share(self) -> SharePartition:
        return self.shares.find("g", self.log.topic_id.bytes, 0)

    def ensure_folded(self) -> None:
        journal = ShareJournal(self.store, self.commit, 1 << 20)
        journal.load()
        assert journal.latest == self.shares.journal.latest

    def settle(self) -> None:
        while self.loop.soon:
            self.loop.soon.pop(0)()

    def sync(self) -> None:
        self.settle()
        self.commit.sync()
        self.settle()

    def wait(self, ms: int) -> None:
        end = round(self.clock.monotonic() * 1000) + ms
        while (call := self.loop.next_due(end)) is not None:
            self.clock.advance(max(call[0] - round(self.clock.monotonic() * 1000), 0))
            call[1]()
            self.settle()
        self.clock.advance(end - round(self.clock.monotonic() * 1000))

    def write(self, count: int) -> None:
        """Records that are acknowledged to their producer: on disk."""
        self.log.append_records([(0, b"k%d" % (n % 3), b"v", ()) for n in range(count)], acks_all=True)
        job = self.log.start_sync()
        if job is not None:
            job.run()
            self.log.finish_sync(job)
        self.written += count

    def take(self, member: str, count: int) -> None:
        taken = self.shares.take(self.share, self.sessions[member], Wish(count, 1 << 20, strict=True))
        got = [o for one in (taken.acquired if taken else ()) for o in range(one.first, one.last + 1)]
        self.handed += got
        assert not self.final & set(got), "what was settled was handed out"

    def acknowledge(self, member: str, first: int, types: bytes) -> None:
        """Of the records that the member holds, some from the first on."""
        runs = [run for run in self.share.window.runs if run.member == member]
        held = [offset for run in runs for offset in range(run.first, run.last + 1)][first:]
        batches = [AckBatch(offset, offset, types[n : n + 1]) for n, offset in enumerate(held[: len(types)])]
        last = {batch.first for batch in batches if batch.types[0] in (Ack.ACCEPT, Ack.REJECT)}
        rejected = {batch.first for batch in batches if batch.types[0] == Ack.REJECT}

        def done(error: HeadraceError | None) -> None:
            if error is None:
                self.final.update(last)
                self.given_up.update(rejected)

        self.shares.acknowledge(self.share, member, batches, done)

    def dead(self) -> Counter[int]:
        topic = self.store.topics.get("dead")
        found: Counter[int] = Counter()
        for *_, headers in topic.partitions[0].replay() if topic else ():
            found[int(dict(headers)["__dlq.errors.offset"] or b"")] += 1
        return found

    def ensure_once(self) -> None:
        assert all(count == 1 for count in self.dead().values()), "a dead letter is there twice"


ACKS = st.lists(st.sampled_from([Ack.ACCEPT, Ack.RELEASE, Ack.REJECT, Ack.RENEW]), min_size=1, max_size=5).map(bytes)
MEMBERS = st.sampled_from("ab")
STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 6)),
    st.tuples(st.just("take"), MEMBERS, st.integers(1, 8)),
    st.tuples(st.just("take"), MEMBERS, st.integers(1, 8)),
    st.tuples(st.just("acknowledge"), MEMBERS, st.integers(0, 4), ACKS),
    st.tuples(st.just("acknowledge"), MEMBERS, st.integers(0, 4), ACKS),
    st.tuples(st.just("reject"), MEMBERS, st.integers(0, 4)),
    st.tuples(st.just("leave"), MEMBERS),
    st.tuples(st.just("wait"), st.sampled_from([10, 20_000, 40_000])),
    st.tuples(st.just("sync")),
    st.tuples(st.just("sync")),
    st.tuples(st.just("kill")),
    st.tuples(st.just("lose_power"), st.integers(0, 2**32)),
)


def play(bench: Bench, name: str, *given_values: Any) -> None:
    if name == "leave":
        bench.shares.release(bench.sessions[given_values[0]])
    elif name == "reject":
        bench.take(given_values[0], 4)
        bench.acknowledge(given_values[0], 0, bytes([Ack.REJECT] * 4))
        for _ in range(given_values[1]):
            bench.sync()
    elif name == "kill":
        bench.files.locked.clear()
        bench.open()
    elif name == "lose_power":
        bench.files = bench.files.crash(given_values[0])
        bench.open()
    else:
        getattr(bench, name)(*given_values)
    if name != "sync":
        bench.settle()


def finish(bench: Bench) -> None:
    """Everyone goes, and a last member accepts all that it is given."""
    bench.wait(70_000)
    bench.sessions["last"] = ShareSession("g", "last")
    for _ in range(3 * bench.written + 20):
        for _ in range(4):
            bench.sync()
        if bench.share.window.start == bench.written:
            break
        bench.take("last", 100)
        bench.acknowledge("last", 0, bytes([Ack.ACCEPT] * 100))
        bench.wait(10)
    for _ in range(8):
        bench.sync()
        bench.wait(70_000)
    assert bench.share.window.start == bench.written
    assert bench.share.dead is None
    dead = bench.dead()
    assert set(dead) >= bench.given_up, "a dead letter is missing"
    assert set(dead) <= set(bench.handed)
    bench.ensure_once()


@pytest.mark.system
@pytest.mark.parametrize("key_ordered", ["false", "true"])
def test_settled_stays_settled_and_the_rest_comes_back(key_ordered: str) -> None:
    @settings(max_examples=150, deadline=None)
    @given(st.lists(STEPS, max_size=40))
    def law(steps: list[tuple[Any, ...]]) -> None:
        bench = Bench(headrace_key_ordered=key_ordered)
        bench.write(6)
        for step in (("reject", "a", 0), ("sync",), *steps):
            play(bench, *step)
            bench.ensure_folded()
            bench.ensure_once()
        finish(bench)

    law()


def test_an_acknowledgement_that_was_not_synced_may_be_lost_with_the_power_and_then_the_record_comes_back() -> None:
    bench = Bench()
    bench.write(3)
    bench.share  # noqa: B018  (it is made when it is first looked for)
    bench.sync()
    bench.take("a", 3)
    bench.acknowledge("a", 0, bytes([Ack.ACCEPT]))
    bench.sync()
    bench.acknowledge("a", 0, bytes([Ack.ACCEPT]))
    assert bench.final == {0}
    bench.files = bench.files.crash(1)
    bench.open()
    bench.take("b", 3)
    assert bench.handed[3:] in ([1, 2], [2])


def test_a_key_keeps_its_order_over_a_crash() -> None:
    bench = Bench(headrace_key_ordered="true")
    bench.write(6)
    bench.share  # noqa: B018
    bench.sync()
    bench.take("a", 6)
    assert bench.handed == [0, 1, 2]
    bench.acknowledge("a", 0, bytes([Ack.ACCEPT]))
    bench.sync()
    play(bench, "kill")
    bench.take("b", 6)
    assert bench.handed[3:] == [1, 2, 3]


def test_what_cannot_be_read_is_not_served() -> None:
    bench = Bench()
    bench.write(3)
    key = bench.share.key
    bench.sync()
    journal = bench.shares.journal
    record = journal.encode(bench.share.change())[0], b"\0\0nonsense"
    journal.partition().append_records([(0, *record, ())], acks_all=True)
    play(bench, "kill")
    assert bench.shares.journal.damaged == {key}
    with pytest.raises(HeadraceError, match="cannot be read"):
        _ = bench.share
