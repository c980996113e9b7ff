"""The protocol's primitive types, read from a frame and written to a response.

Nothing here trusts a length or a count: a length is checked against the bytes that are left before anything is made of
it, and every array element and tagged field is charged to a budget, because small elements become large objects.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from headrace.errors import InvalidRequest

__all__ = ["MAX_ELEMENTS", "NO_UUID", "READERS", "WRITERS", "Cursor", "Reader", "Writer", "unsigned_varint"]

MAX_ELEMENTS: Final = 250_000
"""Array elements and tagged fields that one request may have."""
NO_UUID: Final = UUID(int=0)


class Cursor:
    """A place in a frame, and how many more elements may be read from it."""

    __slots__ = ("end", "left", "pos", "view")

    def __init__(self, view: memoryview, pos: int = 0) -> None:
        self.view = view
        self.pos = pos
        self.end = len(view)
        self.left = MAX_ELEMENTS

    def take(self, size: int) -> int:
        """Step over so many bytes; where they begin."""
        start = self.pos
        if size < 0 or size > self.end - start:
            raise InvalidRequest(f"a field of {size} bytes where {self.end - start} are left")
        self.pos = start + size
        return start

    def charge(self, count: int) -> None:
        """Take elements from the budget; each has at least one byte."""
        if count > self.end - self.pos:
            raise InvalidRequest(f"a count of {count} where {self.end - self.pos} bytes are left")
        self.left -= count
        if self.left < 0:
            raise InvalidRequest(f"a request with more than {MAX_ELEMENTS} elements")

    def varint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        value = shift = 0
        while True:
            byte = self.view[self.take(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise InvalidRequest("a varint of more than five bytes")
        if value > 0xFFFF_FFFF:
            raise InvalidRequest("a varint of more than 32 bits")
        return value

    def skip_tags(self) -> None:
        """Step over a tag section whose fields mean nothing here."""
        count = self.varint()
        self.charge(count)
        for _ in range(count):
            self.varint()
            self.take(self.varint())


Reader = Callable[[Cursor], Any]
Writer = Callable[[bytearray, Any], None]


def unsigned_varint(value: int) -> bytes:
    """An unsigned varint, encoded."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fixed(code: str) -> tuple[Reader, Writer]:
    packing = struct.Struct(">" + code)
    size, unpack, pack = packing.size, packing.unpack_from, packing.pack

    def read(cursor: Cursor) -> Any:
        return unpack(cursor.view, cursor.take(size))[0]

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return read, write


def _text(cursor: Cursor, size: int) -> str:
    start = cursor.take(size)
    try:
        return str(cursor.view[start : start + size], "utf-8")
    except UnicodeDecodeError:
        raise InvalidRequest("a string that is not UTF-8") from None


def _raw(cursor: Cursor, size: int) -> bytes:
    start = cursor.take(size)
    return bytes(cursor.view[start : start + size])


_read_i16, _write_i16 = _fixed("h")
_read_i32, _write_i32 = _fixed("i")


def _read_legacy_string(cursor: Cursor) -> str:
    return _text(cursor, _read_i16(cursor))


def _read_nullable_legacy_string(cursor: Cursor) -> str | None:
    size = _read_i16(cursor)
    return None if size == -1 else _text(cursor, size)


def _read_compact_string(cursor: Cursor) -> str:
    return _text(cursor, cursor.varint() - 1)


def _read_nullable_compact_string(cursor: Cursor) -> str | None:
    size = cursor.varint()
    return None if size == 0 else _text(cursor, size - 1)


def _read_legacy_bytes(cursor: Cursor) -> bytes:
    return _raw(cursor, _read_i32(cursor))


def _read_nullable_legacy_bytes(cursor: Cursor) -> bytes | None:
    size = _read_i32(cursor)
    return None if size == -1 else _raw(cursor, size)


def _read_compact_bytes(cursor: Cursor) -> bytes:
    return _raw(cursor, cursor.varint() - 1)


def _read_nullable_compact_bytes(cursor: Cursor) -> bytes | None:
    size = cursor.varint()
    return None if size == 0 else _raw(cursor, size - 1)


def _read_uuid(cursor: Cursor) -> UUID:
    return UUID(bytes=_raw(cursor, 16))


def _write_legacy_string(out: bytearray, value: str) -> None:
    data = value.encode()
    _write_i16(out, len(data))
    out += data


def _write_legacy_bytes(out: bytearray, value: bytes) -> None:
    _write_i32(out, len(value))
    out += value


def _write_compact_string(out: bytearray, value: str) -> None:
    data = value.encode()
    out += unsigned_varint(len(data) + 1)
    out += data


def _write_compact_bytes(out: bytearray, value: bytes) -> None:
    out += unsigned_varint(len(value) + 1)
    out += value


def _write_uuid(out: bytearray, value: UUID | None) -> None:
    out += (value or NO_UUID).bytes


def _nullable(null: bytes, write: Writer) -> Writer:
    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out += null
        else:
            write(out, value)

    return write_nullable


_FIXED: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}

READERS: Final[dict[tuple[str, bool, bool], Reader]] = {
    ("string", False, False): _read_legacy_string,
    ("string", False, True): _read_nullable_legacy_string,
    ("string", True, False): _read_compact_string,
    ("string", True, True): _read_nullable_compact_string,
    ("bytes", False, False): _read_legacy_bytes,
    ("bytes", False, True): _read_nullable_legacy_bytes,
    ("bytes", True, False): _read_compact_bytes,
    ("bytes", True, True): _read_nullable_compact_bytes,
}
"""By type, whether the message is flexible, whether the field may be null."""
WRITERS: Final[dict[tuple[str, bool, bool], Writer]] = {
    ("string", False, False): _write_legacy_string,
    ("string", False, True): _nullable(b"\xff\xff", _write_legacy_string),
    ("string", True, False): _write_compact_string,
    ("string", True, True): _nullable(b"\x00", _write_compact_string),
    ("bytes", False, False): _write_legacy_bytes,
    ("bytes", False, True): _nullable(b"\xff\xff\xff\xff", _write_legacy_bytes),
    ("bytes", True, False): _write_compact_bytes,
    ("bytes", True, True): _nullable(b"\x00", _write_compact_bytes),
}
for _flexible in (False, True):
    for _optional in (False, True):
        READERS["records", _flexible, _optional] = READERS["bytes", _flexible, _optional]
        WRITERS["records", _flexible, _optional] = WRITERS["bytes", _flexible, _optional]
        READERS["uuid", _flexible, _optional] = _read_uuid
        WRITERS["uuid", _flexible, _optional] = _write_uuid
        for _name, _code in _FIXED.items():
            READERS[_name, _flexible, _optional], WRITERS[_name, _flexible, _optional] = _fixed(_code)
