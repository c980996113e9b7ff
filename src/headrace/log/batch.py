"""The header of a record batch (magic 2), as Kafka defines it; all numbers big-endian.

::

     0  base offset          i64   rewritten at append
     8  batch length         i32   bytes after this field
    12  leader epoch         i32   rewritten at append
    16  magic                i8    2
    17  crc                  u32   CRC-32C of all that follows
    21  attributes           i16   0-2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon
    23  last offset delta    i32
    27  base timestamp       i64
    35  max timestamp        i64
    43  producer id          i64
    51  producer epoch       i16
    53  base sequence        i32
    57  record count         i32
    61  records, compressed as a whole
"""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = [
    "CODEC_MASK",
    "CONTROL",
    "DELETE_HORIZON",
    "HEADER_SIZE",
    "LOG_APPEND_TIME",
    "NO_PRODUCER_ID",
    "TRANSACTIONAL",
    "BatchHeader",
    "set_offset_and_epoch",
]

HEADER_SIZE = 61
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
NO_PRODUCER_ID = -1

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")


class BatchHeader(NamedTuple):
    """One batch's header, with where it lies in the buffer it was read from.

    The kernel returns plain tuples in this order; ``BatchHeader._make`` names them.
    """

    position: int
    size: int
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """Offset of the last record the batch was made with (it may have been compacted away since)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_control(self) -> bool:
        """A transaction marker, not data."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL)


def set_offset_and_epoch(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write the two fields that the broker owns; the checksum does not cover them."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, 12, leader_epoch)
