"""What is forgotten, when, and where it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import _kernel
from headrace.errors import OffsetOutOfRange
from headrace.log.archive import ArchivedPartition, archive_folder
from tests.log.conftest import Bench

HOUR = 3_600_000


def fill(bench: Bench, count: int = 30) -> None:
    for i in range(count):
        bench.append(b"value %04d" % i)
    bench.sync()


def test_old_segments_go_and_young_stay() -> None:
    bench = Bench({"retention.ms": str(HOUR)})
    fill(bench)
    bench.log.roll()
    bench.clock.advance(2 * HOUR)
    fill(bench, 3)
    bench.maintain()
    assert bench.log.log_start == 30
    assert bench.read_all()[0][0] == 30
    with pytest.raises(OffsetOutOfRange):
        bench.log.read(29, 100)


def test_an_idle_partition_is_emptied_too() -> None:
    bench = Bench({"retention.ms": str(HOUR)})
    fill(bench, 3)
    bench.clock.advance(2 * HOUR)
    bench.maintain()
    bench.maintain()
    assert (bench.log.log_start, bench.log.end_offset, bench.log.size) == (3, 3, 0)
    bench.kill()
    assert (bench.log.log_start, bench.log.end_offset) == (3, 3)


def test_the_oldest_segments_go_when_there_is_too_much() -> None:
    bench = Bench({"retention.bytes": "2000", "retention.ms": "-1"})
    fill(bench, 100)
    bench.maintain()
    assert 2000 <= bench.log.size < 3000
    assert bench.read_all()[-1][0] == 99


def test_a_clock_that_goes_back_deletes_nothing() -> None:
    bench = Bench({"retention.ms": str(HOUR)})
    fill(bench)
    bench.clock.jump(-10 * HOUR)
    bench.maintain()
    assert bench.log.log_start == 0


def test_compacted_topics_keep_everything_that_is_old() -> None:
    bench = Bench({"cleanup.policy": "compact", "retention.ms": "1", "retention.bytes": "1"})
    fill(bench)
    bench.clock.advance(HOUR)
    bench.maintain()
    assert bench.log.log_start == 0


def test_files_wait_before_they_are_removed() -> None:
    bench = Bench({"retention.bytes": "0", "file.delete.delay.ms": "60000"})
    fill(bench)
    bench.maintain()
    waiting = [n for n in bench.files.names(bench.folder) if n.endswith(".deleted")]
    assert waiting
    bench.clock.advance(60_000)
    bench.maintain()
    assert not [n for n in bench.files.names(bench.folder) if n.endswith(".deleted")]


def test_deleted_records_stay_deleted_after_power_loss(bench: Bench) -> None:
    fill(bench)
    assert bench.log.delete_records(17) == 17
    bench.lose_power(5)
    assert bench.log.log_start == 17
    assert bench.read_all()[0][0] == 17
    assert bench.log.delete_records(5) == 17
    assert bench.log.delete_records(-1) == 30
    with pytest.raises(OffsetOutOfRange):
        bench.log.delete_records(31)


def test_segments_before_the_log_start_are_removed(bench: Bench) -> None:
    fill(bench)
    bench.log.delete_records(29)
    bench.maintain()
    assert bench.log.segments[0].end_offset > 29


def test_archived_segments_can_be_read_back_by_offset() -> None:
    archive = Path("/archive")
    bench = Bench({"retention.bytes": "0", "headrace.archive.path": str(archive)})
    fill(bench, 60)
    original = {o: v for o, _, v in bench.read_all()}
    bench.maintain()
    start = bench.log.log_start
    assert start > 0
    archived = ArchivedPartition(bench.files, archive_folder(archive, "t", bench.log.topic_id, 0))
    assert (archived.start_offset, archived.end_offset) == (0, start)
    for offset in range(start):
        record = next(r for r in _kernel.records(archived.read(offset, 1)) if r[0] == offset)
        assert record[3] == original[offset]
    assert not archived.read(start, 100)
    with pytest.raises(OffsetOutOfRange):
        archived.read(start + 1, 100)


def test_nothing_is_deleted_that_could_not_be_archived() -> None:
    bench = Bench({"retention.bytes": "0", "headrace.archive.path": "/archive"})
    fill(bench)
    bench.files.fail("write", "/archive/")
    with pytest.raises(OSError, match="Input/output"):
        bench.maintain()
    assert bench.log.log_start == 0
    bench.files.heal()
    bench.maintain()
    assert bench.log.log_start > 0


class TestByTime:
    """Looking up offsets by time."""

    def test_the_first_record_at_or_after_a_time_is_found(self, bench: Bench) -> None:
        start = bench.clock.now_ms()
        for _ in range(50):
            bench.append(b"a", b"b")
            bench.clock.advance(10)
        assert bench.log.offset_for_timestamp(start) == (0, start, 0)
        assert bench.log.offset_for_timestamp(start + 101) == (22, start + 110, 0)
        assert bench.log.offset_for_timestamp(start + 491) is None
        assert bench.log.max_timestamp() == (98, start + 490, 0)

    def test_times_out_of_order_are_found(self, bench: Bench) -> None:
        for timestamp in (500, 100, 900, 300, 950):
            bench.log.append(_kernel.build_batch([(timestamp, b"k", b"v" * 90, [])]), acks_all=False)
        assert [bench.log.offset_for_timestamp(t) for t in (0, 501, 901, 951)] == [
            (0, 500, 0),
            (2, 900, 0),
            (4, 950, 0),
            None,
        ]

    def test_an_empty_log_has_no_times(self, bench: Bench) -> None:
        assert bench.log.offset_for_timestamp(0) is None
        assert bench.log.max_timestamp() is None

    def test_records_before_the_log_start_are_not_found(self, bench: Bench) -> None:
        start = bench.clock.now_ms()
        bench.append(b"a", b"b", b"c")
        bench.log.delete_records(2)
        assert bench.log.offset_for_timestamp(start) == (2, start, 0)


class TestRolling:
    """When a segment is full."""

    def test_by_size(self) -> None:
        bench = Bench({"internal.segment.bytes": "200"})
        for _ in range(10):
            bench.append(b"x" * 40)
        assert len(bench.log.segments) == 10
        assert all(s.size <= 200 for s in bench.log.segments)

    def test_by_time(self) -> None:
        bench = Bench({"segment.ms": "1000"})
        bench.append(b"a")
        bench.clock.advance(1001)
        bench.append(b"b")
        assert len(bench.log.segments) == 2

    def test_a_batch_larger_than_a_segment_fits_alone(self) -> None:
        bench = Bench({"internal.segment.bytes": "200"})
        bench.append(b"x" * 500)
        bench.append(b"y")
        assert [s.base_offset for s in bench.log.segments] == [0, 1]
        assert bench.values() == [b"x" * 500, b"y"]
