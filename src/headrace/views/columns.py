"""The columns of a view: Spark's type names, how a store keeps them, and how a value is written as text.

A changelog carries values as JSON: timestamps as ISO-8601 in UTC with microseconds, decimals as strings, binary as
base64. A store keeps what JSON says (so text compares as time does), booleans as 0 and 1, and nested values as JSON
text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import cached_property
from typing import Any

from headrace.errors import InvalidQuery

__all__ = ["Column", "Kind", "canonical_time", "compact_json"]


class Kind(Enum):
    """What sort of values a column holds."""

    integer = "integer"
    real = "real"
    text = "text"
    boolean = "boolean"
    decimal = "decimal"
    timestamp = "timestamp"
    date = "date"
    binary = "binary"
    nested = "nested"


_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"), Kind.integer),
    **dict.fromkeys(("float", "real", "double"), Kind.real),
    "boolean": Kind.boolean,
    "decimal": Kind.decimal,
    **dict.fromkeys(("timestamp", "timestamp_ltz", "timestamp_ntz"), Kind.timestamp),
    "date": Kind.date,
    "binary": Kind.binary,
    **dict.fromkeys(("struct", "array", "map", "variant"), Kind.nested),
}


@dataclass(frozen=True)
class Column:
    """A column: its name and its type, as Spark writes it (``bigint``, ``decimal(10,2)``, ``array<string>``)."""

    name: str
    type: str

    @cached_property
    def kind(self) -> Kind:
        """What sort of values it holds; types that we do not know are text."""
        word = self.type.lower().split("(")[0].split("<")[0].strip()
        return _KINDS.get(word, Kind.text)

    def parse(self, text: str) -> Any:
        """A value that somebody wrote in a request, as a store keeps it; InvalidQuery if it is none of this type."""
        try:
            return _PARSERS[self.kind](text)
        except (ValueError, InvalidOperation, RecursionError) as error:
            raise InvalidQuery(f"{text!r} is not a value of column {self.name!r}, which is {self.type}") from error

    def stored(self, value: Any) -> Any:
        """A value of JSON as a store keeps it."""
        if value is None or self.kind is not Kind.nested:
            return value
        return compact_json(value)

    def shown(self, value: Any) -> Any:
        """A stored value as JSON shows it."""
        if value is None:
            return None
        if self.kind is Kind.boolean:
            return bool(value)
        return json.loads(value) if self.kind is Kind.nested else value


def compact_json(value: object) -> str:
    """JSON without spaces, as changelogs have it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def canonical_time(text: str) -> str:
    """A time in any ISO-8601 form as changelogs write it; without a zone it is UTC."""
    moment = datetime.fromisoformat(text.strip())
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _boolean(text: str) -> int:
    words = {"true": 1, "false": 0, "1": 1, "0": 0}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


_PARSERS: Mapping[Kind, Callable[[str], Any]] = {
    Kind.integer: int,
    Kind.real: float,
    Kind.text: str,
    Kind.boolean: _boolean,
    Kind.decimal: lambda text: str(Decimal(text)),
    Kind.timestamp: canonical_time,
    Kind.date: lambda text: date.fromisoformat(text.strip()).isoformat(),
    Kind.binary: str,
    Kind.nested: lambda text: compact_json(json.loads(text)),
}
