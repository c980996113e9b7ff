"""Records of a captured table, which are Debezium's envelopes as JSON, taken apart into changes. Pure.

::

    {"before":{...}|null,"after":{...}|null,"source":{"ts_us":...,...},"op":"c|u|r|d",...}

The row is ``after``, or ``before`` where the row is deleted: then maybe only its key is known. A change holds since the
database's own time of it. A deletion is followed by a tombstone (a record without a value); where compaction has taken
the deletion away, the tombstone stands for it. So of a topic that is compacted a tombstone counts as a deletion too,
unless the record before it is the deletion; of one that keeps its history it says nothing new.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from headrace import _kernel
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.shape import DELETED, TIME, VERSION, Shape

__all__ = ["UNAVAILABLE", "captured_rows"]

UNAVAILABLE = "__debezium_unavailable_value"
"""What stands for a large value that did not change and that the database's log does not have. The engine reads such
values again; if one is left, the row was deleted before that, and it is read as null."""

_TOMBSTONE = "-"
_OPS = pa.array(["c", "u", "r", "d", _TOMBSTONE])
_DELETIONS = pa.array(["d", _TOMBSTONE])
_TIME_TYPE = pa.timestamp("us", tz="UTC")

Told = list[tuple[int, str, str]]


def captured_rows(
    records: pa.RecordBatch, partition: int, options: SourceOptions, shape: Shape
) -> tuple[pa.RecordBatch, Told]:
    """Rows as Spark was promised them; and row, reason, detail of the records that are no changes."""
    decoded, told = _kernel.json_to_arrow(_values(records), _envelope(shape.declared), captured=True)
    changes = pa.record_batch(decoded)
    places = pa.array(range(records.num_rows), pa.int64())
    if told:
        places = places.filter(pc.invert(pc.is_in(places, value_set=pa.array([row for row, _, _ in told], pa.int64()))))
    good = _is_change(changes)
    if not pc.all(good).as_py():
        wrong = places.filter(pc.invert(good)).to_pylist()
        told = [*told, *((row, "no-change", "op is none of c, u, r and d, or its row is missing") for row in wrong)]
        changes, places = changes.filter(good), places.filter(good)
    said = _says_something(changes, records.column("key").take(places), options)
    if said is not None:
        changes, places = changes.filter(said), places.filter(said)
    return _rows(changes, records.take(places), partition, options, shape), told


def _values(records: pa.RecordBatch) -> pa.Array:
    """The envelopes; for a tombstone one of its key."""
    values, keys = records.column("value"), records.column("key")
    if not values.null_count:
        return values
    opened = pa.scalar(f'{{"op":"{_TOMBSTONE}","before":'.encode(), keys.type)
    made = pc.binary_join_element_wise(opened, keys, pa.scalar(b"}", keys.type), pa.scalar(b"", keys.type))
    return pc.coalesce(values, made.cast(values.type))


def _envelope(declared: pa.Schema) -> pa.Schema:
    """What is decoded: of a deleted row every column may be null."""
    before = pa.struct([pa.field(field.name, field.type) for field in declared])
    times = pa.struct([("ts_us", pa.int64()), ("ts_ms", pa.int64())])
    return pa.schema([("before", before), ("after", pa.struct(list(declared))), ("source", times), ("op", pa.string())])


def _deleted(changes: pa.RecordBatch) -> pa.Array:
    return pc.is_in(changes.column("op"), value_set=_DELETIONS)


def _is_change(changes: pa.RecordBatch) -> pa.Array:
    known = pc.is_in(changes.column("op"), value_set=_OPS)
    before, after = (pc.is_valid(changes.column(side)) for side in ("before", "after"))
    return pc.and_(known, pc.if_else(_deleted(changes), before, after))


def _says_something(changes: pa.RecordBatch, keys: pa.Array, options: SourceOptions) -> pa.Array | None:
    """Which changes are no tombstones of a deletion that was told; None for all."""
    tombstones = pc.equal(changes.column("op"), _TOMBSTONE)
    if not pc.any(tombstones).as_py():
        return None
    if options.history:
        return pc.invert(tombstones)
    follows = pc.and_(pc.equal(changes.column("op")[:-1], "d"), pc.equal(keys[:-1], keys[1:]))
    first = pa.array([False])
    return pc.invert(pc.and_(tombstones, pa.concat_arrays([first, pc.fill_null(follows, False)])))


def _rows(
    changes: pa.RecordBatch, records: pa.RecordBatch, partition: int, options: SourceOptions, shape: Shape
) -> pa.RecordBatch:
    deleted = _deleted(changes)
    row = _sides(changes, deleted, shape)
    columns: list[pa.Array] = []
    for field in shape.output:
        if field.name == DELETED:
            column = deleted
        elif field.name == VERSION:
            column = pc.binary_join_element_wise(str(partition), records.column("offset").cast(pa.string()), "-")
        elif field.name == TIME:
            column = _times(changes, records, deleted, row(options.valid_from) if options.valid_from else None)
        else:
            column = row(field.name)
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=shape.output)


def _sides(changes: pa.RecordBatch, deleted: pa.Array, shape: Shape) -> Callable[[str], pa.Array]:
    """The columns of the rows, by name."""
    after, before = changes.column("after").flatten(), changes.column("before").flatten()
    some, names = pc.any(deleted).as_py(), shape.declared.names

    def column(name: str) -> pa.Array:
        at = names.index(name)
        found = _without_unavailable(after[at])
        return pc.if_else(deleted, before[at], found) if some else found

    return column


def _without_unavailable(column: pa.Array) -> pa.Array:
    if not pa.types.is_string(column.type) and not pa.types.is_binary(column.type):
        return column
    sign = UNAVAILABLE if pa.types.is_string(column.type) else UNAVAILABLE.encode()
    left = pc.equal(column, pa.scalar(sign, column.type))
    if not pc.any(left).as_py():
        return column
    return pc.if_else(pc.fill_null(left, False), pa.scalar(None, column.type), column)


def _times(changes: pa.RecordBatch, records: pa.RecordBatch, deleted: pa.Array, own: pa.Array | None) -> pa.Array:
    """Since when each change holds: its own column if there is one, the database's time, the record's."""
    us, ms = changes.column("source").flatten()
    told = pc.coalesce(us, pc.multiply(ms, 1000)).cast(_TIME_TYPE)
    times = pc.coalesce(told, records.column("timestamp").cast(_TIME_TYPE))
    return times if own is None else pc.if_else(deleted, times, pc.coalesce(own, times))
