"""ShareFetch and ShareAcknowledge, versions 1 and 2: requests are read where they lie, records leave uncopied.

::

    fetch request      group, member, session epoch i32, max wait i32, min bytes i32, max bytes i32, max records i32,
                       batch size i32, acquire mode i8 and renews bool (from 2), topics of (id; partitions of (index
                       i32, acknowledgements)), forgotten topics of (id; partitions of i32)
    fetch response     throttle i32, error i16, message, lock timeout i32, topics of (id; partitions of (index i32,
                       error i16, message, acknowledge error i16, acknowledge message, leader i32 and epoch i32,
                       records, acquired of (first i64, last i64, delivery count i16))), nodes
    ack request        group, member, session epoch i32, renews bool (from 2), topics of (id; partitions of (index i32,
                       acknowledgements))
    ack response       throttle i32, error i16, message, lock timeout i32 (from 2), topics of (id; partitions of (index
                       i32, error i16, message, leader i32 and epoch i32)), nodes
    acknowledgements   array of (first i64, last i64, array of types i8)

Strings, arrays and records have varint lengths plus one, 0 for none; structs end with a tag section.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.broker.codecs.scan import MAX_PARTITIONS, compact_string, skip_tags, too_many, varint
from headrace.broker.primitives import unsigned_varint
from headrace.broker.shares.window import AckBatch, Acquired
from headrace.errors import InvalidRequest

__all__ = [
    "AckAnswer",
    "AckRequest",
    "FetchAnswer",
    "FetchRequest",
    "PartitionAcks",
    "decode_ack_request",
    "decode_fetch_request",
    "encode_ack_response",
    "encode_fetch_response",
]

_RENEWS_SINCE: Final = 2
_EPOCH: Final = struct.Struct(">i").unpack_from
_LIMITS: Final = struct.Struct(">iiiiii")
_MODE: Final = struct.Struct(">bB").unpack_from
_I32: Final = struct.Struct(">i").unpack_from
_RANGE: Final = struct.Struct(">qq").unpack_from
_UUID_SIZE: Final = 16

Buffers = list[bytes | bytearray | memoryview]


class PartitionAcks(NamedTuple):
    """What a member says of one partition's records."""

    topic_id: bytes
    partition: int
    batches: list[AckBatch]


class FetchRequest(NamedTuple):
    """One ShareFetch."""

    group: str | None
    member: str | None
    epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    mode: int
    renews: bool
    partitions: list[PartitionAcks]
    forgotten: list[tuple[bytes, int]]


class AckRequest(NamedTuple):
    """One ShareAcknowledge."""

    group: str | None
    member: str | None
    epoch: int
    renews: bool
    partitions: list[PartitionAcks]


class FetchAnswer(NamedTuple):
    """What one partition answers to a fetch."""

    topic_id: bytes
    partition: int
    error_code: int
    message: str | None
    ack_error_code: int
    ack_message: str | None
    records: Sequence[memoryview]
    acquired: Sequence[Acquired]


class AckAnswer(NamedTuple):
    """What one partition answers to acknowledgements."""

    topic_id: bytes
    partition: int
    error_code: int
    message: str | None


def decode_fetch_request(version: int, view: memoryview, pos: int) -> FetchRequest:
    """Read a ShareFetch whose body begins at ``pos``."""
    try:
        group, pos = compact_string(view, pos)
        member, pos = compact_string(view, pos)
        epoch, max_wait_ms, min_bytes, max_bytes, max_records, batch_size = _LIMITS.unpack_from(view, pos)
        pos += _LIMITS.size
        mode, renews = 0, 0
        if version >= _RENEWS_SINCE:
            mode, renews = _MODE(view, pos)
            pos += 2
        partitions, pos = _partitions(view, pos)
        forgotten, pos = _forgotten(view, pos)
        skip_tags(view, pos)
    except (IndexError, struct.error):
        raise InvalidRequest("a ShareFetch request that is cut short") from None
    return FetchRequest(
        group,
        member,
        epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        max_records,
        batch_size,
        mode,
        bool(renews),
        partitions,
        forgotten,
    )


def decode_ack_request(version: int, view: memoryview, pos: int) -> AckRequest:
    """Read a ShareAcknowledge whose body begins at ``pos``."""
    try:
        group, pos = compact_string(view, pos)
        member, pos = compact_string(view, pos)
        (epoch,) = _EPOCH(view, pos)
        pos += 4
        renews = 0
        if version >= _RENEWS_SINCE:
            renews = view[pos]
            pos += 1
        partitions, pos = _partitions(view, pos)
        skip_tags(view, pos)
    except (IndexError, struct.error):
        raise InvalidRequest("a ShareAcknowledge request that is cut short") from None
    return AckRequest(group, member, epoch, bool(renews), partitions)


def _count(view: memoryview, pos: int, least_size: int) -> tuple[int, int]:
    """The length of an array whose elements have at least so many bytes."""
    count, pos = varint(view, pos)
    count -= 1
    if count < 0:
        raise InvalidRequest("an array that is null")
    if count > MAX_PARTITIONS or count * least_size > len(view) - pos:
        raise too_many(count)
    return count, pos


