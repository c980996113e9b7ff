"""Records of a changelog as rows of a view, a batch at a time.

The quick way runs no Python per record: the values are joined into one JSON array, parsed by one call, and rows are
picked from the objects by ``itemgetter``. It gives up (``Unusual``) at the first thing out of the ordinary; then
``one_by_one`` looks at each record by itself and says what is wrong with which.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from headrace.views.catalog import ViewSpec
from headrace.views.columns import Column, Kind

__all__ = ["BadValue", "Changes", "Row", "RowDecoder", "Unusual"]

Row = tuple[Any, ...]
"""Values as a store keeps them."""


class Unusual(Exception):
    """A batch that must be looked at record by record."""


class BadValue(Exception):
    """A record that is no row of the view; says why."""


@dataclass(frozen=True)
class Changes:
    """What a batch does: rows to put, keys to delete; no key is in both."""

    rows: list[Row]
    gone: list[Row]


class RowDecoder:
    """From records to rows of one view. A row has all columns in order; a key has the key columns in order."""

    def __init__(self, spec: ViewSpec) -> None:
        self._columns, self._keys = spec.columns, spec.key_columns
        self._row, self._key = _picker(self._columns), _picker(self._keys)
        self._key_of_row = _tuple_getter([spec.columns.index(column) for column in self._keys])

    def all_at_once(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Changes:
        """The changes of a batch, the last of each key; Unusual if any record is out of the ordinary."""
        latest = dict(zip(keys, values, strict=True))
        if None in latest:
            raise Unusual
        there = [value for value in latest.values() if value is not None]
        gone = [key for key, value in latest.items() if value is None] if len(there) < len(latest) else []
        return Changes(self._picked(there, self._row), self._picked(gone, self._key))  # type: ignore[arg-type]

    def _picked(self, texts: Sequence[bytes], pick: Callable[[Any], Row]) -> list[Row]:
        if not texts:
            return []
        try:
            objects = _parsed(b"[" + b",".join(texts) + b"]")
            picked = list(map(pick, objects))
        except (ValueError, KeyError, TypeError, RecursionError, IndexError) as error:
            raise Unusual from error
        if len(picked) != len(texts):
            raise Unusual
        return picked

    def one(self, key: bytes | None, value: bytes | None) -> tuple[Row, Row | None]:
        """The key of one record and its row (None: deleted); BadValue if it is neither."""
        if key is None:
            raise BadValue("it has no key")
        if value is None:
            return self._key(_object(key, self._keys, "key")), None
        said = _object(value, self._keys, "value")
        row = self._row({column.name: None for column in self._columns} | said)
        return self._key_of_row(row), row


def _parsed(text: bytes) -> Any:
    """JSON, with null for the NaN and Infinity that some writers put where JSON has no number."""
    return json.loads(text, parse_constant=lambda _: None)


def _object(text: bytes, needed: Sequence[Column], what: str) -> dict[str, Any]:
    try:
        said = _parsed(text)
    except (ValueError, RecursionError) as error:
        raise BadValue(f"its {what} is not JSON") from error
    if not isinstance(said, dict):
        raise BadValue(f"its {what} is not a JSON object")
    for column in needed:
        if column.name not in said:
            raise BadValue(f"its {what} lacks the key column {column.name!r}")
    return said


def _picker(columns: Sequence[Column]) -> Callable[[Any], Row]:
    """From a JSON object to the values of these columns, as a store keeps them."""
    pick = _tuple_getter([column.name for column in columns])
    if not any(column.kind is Kind.nested for column in columns):
        return pick

    def with_nested(said: Any) -> Row:
        return tuple(_stored(columns, pick(said)))

    return with_nested


def _stored(columns: Sequence[Column], values: Row) -> Iterator[Any]:
    for column, value in zip(columns, values, strict=True):
        yield column.stored(value)


def _tuple_getter(items: Sequence[Any]) -> Callable[[Any], Row]:
    if len(items) == 1:
        [item] = items
        return lambda said: (said[item],)
    return itemgetter(*items)
