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

A null value removes what the key names. Other keys (the newer kinds of groups) are left alone. Older versions are
read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from headrace.errors import CorruptMessage, InvalidRequest

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
]

_NO_TOPIC_ID = UUID(int=0)
_OFFSET_KEY, _GROUP_KEY = 1, 2
_OFFSET_VALUE, _OFFSET_VALUE_WITH_EXPIRY, _GROUP_VALUE = 4, 1, 3
_MAX_STRING = 0x7FFF

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
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


Change = OffsetChange | GroupChange | TransactionalOffset | TransactionEnd


def encode(change: Change) -> tuple[bytes, bytes | None]:
    """Key and value of the record that says this."""
    assert not isinstance(change, TransactionEnd)
    if isinstance(change, TransactionalOffset):
        change = change.change
    if isinstance(change, OffsetChange):
        key = _I16.pack(_OFFSET_KEY) + _string(change.group) + _string(change.topic) + _I32.pack(change.partition)
        return key, None if change.value is None else _encode_offset(change.value)
    key = _I16.pack(_GROUP_KEY) + _string(change.group)
    return key, None if change.value is None else _encode_group(change.value)


def decode(key: bytes | None, value: bytes | None) -> OffsetChange | GroupChange | None:
    """What a record says; None if it is of a kind that is not about classic groups and offsets."""
    if key is None:
        raise CorruptMessage("a record of __consumer_offsets has no key")
    reader = _Reader(key)
    kind = reader.i16()
    if kind in (0, _OFFSET_KEY):
        group, topic, partition = reader.string(), reader.string(), reader.i32()
        return OffsetChange(group, topic, partition, None if value is None else _decode_offset(_Reader(value)))
    if kind == _GROUP_KEY:
        return GroupChange(reader.string(), None if value is None else _decode_group(_Reader(value)))
    return None


def _encode_offset(value: CommittedOffset) -> bytes:
    if value.expire_ms != -1:
        return b"".join(
            (
                _I16.pack(_OFFSET_VALUE_WITH_EXPIRY),
                _I64.pack(value.offset),
                _string(value.metadata),
                _I64.pack(value.commit_ms),
                _I64.pack(value.expire_ms),
            )
        )
    metadata = value.metadata.encode()
    head = _OFFSET_VALUE_HEAD.pack(_OFFSET_VALUE, value.offset, value.leader_epoch)
    tail = b"\x00" if value.topic_id == _NO_TOPIC_ID else b"\x01\x00\x10" + value.topic_id.bytes
    return b"".join((head, _varint(len(metadata) + 1), metadata, _I64.pack(value.commit_ms), tail))


def _decode_offset(reader: _Reader) -> CommittedOffset:
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
        _I16.pack(_GROUP_VALUE),
        _string(value.protocol_type),
        _I32.pack(value.generation),
        _string(value.protocol),
        _string(value.leader),
        _I64.pack(value.state_ms),
        _I32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            _string(member.member_id),
            _string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _I32.pack(member.rebalance_timeout_ms),
            _I32.pack(member.session_timeout_ms),
            _I32.pack(len(member.subscription)),
            member.subscription,
            _I32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def _decode_group(reader: _Reader) -> GroupMetadata:
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


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    if len(data) > _MAX_STRING:
        raise InvalidRequest(f"a name of {len(data)} bytes cannot be stored, {_MAX_STRING} is the most")
    return _I16.pack(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class _Reader:
    """Reads fields one after the other and never past the end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def version(self, lowest: int, highest: int) -> int:
        version = self.i16()
        if not lowest <= version <= highest:
            raise CorruptMessage(
                f"a record of __consumer_offsets has version {version}, known are {lowest} to {highest}"
            )
        return version

    def i16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def i32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def i64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 28:
                raise CorruptMessage("a record of __consumer_offsets has a number that does not end")

    def string(self) -> str:
        text = self.optional_string()
        if text is None:
            raise CorruptMessage("a record of __consumer_offsets lacks a name")
        return text

    def optional_string(self) -> str | None:
        size = self.i16()
        return None if size < 0 else self._text(size)

    def compact_string(self) -> str:
        return self._text(self.varint() - 1)

    def bytes_(self) -> bytes:
        return self._take(max(self.i32(), 0))

    def tagged_fields(self) -> list[tuple[int, bytes]]:
        fields = []
        for _ in range(self.varint()):
            tag = self.varint()
            fields.append((tag, self._take(self.varint())))
        return fields

    def _text(self, size: int) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise CorruptMessage("a record of __consumer_offsets has a name that is not UTF-8") from None

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise CorruptMessage("a record of __consumer_offsets is cut short")
        data = self._data[self._at : end]
        self._at = end
        return data