def _topic_id(view: memoryview, pos: int) -> tuple[bytes, int]:
    end = pos + _UUID_SIZE
    if end > len(view):
        raise InvalidRequest("a topic id that is cut short")
    return bytes(view[pos:end]), end


def _partitions(view: memoryview, pos: int) -> tuple[list[PartitionAcks], int]:
    found = []
    topic_count, pos = _count(view, pos, 18)
    for _ in range(topic_count):
        topic_id, pos = _topic_id(view, pos)
        partition_count, pos = _count(view, pos, 6)
        for _ in range(partition_count):
            (index,) = _I32(view, pos)
            batches, pos = _ack_batches(view, pos + 4)
            pos = skip_tags(view, pos)
            found.append(PartitionAcks(topic_id, index, batches))
        pos = skip_tags(view, pos)
    return found, pos


def _ack_batches(view: memoryview, pos: int) -> tuple[list[AckBatch], int]:
    count, pos = _count(view, pos, 18)
    batches = []
    for _ in range(count):
        first, last = _RANGE(view, pos)
        size, pos = _count(view, pos + 16, 1)
        batches.append(AckBatch(first, last, bytes(view[pos : pos + size])))
        pos = skip_tags(view, pos + size)
    return batches, pos


def _forgotten(view: memoryview, pos: int) -> tuple[list[tuple[bytes, int]], int]:
    found: list[tuple[bytes, int]] = []
    topic_count, pos = _count(view, pos, 18)
    for _ in range(topic_count):
        topic_id, pos = _topic_id(view, pos)
        count, pos = _count(view, pos, 4)
        found += [(topic_id, index) for index in struct.unpack_from(f">{count}i", view, pos)]
        pos = skip_tags(view, pos + 4 * count)
    return found, pos


_LENGTH: Final = struct.Struct(">i").pack
_HEAD: Final = struct.Struct(">ixih").pack
_CODE: Final = struct.Struct(">ih").pack
_SHORT: Final = struct.Struct(">h").pack
_ACQUIRED: Final = struct.Struct(">qqhx").pack
_NO_LEADER: Final = b"\0\0\0\0\0\0\0\0\0"
"""Leader 0 of epoch 0, as Kafka says where it is not asked for, and the end of that struct."""
_NO_NODES: Final = b"\1\0"


def _text(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data


def encode_fetch_response(
    correlation_id: int,
    error_code: int,
    message: str | None,
    lock_ms: int,
    answers: Sequence[FetchAnswer],
    throttle_ms: int = 0,
) -> Buffers:
    """A whole response frame as buffers to be written one after the other. Answers of a topic are side by side."""
    buffers: Buffers = []
    text = bytearray(_HEAD(correlation_id, throttle_ms, error_code))
    text += _text(message)
    text += _LENGTH(lock_ms)
    size = 0
    topics = _by_topic(answers)
    text += unsigned_varint(len(topics) + 1)
    for topic_id, parts in topics.items():
        text += topic_id
        text += unsigned_varint(len(parts) + 1)
        for answer in parts:
            text += _CODE(answer.partition, answer.error_code)
            text += _text(answer.message)
            text += _SHORT(answer.ack_error_code)
            text += _text(answer.ack_message)
            text += _NO_LEADER
            records = sum(map(len, answer.records))
            text += unsigned_varint(records + 1)
            if records:
                buffers.append(text)
                buffers += answer.records
                size += len(text) + records
                text = bytearray()
            text += unsigned_varint(len(answer.acquired) + 1)
            for one in answer.acquired:
                text += _ACQUIRED(*one)
            text.append(0)
        text.append(0)
    text += _NO_NODES
    buffers.append(text)
    buffers.insert(0, _LENGTH(size + len(text)))
    return buffers


def encode_ack_response(
    version: int,
    correlation_id: int,
    error_code: int,
    message: str | None,
    lock_ms: int,
    answers: Sequence[AckAnswer],
) -> bytearray:
    """A whole response frame."""
    text = bytearray(4)
    text += _HEAD(correlation_id, 0, error_code)
    text += _text(message)
    if version >= _RENEWS_SINCE:
        text += _LENGTH(lock_ms)
    topics: dict[bytes, list[AckAnswer]] = {}
    for answer in answers:
        topics.setdefault(answer.topic_id, []).append(answer)
    text += unsigned_varint(len(topics) + 1)
    for topic_id, parts in topics.items():
        text += topic_id
        text += unsigned_varint(len(parts) + 1)
        for answer in parts:
            text += _CODE(answer.partition, answer.error_code)
            text += _text(answer.message)
            text += _NO_LEADER
            text.append(0)
        text.append(0)
    text += _NO_NODES
    text[:4] = _LENGTH(len(text) - 4)
    return text


def _by_topic(answers: Sequence[FetchAnswer]) -> dict[bytes, list[FetchAnswer]]:
    topics: dict[bytes, list[FetchAnswer]] = {}
    for answer in answers:
        topics.setdefault(answer.topic_id, []).append(answer)
    return topics
