"""The records of ``__consumer_offsets``, in Kafka's own formats, so that Kafka's tools can read ours.

A *change* is one record, decoded. All numbers big-endian; a *string* is an i16 length and UTF-8 (-1 is null), *bytes*
an i32 length and the bytes.

::

    key 1    i16 1, group string, topic string, partition i32
    value 4  i16 4, offset i64, leader epoch i32, metadata compact string, commit time i64, tagged fields (0: topic id)
    value 1  i16 1, offset i64, metadata string, commit time i64, expiry time i64    (a commit with its own retention)
    key 2    i16 2, group string
    value 3  i16 3, protocol type string, generation i32, protocol string?, leader string?, state time i64,
             i32 members of (member id string, instance id string?, client id string, client host string,
             rebalance timeout i32, session timeout i32, subscription bytes, assignment bytes)

A null value removes what the key names. Older versions are read. The records of the newer kinds of groups are drawn in
``modern_records.py``; other keys (streams groups, say) are left alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from headrace.broker.groups.fields import I16, I32, I64, Reader, string, varint
from headrace.broker.groups.modern_records import ModernChange, decode_modern, encode_modern
from headrace.errors import CorruptMessage

__all__ = [
    "Change",
    "CommittedOffset",
    "GroupChange",
    "GroupMetadata",
    "MemberMetadata",
    "OffsetChange",
    "TransactionEnd",
    "TransactionalOffset",
    "decode",
    "encode",
    "group_of",
]

_NO_TOPIC_ID = UUID(int=0)
_OFFSET_KEY, _GROUP_KEY = 1, 2
_OFFSET_VALUE, _OFFSET_VALUE_WITH_EXPIRY, _GROUP_VALUE = 4, 1, 3

_OFFSET_VALUE_HEAD = struct.Struct(">hqi")


class CommittedOffset(NamedTuple):
    """How far a group has come in one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    topic_id: UUID = _NO_TOPIC_ID

    def as_stored(self) -> CommittedOffset:
        """Without what its record has no room for: one with its own expiry is of an old version."""
        return self if self.expire_ms == -1 else self._replace(leader_epoch=-1, topic_id=_NO_TOPIC_ID)


class MemberMetadata(NamedTuple):
    """A member of a stable generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A group as it is stored: a stable generation, or an empty one. By default a group that only stores offsets."""

    protocol_type: str = ""
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    state_ms: int = -1
    members: tuple[MemberMetadata, ...] = ()


class OffsetChange(NamedTuple):
    """An offset was committed, or (None) removed."""

    group: str
    topic: str
    partition: int
    value: CommittedOffset | None


class GroupChange(NamedTuple):
    """A group reached a stable or empty generation, or (None) was removed."""

    group: str
    value: GroupMetadata | None


class TransactionalOffset(NamedTuple):
    """An offset that is committed if and when a producer's open transaction is."""

    producer_id: int
    epoch: int
    change: OffsetChange


class TransactionEnd(NamedTuple):
    """A producer's transaction was committed or aborted here: not a record but a control batch."""

    producer_id: int
    epoch: int
    commit: bool


Change = OffsetChange | GroupChange | TransactionalOffset | TransactionEnd | ModernChange


def encode(change: Change) -> tuple[bytes, bytes | None]:
    """Key and value of the record that says this."""
    assert not isinstance(change, TransactionEnd)
    if isinstance(change, TransactionalOffset):
        change = change.change
    if not isinstance(change, OffsetChange | GroupChange):
        return encode_modern(change)
    if isinstance(change, OffsetChange):
        key = I16.pack(_OFFSET_KEY) + string(change.group) + string(change.topic) + I32.pack(change.partition)
        return key, None if change.value is None else _encode_offset(change.value)
    key = I16.pack(_GROUP_KEY) + string(change.group)
    return key, None if change.value is None else _encode_group(change.value)


def decode(key: bytes | None, value: bytes | None) -> OffsetChange | GroupChange | ModernChange | None:
    """What a record says; None if it is of a kind that is left alone."""
    if key is None:
        raise CorruptMessage("a record of __consumer_offsets has no key")
    reader = Reader(key)
    kind = reader.i16()
    if kind in (0, _OFFSET_KEY):
        group, topic, partition = reader.string(), reader.string(), reader.i32()
        return OffsetChange(group, topic, partition, None if value is None else _decode_offset(Reader(value)))
    if kind == _GROUP_KEY:
        return GroupChange(reader.string(), None if value is None else _decode_group(Reader(value)))
    return decode_modern(kind, reader, value)


def group_of(key: bytes | None) -> str:
    """The group that a record is about: every key has it. CorruptMessage if not even that can be read."""
    reader = Reader(key or b"")
    reader.i16()
    return reader.string()


def _encode_offset(value: CommittedOffset) -> bytes:
    if value.expire_ms != -1:
        return b"".join(
            (
                I16.pack(_OFFSET_VALUE_WITH_EXPIRY),
                I64.pack(value.offset),
                string(value.metadata),
                I64.pack(value.commit_ms),
                I64.pack(value.expire_ms),
            )
        )
    metadata = value.metadata.encode()
    head = _OFFSET_VALUE_HEAD.pack(_OFFSET_VALUE, value.offset, value.leader_epoch)
    tail = b"\x00" if value.topic_id == _NO_TOPIC_ID else b"\x01\x00\x10" + value.topic_id.bytes
    return b"".join((head, varint(len(metadata) + 1), metadata, I64.pack(value.commit_ms), tail))


def _decode_offset(reader: Reader) -> CommittedOffset:
    version = reader.version(0, 4)
    offset = reader.i64()
    leader_epoch = reader.i32() if version >= 3 else -1
    metadata = reader.compact_string() if version >= 4 else reader.string()
    commit_ms = reader.i64()
    expire_ms = reader.i64() if version == 1 else -1
    topic_id = _NO_TOPIC_ID
    if version >= 4:
        for tag, data in reader.tagged_fields():
            if tag == 0 and len(data) == 16:
                topic_id = UUID(bytes=data)
    return CommittedOffset(offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id)


def _encode_group(value: GroupMetadata) -> bytes:
    parts = [
        I16.pack(_GROUP_VALUE),
        string(value.protocol_type),
        I32.pack(value.generation),
        string(value.protocol),
        string(value.leader),
        I64.pack(value.state_ms),
        I32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            string(member.member_id),
            string(member.instance_id),
            string(member.client_id),
            string(member.client_host),
            I32.pack(member.rebalance_timeout_ms),
            I32.pack(member.session_timeout_ms),
            I32.pack(len(member.subscription)),
            member.subscription,
            I32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def _decode_group(reader: Reader) -> GroupMetadata:
    version = reader.version(0, 3)
    protocol_type, generation = reader.string(), reader.i32()
    protocol, leader = reader.optional_string(), reader.optional_string()
    state_ms = reader.i64() if version >= 2 else -1
    members = []
    for _ in range(reader.i32()):
        member_id = reader.string()
        instance_id = reader.optional_string() if version >= 3 else None
        client_id, client_host = reader.string(), reader.string()
        rebalance_timeout_ms = reader.i32() if version >= 1 else -1
        session_timeout_ms = reader.i32()
        if rebalance_timeout_ms == -1:
            rebalance_timeout_ms = session_timeout_ms
        members.append(
            MemberMetadata(
                member_id,
                instance_id,
                client_id,
                client_host,
                rebalance_timeout_ms,
                session_timeout_ms,
                reader.bytes_(),
                reader.bytes_(),
            )
        )
    return GroupMetadata(protocol_type, generation, protocol, leader, state_ms, tuple(members))
