"""A question as an SQL statement: the same for every store that speaks SQL, but for a few words (its ``Dialect``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from headrace.views.columns import Column, Kind
from headrace.views.question import Condition, Question

__all__ = ["Bind", "Dialect", "quoted", "select", "shown_rows"]

Bind = Callable[[Any], str]
"""Takes a value of a parameter and gives the mark that stands for it in the statement."""


class Dialect(Protocol):
    """How a store says what differs."""

    everything: Any
    """The LIMIT that is none."""

    def mark(self, number: int) -> str:
        """The mark of the parameter of this number; the first is 1."""
        ...

    def shown(self, column: Column) -> str:
        """A column's value in the form that all stores give."""
        ...

    def test(self, condition: Condition, bind: Bind) -> str:
        """A condition whose value is not null."""
        ...

    def null(self, condition: Condition) -> str:
        """A condition with ``IS`` or ``IS NOT``, whose value is null."""
        ...

    def order(self, column: Column, descending: bool) -> str:
        """How rows are ordered by a column: nulls are the smallest."""
        ...


def select(source: str, columns: Sequence[Column], question: Question, dialect: Dialect) -> tuple[str, list[Any]]:
    """The statement for these columns of a table, and its parameters."""
    values: list[Any] = []

    def bind(value: Any) -> str:
        values.append(value)
        return dialect.mark(len(values))

    text = f"SELECT {', '.join(dialect.shown(column) for column in columns)} FROM {source}"
    if question.where:
        text += " WHERE " + " AND ".join(_test(condition, dialect, bind) for condition in question.where)
    if question.order:
        text += " ORDER BY " + ", ".join(dialect.order(column, descending) for column, descending in question.order)
    if question.limit is not None or question.offset:
        limit = dialect.everything if question.limit is None else question.limit
        text += f" LIMIT {bind(limit)} OFFSET {bind(question.offset)}"
    return text, values


def _test(condition: Condition, dialect: Dialect, bind: Bind) -> str:
    return dialect.null(condition) if condition.value is None else dialect.test(condition, bind)


def shown_rows(columns: Sequence[Column], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows of a store as answers have them: booleans and nested values are what JSON has for them."""
    if not any(column.kind in (Kind.boolean, Kind.nested) for column in columns):
        return rows
    return [tuple(column.shown(value) for column, value in zip(columns, row, strict=True)) for row in rows]


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'
