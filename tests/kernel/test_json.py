"""JSON to columns and back, against Python's json."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import _kernel

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("small", pa.int8()),
        ("long", pa.int64()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("money", pa.decimal128(12, 3)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("list", pa.list_(pa.int32())),
        ("map", pa.map_(pa.string(), pa.float64())),
        ("inner", pa.struct([("x", pa.int16()), ("deep", pa.struct([("y", pa.list_(pa.string()))]))])),
    ]
)
ROWS = st.fixed_dictionaries(
    {
        "flag": st.none() | st.booleans(),
        "small": st.none() | st.integers(-128, 127),
        "long": st.none() | st.integers(-(2**63), 2**63 - 1),
        "double": st.none() | st.floats(),
        "text": st.none() | TEXT,
        "bytes": st.none() | st.binary(max_size=8),
        "money": st.none() | st.decimals(-(10**8), 10**8, places=3),
        "day": st.none() | st.dates(),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)),
        "list": st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=3),
        "map": st.none()
        | st.dictionaries(TEXT, st.none() | st.floats(allow_nan=False), max_size=3).map(lambda d: list(d.items())),
        "inner": st.none()
        | st.fixed_dictionaries(
            {
                "x": st.none() | st.integers(-(2**15), 2**15 - 1),
                "deep": st.none() | st.fixed_dictionaries({"y": st.none() | st.lists(st.none() | TEXT, max_size=2)}),
            }
        ),
    }
)


def decode(
    values: Sequence[bytes | None], schema: pa.Schema
) -> tuple[list[dict[str, Any]], list[tuple[int, str, str]]]:
    found, bad = _kernel.json_to_arrow(pa.array(values, pa.binary()), schema)
    batch = pa.record_batch(found)
    assert batch.schema.equals(schema)
    batch.validate(full=True)
    return batch.to_pylist(), bad


def plain(value: object) -> object:
    """As our JSON writes it, read by Python's json."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return f"{value:.3f}"
    if isinstance(value, datetime):
        return f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {name: plain(inner) for name, inner in value}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def same(one: object, other: object) -> bool:
    return json.dumps(one, sort_keys=True, default=repr) == json.dumps(other, sort_keys=True, default=repr)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, max_size=4))
def test_rows_are_written_as_json_and_read_back(rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    written = pa.record_batch(_kernel.arrow_to_json(batch)).column("json").to_pylist()
    for row, text in zip(rows, written, strict=True):
        expected = {name: {} if value == [] and name == "map" else plain(value) for name, value in row.items()}
        assert same(json.loads(text), expected)
        assert b"\n" not in text
    back, bad = decode(written, SCHEMA)
    assert bad == []
    assert same(back, batch.to_pylist())


@settings(max_examples=100, deadline=None)
@given(st.lists(ANYTHING.map(lambda v: json.dumps(v).encode()) | st.binary(max_size=12) | st.none(), max_size=6))
def test_what_python_takes_for_an_object_is_taken_and_nothing_else(values: list[bytes | None]) -> None:
    rows, bad = decode(values, pa.schema([]))
    refused = {row for row, _, _ in bad}
    for at, value in enumerate(values):
        assert (at in refused) != is_object(value)
    assert len(rows) + len(bad) == len(values)


def is_object(value: bytes | None) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        return value is not None and isinstance(json.loads(value.decode(), parse_constant=refuse), dict)
    except ValueError:
        return False


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), ANYTHING, max_size=3), max_size=5))
def test_a_column_holds_what_fits_its_type_and_the_rest_is_told(objects: list[dict[str, Any]]) -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.list_(pa.bool_()))])
    rows, bad = decode([json.dumps(value).encode() for value in objects], schema)
    good = [value for value in objects if fits(value)]
    assert rows == [{name: value.get(name) for name in "abc"} for value in good]
    assert [row for row, _, _ in bad] == [at for at, value in enumerate(objects) if not fits(value)]
    assert {reason for _, reason, _ in bad} <= {"wrong-type", "out-of-range"}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        ROWS.map(lambda row: json.dumps({name: plain(value) for name, value in row.items()}).encode())
        | st.dictionaries(st.sampled_from(SCHEMA.names), ANYTHING, max_size=4).map(lambda row: json.dumps(row).encode())
        | st.just(b'{"small":1,"small":"x","small":2}')
        | st.just(b'{"text":"a"'),
        max_size=6,
    ),
    st.sets(st.sampled_from(SCHEMA.names)),
)
def test_which_rows_are_good_does_not_depend_on_the_columns_that_are_made(values: list[bytes], made: set[str]) -> None:
    names = [name for name in SCHEMA.names if name in made]
    all_columns, told = _kernel.json_to_arrow(pa.array(values, pa.binary()), SCHEMA)
    some, told_too = _kernel.json_to_arrow(pa.array(values, pa.binary()), SCHEMA, names)
    assert told_too == told
    assert len(some) == len(all_columns) == len(values) - len(told)
    batch = pa.record_batch(some)
    batch.validate(full=True)
    assert batch.schema.names == names
    assert same(batch.to_pylist(), pa.record_batch(all_columns).select(names).to_pylist())


