"""A full disk passes; a failed sync does not."""

from __future__ import annotations

import errno

import pytest

from headrace.errors import HeadraceError, PartitionFailed, StorageFull
from headrace.log import GroupCommit
from tests.log.conftest import Bench


def test_a_full_disk_refuses_the_write_serves_reads_and_recovers_without_restart(bench: Bench) -> None:
    bench.append_durably(b"before")
    bench.files.fail("write", ".log", errno.ENOSPC)
    with pytest.raises(StorageFull):
        bench.append(b"refused")
    assert bench.values() == [b"before"]
    bench.files.heal()
    assert bench.append_durably(b"after") == 1
    bench.lose_power()
    assert bench.values() == [b"before", b"after"]


def test_a_refused_write_leaves_no_trace_after_a_kill(bench: Bench) -> None:
    bench.append_durably(b"before")
    bench.files.fail("write", ".log", errno.ENOSPC)
    with pytest.raises(StorageFull):
        bench.append(b"refused" * 20)
    bench.files.heal()
    bench.kill()
    assert bench.values() == [b"before"]


def test_a_full_disk_at_a_roll_refuses_only_that_write() -> None:
    bench = Bench({"internal.segment.bytes": "100"})
    bench.append(b"x" * 50)
    bench.files.fail("create", ".log", errno.ENOSPC)
    with pytest.raises(StorageFull):
        bench.append(b"y" * 50)
    bench.files.heal()
    assert bench.append(b"z" * 50) == 1


def test_a_repeated_batch_after_a_full_disk_is_not_a_duplicate(bench: Bench) -> None:
    bench.files.fail("write", ".log", errno.ENOSPC)
    with pytest.raises(StorageFull):
        bench.append(b"v", producer_id=5, producer_epoch=0, base_sequence=0)
    bench.files.heal()
    assert bench.append(b"v", producer_id=5, producer_epoch=0, base_sequence=0) == 0
    assert bench.values() == [b"v"]


def test_a_failed_sync_stops_the_partition_and_no_other(bench: Bench) -> None:
    bench.store.create_topic("other", 1)
    bench.append_durably(b"kept")
    bench.append(b"lost?", acks_all=True)
    bench.files.fail("sync", "/t/0/")
    answers: list[HeadraceError | None] = []
    calls: list[object] = []
    commit = GroupCommit(lambda call: calls.append(call), threads=1)
    commit.when_durable(bench.log, 2, answers.append)
    while not answers:
        if calls:
            calls.pop(0)()  # type: ignore[operator]
    commit.close()
    assert isinstance(answers[0], PartitionFailed)
    with pytest.raises(PartitionFailed, match="sync failed"):
        bench.append(b"refused")
    assert bench.values() == [b"kept"]
    bench.store.partition("other", 0).append_records([(1, None, b"v", [])], acks_all=False)


def test_an_error_of_the_disk_while_writing_stops_the_partition(bench: Bench) -> None:
    bench.files.fail("write", ".log", errno.EIO)
    with pytest.raises(PartitionFailed):
        bench.append(b"v")
    bench.files.heal()
    with pytest.raises(PartitionFailed):
        bench.append(b"v")


def test_a_full_disk_keeps_log_start_where_it_was(bench: Bench) -> None:
    bench.append(b"a", b"b")
    bench.files.fail("write", "checkpoint", errno.ENOSPC)
    with pytest.raises(StorageFull):
        bench.log.delete_records(1)
    assert bench.log.log_start == 0


def test_a_failed_sync_of_a_checkpoint_stops_the_partition_too(bench: Bench) -> None:
    bench.append(b"v")
    bench.files.fail("sync", "/t/0/00000000000000000000.log")
    bench.clock.advance(60_000)
    bench.maintain()
    bench.files.heal()
    with pytest.raises(PartitionFailed, match="sync failed"):
        bench.append(b"w")
