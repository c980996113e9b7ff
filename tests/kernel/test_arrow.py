"""Records as Arrow columns, seen by pyarrow."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import _kernel as kernel

from . import batches
from .batches import CODECS, Fields

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field(
            "headers",
            pa.list_(
                pa.field(
                    "item",
                    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]),
                    nullable=False,
                )
            ),
            nullable=False,
        ),
    ]
)


def table(data: bytes | bytearray, *bounds: int) -> pa.RecordBatch:
    columns = kernel.records_to_arrow(data, *bounds)
    result = pa.record_batch(columns)
    assert len(columns) == result.num_rows
    result.validate(full=True)
    return result


def rows(batch: pa.RecordBatch) -> list[kernel.Record]:
    batch = batch.set_column(1, "timestamp", batch.column("timestamp").cast(pa.int64()))
    return [
        (r["offset"], r["timestamp"], r["key"], r["value"], [(h["key"], h["value"]) for h in r["headers"]])
        for r in batch.to_pylist()
    ]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(batches.record_lists, st.sampled_from(list(CODECS.values())), st.booleans()), max_size=4),
    st.integers(0, 40),
    st.integers(0, 60),
)
def test_the_columns_hold_the_data_records_in_the_range(
    parts: list[tuple[list[Fields], int, bool]], start: int, end: int
) -> None:
    data, expected, offset = b"", [], 0
    for records, codec, control in parts:
        data += kernel.build_batch(records, codec=codec, base_offset=offset, control=control)
        if not control:
            expected += batches.numbered(records, offset)
        offset += len(records)
    assert rows(table(data)) == expected
    assert rows(table(data, start, end)) == [r for r in expected if start <= r[0] < end]
    assert table(data).schema == SCHEMA


def test_no_records_are_empty_columns() -> None:
    assert table(b"").num_rows == 0
    assert table(b"").schema == SCHEMA
    assert table(kernel.build_batch([(0, b"", b"", [])])[:-1]).num_rows == 0


def test_the_columns_outlive_everything_they_came_from() -> None:
    data = kernel.build_batch([(i, b"key", b"value%d" % i, []) for i in range(1000)])
    columns = kernel.records_to_arrow(data)
    first, second = pa.record_batch(columns), pa.record_batch(columns)
    del columns, data
    gc.collect()
    assert first.equals(second)
    assert first.column("value")[999].as_py() == b"value999"


def test_columns_that_nobody_takes_are_freed() -> None:
    data = kernel.build_batch([(0, b"k", bytes(1000), [])])
    for _ in range(100):
        kernel.records_to_arrow(data).__arrow_c_array__()


def test_header_names_that_are_not_utf8_are_replaced() -> None:
    batch = kernel.build_batch([(0, None, None, [("abcd", b"x")])])
    data = batches.with_crc(batch.replace(b"abcd", b"a\xff\xfed"))
    assert rows(table(data))[0][4] == [("a��d", b"x")]


def test_append_time_and_compaction_holes_show() -> None:
    batch = kernel.build_batch([(5, b"a", b"1", []), (6, b"b", b"2", []), (7, b"a", b"3", [])], base_offset=10)
    kernel.set_append_time(batch, 99)
    data, _ = kernel.drop_keys(batch, [b"b"])
    assert rows(table(data)) == [(10, 99, b"a", b"1", []), (12, 99, b"a", b"3", [])]


def test_a_corrupt_batch_in_the_range_is_an_error_and_outside_is_not() -> None:
    good = kernel.build_batch([(0, b"k", b"v", [])])
    bad = kernel.build_batch([(0, b"k", b"v", [])], base_offset=1)
    bad[-1] ^= 1
    assert table(good + bad, 0, 1).num_rows == 1
    with pytest.raises(kernel.BadBatch) as caught:
        table(good + bad, 0, 2)
    assert caught.value.kind == "crc"
