"""What operators are called with: checked, with an error that says what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.pipelines.durations import milliseconds
from headrace.pipelines.places import Place, wrong
from headrace.pipelines.schema import Column, schema_text
from headrace.pipelines.state.frames import WATERMARK
from headrace.pipelines.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = [
    "column_types",
    "columns_named",
    "ensure_column",
    "ensure_stream",
    "ensure_table",
    "event_time",
    "event_times",
    "length_us",
    "on_columns",
    "struct_of",
    "wider_types",
    "with_equal_types",
]

_WIDER = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))


def column_types(frame: DataFrame) -> dict[str, str]:
    """The columns of a DataFrame and their types, in Spark's simple form."""
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def ensure_stream(what: str, frame: Any, place: Place, instead: str) -> None:
    """A stream is a DataFrame, not a table."""
    if isinstance(frame, Table):
        raise wrong(f"{what} is about streams, but {frame.name!r} is a table.", place, instead)


def ensure_table(what: str, table: Any, place: Place, instead: str) -> None:
    """A table, not a stream."""
    if not isinstance(table, Table):
        raise wrong(f"{what} is about tables, but got a {type(table).__name__}.", place, instead)


def ensure_column(what: str, name: str, columns: Iterable[str], place: Place) -> None:
    """A column that is there."""
    known = list(columns)
    if name not in known:
        close = get_close_matches(name, known, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise wrong(f"{what}: there is no column {name!r}.", place, f"{meant}the columns are: {', '.join(known)}")


def columns_named(what: str, names: str | Iterable[str], columns: Iterable[str], place: Place) -> tuple[str, ...]:
    """One or several columns, all of which are there."""
    found, known = (names,) if isinstance(names, str) else tuple(names), list(columns)
    for name in found:
        ensure_column(what, name, known, place)
    return found


def event_times(frame: DataFrame) -> list[str]:
    """The columns that a watermark is kept of."""
    return [field.name for field in frame.schema.fields if WATERMARK in (field.metadata or {})]


def event_time(what: str, frame: DataFrame, place: Place) -> str:
    """The column of a stream's event time."""
    found = event_times(frame)
    if len(found) != 1:
        has = "several event times" if found else "no event time"
        raise wrong(
            f"{what} is over a stream with {has}.", place, "declare the stream with event_time=, and keep that column"
        )
    return found[0]


def length_us(what: str, text: str, place: Place) -> int:
    """A length of time, in microseconds; it may begin with a minus."""
    sign, plain = (-1, text.strip()[1:]) if text.strip().startswith("-") else (1, text)
    try:
        return sign * milliseconds(plain) * 1000
    except ValueError as bad:
        raise wrong(f"{what}: {text!r} is not a length of time: {bad}.", place, 'write it like "5 minutes"') from None


def on_columns(what: str, on: str | Iterable[str] | Mapping[str, str], place: Place) -> dict[str, str]:
    """What is equal in a join: the left's columns and the right's."""
    same = () if isinstance(on, Mapping) else (on,) if isinstance(on, str) else on
    found = dict(on) if isinstance(on, Mapping) else {name: name for name in same}
    if not found:
        raise wrong(f"{what} has nothing to join on.", place, 'say on="customer_id", or on={"customer_id": "id"}')
    return found


def with_equal_types(
    what: str, left: DataFrame, right: DataFrame, on: Mapping[str, str], place: Place
) -> tuple[DataFrame, DataFrame]:
    """Both sides of a join, its columns in the wider type of the two."""
    types = column_types(left), column_types(right)
    for mine, wider in wider_types(what, *types, on, place).items():
        other = on[mine]
        left = left if types[0][mine] == wider else left.withColumn(mine, left[mine].cast(wider))
        right = right if types[1][other] == wider else right.withColumn(other, right[other].cast(wider))
    return left, right


def wider_types(
    what: str, left: Mapping[str, str], right: Mapping[str, str], on: Mapping[str, str], place: Place
) -> dict[str, str]:
    """For the left's columns of a join, the wider of both sides' types."""
    found = {}
    for mine, other in on.items():
        ensure_column(what, mine, left, place)
        ensure_column(what, other, right, place)
        wider = _wider(left[mine], right[other])
        if wider is None:
            raise wrong(
                f"{what}: {mine!r} is {left[mine]}, and {other!r} is {right[other]}.",
                place,
                f'make them the same, say with withColumn("{mine}", F.col("{mine}").cast("{right[other]}"))',
            )
        found[mine] = wider
    return found


def struct_of(columns: Mapping[str, str]) -> StructType:
    """Columns with types in Spark's simple form, as Spark's type."""
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(schema_text(tuple(Column(name, kind) for name, kind in columns.items())))
    if not isinstance(found, StructType):
        raise HeadraceError(f"{columns} is no schema.")
    return found


def _wider(left: str, right: str) -> str | None:
    """The type that holds the values of both; None if there is none."""
    if left == right:
        return left
    for order in _WIDER:
        if left in order and right in order:
            return max(left, right, key=order.index)
    found = [re.fullmatch(r"decimal\((\d+),(\d+)\)", kind) for kind in (left, right)]
    if found[0] is None or found[1] is None:
        return None
    scale = max(int(one[2]) for one in found if one)
    whole = max(int(one[1]) - int(one[2]) for one in found if one)
    return f"decimal({whole + scale},{scale})" if whole + scale <= 38 else None
