"""Envelopes of captured tables, taken apart into changes."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa

from headrace.pipelines.source.captured import UNAVAILABLE, captured_rows
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.shape import Shape

DECLARED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("since", pa.timestamp("us", tz="UTC")),
        pa.field("tags", pa.list_(pa.int64())),
    ]
)
OUTPUT = pa.schema(
    [*DECLARED, ("_deleted", pa.bool_()), ("_time", pa.timestamp("us", tz="UTC")), ("_version", pa.string())]
)
SHAPE = Shape(DECLARED, tuple(DECLARED.names), OUTPUT, {})
RECORDED = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def options(**more: Any) -> SourceOptions:
    return SourceOptions("", "people", "", "", kind="changes", form="debezium", versions=True, **more)


def envelope(op: str, before: Any = None, after: Any = None, ts_us: int | None = 5_000_000) -> bytes:
    source = {"version": "3.7.0.Final", "ts_ms": 5_000, "ts_us": ts_us, "table": "people", "lsn": 7}
    return json.dumps({"before": before, "after": after, "source": source, "op": op, "ts_ms": 9_000}).encode()


def row(number: int, name: str | None = "a", **more: Any) -> dict[str, Any]:
    return {"id": number, "name": name, **more}


def records(*given: tuple[int, bytes | None]) -> pa.RecordBatch:
    keys = [f'{{"id":{key}}}'.encode() for key, _ in given]
    return pa.record_batch(
        {
            "offset": pa.array(range(10, 10 + len(given)), pa.int64()),
            "timestamp": pa.array([RECORDED] * len(given), pa.timestamp("ms", tz="UTC")),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([value for _, value in given], pa.binary()),
        }
    )


def taken(*given: tuple[int, bytes | None], **more: Any) -> tuple[list[dict[str, Any]], list[tuple[int, str, str]]]:
    rows, told = captured_rows(records(*given), 3, options(**more), SHAPE)
    return rows.to_pylist(), told


def test_a_change_is_the_row_as_it_is_since_the_databases_own_time() -> None:
    rows, told = taken(
        (1, envelope("r", None, row(1, tags=[1, None]))),
        (1, envelope("u", row(1), row(1, "b"))),
        (2, envelope("c", None, row(2), ts_us=None)),
    )
    assert not told
    assert [(r["id"], r["name"], r["tags"], r["_deleted"], r["_version"]) for r in rows] == [
        (1, "a", [1, None], False, "3-10"),
        (1, "b", None, False, "3-11"),
        (2, "a", None, False, "3-12"),
    ]
    assert [r["_time"].timestamp() for r in rows] == [5.0, 5.0, 5.0]


def test_a_deletion_and_its_tombstone_are_one_change() -> None:
    gone = envelope("d", {"id": 1, "name": None}, None)
    for history in (False, True):
        rows, told = taken(
            (1, envelope("c", None, row(1))), (1, gone), (1, None), (2, gone), (2, None), history=history
        )
        assert not told
        assert [(r["id"], r["_deleted"]) for r in rows] == [(1, False), (1, True), (1, True)]


def test_a_tombstone_whose_deletion_was_compacted_away_is_the_deletion() -> None:
    rows, told = taken((7, None), (1, envelope("c", None, row(1))), (1, None))
    assert not told
    assert [(r["id"], r["name"], r["_deleted"]) for r in rows] == [(7, None, True), (1, "a", False), (1, None, True)]
    assert rows[0]["_time"] == RECORDED
    assert [r["id"] for r in taken((7, None), history=True)[0]] == []


def test_a_deletion_holds_since_the_databases_time_and_not_since_the_time_in_the_old_row() -> None:
    since = "2020-01-01T00:00:00Z"
    rows, _ = taken(
        (1, envelope("c", None, row(1, since=since))),
        (1, envelope("d", row(1, since=since), None)),
        (2, envelope("c", None, row(2))),
        valid_from="since",
    )
    assert [r["_time"].year for r in rows] == [2020, 1970, 1970]


def test_what_is_no_change_is_told() -> None:
    rows, told = taken(
        (1, b"{nothing"),
        (1, envelope("t")),
        (1, envelope("c", None, None)),
        (1, envelope("u", None, row(1, None))),
        (1, envelope("u", None, {"id": "one", "name": "x"})),
        (1, b"{}"),
        (1, envelope("c", None, row(1))),
        (1, envelope("d", None, None)),
    )
    assert [r["id"] for r in rows] == [1]
    assert rows[0]["_version"] == "3-16"
    reasons = {place: reason for place, reason, _ in told}
    assert reasons == {
        0: "not-json", 1: "no-change", 2: "no-change", 3: "missing", 4: "wrong-type", 5: "no-change", 7: "no-change"
    }  # fmt: skip


def test_large_values_that_the_databases_log_does_not_have_are_null() -> None:
    rows, told = taken((1, envelope("u", None, row(1, UNAVAILABLE))), (1, envelope("u", None, row(1, "b"))))
    assert not told
    assert [r["name"] for r in rows] == [None, "b"]


def test_columns_that_are_not_declared_are_passed_over_and_those_that_are_gone_are_null() -> None:
    rows, told = taken((1, envelope("c", None, {"name": "n", "new": {"x": [1]}, "id": 1})))
    assert not told
    assert (rows[0]["id"], rows[0]["since"]) == (1, None)


def test_a_batch_without_records_is_a_batch_without_rows() -> None:
    assert taken() == ([], [])
