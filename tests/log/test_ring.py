"""A partition that drops its oldest records when it is full."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import _kernel
from headrace.errors import InvalidConfig, OffsetOutOfRange
from headrace.log.ring import Ring
from headrace.log.topic_config import TopicConfig
from tests.log.conftest import Bench

DROP = {"headrace.overflow": "drop", "index.interval.bytes": "0"}


def ring(**more: int) -> Bench:
    bounds = {f"headrace.overflow.max.{name}": str(value) for name, value in more.items()}
    return Bench(DROP | bounds)


def fill(bench: Bench, count: int) -> None:
    for number in range(count):
        bench.append(b"value %06d" % number)


def readable_bytes(bench: Bench) -> int:
    """Bytes of the batches that hold something that can be read."""
    total = 0
    offset = bench.log.log_start
    while (result := bench.log.read(offset, 1)).data:
        total += len(result.data)
        offset = result.next_offset
    return total


def test_only_the_newest_records_are_kept() -> None:
    bench = ring(records=10)
    fill(bench, 9)
    assert (bench.log.log_start, bench.log.dropped) == (0, 0)
    fill(bench, 91)
    assert (bench.log.log_start, bench.log.dropped) == (90, 90)
    assert [offset for offset, _, _ in bench.read_all()] == list(range(90, 100))
    with pytest.raises(OffsetOutOfRange):
        bench.log.read(89, 100)


def test_the_ring_may_begin_inside_a_batch() -> None:
    bench = ring(records=5)
    bench.append(*(b"%d" % number for number in range(8)))
    assert bench.values() == [b"3", b"4", b"5", b"6", b"7"]


def test_only_the_newest_bytes_are_kept() -> None:
    bench = ring(bytes=3000)
    fill(bench, 100)
    batch = bench.log.active.size // (bench.log.end_offset - bench.log.active.base_offset)
    assert 3000 - 2 * batch <= readable_bytes(bench) <= 3000
    assert bench.log.dropped == bench.log.log_start > 0


def test_the_newest_batch_stays_though_it_is_too_large() -> None:
    bench = ring(bytes=100)
    fill(bench, 3)
    bench.append(b"x" * 500)
    assert bench.values() == [b"x" * 500]


def test_what_nobody_can_read_yet_is_not_dropped() -> None:
    bench = ring(records=2)
    for number in range(5):
        bench.append(b"%d" % number, acks_all=True)
    assert (bench.log.high_watermark, bench.log.log_start) == (0, 0)
    bench.sync()
    assert (bench.log.high_watermark, bench.log.log_start) == (5, 3)


def test_the_files_of_what_was_dropped_go_at_once() -> None:
    bench = ring(records=10)
    wanted: list[object] = []
    bench.store.on_removal_wanted = wanted.append
    fill(bench, 100)
    bench.sync()
    assert bench.log in wanted
    bench.maintain()
    assert bench.log.segments[0].end_offset > bench.log.log_start
    names = bench.files.names(bench.folder)
    assert len([name for name in names if name.endswith(".log")]) == len(bench.log.segments)
    assert not [name for name in names if name.endswith(".deleted")]


def test_what_others_delete_is_not_counted() -> None:
    bench = ring(records=10)
    fill(bench, 15)
    bench.log.delete_records(9)
    assert (bench.log.log_start, bench.log.dropped) == (9, 5)
    fill(bench, 10)
    assert (bench.log.log_start, bench.log.dropped) == (15, 11)
    bench.reopen()
    assert (bench.log.log_start, bench.log.dropped) == (15, 11)


def test_a_larger_ring_does_not_bring_anything_back() -> None:
    bench = ring(records=10)
    fill(bench, 30)
    bench.store.set_overrides("t", bench.overrides | {"headrace.overflow.max.records": "25"})
    bench.kill()
    assert (bench.log.log_start, bench.log.dropped) == (20, 20)
    fill(bench, 10)
    assert bench.log.log_start == 20
    bench.store.set_overrides("t", bench.overrides | {"headrace.overflow.max.records": "3"})
    assert (bench.log.log_start, bench.log.dropped) == (37, 37)


def test_a_transaction_that_is_older_than_the_ring_does_not_hide_what_is_left() -> None:
    bench = ring(records=3)
    bench.append(b"t", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    fill(bench, 5)
    log = bench.log
    assert log.log_start <= log.last_stable_offset <= log.high_watermark
    assert not log.read(log.log_start, 1000, committed=True).data


def test_segments_are_small_enough_for_the_ring() -> None:
    ring = Ring(max_records=1000)
    assert not ring.is_segment_full(1 << 20, 249)
    assert ring.is_segment_full(1 << 20, 250)
    assert not ring.is_segment_full((1 << 20) - 1, 250)
    assert Ring(max_bytes=8 << 20).is_segment_full(2 << 20, 0)
    assert not Ring(max_bytes=8 << 20).is_segment_full((2 << 20) - 1, 0)


@pytest.mark.parametrize(
    "overrides",
    [
        {"headrace.overflow": "drop"},
        {"headrace.overflow": "drop", "headrace.overflow.max.records": "5", "cleanup.policy": "compact"},
        {"headrace.overflow": "block"},
        {"headrace.overflow": "block", "headrace.overflow.groups": ","},
        {"headrace.overflow": "explode"},
    ],
)
def test_settings_that_do_not_go_together_are_refused(overrides: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        TopicConfig.parse(overrides)


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6)),
    st.tuples(st.sampled_from(["sync", "maintain", "kill", "reopen", "lose power"]), st.integers(0, 9)),
    st.tuples(st.just("delete"), st.integers(0, 20)),
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 12), st.sampled_from([-1, 0, 200, 900]), st.lists(STEPS, max_size=40))
def test_a_ring_is_as_full_as_it_may_be_whatever_happens(
    max_records: int, max_bytes: int, steps: Sequence[tuple[str, int]]
) -> None:
    """And what was dropped is what is missing, but for what was deleted on purpose."""
    bench = ring(records=max_records, bytes=max_bytes)
    deleted = 0
    for step, argument in steps:
        log = bench.log
        match step:
            case "append":
                bench.append(*(b"%d" % number for number in range(argument)), acks_all=False)
            case "sync":
                bench.sync()
            case "maintain":
                bench.maintain()
            case "kill":
                bench.kill()
            case "reopen":
                bench.reopen()
            case "lose power":
                bench.sync()
                bench.lose_power(argument)
            case "delete":
                target = min(log.log_start + argument, log.high_watermark)
                deleted += target - log.log_start
                log.delete_records(target)
        log = bench.log
        assert log.log_start == log.dropped + deleted
        assert log.high_watermark - log.log_start <= max_records
        assert log.log_start >= log.high_watermark - max_records or max_bytes >= 0
        assert [offset for offset, _, _ in bench.read_all()] == list(range(log.log_start, log.high_watermark))


def test_batches_are_kept_as_long_as_the_bytes_allow() -> None:
    bench = ring(bytes=5000)
    size = len(_kernel.build_batch([(0, b"k", b"value 000000", [])]))
    for count in range(1, 200):
        fill(bench, 1)
        kept = bench.log.high_watermark - bench.log.log_start
        assert kept == min(count, 5000 // size) or kept == min(count, 5000 // size) - 1
