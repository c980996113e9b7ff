"""Fields of coordinator records: Kafka's two ways to write them, the plain one and the flexible (compact) one.

All numbers big-endian. Plain: a *string* is an i16 length and UTF-8 (-1 is null), *bytes* an i32 length and the bytes.
Compact: lengths are varints of length + 1 (0 is null), and every structure ends with tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from headrace.errors import CorruptMessage, InvalidRequest

__all__ = [
    "I16",
    "I32",
    "I64",
    "Reader",
    "compact_array",
    "compact_bytes",
    "compact_ints",
    "compact_string",
    "string",
    "tagged",
    "varint",
]

T = TypeVar("T")

I16 = struct.Struct(">h")
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")

_MAX_STRING = 0x7FFF


def string(text: str | None) -> bytes:
    """A plain string."""
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    if len(data) > _MAX_STRING:
        raise InvalidRequest(f"a name of {len(data)} bytes cannot be stored, {_MAX_STRING} is the most")
    return I16.pack(len(data)) + data


def varint(number: int) -> bytes:
    """An unsigned variable-length number."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def compact_string(text: str | None) -> bytes:
    """A compact string, or null."""
    return compact_bytes(None if text is None else text.encode())


def compact_bytes(data: bytes | None) -> bytes:
    """Compact bytes, or null."""
    return b"\x00" if data is None else varint(len(data) + 1) + data


def compact_array(items: Sequence[T], encode: Callable[[T], bytes]) -> bytes:
    """A compact array."""
    return varint(len(items) + 1) + b"".join(map(encode, items))


def compact_ints(numbers: Sequence[int]) -> bytes:
    """A compact array of i32."""
    return varint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers)


def tagged(*fields: tuple[int, bytes]) -> bytes:
    """The tagged fields that end a structure."""
    return varint(len(fields)) + b"".join(varint(tag) + varint(len(data)) + data for tag, data in fields)


class Reader:
    """Reads fields one after the other and never past the end."""

    __slots__ = ("_at", "_data", "_topic")

    def __init__(self, data: bytes, topic: str = "__consumer_offsets") -> None:
        self._data = data
        self._at = 0
        self._topic = topic

    def version(self, lowest: int, highest: int) -> int:
        """The version that a value begins with; CorruptMessage if it is not in this range."""
        version = self.i16()
        if not lowest <= version <= highest:
            raise self.corrupt(f"has version {version}, known are {lowest} to {highest}")
        return version

    def i8(self) -> int:
        """A number of one byte."""
        return int.from_bytes(self._take(1), "big", signed=True)

    def i16(self) -> int:
        """A number of two bytes."""
        return int.from_bytes(self._take(2), "big", signed=True)

    def i32(self) -> int:
        """A number of four bytes."""
        return int.from_bytes(self._take(4), "big", signed=True)

    def i64(self) -> int:
        """A number of eight bytes."""
        return int.from_bytes(self._take(8), "big", signed=True)

    def uuid(self) -> UUID:
        """An id."""
        return UUID(bytes=self._take(16))

    def varint(self) -> int:
        """An unsigned variable-length number."""
        number = shift = 0
        while True:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 28:
                raise self.corrupt("has a number that does not end")

    def string(self) -> str:
        """A plain string."""
        text = self.optional_string()
        if text is None:
            raise self.corrupt("lacks a name")
        return text

    def optional_string(self) -> str | None:
        """A plain string, or null."""
        size = self.i16()
        return None if size < 0 else self._text(size)

    def compact_string(self) -> str:
        """A compact string."""
        return self._text(self.varint() - 1)

    def optional_compact_string(self) -> str | None:
        """A compact string, or null."""
        size = self.varint()
        return None if size == 0 else self._text(size - 1)

    def bytes_(self) -> bytes:
        """Plain bytes."""
        return self._take(max(self.i32(), 0))

    def compact_bytes(self) -> bytes:
        """Compact bytes."""
        return self._take(self.varint() - 1)

    def compact_array(self, read: Callable[[], T]) -> tuple[T, ...]:
        """A compact array."""
        count = self.varint() - 1
        if count > len(self._data):
            raise self.corrupt("is cut short")
        return tuple(read() for _ in range(count))

    def tagged_fields(self) -> list[tuple[int, bytes]]:
        """The tagged fields that end a structure."""
        fields = []
        for _ in range(self.varint()):
            tag = self.varint()
            fields.append((tag, self._take(self.varint())))
        return fields

    def tag(self, wanted: int) -> Reader | None:
        """A reader of one tagged field, if it is there; the structure ends here."""
        data = dict(self.tagged_fields()).get(wanted)
        return None if data is None else Reader(data, self._topic)

    def _text(self, size: int) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise self.corrupt("has a name that is not UTF-8") from None

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise self.corrupt("is cut short")
        data = self._data[self._at : end]
        self._at = end
        return data

    def corrupt(self, what: str) -> CorruptMessage:
        """What to raise when a record cannot be."""
        return CorruptMessage(f"a record of {self._topic} {what}")
