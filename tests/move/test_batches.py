"""What is fetched becomes batches that can be written: every committed record, with nothing missing between."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from headrace import _kernel
from headrace.move.batches import Fetched, committed, joined, pieces, signed

ABORT, COMMIT = 0, 1
Record = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def batch(base: int, records: list[Record], **more: object) -> bytes:
    built = _kernel.build_batch([record[1:] for record in records], base_offset=base, **more)  # type: ignore[arg-type]
    return bytes(built)


def marker(offset: int, producer: int, kind: int) -> bytes:
    key = struct.pack(">hh", 0, kind)
    record: Record = (offset, 5, key, b"\0" * 6, [])
    return batch(offset, [record], producer_id=producer, producer_epoch=0, transactional=True, control=True)


rows = st.tuples(
    st.integers(0, 10**9),
    st.none() | st.binary(max_size=8),
    st.none() | st.binary(max_size=60),
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=4)), max_size=2),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["plain", "committed", "aborted", "gap"]),
        st.lists(rows, min_size=1, max_size=12),
        st.sampled_from([0, 1, 3, 4]),
    ),
    max_size=12,
)


def log_of(steps: list[tuple[str, list[tuple[object, ...]], int]]) -> tuple[Fetched, list[Record], int]:
    """The bytes of a log, the records of it that count, and where it ends."""
    data, wanted, aborted, at = b"", [], [], 0
    for number, (kind, found, codec) in enumerate(steps):
        records = [(at + index, *row) for index, row in enumerate(found)]
        if kind == "gap":
            at += len(found)
            continue
        more = {} if kind == "plain" else {"producer_id": number, "producer_epoch": 0, "transactional": True}
        data += batch(at, records, codec=codec, **more)  # type: ignore[arg-type]
        if kind == "aborted":
            aborted.append((number, at))
        else:
            wanted += records
        at += len(found)
        if kind != "plain":
            data += marker(at, number, ABORT if kind == "aborted" else COMMIT)
            at += 1
    return Fetched(memoryview(data), aborted), wanted, at  # type: ignore[return-value]


@given(steps, st.data())
def test_pieces_are_the_committed_records_of_the_range(
    steps: list[tuple[str, list[tuple[object, ...]], int]], data: st.DataObject
) -> None:
    fetched, wanted, end = log_of(steps)
    start = data.draw(st.integers(0, end))
    stop = data.draw(st.integers(start, end))
    found: list[Record] = []
    for piece in joined(pieces(fetched, start, stop)):
        whole = _kernel.check_batch(signed(piece.data, (77, 3), 5))
        assert whole[8:12] == (77, 3, 5, piece.records)
        assert not whole[4] & 0x10
        records = _kernel.records(piece.data)
        assert [record[0] for record in records] == list(range(piece.records))
        found += [(piece.base + record[0], *record[1:]) for record in records]
    assert found == [record for record in wanted if start <= record[0] < stop]


def test_a_producer_that_aborts_and_then_commits_loses_only_what_it_aborted() -> None:
    first: list[Record] = [(0, 1, b"k", b"no", [])]
    second: list[Record] = [(2, 1, b"k", b"yes", [])]
    who = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
    data = batch(0, first, **who) + marker(1, 9, ABORT) + batch(2, second, **who) + marker(3, 9, COMMIT)
    kept = [header.base_offset for header, _ in committed(Fetched(memoryview(data), [(9, 0)]))]
    assert kept == [2]


def test_what_compaction_left_is_a_batch_for_each_run() -> None:
    whole = batch(10, [(10 + n, 1, b"%d" % (n % 3 if n < 6 else n), b"v%d" % n, []) for n in range(9)])
    latest = _kernel.LatestOffsets(100)
    latest.add(whole, 19)
    data, _, dropped = _kernel.compact(whole, latest, now_ms=1, delete_retention_ms=1)
    assert dropped
    found = list(pieces(Fetched(memoryview(bytes(data)), []), 0, 100))
    assert [(piece.base, piece.records) for piece in found] == [(13, 6)]
    found = list(pieces(Fetched(memoryview(bytes(data)), []), 0, 15))
    assert [(piece.base, piece.records) for piece in found] == [(13, 2)]
