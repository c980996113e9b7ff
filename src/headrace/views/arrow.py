"""Answers as Arrow tables: the types that Spark gave the columns, as Arrow has them.

Times are ``timestamp[us, UTC]``, decimals exact, binary bytes again, nested values structs, lists and maps. A type
that we do not know stays text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.views.store import Answer

__all__ = ["arrow_type", "to_table"]

_SIMPLE: dict[str, pa.DataType] = {
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "binary": pa.binary(),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal(?:\((\d+)\s*,\s*(\d+)\))?")


def to_table(answer: Answer) -> pa.Table:
    """The rows of an answer, column by column."""
    columns = list(zip(*answer.rows, strict=True)) or [()] * len(answer.columns)
    arrays = [_array(values, arrow_type(column.type)) for column, values in zip(answer.columns, columns, strict=True)]
    return pa.Table.from_arrays(arrays, names=[column.name for column in answer.columns])


def arrow_type(text: str) -> pa.DataType:
    """The Arrow type of a Spark type."""
    text = text.strip()
    word = text.lower()
    if word in _SIMPLE:
        return _SIMPLE[word]
    if found := _DECIMAL.fullmatch(word):
        return pa.decimal128(int(found[1] or 10), int(found[2] or 0))
    if word.startswith("array<") and word.endswith(">"):
        return pa.list_(arrow_type(text[6:-1]))
    if word.startswith("map<") and word.endswith(">"):
        key, value = _split(text[4:-1])
        return pa.map_(arrow_type(key), arrow_type(value))
    if word.startswith("struct<") and word.endswith(">"):
        fields = (part.partition(":") for part in _split(text[7:-1]))
        return pa.struct([pa.field(name.strip(), arrow_type(kind)) for name, _, kind in fields])
    return pa.string()


def _split(text: str) -> Iterator[str]:
    """The parts between the commas that are in no brackets."""
    depth, part = 0, ""
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            yield part
            part = ""
        else:
            part += character
    if part:
        yield part


def _array(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.string()).cast(pa.timestamp("us", "UTC")).cast(kind)
    if pa.types.is_date(kind) or pa.types.is_decimal(kind):
        return pa.array(values, pa.string()).cast(kind)
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        convert = _converter(kind)
        return pa.array([None if value is None else convert(value) for value in values], kind)
    return pa.array(values, kind)


def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    """From a value of JSON to what pyarrow takes for this type; never called with None."""
    if pa.types.is_struct(kind):
        fields = {field.name: _converter(field.type) for field in kind}
        return lambda value: {name: _or_none(convert, value.get(name)) for name, convert in fields.items()}
    if pa.types.is_map(kind):
        key, item = _converter(kind.key_type), _converter(kind.item_type)
        return lambda value: [(key(name), _or_none(item, content)) for name, content in value.items()]
    if pa.types.is_list(kind):
        each = _converter(kind.value_type)
        return lambda value: [_or_none(each, item) for item in value]
    if pa.types.is_timestamp(kind):
        return lambda value: (
            datetime.fromisoformat(value) if kind.tz else datetime.fromisoformat(value).replace(tzinfo=None)
        )
    if pa.types.is_date(kind):
        return date.fromisoformat
    if pa.types.is_decimal(kind):
        return Decimal
    if pa.types.is_binary(kind):
        return base64.b64decode
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_floating(kind):
        return float
    return lambda value: value


def _or_none(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)
