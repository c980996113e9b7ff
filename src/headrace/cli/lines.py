"""Records as text: lines of standard input or of an NDJSON file into records to produce."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.cli.failures import CommandFailed

__all__ = ["LineFormat", "Outgoing", "parse_lines", "unescape"]


class Outgoing(NamedTuple):
    """One record to produce."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How a line becomes a record. At most one of separator, key field and envelope."""

    key: bytes | None = None
    separator: bytes | None = None
    key_field: str | None = None
    json_values: bool = False
    envelope: bool = False
    empty_is_null: bool = False


def parse_lines(lines: Iterable[bytes], form: LineFormat, source: str) -> Iterator[tuple[int, Outgoing]]:
    """Each line's length and record; an error names the line."""
    parse = _parser(form)
    for number, raw in enumerate(lines, 1):
        line = raw[:-1] if raw.endswith(b"\n") else raw
        if not line.strip() and (form.json_values or form.envelope):
            continue
        try:
            record = parse(line)
        except _BadLine as error:
            raise CommandFailed(f"line {number} of {source} {error}.", hint=error.hint) from None
        if form.empty_is_null and not record.value:
            record = record._replace(value=None)
        yield len(raw), record


def unescape(text: str) -> bytes:
    """``\\t``, ``\\n``, ``\\x1f`` and so on as people write them in a shell."""
    named = {"tab": b"\t", "space": b" "}
    if text.lower() in named:
        return named[text.lower()]
    return text.encode().decode("unicode_escape").encode("latin-1") if "\\" in text else text.encode()


class _BadLine(Exception):
    def __init__(self, sentence: str, hint: str | None = None) -> None:
        super().__init__(sentence)
        self.hint = hint


def _parser(form: LineFormat) -> Callable[[bytes], Outgoing]:
    if form.envelope:
        return _envelope
    if form.key_field is not None:
        path = form.key_field.split(".")
        return lambda line: Outgoing(_key_in(_json(line), path), line)
    if form.separator is not None:
        return lambda line: _split(line, form.separator or b"")
    if form.json_values:
        return lambda line: Outgoing(form.key, _checked(line))
    return lambda line: Outgoing(form.key, line)


def _split(line: bytes, separator: bytes) -> Outgoing:
    key, found, value = line.partition(separator)
    if not found:
        shown = separator.decode(errors="replace")
        raise _BadLine(f"has no key separator {shown!r}", "every line must be KEY, separator, VALUE")
    return Outgoing(key, value)


def _json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise _BadLine(
            f"is not JSON: {error}", "--file wants one JSON value per line; other text goes to standard input"
        ) from None


def _checked(line: bytes) -> bytes:
    _json(line)
    return line


def _key_in(value: Any, path: list[str]) -> bytes | None:
    for name in path:
        if not isinstance(value, dict) or name not in value:
            raise _BadLine(
                f"has no field {'.'.join(path)!r}",
                "--key-field names the field that holds the key, a.b for nested ones",
            )
        value = value[name]
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value, separators=(",", ":")).encode()


def _envelope(line: bytes) -> Outgoing:
    record = _json(line)
    if not isinstance(record, dict) or not ({"value", "value_base64"} & record.keys()):
        raise _BadLine("is not a record", "--envelope wants lines as `headrace consume -o json` prints them")
    try:
        headers = [(str(header["name"]), _bytes_of(header, "value")) for header in record.get("headers") or []]
    except (KeyError, TypeError):
        raise _BadLine("has headers that are not [{name, value}, ...]") from None
    timestamp = record.get("timestamp_ms")
    if timestamp is not None and type(timestamp) is not int:
        raise _BadLine("has a 'timestamp_ms' that is not a whole number")
    return Outgoing(_bytes_of(record, "key"), _bytes_of(record, "value"), headers, timestamp)


def _bytes_of(fields: dict[str, Any], name: str) -> bytes | None:
    try:
        if (encoded := fields.get(f"{name}_base64")) is not None:
            return base64.b64decode(encoded, validate=True)
        text = fields.get(name)
        return None if text is None else text.encode()
    except (ValueError, AttributeError, TypeError):
        raise _BadLine(f"has a {name!r} that is neither text nor base64") from None
