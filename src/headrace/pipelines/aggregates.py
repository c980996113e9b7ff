"""Aggregates as declarations: ``hr.sum("amount")``, ``hr.count()``. What computes them takes them as data.

Nulls are left out, as in SQL: a sum, average, minimum or maximum of nothing but nulls is null. ``first`` and ``last``
take the row's value as it is. In ``hr.aggregate`` each may have a condition: ``hr.count(where="price < 10000")``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from headrace.pipelines.places import Place, wrong

__all__ = ["Aggregate", "avg", "count", "count_distinct", "ensure_aggregates", "first", "last", "max", "min", "sum"]

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")
_NESTED = ("array<", "map<", "struct<")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One number (or value) for many rows."""

    kind: str
    """``count``, ``sum``, ``avg``, ``min``, ``max``, ``count_distinct``, ``first`` or ``last``."""
    column: str | None = None
    """What it is taken of; None counts rows."""
    where: str | None = None
    """A condition in SQL; rows for which it does not hold are left out."""

    def __str__(self) -> str:
        given = [] if self.column is None else [repr(self.column)]
        return f"hr.{self.kind}({', '.join([*given, *([] if self.where is None else [f'where={self.where!r}'])])})"

    def type(self, of: str | None) -> str | None:
        """The type of the result, for a column of this type (both in Spark's simple form); None if there is none."""
        if self.kind == "count" or of is None:
            return "bigint"
        if self.kind in ("first", "last"):
            return of
        if of.startswith(_NESTED):
            return None
        if self.kind == "count_distinct":
            return "bigint"
        if self.kind in ("min", "max"):
            return of
        decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", of)
        if self.kind == "avg":
            return "double" if of in _INTEGERS + _FLOATS or decimal else None
        if decimal:
            return f"decimal(38,{decimal[2]})"
        return "bigint" if of in _INTEGERS else "double" if of in _FLOATS else None


def count(column: str | None = None, *, where: str | None = None) -> Aggregate:
    """How many rows; of a column, how many that are not null."""
    return Aggregate("count", column, where)


def sum(column: str, *, where: str | None = None) -> Aggregate:
    """The sum of a column."""
    return Aggregate("sum", column, where)


def avg(column: str, *, where: str | None = None) -> Aggregate:
    """The average of a column, as a double."""
    return Aggregate("avg", column, where)


def min(column: str, *, where: str | None = None) -> Aggregate:
    """The smallest value of a column."""
    return Aggregate("min", column, where)


def max(column: str, *, where: str | None = None) -> Aggregate:
    """The largest value of a column."""
    return Aggregate("max", column, where)


def count_distinct(column: str, *, where: str | None = None) -> Aggregate:
    """How many different values, exactly."""
    return Aggregate("count_distinct", column, where)


def first(column: str) -> Aggregate:
    """The value of the earliest row, null or not."""
    return Aggregate("first", column)


def last(column: str) -> Aggregate:
    """The value of the latest row, null or not."""
    return Aggregate("last", column)


def ensure_aggregates(
    what: str, aggregates: Mapping[str, Aggregate], columns: Mapping[str, str], place: Place, *, ordered: bool = True
) -> dict[str, str]:
    """The result's type of each aggregate; ``columns`` are the input's, with their types in Spark's simple form.

    ``ordered``: rows are in an order, so that there is a first and a last; then there are no conditions.
    """
    found = {}
    if not aggregates:
        raise wrong(f"{what} has no aggregate.", place, 'say one like total=hr.sum("amount")')
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise wrong(
                f"{name} of {what} is {type(aggregate).__name__}, not an aggregate.",
                place,
                'say it like total=hr.sum("amount"), not with Spark\'s functions',
            )
        if aggregate.where is not None and ordered:
            raise wrong(f"{what} takes no condition, as {aggregate} has.", place, "filter the stream with .where(...)")
        if aggregate.kind in ("first", "last") and not ordered:
            raise wrong(f"{what} has no {aggregate.kind} row.", place, "use hr.latest, or hr.min and hr.max")
        if aggregate.column is not None and aggregate.column not in columns:
            close = get_close_matches(aggregate.column, columns, n=1)
            meant = f"did you mean {close[0]!r}? " if close else ""
            raise wrong(
                f"{aggregate} of {what}: there is no column {aggregate.column!r}.",
                place,
                f"{meant}the columns are: {', '.join(columns)}",
            )
        of = None if aggregate.column is None else columns[aggregate.column]
        kind = aggregate.type(of)
        if kind is None:
            raise wrong(f"{aggregate} of {what}: the column is {of}.", place, "take it of another column, or cast it")
        found[name] = kind
    return found
