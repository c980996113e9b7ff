"""Records taken apart: rows for Spark, dead rows, late rows. Pure functions over Arrow batches.

Whether a row is dead follows from the declared schema, not from the columns that a query needs: all queries that read
a stream see the same rows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace import _kernel
from headrace.feed.traceparents import traceparent_column
from headrace.pipelines.source.captured import captured_rows
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.shape import DELETED, OUTBOX, TIME, TRACE, VERSION, Shape
from headrace.pipelines.time import corrected

__all__ = ["Aside", "Bounds", "Sorted", "sort_records"]

_LATE = "late"


class Bounds(NamedTuple):
    """What event times are compared with, in microseconds: late at or before the first, dead after the second."""

    late_us: int | None
    future_us: int | None


@dataclass(frozen=True, slots=True)
class Aside:
    """A record that Spark does not get: where it is in the batch of records, why, and its event time if it has one."""

    row: int
    reason: str
    detail: str
    event_time_us: int | None = None


@dataclass(frozen=True, slots=True)
class Sorted:
    """A batch of records, taken apart."""

    rows: pa.RecordBatch
    dead: list[Aside]
    late: list[Aside]
    largest_us: int | None


def sort_records(
    records: pa.RecordBatch, partition: int, options: SourceOptions, shape: Shape, bounds: Bounds
) -> Sorted:
    """``records`` has the columns of ``_kernel.records_to_arrow``."""
    if options.form == "debezium":
        changes, refused_changes = captured_rows(records, partition, options, shape)
        return Sorted(changes, [Aside(*one) for one in refused_changes], [], None)
    values = records.column("value")
    if options.kind == "changes":
        values = pc.coalesce(values, records.column("key"))
    elif options.form == "outbox":
        values = _payloads(values)
    decoded, told = _kernel.json_to_arrow(values, shape.declared, shape.decoded)
    rows = pa.record_batch(decoded)
    dead = [Aside(row, reason, detail) for row, reason, detail in told]
    kept = _without(records.num_rows, [aside.row for aside in dead]) if dead else None
    source = records if kept is None else records.take(kept)
    if options.device_clock is not None and options.event_time is not None:
        rows = _put_right(rows, options, source)
    largest: int | None = None
    late: list[Aside] = []
    if options.event_time is not None and rows.num_rows:
        good, refused = _by_time(rows.column(options.event_time), bounds)
        for row, reason, detail, time_us in refused:
            at = row if kept is None else kept[row].as_py()
            (late if reason == _LATE else dead).append(Aside(at, reason, detail, time_us))
        if refused:
            rows, source = rows.filter(good), source.filter(good)
        if rows.num_rows:
            largest = pc.max(rows.column(options.event_time).cast(pa.int64())).as_py()
    return Sorted(_output(rows, source, partition, options, shape), dead, late, largest)


def _without(count: int, rows: list[int]) -> pa.Array:
    """The numbers below ``count`` without ``rows``."""
    good = bytearray(b"\x01") * count
    for row in rows:
        good[row] = 0
    return pc.indices_nonzero(pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(good)]))


def _put_right(rows: pa.RecordBatch, options: SourceOptions, source: pa.RecordBatch) -> pa.RecordBatch:
    clock = options.device_clock
    assert clock is not None
    times, offsets = corrected(rows, clock, source.column("timestamp"))
    for name, column in ((options.event_time, times), (clock.offset, offsets)):
        at = rows.schema.get_field_index(name or "")
        if at >= 0:
            rows = rows.set_column(at, rows.schema.field(at), column.cast(rows.schema.field(at).type))
    return rows


def _by_time(column: pa.Array, bounds: Bounds) -> tuple[pa.Array, list[tuple[int, str, str, int | None]]]:
    """Which rows Spark gets; and of the others: row, reason, detail, event time."""
    times = column.cast(pa.int64())
    good = pc.is_valid(times)
    if bounds.late_us is not None:
        good = pc.and_kleene(good, pc.greater(times, bounds.late_us))
    if bounds.future_us is not None:
        good = pc.and_kleene(good, pc.less_equal(times, bounds.future_us))
    good = pc.fill_null(good, False)
    if pc.all(good).as_py():
        return good, []
    refused = pc.indices_nonzero(pc.invert(good)).to_pylist()
    return good, [(row, *_why(times[row].as_py(), bounds)) for row in refused]


def _why(time_us: int | None, bounds: Bounds) -> tuple[str, str, int | None]:
    if time_us is None:
        return "no-event-time", "the event time is null", None
    if bounds.future_us is not None and time_us > bounds.future_us:
        return "far-future", "the event time is further in the future than is allowed", time_us
    return _LATE, "the event time is not after the watermark", time_us


def _output(
    rows: pa.RecordBatch, source: pa.RecordBatch, partition: int, options: SourceOptions, shape: Shape
) -> pa.RecordBatch:
    """The columns that Spark was promised, in its types."""
    columns: list[pa.Array] = []
    for field in shape.output:
        raw = shape.raw.get(field.name)
        if options.kind == "changes" and field.name in (DELETED, TIME, VERSION):
            column = _of_change(field.name, rows, source, partition, options)
        elif options.form == "outbox" and field.name in OUTBOX and field.name not in rows.schema.names:
            column = _of_event(OUTBOX[field.name], source)
        elif options.traced and field.name == TRACE:
            column = traceparent_column(source)
        elif raw is None:
            column = rows.column(field.name)
        elif raw == "topic":
            column = pa.repeat(pa.scalar(options.topic, pa.string()), rows.num_rows)
        elif raw == "partition":
            column = pa.repeat(pa.scalar(partition, pa.int32()), rows.num_rows)
        else:
            column = source.column(raw)
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    if not columns:
        return rows
    return pa.RecordBatch.from_arrays(columns, schema=shape.output)


def _of_change(
    name: str, rows: pa.RecordBatch, source: pa.RecordBatch, partition: int, options: SourceOptions
) -> pa.Array:
    """What is said of a change: whether it deletes, since when it holds, its id."""
    if name == DELETED:
        return pc.is_null(source.column("value"))
    if name == VERSION:
        return pc.binary_join_element_wise(str(partition), source.column("offset").cast(pa.string()), "-")
    recorded = source.column("timestamp").cast(pa.timestamp("us", tz="UTC"))
    return recorded if options.valid_from is None else pc.coalesce(rows.column(options.valid_from), recorded)


def _payloads(values: pa.Array) -> pa.Array:
    """Payloads as they were written: what Debezium cannot take apart (lists of mixed types) comes as a JSON text."""
    if not pc.any(pc.starts_with(values, '"')).as_py():
        return values
    return pa.array([_unwrapped(value) for value in values.to_pylist()], values.type)


def _unwrapped(value: bytes | None) -> bytes | None:
    if value is None or not value.startswith(b'"'):
        return value
    try:
        return str(json.loads(value)).encode()
    except ValueError:
        return value


def _of_event(header: str | None, source: pa.RecordBatch) -> pa.Array:
    """The key, or a header of each record (null where it has none), as text."""
    if header is None:
        key = source.column("key").cast(pa.string())
        return pc.replace_substring_regex(key, '^"(.*)"$', r"\1")  # JSON of a text
    headers = source.column("headers")
    parents, pairs = pc.list_parent_indices(headers), headers.flatten()
    wanted = pc.equal(pairs.field("key"), header)
    rows = pc.index_in(pa.array(range(source.num_rows), pa.int64()), value_set=parents.filter(wanted).cast(pa.int64()))
    return pairs.field("value").filter(wanted).take(rows).cast(pa.string())
