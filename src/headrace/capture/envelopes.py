"""Changes as Debezium writes them in JSON, made here for databases that Debezium does not know (SQLite).

::

    key      {"id":7}
    value    {"before":{...}|null,"after":{...}|null,"source":{...},"op":"c|u|d|r","ts_ms":...}
    header   source: the same object as in the value

A deletion is followed by a record of the same key without a value (a tombstone). A change of the key itself is the
deletion of the old one and the creation of the new one.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Change", "ChangeRecord", "change_records", "json_value", "to_json"]

Row = Mapping[str, Any]
_encoded = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a row, its values as JSON has them: what it was, what it is, when that was (milliseconds), and
    where it stands in the database's own order."""

    op: str
    before: Row | None
    after: Row | None
    at_ms: int
    position: int


class ChangeRecord(NamedTuple):
    """A record of the table's topic."""

    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]]


def change_records(
    change: Change, key: tuple[str, ...], source: Mapping[str, Any], now_ms: int
) -> Iterator[ChangeRecord]:
    """The records of one change; ``source`` is what is known of the table."""
    snapshot = "true" if change.op == "r" else "false"
    about = {**source, "ts_ms": change.at_ms, "ts_us": change.at_ms * 1000, "id": change.position, "snapshot": snapshot}
    said = to_json(about)
    headers = [("source", said)]
    before, after = change.before, change.after
    old = None if before is None else to_json({name: before[name] for name in key})
    new = None if after is None else to_json({name: after[name] for name in key})

    def value(op: str, before: Row | None, after: Row | None) -> bytes:
        parts = (to_json(before), to_json(after), said, op.encode(), now_ms)
        return b'{"before":%b,"after":%b,"source":%b,"op":"%b","ts_ms":%d}' % parts

    moved = old is not None and old != new
    if moved and old is not None:
        yield ChangeRecord(old, value("d", before, None), headers)
        yield ChangeRecord(old, None, headers)
    if new is not None:
        yield ChangeRecord(new, value("c" if moved else change.op, None if moved else before, after), headers)


def json_value(value: Any) -> Any:
    """A value of a database's driver as JSON has it: bytes in base64, what is no JSON number by name."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def to_json(value: Any) -> bytes:
    """Compact JSON."""
    return _encoded(value).encode()
