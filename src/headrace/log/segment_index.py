"""Where offsets, times and aborted transactions lie in one segment.

The index is sparse: one entry for about every ``index.interval.bytes`` of batches. In memory it is the bytes of the
file, so that it is written as it is; its file covers a *prefix* of the segment that was on disk before the index was:

::

    magic           4 bytes   b"HRX1"
    cover crc       u32       CRC-32C of the cover, the four fields after the next
    body crc        u32       CRC-32C of entries and aborted
    covered bytes   i64       length of the prefix of the segment
    end offset      i64       offset after the last batch of that prefix
    max timestamp   i64       largest timestamp in it, -1 if none
    aborted count   i32
    entries         16 bytes each: offset - base offset (u32), position (u32), largest timestamp before it (i64)
    aborted         32 bytes each: producer id, first offset, last offset, last stable offset (i64 each)

Because the file is only written once its prefix was synced, a bad batch inside the prefix is damage, and one after it
is the torn end of a write that nobody was promised.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headrace import _kernel
from headrace.log.files import Files

__all__ = ["AbortedTransaction", "Cover", "SegmentIndex", "read_cover", "read_index", "write_index"]

_MAGIC = b"HRX1"
_HEAD = struct.Struct(">4sII")
_COVER = struct.Struct(">qqqi")
_ENTRY = struct.Struct(">IIq")
_ABORTED = struct.Struct(">qqqq")


class AbortedTransaction(NamedTuple):
    """A transaction that was rolled back: its batches lie between the two offsets."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Cover(NamedTuple):
    """The prefix of the segment that an index file speaks of."""

    covered_bytes: int
    end_offset: int
    max_timestamp: int
    aborted_count: int


class SegmentIndex:
    """The index of one segment; entries only ever grow."""

    __slots__ = ("_entries", "aborted", "base_offset")

    def __init__(
        self, base_offset: int, entries: bytes | bytearray = b"", aborted: tuple[AbortedTransaction, ...] = ()
    ):
        self.base_offset = base_offset
        self.aborted = list(aborted)
        self._entries = bytearray(entries)

    def __len__(self) -> int:
        return len(self._entries) // _ENTRY.size

    @property
    def size_bytes(self) -> int:
        """Bytes of the entries."""
        return len(self._entries)

    def add(self, offset: int, position: int, max_timestamp_before: int) -> None:
        """Say that a batch with this base offset starts at this position."""
        self._entries += _ENTRY.pack(offset - self.base_offset, position, max_timestamp_before)

    def position_of_offset(self, offset: int) -> int:
        """Position of an indexed batch at or before ``offset``; 0 if none is."""
        relative = offset - self.base_offset
        return self._position_before(lambda entry: entry[0] <= relative)

    def position_of_timestamp(self, timestamp: int) -> int:
        """Position before which no record has a timestamp >= ``timestamp``."""
        return self._position_before(lambda entry: entry[2] < timestamp)

    def offset_after(self, position: int) -> int | None:
        """Offset of the first indexed batch at or after ``position``; None if none is."""
        at = self._count_before(lambda entry: entry[1] < position)
        return self._offset(at) if at < len(self) else None

    def last_offset(self) -> int:
        """Offset of the last indexed batch; where the segment begins if there is none."""
        return self._offset(len(self) - 1) if self._entries else self.base_offset

    def entries(self) -> list[tuple[int, int, int]]:
        """(offset, position, largest timestamp before it) of every entry."""
        return [(self.base_offset + r, p, t) for r, p, t in _ENTRY.iter_unpack(self._entries)]

    def cut(self, covered_bytes: int, end_offset: int) -> None:
        """Forget what lies at or after this position and offset."""
        while self._entries and _ENTRY.unpack_from(self._entries, len(self._entries) - _ENTRY.size)[1] >= covered_bytes:
            del self._entries[-_ENTRY.size :]
        self.aborted = [a for a in self.aborted if a.last_offset < end_offset]

    def encode(self, covered_bytes: int, end_offset: int, max_timestamp: int) -> bytes:
        """The bytes of the index file."""
        cover = _COVER.pack(covered_bytes, end_offset, max_timestamp, len(self.aborted))
        body = b"".join((self._entries, *(_ABORTED.pack(*a) for a in self.aborted)))
        return _HEAD.pack(_MAGIC, _kernel.crc32c(cover), _kernel.crc32c(body)) + cover + body

    def _offset(self, at: int) -> int:
        return self.base_offset + int(_ENTRY.unpack_from(self._entries, at * _ENTRY.size)[0])

    def _position_before(self, is_before: Callable[[tuple[int, int, int]], bool]) -> int:
        count = self._count_before(is_before)
        return int(_ENTRY.unpack_from(self._entries, (count - 1) * _ENTRY.size)[1]) if count else 0

    def _count_before(self, is_before: Callable[[tuple[int, int, int]], bool]) -> int:
        entries, low, high = self._entries, 0, len(self)
        while low < high:
            middle = (low + high) // 2
            relative, position, timestamp = _ENTRY.unpack_from(entries, middle * _ENTRY.size)
            if is_before((relative, position, timestamp)):
                low = middle + 1
            else:
                high = middle
        return low


def write_index(files: Files, path: Path, encoded: bytes) -> None:
    """Replace the index file; the segment's covered bytes must be on disk already."""
    fresh = path.with_name(path.name + ".new")
    file = files.open(fresh, create=True)
    try:
        file.write(0, encoded)
        file.sync()
    finally:
        file.close()
    files.rename(fresh, path)


def read_cover(files: Files, path: Path) -> Cover | None:
    """What the index file covers, without reading all of it; None if there is none or it is damaged."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        return _decode_cover(file.read(0, _HEAD.size + _COVER.size))
    finally:
        file.close()


def read_index(files: Files, path: Path, base_offset: int) -> tuple[SegmentIndex, Cover] | None:
    """The index; None if there is none or it is damaged (it can be made again from the segment)."""
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    cover = _decode_cover(data)
    if cover is None:
        return None
    body = memoryview(data)[_HEAD.size + _COVER.size :]
    if _kernel.crc32c(body) != _HEAD.unpack_from(data)[2]:
        return None
    split = len(body) - cover.aborted_count * _ABORTED.size
    if split < 0 or split % _ENTRY.size:
        return None
    aborted = tuple(AbortedTransaction(*a) for a in _ABORTED.iter_unpack(body[split:]))
    return SegmentIndex(base_offset, bytes(body[:split]), aborted), cover


def _decode_cover(data: bytes) -> Cover | None:
    if len(data) < _HEAD.size + _COVER.size:
        return None
    magic, crc, _ = _HEAD.unpack_from(data)
    cover = data[_HEAD.size : _HEAD.size + _COVER.size]
    if magic != _MAGIC or _kernel.crc32c(cover) != crc:
        return None
    return Cover(*_COVER.unpack(cover))
