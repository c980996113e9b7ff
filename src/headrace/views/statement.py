"""A question as an SQL statement: the same for every store that speaks SQL, but for a few words (its ``Dialect``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Protocol

from headrace.errors import InvalidQuery
from headrace.views.columns import Column, Kind
from headrace.views.question import Condition, Question

__all__ = ["Bind", "Dialect", "quoted", "select", "shown_rows", "taken"]

ANSWER_BYTES = 256 << 20
"""How large an answer to a question about one view may be."""
CELL_BYTES = 16
"""What a cell counts beside its text."""
_AT_ONCE = 500

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
        limit = dialect.everything if question.limit is None else question.limit + question.tells_more
        text += f" LIMIT {bind(limit)} OFFSET {bind(question.offset)}"
    return text, values


def _test(condition: Condition, dialect: Dialect, bind: Bind) -> str:
    return dialect.null(condition) if condition.value is None else dialect.test(condition, bind)


def taken(rows: Iterable[tuple[Any, ...]], question: Question) -> tuple[list[tuple[Any, ...]], bool]:
    """The rows of an answer as they come from a store, and whether there are more than were to be told; InvalidQuery as
    soon as they are too large."""
    found: list[tuple[Any, ...]] = []
    coming, size = iter(rows), 0
    while some := list(islice(coming, _AT_ONCE)):
        found += some
        size += sum(CELL_BYTES * len(row) for row in some)
        size += sum(len(cell) for row in some for cell in row if isinstance(cell, str | bytes))
        if size > ANSWER_BYTES:
            raise InvalidQuery(
                f"the answer is larger than {ANSWER_BYTES >> 20} MiB",
                detail=f"{len(found)} rows are so large",
                hint="ask for fewer rows or columns at a time (limit and offset, where, select), or sum up with SQL",
            )
    more = question.tells_more and question.limit is not None and len(found) > question.limit
    return (found[: question.limit] if more else found), more


def shown_rows(columns: Sequence[Column], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows of a store as answers have them: booleans and nested values are what JSON has for them."""
    if not any(column.kind in (Kind.boolean, Kind.nested) for column in columns):
        return rows
    return [tuple(column.shown(value) for column, value in zip(columns, row, strict=True)) for row in rows]


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'
