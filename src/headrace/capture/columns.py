"""The types of databases as Spark's types: fixed once, documented in ``docs/capture.md``, tested value by value.

The topic has what Debezium writes as JSON (with the settings that ``connectors`` fixes), and the kernel reads that as
the type given here:

========================  ==========================================  ====================
what it is                in the topic                                 in Spark
========================  ==========================================  ====================
whole numbers, floats     a number; "NaN", "Infinity", "-Infinity"     by size
numerics                  a string, exactly as the database says       decimal, or string
text, enums, UUIDs, JSON  a string                                     string
bytes                     a string, base64                             binary
dates and times           a string, ISO 8601                           date, timestamp
times of day, intervals   a string, ISO 8601                           string
arrays (PostgreSQL)       a list                                       array
========================  ==========================================  ====================

A type that is not known here is a string. Columns may always be null: a column that is dropped becomes null.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["TableColumn", "TableLook", "spark_type"]

_MAX_PRECISION = 38


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as its database describes it."""

    name: str
    native: str
    """Its type, in the database's own words: ``numeric(10,2)``, ``timestamp with time zone``, ``int(10) unsigned``."""
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class TableLook:
    """What a database says of a table: its columns in order, and its primary key (empty if it has none)."""

    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]


def spark_type(kind: str, native: str) -> str:
    """The type of Spark, in its simple form, for a type of a database (``postgres``, ``mariadb``, ``mysql``,
    ``sqlite``)."""
    words = " ".join(native.lower().split())
    return {"postgres": _postgres, "mariadb": _mariadb, "mysql": _mariadb, "sqlite": _sqlite}[kind](words)


_POSTGRES = {
    "boolean": "boolean",
    "bool": "boolean",
    "smallint": "smallint",
    "int2": "smallint",
    "integer": "int",
    "int4": "int",
    "bigint": "bigint",
    "int8": "bigint",
    "oid": "bigint",
    "real": "float",
    "float4": "float",
    "double precision": "double",
    "float8": "double",
    "money": "decimal(19,2)",
    "bytea": "binary",
    "date": "date",
    "bit": "boolean",
    "point": "struct<x:double,y:double>",
}
_POSTGRES_TIMES = re.compile(r"timestamp(tz)?(\(\d\))?( with(out)? time zone)?")
_POSTGRES_BITS = re.compile(r"bit( varying)?(\((\d+)\))?|varbit(\(\d+\))?")


def _postgres(words: str) -> str:
    if words.endswith("[]"):
        return f"array<{_postgres(words.removesuffix('[]').strip())}>"
    if words in _POSTGRES:
        return _POSTGRES[words]
    if _POSTGRES_TIMES.fullmatch(words):
        return "timestamp"
    bits = _POSTGRES_BITS.fullmatch(words)
    if bits is not None:
        return "boolean" if words == "bit(1)" else "binary"
    return _decimal(words, ("numeric", "decimal"))


_MARIADB_INTEGERS = {
    "tinyint": ("smallint", "smallint"),
    "smallint": ("smallint", "int"),
    "mediumint": ("int", "int"),
    "int": ("int", "bigint"),
    "integer": ("int", "bigint"),
    "bigint": ("bigint", "decimal(20,0)"),
}
_MARIADB = {
    "float": "float",
    "double": "double",
    "real": "double",
    "year": "int",
    "date": "date",
    "datetime": "timestamp",
    "timestamp": "timestamp",
    "binary": "binary",
    "varbinary": "binary",
    "tinyblob": "binary",
    "blob": "binary",
    "mediumblob": "binary",
    "longblob": "binary",
    "bool": "smallint",
    "boolean": "smallint",
}


def _mariadb(words: str) -> str:
    name = re.split(r"[ (]", words, maxsplit=1)[0]
    if name in _MARIADB_INTEGERS:
        return _MARIADB_INTEGERS[name]["unsigned" in words]
    if name == "bit":
        return "boolean" if words in ("bit", "bit(1)") else "binary"
    if name in ("decimal", "numeric", "dec", "fixed"):
        return _decimal(words.split(" ")[0], (name,), default="decimal(10,0)")
    return _MARIADB.get(name, "string")


def _sqlite(words: str) -> str:
    """By the declared type, which SQLite takes as a wish: a value of another class that does not fit is a dead letter,
    unless the column is declared as a string in the app."""
    if "bool" in words:
        return "boolean"
    if words.startswith(("datetime", "timestamp")):
        return "timestamp"
    if words.startswith("date"):
        return "date"
    if words.startswith(("decimal", "numeric")):
        return _decimal(words, ("decimal", "numeric"), default="double")
    if "int" in words:
        return "bigint"
    if any(part in words for part in ("char", "clob", "text", "json")):
        return "string"
    if "blob" in words:
        return "binary"
    if any(part in words for part in ("real", "floa", "doub")):
        return "double"
    return "string"


def _decimal(words: str, names: tuple[str, ...], default: str = "string") -> str:
    """``decimal`` where Spark has room for it; what is larger stays the string that it is in the topic."""
    found = re.fullmatch(rf"({'|'.join(names)})(?:\((\d+)(?:, ?(-?\d+))?\))?", words)
    if found is None:
        return "string"
    if found[2] is None:
        return default
    precision, scale = int(found[2]), int(found[3] or 0)
    if scale < 0:  # whole tens, hundreds, ...
        precision, scale = precision - scale, 0
    return f"decimal({precision},{scale})" if scale <= precision <= _MAX_PRECISION else "string"
