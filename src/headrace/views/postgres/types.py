"""The table of types: what a column of a view is in PostgreSQL, and how its values are given and shown.

Values come as changelogs have them (JSON: times as ISO-8601 text in UTC, decimals as text, binary as base64) and are
read by PostgreSQL's own input functions. They are shown in the same form again, so an answer does not tell which
store it is from. docs/views.md has this table for people.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.views.columns import Column, Kind

__all__ = ["TYPES", "ResultType", "given", "postgres_type", "result_type", "shown"]

TYPES: Mapping[str, str] = {
    **dict.fromkeys(("tinyint", "byte", "smallint", "short"), "smallint"),
    **dict.fromkeys(("int", "integer"), "integer"),
    **dict.fromkeys(("bigint", "long"), "bigint"),
    **dict.fromkeys(("float", "real"), "real"),
    "double": "double precision",
    "boolean": "boolean",
    "decimal": "numeric",
    **dict.fromkeys(("timestamp", "timestamp_ltz"), "timestamp with time zone"),
    "timestamp_ntz": "timestamp without time zone",
    "date": "date",
    "binary": "bytea",
    **dict.fromkeys(("struct", "array", "map", "variant"), "jsonb"),
}
"""Spark's types as PostgreSQL's. All others are text, which compares byte by byte (COLLATE "C"), as SQLite's does."""

_DECIMAL = re.compile(r"decimal\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_TIME = """'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'"""
_SHOWN: Mapping[str, str] = {
    "timestamp with time zone": f"to_char({{}} AT TIME ZONE 'UTC', {_TIME})",
    "timestamp without time zone": f"to_char({{}}, {_TIME})",
    "date": "to_char({}, 'YYYY-MM-DD')",
    "numeric": "{}::text",
    "bytea": "translate(encode({}, 'base64'), E'\\n', '')",
    "jsonb": "{}::text",
}
"""Types whose values are shown by an expression."""


def postgres_type(column: Column) -> str:
    """The type of a view's column, as PostgreSQL itself writes it."""
    word = column.type.lower().split("(")[0].split("<")[0].strip()
    if word != "decimal":
        return TYPES.get(word, "text")
    found = _DECIMAL.fullmatch(column.type.strip().lower())
    return f"numeric({found[1]},{found[2]})" if found else "numeric(10,0)"


def shown(kind: str, expression: str) -> str:
    """An expression of a type, as all stores show it."""
    return _SHOWN.get(kind.split("(")[0], "{}").replace("{}", expression)


def given(column: Column, value: Any) -> Any:
    """A value as a store is given it, as PostgreSQL is; ValueError if it is none of its type."""
    if value is None:
        return None
    if column.kind is Kind.binary:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is no base64")
        return "\\x" + base64.b64decode(value, validate=True).hex()
    if column.kind is Kind.boolean and value in (0, 1):
        return bool(value)
    return value


@dataclass(frozen=True)
class ResultType:
    """A column of a statement's result: PostgreSQL's type, how it is shown, and what we call it."""

    name: str
    spark: str
    is_loose: bool = False
    """A number whose digits are not declared, as sums have it: shown as whole number or double."""

    def shown(self, expression: str) -> str:
        """The column as answers have it; a type that JSON has nothing for is text."""
        return shown(self.name, expression) if self.name in _RESULTS.values() else f"{expression}::text"

    def loose(self, values: Sequence[str | None]) -> tuple[str, list[Any]]:
        """The type and values of a column of such numbers."""
        whole = [value is None or re.fullmatch(r"-?\d{1,18}", value) is not None for value in values]
        convert: Any = int if all(whole) else float
        return "bigint" if all(whole) else "double", [None if value is None else convert(value) for value in values]


_RESULTS: Mapping[int, str] = {
    16: "boolean",
    21: "smallint",
    23: "integer",
    20: "bigint",
    700: "real",
    701: "double precision",
    1700: "numeric",
    1184: "timestamp with time zone",
    1114: "timestamp without time zone",
    1082: "date",
    17: "bytea",
    3802: "jsonb",
}
"""PostgreSQL's numbers of types."""
_SPARK: Mapping[str, str] = {
    "boolean": "boolean",
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "real": "float",
    "double precision": "double",
    "timestamp with time zone": "timestamp",
    "timestamp without time zone": "timestamp_ntz",
    "date": "date",
    "bytea": "binary",
}


def result_type(oid: int, modifier: int) -> ResultType:
    """The type of a result's column by PostgreSQL's number, and its modifier (-1: none)."""
    name = _RESULTS.get(oid, "text")
    if name != "numeric":
        return ResultType(name, _SPARK.get(name, "string"))
    if modifier < 0:
        return ResultType(name, "double", is_loose=True)
    return ResultType(name, f"decimal({(modifier - 4) >> 16},{(modifier - 4) & 0x7FF})")
