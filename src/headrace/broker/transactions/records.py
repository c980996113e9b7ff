"""The records of ``__transaction_state``, in Kafka's own formats, so that Kafka's tools can read ours.

All numbers big-endian; *compact* lengths are varints of one more than the length.

::

    key 0    i16 0, transactional id (i16 length, UTF-8)
    value 1  i16 1, producer id i64, epoch i16, timeout i32, phase i8, compact array or null of (topic compact string,
             compact array of partition i32, tags), last update i64, start i64,
             tags: 0 previous producer id i64, 1 next producer id i64, 2 transaction version i16, 1000 last epoch i16
    value 0  the same without tags, with lengths of i16 (strings) and i32 (arrays); only read

A null value forgets the id. Tag 1000 is ours, and Kafka skips it: with it, a client that asks a second time for an
epoch because it missed the first answer gets the same one also after a restart.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from headrace.broker.primitives import READERS, Cursor, Reader, unsigned_varint
from headrace.errors import CorruptMessage, InvalidRequest

__all__ = [
    "NO_EPOCH",
    "NO_PRODUCER",
    "Phase",
    "Place",
    "Transaction",
    "TransactionChange",
    "decode",
    "decode_id",
    "encode",
]

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1

Place = tuple[str, int]
"""Topic and partition."""

_KEY: Final = struct.Struct(">hh")
_HEAD: Final = struct.Struct(">hqhib")
_TIMES: Final = struct.Struct(">qq")
_PREVIOUS, _NEXT, _VERSION, _LAST_EPOCH = 0, 1, 2, 1000
_MAX_ID: Final = 0x7FFF


class Phase(IntEnum):
    """Where a transactional id is; the numbers are those of the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """As clients are told."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_ending(self) -> bool:
        """It is decided how the transaction ends, and not yet written everywhere."""
        return self in (Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT)


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is known of a transactional id: its producer, and its transaction if one is open.

    ``version`` 2 says that the client takes a new epoch after every transaction. ``next_producer_id`` is set while a
    transaction ends whose producer id has no epochs left.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    phase: Phase
    partitions: frozenset[Place]
    updated_ms: int
    started_ms: int = -1
    previous_producer_id: int = NO_PRODUCER
    next_producer_id: int = NO_PRODUCER
    last_epoch: int = NO_EPOCH
    version: int = 0


class TransactionChange(NamedTuple):
    """A transactional id is now so, or (None) forgotten."""

    transactional_id: str
    value: Transaction | None


def encode(change: TransactionChange) -> tuple[bytes, bytes | None]:
    """Key and value of the record that says this."""
    name = change.transactional_id.encode()
    if len(name) > _MAX_ID:
        raise InvalidRequest(f"a transactional id of {len(name)} bytes cannot be stored, {_MAX_ID} is the most")
    return _KEY.pack(0, len(name)) + name, None if change.value is None else _encode_value(change.value)


def decode(key: bytes | None, value: bytes | None) -> TransactionChange | None:
    """What a record says; None if it is of another kind."""
    transactional_id = decode_id(key)
    if transactional_id is None:
        return None
    if value is None:
        return TransactionChange(transactional_id, None)
    try:
        return TransactionChange(transactional_id, _decode_value(Cursor(memoryview(value))))
    except (InvalidRequest, ValueError) as error:
        raise CorruptMessage(f"the state of transactional id {transactional_id!r} cannot be read: {error}") from None


def decode_id(key: bytes | None) -> str | None:
    """The transactional id that a record is about; None if it is about something else."""
    try:
        cursor = Cursor(memoryview(key or b""))
        kind = _read("int16", cursor)
        return str(READERS["string", False, False](cursor)) if kind == 0 else None
    except InvalidRequest as error:
        raise CorruptMessage(f"a record of __transaction_state has a damaged key: {error}") from None


def _encode_value(value: Transaction) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(value.partitions):
        topics.setdefault(topic, []).append(partition)
    parts = [_HEAD.pack(1, value.producer_id, value.epoch, value.timeout_ms, value.phase)]
    parts.append(unsigned_varint(len(topics) + 1))
    for topic, partitions in topics.items():
        name = topic.encode()
        parts += (unsigned_varint(len(name) + 1), name, unsigned_varint(len(partitions) + 1))
        parts.append(struct.pack(f">{len(partitions)}i", *partitions) + b"\0")
    parts.append(_TIMES.pack(value.updated_ms, value.started_ms))
    tags = [
        (tag, struct.pack(form, number))
        for tag, form, number, default in (
            (_PREVIOUS, ">q", value.previous_producer_id, NO_PRODUCER),
            (_NEXT, ">q", value.next_producer_id, NO_PRODUCER),
            (_VERSION, ">h", value.version, 0),
            (_LAST_EPOCH, ">h", value.last_epoch, NO_EPOCH),
        )
        if number != default
    ]
    parts.append(unsigned_varint(len(tags)))
    for tag, data in tags:
        parts += (unsigned_varint(tag), unsigned_varint(len(data)), data)
    return b"".join(parts)


def _decode_value(cursor: Cursor) -> Transaction:
    version = _read("int16", cursor)
    if version not in (0, 1):
        raise InvalidRequest(f"it has version {version}, known are 0 and 1")
    flexible = version == 1
    producer_id, epoch = _read("int64", cursor), _read("int16", cursor)
    timeout_ms, phase = _read("int32", cursor), Phase(_read("int8", cursor))
    partitions = frozenset(_decode_partitions(cursor, flexible))
    updated_ms, started_ms = _read("int64", cursor), _read("int64", cursor)
    tags = _decode_tags(cursor) if flexible else {}
    return Transaction(
        producer_id,
        epoch,
        timeout_ms,
        phase,
        partitions,
        updated_ms,
        started_ms,
        tags.get(_PREVIOUS, NO_PRODUCER),
        tags.get(_NEXT, NO_PRODUCER),
        tags.get(_LAST_EPOCH, NO_EPOCH),
        tags.get(_VERSION, 0),
    )


def _decode_partitions(cursor: Cursor, flexible: bool) -> Iterable[Place]:
    read_name: Reader = READERS["string", flexible, False]
    for _ in range(_count(cursor, flexible)):
        topic = read_name(cursor)
        for _ in range(_count(cursor, flexible)):
            yield topic, _read("int32", cursor)
        if flexible:
            cursor.skip_tags()


def _decode_tags(cursor: Cursor) -> dict[int, int]:
    tags = {}
    for _ in range(cursor.varint()):
        tag, size = cursor.varint(), cursor.varint()
        start = cursor.take(size)
        tags[tag] = int.from_bytes(cursor.view[start : start + size], "big", signed=True)
    return tags


def _count(cursor: Cursor, flexible: bool) -> int:
    count = cursor.varint() - 1 if flexible else _read("int32", cursor)
    cursor.charge(max(count, 0))
    return count


def _read(kind: str, cursor: Cursor) -> int:
    return int(READERS[kind, False, False](cursor))
