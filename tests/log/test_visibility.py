"""A record is visible once it and everything before it is as durable as its producer asked."""

from __future__ import annotations

from headrace.errors import HeadraceError
from headrace.log import GroupCommit, PartitionLog
from tests.log.conftest import Bench


def test_acks_one_is_visible_at_once(bench: Bench) -> None:
    bench.append(b"a")
    assert bench.log.high_watermark == 1


def test_acks_all_is_visible_when_synced(bench: Bench) -> None:
    bench.append(b"a", acks_all=True)
    assert bench.log.high_watermark == 0
    bench.sync()
    assert bench.log.high_watermark == 1


def test_acks_one_behind_acks_all_waits_for_it(bench: Bench) -> None:
    bench.append(b"a", acks_all=True)
    bench.append(b"b")
    assert bench.log.high_watermark == 0
    bench.sync()
    assert bench.log.high_watermark == 2


def test_acks_one_after_the_start_of_a_sync_is_visible_with_it(bench: Bench) -> None:
    bench.append(b"a", acks_all=True)
    job = bench.log.start_sync()
    assert job is not None
    bench.append(b"b")
    job.run()
    bench.log.finish_sync(job)
    assert bench.log.high_watermark == 2


def test_acks_all_after_the_start_of_a_sync_waits_for_the_next(bench: Bench) -> None:
    bench.append(b"a", acks_all=True)
    job = bench.log.start_sync()
    assert job is not None
    bench.append(b"b", acks_all=True)
    job.run()
    bench.log.finish_sync(job)
    assert bench.log.high_watermark == 1


def test_listeners_hear_of_a_raised_high_watermark_and_may_leave(bench: Bench) -> None:
    heard: list[int] = []

    def listener(log: PartitionLog) -> None:
        heard.append(log.high_watermark)
        log.listeners.discard(listener)

    bench.log.listeners.add(listener)
    bench.append(b"a")
    bench.append(b"b")
    assert heard == [1]


def test_flush_messages_asks_for_a_sync() -> None:
    bench = Bench({"flush.messages": "2"})
    wanted: list[PartitionLog] = []
    bench.store.on_sync_wanted = wanted.append
    bench.append(b"a")
    assert wanted == []
    bench.append(b"b")
    assert wanted == [bench.log]
    assert bench.log.high_watermark == 1
    bench.sync()
    assert bench.log.high_watermark == 2


class _Loop:
    """Collects what the sync threads want to have called on the owner's thread."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def run(self) -> None:
        while self.calls:
            self.calls.pop(0)()  # type: ignore[operator]


def test_whoever_asks_during_a_sync_is_served_together_by_the_next(bench: Bench) -> None:
    loop, done = _Loop(), list[tuple[int, HeadraceError | None]]()
    commit = GroupCommit(loop.calls.append, threads=1)
    for i in range(5):
        bench.append(b"v", acks_all=True)
        commit.when_durable(bench.log, i + 1, lambda error, i=i: done.append((i, error)))
        if i == 0:
            loop.calls.pop(0)()  # type: ignore[operator]
    while len(done) < 5:
        loop.run()
    commit.close()
    assert [i for i, _ in done] == [0, 1, 2, 3, 4]
    assert not any(error for _, error in done)
    assert commit.syncs.count == 2


def test_waiting_for_a_topic_that_is_deleted_ends_with_an_error(bench: Bench) -> None:
    loop, done = _Loop(), list[HeadraceError | None]()
    commit = GroupCommit(loop.calls.append, threads=1)
    bench.append(b"v", acks_all=True)
    commit.when_durable(bench.log, 1, done.append)
    bench.append(b"v", acks_all=True)
    commit.when_durable(bench.log, 2, done.append)
    bench.store.delete_topic("t")
    while len(done) < 2:
        loop.run()
    commit.close()
    assert all(error is not None for error in done)
