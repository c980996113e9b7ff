"""Records taken apart into rows, dead and late ones."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace import _kernel
from headrace.pipelines.source import SourceOptions
from headrace.pipelines.source.shape import output_type, shape_of
from headrace.pipelines.source.sorting import Bounds, Sorted, sort_records
from headrace.pipelines.time import DeviceClock

DECLARED = StructType(
    [
        StructField("id", LongType()),
        StructField("name", StringType()),
        StructField("at", TimestampType()),
        StructField("sent", TimestampType()),
        StructField("clock_offset_ms", LongType()),
    ]
)


def records(values: list[Any], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    encoded = [value if value is None or isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    made = [(1_000 + i, key, value, ()) for i, (key, value) in enumerate(zip(keys or encoded, encoded, strict=True))]
    return pa.record_batch(_kernel.records_to_arrow(_kernel.build_batch(made, base_offset=100)))


ALL = Bounds(None, None)


def taken_apart(values: list[Any], bounds: Bounds = ALL, keys: Any = None, **options: Any) -> Sorted:
    source = SourceOptions("b", "t", "q", "", **options)
    output = output_type(source, DECLARED)
    return sort_records(records(values, keys), 3, source, shape_of(source, DECLARED, output), bounds)


def test_only_the_chosen_columns_and_the_event_time_are_decoded() -> None:
    found = taken_apart([{"id": 1, "name": "x", "at": 5}], columns=("name",), event_time="at")
    assert found.rows.column_names == ["name", "at"]
    assert (found.dead, found.late, found.largest_us) == ([], [], 5_000_000)


def test_a_row_is_dead_for_a_declared_column_also_where_that_is_not_chosen() -> None:
    values = [{"id": 1, "name": "x", "at": 5}, {"id": "no number", "name": "y", "at": 6}]
    for columns in (("name",), ("id",), None):
        found = taken_apart(values, columns=columns, event_time="at")
        assert found.rows.num_rows == 1
        assert [(one.row, one.reason) for one in found.dead] == [(1, "wrong-type")]


def test_rows_are_dead_late_or_good_by_what_they_are() -> None:
    values = [
        {"id": 1, "at": 10},
        b"{",
        {"id": 2},
        {"id": 3, "at": 5},
        {"id": 4, "at": 99},
        {"id": "x", "at": 10},
        None,
        {"id": 5, "at": 6.000001},
    ]
    found = taken_apart(values, Bounds(6_000_000, 98_000_000), event_time="at")
    assert found.rows.column("id").to_pylist() == [1, 5]
    assert sorted((one.row, one.reason) for one in found.dead) == [
        (1, "not-json"),
        (2, "no-event-time"),
        (4, "far-future"),
        (5, "wrong-type"),
        (6, "no-value"),
    ]
    assert [(one.row, one.reason, one.event_time_us) for one in found.late] == [(3, "late", 5_000_000)]
    assert found.largest_us == 10_000_000


def test_the_records_own_columns_are_there_on_request_and_give_way_to_the_schema() -> None:
    found = taken_apart([{"id": 1}, b"bad", {"id": 2}], raw=True)
    assert found.rows.column("offset").to_pylist() == [100, 102]
    assert found.rows.column("partition").to_pylist() == [3, 3]
    assert found.rows.column("topic").to_pylist() == ["t", "t"]
    assert found.rows.column("timestamp").cast(pa.int64()).to_pylist() == [1_000_000, 1_002_000]
    assert found.rows.column("value").to_pylist() == [b'{"id": 1}', b'{"id": 2}']
    clashing = StructType([StructField("key", BinaryType()), StructField("offset", IntegerType())])
    assert output_type(SourceOptions("b", "t", "q", "", raw=True), clashing).names == [
        *("key", "offset", "_key", "value", "headers", "topic", "partition", "_offset", "timestamp")
    ]


def test_changes_say_what_was_deleted_by_its_key() -> None:
    found = taken_apart([{"id": 1, "name": "x"}, None], keys=[b'{"id":1}', b'{"id":2}'], kind="changes")
    assert found.rows.select(["id", "name", "_deleted"]).to_pylist() == [
        {"id": 1, "name": "x", "_deleted": False},
        {"id": 2, "name": None, "_deleted": True},
    ]


def test_a_devices_clock_is_put_right_by_when_its_message_came() -> None:
    clock = DeviceClock(occurred="at", sent="sent")
    values = [{"at": 100, "sent": 101}, {"at": 100}]
    found = taken_apart(values, event_time="at", device_clock=clock)
    times = found.rows.column("at").cast(pa.int64()).to_pylist()
    assert times == [100_000_000 + 1_000_000 - 101_000_000, 100_000_000], "the first record came at 1 s"
    assert found.rows.column("clock_offset_ms").to_pylist() == [-100_000, None]


def test_the_payload_of_an_event_counts_also_where_it_comes_as_a_text() -> None:
    payload = {"id": 1, "name": "x"}
    found = taken_apart([payload, json.dumps(payload), '"', None, b'"{', "no payload"], form="outbox")
    assert [(row["id"], row["name"]) for row in found.rows.to_pylist()] == [(1, "x"), (1, "x")]
    assert [one.row for one in found.dead] == [2, 3, 4, 5]
