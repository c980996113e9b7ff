"""Compaction and removal of keys against a plain model of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import _kernel as kernel
from headrace.log.batch import CONTROL, DELETE_HORIZON

from . import batches, model
from .batches import CODECS, Fields

KEYS = [None, b"", b"a", b"b", b"c", b"d" * 50]
SIZE = 30

keyed = st.tuples(
    st.integers(0, 1000),
    st.sampled_from(KEYS),
    st.none() | st.binary(max_size=6) | st.just(b"long " * 30),
    st.just([]) | batches.header_lists,
)
marker = st.tuples(st.integers(0, 1000), st.just(b"\x00\x00\x00\x00"), st.just(b"\x00" * 6), st.just([]))


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Some batches, with holes between them, of all codecs and flags."""
    data, offset = bytearray(), draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 7))):
        control = draw(st.sampled_from([False, False, False, False, True]))
        records = draw(st.lists(marker if control else keyed, min_size=1, max_size=1 if control else 7))
        producer = draw(st.sampled_from([-1, 1, 2]))
        batch = kernel.build_batch(
            records,
            codec=0 if control else draw(st.sampled_from(list(CODECS.values()))),
            base_offset=offset,
            leader_epoch=draw(st.integers(0, 2)),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=offset,
            transactional=control or (producer > 0 and draw(st.booleans())),
            control=control,
        )
        if draw(st.sampled_from([False, False, False, True])):
            kernel.set_append_time(batch, draw(st.integers(0, 1000)))
        if draw(st.sampled_from([False, False, False, True])):
            attributes = kernel.check_batch(batch)[4]
            batch = batches.with_field(batch, 21, "h", attributes | DELETE_HORIZON)
        data += batch
        offset += len(records) + draw(st.sampled_from([0, 0, 0, 2]))
    return bytes(data)


aborted_ranges = st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(0, SIZE), st.integers(0, SIZE)), max_size=3)


@settings(max_examples=100)
@given(logs(), st.integers(0, 1500), st.integers(0, 500), st.frozensets(st.integers(0, SIZE)), aborted_ranges)
def test_compaction_does_what_the_model_does_once_and_again(
    data: bytes, now: int, retention: int, keep_empty: frozenset[int], aborted: list[tuple[int, int, int]]
) -> None:
    log = model.read(data)
    expected_latest = model.latest_offsets(log, aborted)
    latest = kernel.LatestOffsets(1000)
    end = log[-1].last_offset + 1 if log else 77
    assert latest.add(data, end, aborted=aborted) == end
    assert len(latest) == len(expected_latest)

    for at in (now, now, now + retention, now + retention + 1):
        plan = {
            "now_ms": at,
            "delete_retention_ms": retention,
            "keep_empty": keep_empty,
            "aborted": aborted,
        }
        before = sum(len(batch.records) for batch in log)
        log = model.compact(log, expected_latest, **plan)  # type: ignore[arg-type]
        after = sum(len(batch.records) for batch in log)
        data, kept, dropped = kernel.compact(data, latest, **plan)  # type: ignore[arg-type]
        assert model.read(data) == log
        assert (kept, dropped) == (after, before - after)


@settings(max_examples=60)
@given(logs(), st.frozensets(st.sampled_from(KEYS[1:])))
def test_dropping_keys_does_what_the_model_does(data: bytes, keys: frozenset[bytes]) -> None:
    log = model.read(data)
    expected = model.drop_keys(log, keys)
    result, dropped = kernel.drop_keys(data, keys)
    assert model.read(result) == expected
    assert dropped == sum(len(b.records) for b in log) - sum(len(b.records) for b in expected)
    for key in keys:
        assert all(record[2] != key for record in kernel.records(result))


@settings(max_examples=60)
@given(logs(), st.integers(0, 8), st.integers(0, SIZE))
def test_the_map_takes_whole_batches_up_to_its_bounds(data: bytes, max_keys: int, end: int) -> None:
    log = model.read(data)
    taken: list[model.Batch] = []
    for batch in log:
        if batch.last_offset >= end or len(model.latest_offsets([*taken, batch])) > max_keys:
            break
        taken.append(batch)
    latest = kernel.LatestOffsets(max_keys)
    reached = latest.add(data, end)
    assert len(latest) == len(model.latest_offsets(taken))
    if taken:
        assert reached == taken[-1].last_offset + 1
    elif log:
        assert reached == min(log[0].base_offset, end)
    else:
        assert reached == end


def test_the_map_may_be_filled_piece_by_piece() -> None:
    first = kernel.build_batch([(0, b"a", b"1", []), (0, b"b", b"1", [])])
    second = kernel.build_batch([(0, b"a", b"2", [])], base_offset=2)
    latest = kernel.LatestOffsets(10)
    assert latest.add(first, 3) == 2
    assert latest.add(second, 3) == 3
    data, kept, dropped = kernel.compact(first + second, latest, now_ms=0, delete_retention_ms=0)
    assert [r[0] for r in kernel.records(data)] == [1, 2]
    assert (kept, dropped) == (2, 1)


