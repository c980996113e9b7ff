"""What a SQL text reads: the names after FROM and JOIN that are not its own. Found without Spark, for early errors."""

from __future__ import annotations

import re

__all__ = ["CHANGES", "names_read"]

CHANGES = "_changes"
"""The changes of table ``T`` are rows of ``T_changes`` in SQL."""

_NOT_NAMES = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_LIST = re.compile(
    r"\bfrom\s+((?:`?[A-Za-z_][\w-]*`?(?:\s+(?:as\s+)?[A-Za-z_]\w*)?\s*,\s*)+`?[A-Za-z_][\w-]*`?)", re.IGNORECASE
)
_AFTER = re.compile(r"\b(?:from|join)\s+`?([A-Za-z_][\w-]*)`?(\s*\()?", re.IGNORECASE)
_WITH = re.compile(r"(?:\bwith|,)\s+`?([A-Za-z_]\w*)`?\s*(?:\([^()]*\)\s*)?as\s*\(", re.IGNORECASE)
_EXTRACT = re.compile(r"\b(?:extract|trim|substring|overlay)\s*\([^()]*\)", re.IGNORECASE)


def names_read(sql: str) -> tuple[str, ...]:
    """Names of streams and tables, in the order of appearance, each once."""
    text = _EXTRACT.sub(" ", _NOT_NAMES.sub(" ", sql))
    own = {name.lower() for name in _WITH.findall(text)}
    found: dict[str, None] = {}
    for name, call in _AFTER.findall(text):
        if not call and name.lower() not in own and name.lower() != "select":
            found[name] = None
    for group in _LIST.findall(text):
        for part in group.split(","):
            name = part.split()[0].strip("`")
            if name.lower() not in own:
                found[name] = None
    return tuple(found)
