"""Small steps over a frame that the hot codecs share. Each takes a position and returns the one after what it read.

Past the end they raise ``IndexError`` or ``struct.error``, which the codecs turn into ``InvalidRequest``; lengths are
checked here.
"""

from __future__ import annotations

import struct
from typing import Final

from headrace.errors import InvalidRequest

__all__ = ["MAX_PARTITIONS", "compact_string", "legacy_string", "skip_tags", "too_many", "varint"]

MAX_PARTITIONS: Final = 200_000
"""Topics and partitions that one request may name."""

_I16: Final = struct.Struct(">h").unpack_from


def varint(view: memoryview, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and where it ends."""
    byte = view[pos]
    pos += 1
    if byte < 0x80:
        return byte, pos
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        byte = view[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise InvalidRequest("a varint of more than five bytes")


def legacy_string(view: memoryview, pos: int) -> tuple[str | None, int]:
    """A string with a 16-bit length, or None, and where it ends."""
    (size,) = _I16(view, pos)
    pos += 2
    if size == -1:
        return None, pos
    return _text(view, pos, size)


def compact_string(view: memoryview, pos: int) -> tuple[str | None, int]:
    """A string with a varint length plus one, or None, and where it ends."""
    size, pos = varint(view, pos)
    if size == 0:
        return None, pos
    return _text(view, pos, size - 1)


def skip_tags(view: memoryview, pos: int) -> int:
    """Where a tag section ends."""
    count = view[pos]
    if count == 0:
        return pos + 1
    count, pos = varint(view, pos)
    if count > len(view) - pos or count > MAX_PARTITIONS:
        raise too_many(count)
    for _ in range(count):
        _, pos = varint(view, pos)
        size, pos = varint(view, pos)
        pos += size
        if pos > len(view):
            raise InvalidRequest("a tagged field that is longer than its frame")
    return pos


def too_many(count: int) -> InvalidRequest:
    """The error for a count that the frame cannot hold or that is over what is allowed."""
    return InvalidRequest(f"a count of {count}, which is more than the frame holds or than one request may have")


def _text(view: memoryview, pos: int, size: int) -> tuple[str, int]:
    end = pos + size
    if size < 0 or end > len(view):
        raise InvalidRequest(f"a string of {size} bytes where {len(view) - pos} are left")
    try:
        return str(view[pos:end], "utf-8"), end
    except UnicodeDecodeError:
        raise InvalidRequest("a string that is not UTF-8") from None
