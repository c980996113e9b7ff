"""Which columns are checked, which are decoded and which Spark gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import InvalidInput
from headrace.pipelines.source.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructField, StructType

__all__ = ["DELETED", "OUTBOX", "RAW", "TIME", "TRACE", "VERSION", "Shape", "output_type", "shape_of"]

DELETED, TIME, VERSION, TRACE = "_deleted", "_time", "_version", "_traceparent"
OUTBOX = {"_id": "id", "_type": "type", "_aggregate": "aggregate", "_key": None}
"""What an event of an outbox says beside its payload: the header that it is in, or the key."""
RAW = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class Shape:
    """The Arrow schema that a row must fit, whoever reads it; which of its columns are decoded; the schema of what
    Spark gets; which of that are the record's own columns."""

    declared: pyarrow.Schema
    decoded: tuple[str, ...]
    output: pyarrow.Schema
    raw: Mapping[str, str]


def output_type(options: SourceOptions, declared: StructType) -> StructType:
    """What Spark gets for a declared schema."""
    from pyspark.sql.types import BooleanType, StringType, StructField, StructType, TimestampType

    names = set(declared.names)
    for name in (*(options.columns or ()), *_for_time(options)):
        if name not in names:
            raise InvalidInput(f"topic {options.topic!r} is declared without a column {name!r}.")
    wanted = names if options.columns is None else {*options.columns, *filter(None, [options.event_time])}
    fields = [field for field in declared.fields if field.name in wanted]
    if options.kind == "changes":
        fields.append(StructField(DELETED, BooleanType()))
        if options.versions:
            fields += [StructField(TIME, TimestampType()), StructField(VERSION, StringType())]
    if options.form == "outbox":
        fields += [StructField(name, StringType()) for name in OUTBOX if name not in names]
    fields += _raw_fields(names) if options.raw else []
    return StructType([*fields, StructField(TRACE, StringType())] if options.traced else fields)


def shape_of(options: SourceOptions, declared: StructType, output: StructType) -> Shape:
    """The schemas for a reader whose output Spark was promised."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow = to_arrow_schema(declared, timezone="UTC")
    taken = {*output.names, *_for_time(options)}
    decoded = tuple(name for name in arrow.names if name in taken)
    raw = {("_" if name in arrow.names else "") + name: name for name in RAW} if options.raw else {}
    return Shape(arrow, decoded, to_arrow_schema(output, timezone="UTC"), raw)


def _for_time(options: SourceOptions) -> tuple[str, ...]:
    clock = options.device_clock.columns if options.device_clock is not None else ()
    return (*filter(None, [options.event_time]), *clock)


def _raw_fields(taken: set[str]) -> list[StructField]:
    from pyspark.sql import types as t

    headers = t.ArrayType(t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]))
    kinds: dict[str, t.DataType] = {
        "key": t.BinaryType(),
        "value": t.BinaryType(),
        "headers": headers,
        "topic": t.StringType(),
        "partition": t.IntegerType(),
        "offset": t.LongType(),
        "timestamp": t.TimestampType(),
    }
    return [t.StructField(("_" if name in taken else "") + name, kind) for name, kind in kinds.items()]