def test_a_column_that_is_not_made_must_be_there_if_it_is_declared_not_null() -> None:
    schema = pa.schema([("a", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    values = pa.array([b'{"a":1,"n":1}', b'{"a":2}', b'{"a":3,"n":null}'], pa.binary())
    found, bad = _kernel.json_to_arrow(values, schema, ["a"])
    assert pa.record_batch(found).to_pylist() == [{"a": 1}]
    assert [(row, reason) for row, reason, _ in bad] == [(1, "missing"), (2, "missing")]
    with pytest.raises(ValueError, match='no column "b"'):
        _kernel.json_to_arrow(values, schema, ["b"])


def fits(row: dict[str, Any]) -> bool:
    a, b, c = row.get("a"), row.get("b"), row.get("c")
    is_number = isinstance(a, int | float) and not isinstance(a, bool)
    return (
        (a is None or (is_number and a == int(a) and abs(int(a)) < 2**31))
        and (b is None or isinstance(b, str))
        and (c is None or (isinstance(c, list) and all(item is None or isinstance(item, bool) for item in c)))
    )


def test_bad_rows_are_told_with_their_place_and_reason() -> None:
    schema = pa.schema([("a", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    values = [b'{"a":1,"n":1}', None, b"x", b'{"a":"1","n":1}', b'{"a":1e30,"n":1}', b'{"a":1}', b"[" * 999, b'{"n":2}']
    rows, bad = decode(values, schema)
    assert rows == [{"a": 1, "n": 1}, {"a": None, "n": 2}]
    assert [(row, reason) for row, reason, _ in bad] == [
        (1, "no-value"),
        (2, "not-json"),
        (3, "wrong-type"),
        (4, "out-of-range"),
        (5, "missing"),
        (6, "too-deep"),
    ]
    assert bad[2][2] == "column a: a string, not Int64"


def test_a_slice_of_a_column_and_a_large_column_are_read_too() -> None:
    schema = pa.schema([("a", pa.int64())])
    values = pa.array([b'{"a":%d}' % i for i in range(10)], pa.large_binary())[3:5]
    assert pa.record_batch(_kernel.json_to_arrow(values, schema)[0]).to_pylist() == [{"a": 3}, {"a": 4}]


def test_types_that_json_is_not_decoded_to_are_refused() -> None:
    with pytest.raises(ValueError, match="column a is of type"):
        _kernel.json_to_arrow(pa.array([], pa.binary()), pa.schema([("a", pa.map_(pa.int32(), pa.int32()))]))
    with pytest.raises(ValueError, match="not a column of bytes"):
        _kernel.json_to_arrow(pa.array([1]), pa.schema([]))
    with pytest.raises(ValueError, match="column a is of type"):
        _kernel.arrow_to_json(pa.record_batch({"a": pa.array([1], pa.duration("s"))}))


def test_chosen_columns_are_written_in_the_order_they_are_named() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": ["x", None], "c": [0.1, 1e100]})
    written = pa.record_batch(_kernel.arrow_to_json(batch.slice(1), ["c", "b"])).to_pylist()
    assert written == [{"json": b'{"c":1e100,"b":null}'}]
    with pytest.raises(ValueError, match='no column "z"'):
        _kernel.arrow_to_json(batch, ["z"])


def test_values_of_databases_that_a_type_has_no_room_for_do_not_make_the_row_bad() -> None:
    values = [
        {"flag": 1, "money": "NAN", "day": "2026-01-31Z", "at": "infinity", "text": 7},
        {
            "flag": 0,
            "money": "NEGATIVE_INFINITY",
            "day": "+5877611-06-21Z",
            "at": "-infinity",
            "text": {"a": [1, None]},
        },
        {"flag": True, "money": "-12.5", "day": "-0043-03-15Z", "at": "+292278994-08-16T23:00:00Z", "text": "s"},
        {"flag": None, "money": None, "day": "2026-01-31", "at": "2026-01-31T00:00:00Z", "text": None},
        {"text": "", "inner": {"deep": {"y": [1, "x", False]}}},
    ]
    encoded = pa.array([json.dumps(value, separators=(",", ":")).encode() for value in values])
    made, told = _kernel.json_to_arrow(encoded, SCHEMA, captured=True)
    rows = pa.record_batch(made).to_pylist()
    assert not told
    assert [row["flag"] for row in rows] == [True, False, True, None, None]
    assert [row["money"] for row in rows] == [None, None, Decimal("-12.500"), None, None]
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert [row["day"] for row in rows[:4]] == [date(2026, 1, 31), last.date(), first.date(), date(2026, 1, 31)]
    assert [row["at"] for row in rows[:4]] == [last, first, last, datetime(2026, 1, 31, tzinfo=UTC)]
    assert [row["text"] for row in rows] == ["7", '{"a":[1,null]}', "s", None, ""]
    assert rows[4]["inner"]["deep"]["y"] == ["1", "x", "false"]
    _, told = _kernel.json_to_arrow(encoded[:3], SCHEMA)
    assert [row for row, _, _ in told] == [0, 1, 2], "of other values they do"


def test_what_no_database_writes_stays_bad_in_captured_rows() -> None:
    values = [
        b'{"money":"much"}',
        b'{"day":"+x"}',
        b'{"at":"-1"}',
        b'{"flag":2}',
        b'{"text":tru}',
        b'{"at":"+12-01-01"}',
    ]
    _, told = _kernel.json_to_arrow(pa.array(values), SCHEMA, captured=True)
    assert [row for row, _, _ in told] == list(range(len(values)))
