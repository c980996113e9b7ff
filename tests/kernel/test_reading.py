"""``scan``, ``slice_batches``, timestamps, ``records``, and what is written in place."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import _kernel as kernel
from headrace.log.batch import BatchHeader

from . import batches
from .batches import CODECS, with_field


def run_of(*counts: int, first: int = 0, codec: int = 0) -> list[bytes]:
    """Batches of so many records each, offsets going on."""
    made, offset = [], first
    for count in counts:
        records = [(offset + i, b"k", b"v", []) for i in range(count)]
        made.append(bytes(kernel.build_batch(records, base_offset=offset, codec=codec)))
        offset += count
    return made


def ends_of(parts: list[bytes]) -> list[int]:
    return [sum(map(len, parts[: i + 1])) for i in range(len(parts))]


def test_scan_lists_the_headers_of_whole_batches() -> None:
    parts = run_of(3, 1, 5, first=10)
    headers, end, error = kernel.scan(b"".join(parts))
    named = [BatchHeader._make(header) for header in headers]
    assert [(h.position, h.size) for h in named] == list(zip([0, *ends_of(parts)], map(len, parts), strict=False))
    assert [(h.base_offset, h.last_offset, h.next_offset, h.record_count) for h in named] == [
        (10, 12, 13, 3),
        (13, 13, 14, 1),
        (14, 18, 19, 5),
    ]
    assert end == ends_of(parts)[-1]
    assert error is None
    assert kernel.scan(b"") == ([], 0, None)


def test_scan_stops_at_every_cut_with_the_batches_before_it() -> None:
    parts = run_of(2, 3, 1)
    data, ends = b"".join(parts), ends_of(parts)
    for cut in range(len(data)):
        headers, end, error = kernel.scan(data[:cut])
        whole = sum(e <= cut for e in ends)
        assert len(headers) == whole
        assert end == ([0, *ends])[whole]
        assert (error.kind if error else None) == (None if end == cut else "truncated")


def test_scan_stops_at_a_bad_checksum_unless_it_is_not_asked() -> None:
    parts = run_of(2, 3, 1)
    data = bytearray(b"".join(parts))
    data[len(parts[0]) + 65] ^= 1
    headers, end, error = kernel.scan(data)
    assert (len(headers), end) == (1, len(parts[0]))
    assert error is not None
    assert error.kind == "crc"
    headers, end, error = kernel.scan(data, crc=False)
    assert (len(headers), end, error) == (3, len(data), None)


def test_a_zero_filled_tail_is_a_bad_length() -> None:
    (part,) = run_of(2)
    headers, end, error = kernel.scan(part + bytes(4096))
    assert (len(headers), end) == (1, len(part))
    assert error is not None
    assert error.kind == "length"


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=6),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 50),
)
def test_a_slice_is_what_a_plain_loop_finds(gaps: list[tuple[int, int]], start: int, end: int, cut: int) -> None:
    parts, spans, offset = [], [], 0
    for gap, count in gaps:
        offset += gap
        parts += run_of(count, first=offset)
        spans.append((offset, offset + count))
        offset += count
    data = b"".join(parts)[: -cut or None] if parts else b""
    ends = [e for e in ends_of(parts) if e <= len(data)]
    wanted = [i for i in range(len(ends)) if spans[i][1] > start and spans[i][0] < end]
    before = sum(spans[i][1] <= start for i in range(len(ends)))
    position = ([0, *ends])[before]
    expected = (position, ends[wanted[-1]], spans[wanted[-1]][1]) if wanted else (position, position, start)
    assert kernel.slice_batches(data, start, end) == (*expected, None)


def test_a_slice_stops_before_a_bad_batch_and_says_why() -> None:
    parts = run_of(10, 10, 10)
    ends = ends_of(parts)
    data = bytearray(b"".join(parts))
    data[ends[1] + 65] ^= 1
    start, end, following, error = kernel.slice_batches(data, 5, 100)
    assert (start, end, following) == (0, ends[1], 20)
    assert error is not None
    assert error.kind == "crc"
    assert kernel.slice_batches(data, 5, 20) == (0, ends[1], 20, None)
    start, end, following, error = kernel.slice_batches(data, 20, 100)
    assert (start, end, following) == (ends[1], ends[1], 20)
    assert error is not None


def test_a_bad_checksum_before_the_slice_is_nobodys_business() -> None:
    parts = run_of(10, 10)
    data = bytearray(b"".join(parts))
    data[65] ^= 1
    assert kernel.slice_batches(data, 10, 100) == (len(parts[0]), len(data), 20, None)


@settings(max_examples=100)
@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), max_size=5),
    st.sampled_from(list(CODECS.values())),
    st.integers(-1, 31),
    st.integers(0, 25),
)
def test_timestamps_are_found_as_a_plain_loop_finds_them(
    times: list[list[int]], codec: int, timestamp: int, start: int
) -> None:
    data, found, offset = b"", [], 0
    for group in times:
        data += kernel.build_batch([(t, None, b"v", []) for t in group], base_offset=offset, codec=codec)
        found += [(offset + i, t) for i, t in enumerate(group)]
        offset += len(group)
    expected = next(((o, t) for o, t in found if o >= start and t >= timestamp), None)
    assert kernel.find_timestamp(data, timestamp, start) == expected
    largest = max((t for _, t in found), default=None)
    assert kernel.max_timestamp(data) == next(((o, t) for o, t in found if t == largest), None)


@pytest.mark.parametrize("codec", CODECS.values())
@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_append_time_is_set_in_place(codec: int, kind: type) -> None:
    batch = kernel.build_batch([(5, b"k", b"v", []), (9, b"k", b"v", [])], codec=codec, base_offset=3)
    surrounded = bytearray(b"before" + batch + b"after")
    target = memoryview(surrounded)[6:-5] if kind is memoryview else batch
    kernel.set_append_time(target, 777)
    header = BatchHeader._make(kernel.check_batch(target))
    assert (header.attributes, header.max_timestamp, header.base_timestamp) == (codec | 8, 777, 5)
    assert [r[1] for r in kernel.records(target)] == [777, 777]
    assert [r[1] for r in batches.read_by("aiokafka", bytes(target))] == [777, 777]
    assert kernel.find_timestamp(target, 100, 4) == (4, 777)
    assert kernel.max_timestamp(target) == (3, 777)
    assert surrounded[:6] == b"before"
    assert surrounded[-5:] == b"after"


def test_append_time_needs_memory_that_it_may_write() -> None:
    batch = bytes(kernel.build_batch([(5, b"k", b"v", [])]))
    with pytest.raises(TypeError):
        kernel.set_append_time(batch, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        kernel.set_append_time(memoryview(batch), 1)
    with pytest.raises(kernel.BadBatch):
        kernel.set_append_time(bytearray(batch[:-1]), 1)
    with pytest.raises(kernel.BadBatch):
        kernel.set_append_time(bytearray(), 1)


def test_records_go_on_over_batches_and_stop_at_a_cut() -> None:
    parts = [*run_of(2, codec=1), *run_of(3, first=2, codec=4)]
    data = b"".join(parts)
    assert [r[0] for r in kernel.records(data)] == [0, 1, 2, 3, 4]
    assert [r[0] for r in kernel.records(data[:-1])] == [0, 1]
    with pytest.raises(kernel.BadBatch):
        kernel.walk(data[:-1])


def test_header_names_that_are_not_utf8_are_replaced() -> None:
    batch = kernel.build_batch([(0, None, None, [("abcd", b"x")])])
    data = batches.with_crc(batch.replace(b"abcd", b"a\xff\xfed"))
    kernel.check_batch(data)
    assert kernel.records(data)[0][4] == [("a��d", b"x")]


def test_building_refuses_what_is_no_batch() -> None:
    for bad in ([], [(0, "text", b"", [])], [(0, b"", b"")], [None], [(2**63, b"", b"", [])], 5):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            kernel.build_batch(bad)  # type: ignore[arg-type]
    for codec, level in ((5, None), (-1, None), (1, 0), (1, 10), (3, 0), (3, 18), (4, 23)):
        with pytest.raises(ValueError):
            kernel.build_batch([(0, b"", b"", [])], codec=codec, level=level)
    with pytest.raises(UnicodeEncodeError):
        kernel.build_batch([(0, b"", b"", [("\ud800", b"")])])


def test_memory_to_read_into_is_a_plain_bytearray() -> None:
    for size in (0, 1, 61, 1 << 20):
        memory = kernel.alloc(size)
        assert type(memory) is bytearray
        assert len(memory) == size
        memory[:] = bytes(size)
    with pytest.raises(ValueError):
        kernel.alloc(-1)
    with pytest.raises((MemoryError, OverflowError)):
        kernel.alloc(2**62)


def test_the_interpreter_lock_is_released_while_a_large_buffer_is_walked() -> None:
    data = bytes(kernel.build_batch([(0, b"k", bytes(20 << 20), [])], codec=1)) * 10
    span: list[float] = []

    def walk() -> None:
        span.append(time.perf_counter())
        kernel.walk(data)
        span.append(time.perf_counter())

    thread = threading.Thread(target=walk)
    thread.start()
    ticks = []
    while thread.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0.001)
    thread.join()
    middle = [
        tick for tick in ticks if span[0] + 0.3 * (span[1] - span[0]) < tick < span[1] - 0.1 * (span[1] - span[0])
    ]
    assert middle


def test_a_mutated_header_is_reported_with_where_it_is() -> None:
    parts = run_of(2, 2)
    data = parts[0] + with_field(parts[1], 16, "b", 1)
    error = kernel.scan(data)[2]
    assert error is not None
    assert f"byte {len(parts[0])}" in str(error)
    assert "magic 1" in str(error)
