"""What is asked of one view: which columns, which rows, in what order, how many.

As text: ``where=region=EU`` (repeatable; ``= != < <= > >=``, ``COLUMN is null``, ``COLUMN is not null``),
``order=-revenue,region`` (``-`` for descending), ``select=region,revenue``, ``limit=10``, ``offset=20``. Names are
checked against the view's columns and values become parameters, so nothing of the text ends up in a statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import InvalidQuery
from headrace.views.catalog import ViewSpec
from headrace.views.columns import Column, Kind

__all__ = ["DEFAULT_LIMIT", "Condition", "Question", "asked", "by_key"]

DEFAULT_LIMIT = 1000
"""Rows for who does not say how many."""

_CONDITION = re.compile(r"\s*(?P<name>.+?)\s*(?P<operator><=|>=|!=|=|<|>)(?P<value>.*)", re.DOTALL)
_NULL = re.compile(r"\s*(?P<name>.+?)\s+is\s+(?P<no>not\s+)?null\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Condition:
    """``column operator value``; the operators are SQL's, with ``IS`` where the value is null."""

    column: Column
    operator: str
    value: Any


@dataclass(frozen=True)
class Question:
    """What is asked. ``columns`` empty: all. ``order``: columns, and whether descending. ``limit`` None: all.
    ``tells_more``: the limit is not the asker's, who is to be told if there are more rows."""

    columns: tuple[Column, ...] = ()
    where: tuple[Condition, ...] = ()
    order: tuple[tuple[Column, bool], ...] = ()
    limit: int | None = DEFAULT_LIMIT
    offset: int = field(default=0)
    tells_more: bool = False


def asked(
    spec: ViewSpec,
    *,
    where: Sequence[str] = (),
    order: str | None = None,
    select: str | None = None,
    limit: str | None = None,
    offset: str | None = None,
) -> Question:
    """A question from its text; InvalidQuery says what is wrong with it."""
    return Question(
        columns=tuple(_column(spec, name) for name in _names(select)),
        where=tuple(_condition(spec, text) for text in where),
        order=tuple((_column(spec, name.lstrip("-")), name.startswith("-")) for name in _names(order)),
        limit=DEFAULT_LIMIT if limit is None else _limit(limit),
        offset=0 if offset is None else _number(offset, "offset"),
        tells_more=limit is None,
    )


def by_key(spec: ViewSpec, values: Sequence[Any]) -> Question:
    """The row of a key, whose values are as a store keeps them."""
    pairs = zip(spec.key_columns, values, strict=True)
    return Question(where=tuple(Condition(c, "IS" if v is None else "=", v) for c, v in pairs), limit=1)


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()] if text else []


def _column(spec: ViewSpec, name: str) -> Column:
    column = spec.column(name)
    if column is None:
        known = ", ".join(column.name for column in spec.columns)
        raise InvalidQuery(f"view {spec.name!r} has no column {name!r}", hint=f"it has {known}")
    return column


def _condition(spec: ViewSpec, text: str) -> Condition:
    if found := _NULL.fullmatch(text):
        return Condition(_column(spec, found["name"]), "IS NOT" if found["no"] else "IS", None)
    if found := _CONDITION.fullmatch(text):
        column = _column(spec, found["name"])
        if column.kind is Kind.nested and found["operator"] not in ("=", "!="):
            raise InvalidQuery(f"column {column.name!r} is {column.type}: it has no order")
        return Condition(column, found["operator"], column.parse(found["value"]))
    raise InvalidQuery(f"{text!r} is not a condition", hint="write where=COLUMN=VALUE, also with != < <= > >=")


def _limit(text: str) -> int | None:
    return None if text in ("none", "all") else _number(text, "limit")


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidQuery(f"{what}={text} is not a number", hint=f"write {what}=10")
    return int(text)
