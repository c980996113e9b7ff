"""The records of ``__share_group_state``, in Kafka's own format, so that Kafka's tools can read ours.

Each change is a whole *snapshot* of one share partition (as Kafka writes with ``share.coordinator.snapshot.update.
records.per.snapshot=0``): it has as many runs as there are differences, and compaction keeps the newest. All numbers
big-endian; *compact* lengths are varints of one more than the length.

::

    key    i16 0, group (i16 length, UTF-8), topic id 16 bytes, partition i32
    value  i16 0, snapshot epoch i32, state epoch i32, leader epoch i32, start offset i64, created i64, written i64,
           compact array of (first i64, last i64, state i8, delivery count i16, tags),
           tags: 0 number of settled offsets i32, 1000 dead letters
    1000   topic compact string, topic id 16 bytes, partition i32, since i64,
           compact array of (first i64, last i64, delivery count i16, reason i8)

A null value forgets the partition. Tag 1000 is ours, and Kafka skips it: records that were given up and are not yet
known to be in the dead-letter topic, which they are looked for in from offset *since* on after a crash.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from headrace.broker.primitives import READERS, Cursor, unsigned_varint
from headrace.broker.shares.window import Dead, Kept, Reason, State
from headrace.errors import CorruptMessage, InvalidRequest

__all__ = ["DeadLetters", "ShareChange", "ShareKey", "ShareState", "decode", "decode_key", "encode"]

_GROUP: Final = struct.Struct(">hh")
_PLACE: Final = struct.Struct(">16si")
_HEAD: Final = struct.Struct(">hiiiqqq")
_RUN: Final = struct.Struct(">qqbhx")
_SETTLED: Final = struct.Struct(">i")
_TARGET: Final = struct.Struct(">16siq")
_DEAD: Final = struct.Struct(">qqhb")
_SETTLED_TAG, _DEAD_TAG = 0, 1000
_SNAPSHOT: Final = 0
_MAX_NAME: Final = 0x7FFF


class ShareKey(NamedTuple):
    """A partition as a group shares it."""

    group: str
    topic_id: bytes
    partition: int


class DeadLetters(NamedTuple):
    """What is to go to which topic, and from where on it may be there already."""

    topic: str
    topic_id: bytes
    partition: int
    since: int
    runs: tuple[Dead, ...]


@dataclass(frozen=True, slots=True)
class ShareState:
    """What is kept of a share partition. ``epoch`` counts the snapshots, ``state_epoch`` the resets of its offset."""

    epoch: int
    state_epoch: int
    leader_epoch: int
    start: int
    created_ms: int
    written_ms: int
    runs: tuple[Kept, ...]
    settled: int = -1
    dead: DeadLetters | None = None


class ShareChange(NamedTuple):
    """A share partition is now so, or (None) forgotten."""

    key: ShareKey
    value: ShareState | None


def encode(change: ShareChange) -> tuple[bytes, bytes | None]:
    """Key and value of the record that says this."""
    group = change.key.group.encode()
    if len(group) > _MAX_NAME:
        raise InvalidRequest(f"a group name of {len(group)} bytes cannot be stored, {_MAX_NAME} is the most")
    key = _GROUP.pack(_SNAPSHOT, len(group)) + group + _PLACE.pack(*change.key[1:])
    return key, None if change.value is None else _encode_value(change.value)


def decode(key: bytes | None, value: bytes | None) -> ShareChange | None:
    """What a record says; None if it is of another kind."""
    share = decode_key(key)
    if share is None:
        return None
    if value is None:
        return ShareChange(share, None)
    try:
        return ShareChange(share, _decode_value(Cursor(memoryview(value))))
    except (InvalidRequest, ValueError) as error:
        raise CorruptMessage(f"the state of group {share.group!r} cannot be read: {error}") from None


def decode_key(key: bytes | None) -> ShareKey | None:
    """The share partition that a record is about; None if it is about something else."""
    try:
        cursor = Cursor(memoryview(key or b""))
        if READERS["int16", False, False](cursor) != _SNAPSHOT:
            return None
        group = READERS["string", False, False](cursor)
        topic_id, partition = _PLACE.unpack_from(cursor.view, cursor.take(_PLACE.size))
    except InvalidRequest as error:
        raise CorruptMessage(f"a record of __share_group_state has a damaged key: {error}") from None
    return ShareKey(group, topic_id, partition)


def _encode_value(value: ShareState) -> bytes:
    parts = [
        _HEAD.pack(
            0,
            value.epoch,
            value.state_epoch,
            value.leader_epoch,
            value.start,
            value.created_ms,
            value.written_ms,
        ),
        unsigned_varint(len(value.runs) + 1),
        *(_RUN.pack(*run) for run in value.runs),
    ]
    tags = [] if value.settled == -1 else [(_SETTLED_TAG, _SETTLED.pack(value.settled))]
    if value.dead is not None:
        tags.append((_DEAD_TAG, _encode_dead(value.dead)))
    parts.append(unsigned_varint(len(tags)))
    for tag, data in tags:
        parts += (unsigned_varint(tag), unsigned_varint(len(data)), data)
    return b"".join(parts)


def _encode_dead(dead: DeadLetters) -> bytes:
    name = dead.topic.encode()
    head = unsigned_varint(len(name) + 1) + name + _TARGET.pack(dead.topic_id, dead.partition, dead.since)
    return head + unsigned_varint(len(dead.runs) + 1) + b"".join(_DEAD.pack(*run) for run in dead.runs)


def _decode_value(cursor: Cursor) -> ShareState:
    version, *head = _HEAD.unpack_from(cursor.view, cursor.take(_HEAD.size))
    if version != 0:
        raise InvalidRequest(f"it has version {version}, known is 0")
    epoch, state_epoch, leader_epoch, start, created_ms, written_ms = head
    runs = []
    for _ in range(_count(cursor)):
        first, last, state, count = _RUN.unpack_from(cursor.view, cursor.take(_RUN.size - 1))
        cursor.skip_tags()
        runs.append(Kept(first, last, State(state), count))
    settled, dead = -1, None
    for _ in range(cursor.varint()):
        tag, size = cursor.varint(), cursor.varint()
        at = cursor.take(size)
        if tag == _SETTLED_TAG:
            (settled,) = _SETTLED.unpack_from(cursor.view, at)
        elif tag == _DEAD_TAG:
            dead = _decode_dead(Cursor(cursor.view[at : at + size]))
    return ShareState(epoch, state_epoch, leader_epoch, start, created_ms, written_ms, tuple(runs), settled, dead)


def _decode_dead(cursor: Cursor) -> DeadLetters:
    topic = READERS["string", True, False](cursor)
    topic_id, partition, since = _TARGET.unpack_from(cursor.view, cursor.take(_TARGET.size))
    runs = []
    for _ in range(_count(cursor)):
        first, last, count, reason = _DEAD.unpack_from(cursor.view, cursor.take(_DEAD.size))
        runs.append(Dead(first, last, count, Reason(reason)))
    return DeadLetters(topic, topic_id, partition, since, tuple(runs))


def _count(cursor: Cursor) -> int:
    count = cursor.varint() - 1
    cursor.charge(max(count, 0))
    return count