def test_an_aborted_record_never_replaces_a_committed_one() -> None:
    committed = kernel.build_batch([(0, b"a", b"old", [])])
    undone = kernel.build_batch([(0, b"a", b"new", [])], base_offset=1, producer_id=9, transactional=True)
    aborted = [(9, 1, 1)]
    latest = kernel.LatestOffsets(10)
    latest.add(committed + undone, 2, aborted=aborted)
    data, _, _ = kernel.compact(committed + undone, latest, now_ms=0, delete_retention_ms=0, aborted=aborted)
    assert [r[3] for r in kernel.records(data)] == [b"old"]


def test_batches_that_lose_nothing_are_copied_byte_for_byte() -> None:
    records: list[Fields] = [(i, b"k%d" % i, b"v" * 50, []) for i in range(50)]
    stored = kernel.build_batch(records)
    # A level that the kernel itself would not choose: it can only come out unchanged.
    data = b"".join(kernel.recompress(stored, codec, level) for codec, level in ((1, 9), (4, 19), (4, -7)))
    latest = kernel.LatestOffsets(100)
    assert kernel.compact(data, latest, now_ms=0, delete_retention_ms=0) == (data, 150, 0)
    assert kernel.drop_keys(data, [b"other"]) == (data, 0)


def test_a_rewritten_batch_keeps_its_codec_and_is_read_by_others() -> None:
    records: list[Fields] = [(i, b"k%d" % (i % 7), b"value" * 20, [("h", b"x")]) for i in range(200)]
    for codec in CODECS.values():
        data = kernel.build_batch(
            records, codec=codec, base_offset=100, producer_id=5, producer_epoch=1, base_sequence=3
        )
        latest = kernel.LatestOffsets(100)
        latest.add(data, 1000)
        small, kept, dropped = kernel.compact(data, latest, now_ms=0, delete_retention_ms=0)
        assert (kept, dropped) == (7, 193)
        assert kernel.scan(small)[0][0][4] == codec
        expected = [(100 + i, *records[i]) for i in range(193, 200)]
        for library in ("aiokafka", "kafka-python"):
            assert batches.read_by(library, small) == expected


@pytest.mark.parametrize("codec", CODECS.values())
def test_a_horizon_shifts_deltas_but_not_timestamps(codec: int) -> None:
    times = [2**41, 5, 0, 2**41 + 1]
    records: list[Fields] = [(t, b"k%d" % i, None if i == 1 else b"v", []) for i, t in enumerate(times)]
    data = kernel.build_batch(records, codec=codec)
    now = 1_700_000_000_000
    small, _, _ = kernel.compact(data, kernel.LatestOffsets(0), now_ms=now, delete_retention_ms=86_400_000)
    header = kernel.scan(small)[0][0]
    assert header[4] == codec | DELETE_HORIZON
    assert header[6] == now + 86_400_000
    assert batches.read_by("aiokafka", small) == batches.numbered(records)


def test_a_horizon_beyond_all_time_does_not_overflow() -> None:
    data = kernel.build_batch([(0, b"k", None, [])])
    small, _, _ = kernel.compact(data, kernel.LatestOffsets(0), now_ms=2**63 - 2, delete_retention_ms=2**63 - 1)
    assert kernel.scan(small)[0][0][6] == 2**63 - 1
    assert kernel.records(small) == [(0, 0, b"k", None, [])]


def test_control_batches_never_get_a_horizon_here() -> None:
    data = kernel.build_batch([(0, b"\x00\x00\x00\x01", None, [])], control=True, transactional=True)
    assert kernel.check_batch(data)[4] & CONTROL
    assert kernel.compact(data, kernel.LatestOffsets(0), now_ms=5, delete_retention_ms=5) == (data, 1, 0)


def test_what_rewrites_never_takes_a_cut_or_corrupt_batch_for_a_whole_one() -> None:
    data = kernel.build_batch([(0, b"a", b"1", []), (0, b"a", b"2", [])])
    corrupt = bytearray(data)
    corrupt[-1] ^= 1
    latest = kernel.LatestOffsets(10)
    for bad, kind in ((data + data[:-1], "truncated"), (corrupt, "crc")):
        for call in (
            lambda bad=bad: kernel.compact(bad, latest, now_ms=0, delete_retention_ms=0),
            lambda bad=bad: kernel.drop_keys(bad, [b"a"]),
            lambda bad=bad: kernel.LatestOffsets(10).add(bad, 100),
        ):
            with pytest.raises(kernel.BadBatch) as caught:
                call()
            assert caught.value.kind == kind


def test_many_keys_are_all_told_apart() -> None:
    count = 50_000
    records: list[Fields] = [(0, b"%d" % i, b"", []) for i in range(count)]
    data = kernel.build_batch(records, codec=4)
    latest = kernel.LatestOffsets(count)
    assert latest.add(data, count) == count
    assert len(latest) == count
    assert kernel.compact(data, latest, now_ms=0, delete_retention_ms=0)[1:] == (count, 0)
