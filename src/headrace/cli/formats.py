"""How ``headrace consume`` prints a record: ``value``, ``key-value``, ``json``, or a format string like kcat's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from headrace.cli.failures import CommandFailed
from headrace.cli.lines import unescape
from headrace.operations.record_json import message_json

__all__ = ["Writer", "writer_for"]

Writer = Callable[[Any], bytes]
"""From a message to the bytes to print."""


def writer_for(form: str) -> Writer:
    """The function behind a name or a format string."""
    if form == "value":
        return lambda message: (message.value() or b"") + b"\n"
    if form == "key-value":
        return lambda message: (message.key() or b"") + b"\t" + (message.value() or b"") + b"\n"
    if form == "json":
        return _as_json
    if "%" in form:
        return _compiled(form)
    raise CommandFailed(
        f"{form!r} is not a format.",
        hint="use value, key-value, json, or a string with %k key, %s value, %h headers, %t topic, %p partition, "
        "%o offset, %T timestamp, %K and %S lengths, %% a percent sign",
    )


def _as_json(message: Any) -> bytes:
    fields = message_json(message)
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else str(len(data)).encode()


def _headers(message: Any) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"NULL") for name, value in message.headers() or [])


def _moment(message: Any) -> bytes:
    moment = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()


_FIELDS: dict[str, Writer] = {
    "s": lambda message: message.value() or b"",
    "S": lambda message: _length(message.value()),
    "k": lambda message: message.key() or b"",
    "K": lambda message: _length(message.key()),
    "t": lambda message: message.topic().encode(),
    "p": lambda message: str(message.partition()).encode(),
    "o": lambda message: str(message.offset()).encode(),
    "T": lambda message: str(message.timestamp()[1]).encode(),
    "I": _moment,
    "h": _headers,
}


def _constant(text: bytes) -> Writer:
    return lambda message: text


def _compiled(form: str) -> Writer:
    parts: list[Writer] = []
    for literal, field in re.findall(r"([^%]+)|%(.?)", form, flags=re.DOTALL):
        if field in _FIELDS:
            parts.append(_FIELDS[field])
        elif field == "%" or literal:
            parts.append(_constant(unescape(literal or "%")))
        else:
            raise CommandFailed(
                f"%{field} in {form!r} is unknown.",
                hint="known are " + ", ".join(f"%{name}" for name in _FIELDS) + ", %%",
            )
    return lambda message: b"".join(part(message) for part in parts)
