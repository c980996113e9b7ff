"""Schemas as Spark writes them (``order_id string, amount decimal(10,2), tags array<string>``), read without a JVM.

Types are kept in Spark's simple form, aliases resolved (``long`` is ``bigint``), so that two spellings of one
schema are equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["BadSchema", "Column", "parse_schema", "schema_text"]

_TYPES = {
    "boolean": "boolean",
    "byte": "tinyint",
    "tinyint": "tinyint",
    "short": "smallint",
    "smallint": "smallint",
    "int": "int",
    "integer": "int",
    "long": "bigint",
    "bigint": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "string": "string",
    "binary": "binary",
}
_DECIMALS = ("decimal", "dec", "numeric")
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|'((?:[^'\\]|\\.)*)'|([A-Za-z_][\w]*)|(\d+)|([<>(),:]))")


class BadSchema(ValueError):
    """A text that is no schema; says why."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type in Spark's simple form, whether null is allowed."""

    name: str
    type: str
    nullable: bool = True


def parse_schema(text: str) -> tuple[Column, ...]:
    """The columns of a schema; BadSchema if it is none or names a column twice."""
    reader = _Reader(text)
    columns = [reader.column()]
    while reader.take(","):
        columns.append(reader.column())
    reader.end()
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise BadSchema(f"column {column.name!r} is there twice")
        seen.add(column.name.lower())
    return tuple(columns)


def schema_text(columns: tuple[Column, ...]) -> str:
    """The columns as Spark reads them."""
    return ", ".join(f"{_quoted(c.name)} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in columns)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class _Reader:
    """Tokens of a schema, from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        position, text = 0, text.strip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise BadSchema(f"{text[position:].strip()[:20]!r} is not understood")
            quoted, literal, word, number, sign = found.groups()
            self._tokens.append(
                ("name", quoted.replace("``", "`"))
                if quoted is not None
                else ("literal", literal)
                if literal is not None
                else ("word", word)
                if word is not None
                else ("number", number)
                if number is not None
                else ("sign", sign)
            )
            position = found.end()
        if not self._tokens:
            raise BadSchema("it has no columns")

    def take(self, sign: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == ("sign", sign):
            self._at += 1
            return True
        return False

    def need(self, sign: str) -> None:
        if not self.take(sign):
            raise BadSchema(f"{self._here()} where {sign!r} should be")

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise BadSchema(f"{self._here()} where ',' or the end should be")

    def column(self) -> Column:
        name = self._name("a column's name")
        self.take(":")
        kind = self._type()
        nullable = True
        if self._word("not"):
            if not self._word("null"):
                raise BadSchema(f"{self._here()} where 'NULL' should be")
            nullable = False
        if self._word("comment"):
            self._kind("literal", "a comment in quotes")
        return Column(name, kind, nullable)

    def _type(self) -> str:
        name = self._kind("word", "a type").lower()
        if name in _TYPES:
            return _TYPES[name]
        if name in _DECIMALS:
            return self._decimal()
        if name in ("char", "character", "varchar"):
            self.need("(")
            self._kind("number", "a length")
            self.need(")")
            return "string"
        if name == "array":
            self.need("<")
            inner = self._type()
            self.need(">")
            return f"array<{inner}>"
        if name == "map":
            self.need("<")
            key = self._type()
            self.need(",")
            value = self._type()
            self.need(">")
            return f"map<{key},{value}>"
        if name == "struct":
            return self._struct()
        raise BadSchema(f"{name!r} is not a type")

    def _struct(self) -> str:
        self.need("<")
        fields = [self.column()]
        while self.take(","):
            fields.append(self.column())
        self.need(">")
        return f"struct<{','.join(f'{f.name}:{f.type}' for f in fields)}>"

    def _decimal(self) -> str:
        precision, scale = "10", "0"
        if self.take("("):
            precision = self._kind("number", "a precision")
            if self.take(","):
                scale = self._kind("number", "a scale")
            self.need(")")
        if not 0 <= int(scale) <= int(precision) <= 38:
            raise BadSchema(f"decimal({precision},{scale}) cannot be")
        return f"decimal({precision},{scale})"

    def _name(self, what: str) -> str:
        if self._at < len(self._tokens) and self._tokens[self._at][0] in ("word", "name"):
            self._at += 1
            return self._tokens[self._at - 1][1]
        raise BadSchema(f"{self._here()} where {what} should be")

    def _kind(self, kind: str, what: str) -> str:
        if self._at < len(self._tokens) and self._tokens[self._at][0] == kind:
            self._at += 1
            return self._tokens[self._at - 1][1]
        raise BadSchema(f"{self._here()} where {what} should be")

    def _word(self, word: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at][0] == "word":
            found = self._tokens[self._at][1].lower() == word
            self._at += found
            return found
        return False

    def _here(self) -> str:
        return repr(self._tokens[self._at][1]) if self._at < len(self._tokens) else "the end"
