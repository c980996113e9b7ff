"""Fetch, versions 4 to 18: the request is read where it lies; the response is a list of buffers, records uncopied.

::

    request    replica id i32 (to 14; then tagged), max wait i32, min bytes i32, max bytes i32, isolation i8,
               session id i32 and epoch i32 (from 7), topics of (name, or id from 13; partitions of (index i32, leader
               epoch i32 from 9, offset i64, last fetched epoch i32 from 12, log start i64 from 5, max bytes i32)),
               forgotten topics of (name or id; partitions of i32) from 7, rack id from 11
    response   throttle i32, error i16 and session id i32 (from 7), topics of (name or id; partitions of (index i32,
               error i16, high watermark i64, last stable offset i64, log start i64 from 5, aborted of (producer id i64,
               first offset i64) or null, preferred replica i32 from 11, records))

From 12 on lengths are varints and structs end with a tag section.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from headrace.broker.codecs.scan import MAX_PARTITIONS, compact_string, legacy_string, skip_tags, too_many, varint
from headrace.broker.primitives import unsigned_varint
from headrace.errors import InvalidRequest

__all__ = [
    "Buffers",
    "FetchRequest",
    "PartitionAnswer",
    "PartitionWish",
    "TopicAnswers",
    "decode_request",
    "encode_response",
]

FLEXIBLE_SINCE: Final = 12
TOPIC_ID_SINCE: Final = 13
NO_REPLICA: Final = -1
_REPLICA_STATE_TAG: Final = 1

_I32: Final = struct.Struct(">i").unpack_from
_LIMITS: Final = struct.Struct(">iiiib").unpack_from
_LIMITS_V15: Final = struct.Struct(">iiib").unpack_from
_SESSION: Final = struct.Struct(">ii").unpack_from
_WISH_V4: Final = struct.Struct(">iqi")
_WISH_V5: Final = struct.Struct(">iqqi")
_WISH_V9: Final = struct.Struct(">iiqqi")
_WISH_V12: Final = struct.Struct(">iiqiqi")


class PartitionWish(NamedTuple):
    """What is asked of one partition."""

    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    max_bytes: int


TopicKey = str | bytes
"""Topic name, or the 16 bytes of its id from version 13 on."""


class FetchRequest(NamedTuple):
    """One request."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicKey, list[PartitionWish]]]
    forgotten: list[tuple[TopicKey, list[int]]]


class PartitionAnswer(NamedTuple):
    """What one partition answers. ``aborted`` is None when the reader did not ask for committed records only."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    records: bytes | bytearray | memoryview


TopicAnswers = tuple[TopicKey, list[PartitionAnswer]]


def decode_request(version: int, view: memoryview, pos: int) -> FetchRequest:
    """Read a request whose body begins at ``pos``."""
    try:
        return _decode(version, view, pos)
    except (IndexError, struct.error):
        raise InvalidRequest("a Fetch request that is cut short") from None


def _decode(version: int, view: memoryview, pos: int) -> FetchRequest:
    if version >= 15:
        replica_id = NO_REPLICA
        max_wait_ms, min_bytes, max_bytes, isolation = _LIMITS_V15(view, pos)
        pos += 13
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation = _LIMITS(view, pos)
        pos += 17
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION(view, pos)
        pos += 8
    flexible = version >= FLEXIBLE_SINCE
    by_id = version >= TOPIC_ID_SINCE
    topics, left, pos = _topics(version, view, pos, flexible, by_id)
    forgotten: list[tuple[TopicKey, list[int]]] = []
    if version >= 7:
        forgotten, pos = _forgotten(view, pos, flexible, by_id, left)
    if flexible:
        _, pos = compact_string(view, pos)
        if view[pos] != 0:
            tagged_replica = _tagged_replica(view, pos)
            if version >= 15:
                replica_id = tagged_replica
    elif version >= 11:
        _, pos = legacy_string(view, pos)
    return FetchRequest(
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topics, forgotten
    )


def _topics(
    version: int, view: memoryview, pos: int, flexible: bool, by_id: bool
) -> tuple[list[tuple[TopicKey, list[PartitionWish]]], int, int]:
    end = len(view)
    topic_count, pos = _count(view, pos, flexible)
    left = MAX_PARTITIONS - topic_count
    if topic_count > end - pos or left < 0:
        raise too_many(topic_count)
    topics: list[tuple[TopicKey, list[PartitionWish]]] = []
    for _ in range(topic_count):
        key, pos = _topic_key(view, pos, flexible, by_id)
        count, pos = _count(view, pos, flexible)
        left -= count
        if count > end - pos or left < 0:
            raise too_many(count)
        wishes: list[PartitionWish] = []
        for _ in range(count):
            if flexible:
                index, epoch, offset, last_epoch, _, max_bytes = _WISH_V12.unpack_from(view, pos)
                pos += _WISH_V12.size
                pos = pos + 1 if view[pos] == 0 else skip_tags(view, pos)
                wishes.append(PartitionWish(index, epoch, offset, last_epoch, max_bytes))
            elif version >= 9:
                index, epoch, offset, _, max_bytes = _WISH_V9.unpack_from(view, pos)
                pos += _WISH_V9.size
                wishes.append(PartitionWish(index, epoch, offset, -1, max_bytes))
            elif version >= 5:
                index, offset, _, max_bytes = _WISH_V5.unpack_from(view, pos)
                pos += _WISH_V5.size
                wishes.append(PartitionWish(index, -1, offset, -1, max_bytes))
            else:
                index, offset, max_bytes = _WISH_V4.unpack_from(view, pos)
                pos += _WISH_V4.size
                wishes.append(PartitionWish(index, -1, offset, -1, max_bytes))
        if flexible:
            pos = skip_tags(view, pos)
        topics.append((key, wishes))
    return topics, left, pos


def _forgotten(
    view: memoryview, pos: int, flexible: bool, by_id: bool, left: int
) -> tuple[list[tuple[TopicKey, list[int]]], int]:
    topic_count, pos = _count(view, pos, flexible)
    left -= topic_count
    if topic_count > len(view) - pos or left < 0:
        raise too_many(topic_count)
    forgotten: list[tuple[TopicKey, list[int]]] = []
    for _ in range(topic_count):
        key, pos = _topic_key(view, pos, flexible, by_id)
        count, pos = _count(view, pos, flexible)
        left -= count
        if count > (len(view) - pos) // 4 or left < 0:
            raise too_many(count)
        forgotten.append((key, list(struct.unpack_from(f">{count}i", view, pos))))
        pos += 4 * count
        if flexible:
            pos = skip_tags(view, pos)
    return forgotten, pos


def _count(view: memoryview, pos: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count, pos = varint(view, pos)
        count -= 1
    else:
        (count,) = _I32(view, pos)
        pos += 4
    if count < 0:
        raise too_many(count)
    return count, pos


def _topic_key(view: memoryview, pos: int, flexible: bool, by_id: bool) -> tuple[TopicKey, int]:
    if by_id:
        key = bytes(view[pos : pos + 16])
        if len(key) != 16:
            raise InvalidRequest("a topic id that is cut short")
        return key, pos + 16
    name, pos = compact_string(view, pos) if flexible else legacy_string(view, pos)
    if name is None:
        raise InvalidRequest("a topic without a name")
    return name, pos


def _tagged_replica(view: memoryview, pos: int) -> int:
    """The replica id in the tag section of the whole request."""
    end = skip_tags(view, pos)
    replica_id = NO_REPLICA
    count, pos = varint(view, pos)
    for _ in range(count):
        tag, pos = varint(view, pos)
        size, pos = varint(view, pos)
        if tag == _REPLICA_STATE_TAG:
            if size < 12 or pos + size > end:
                raise InvalidRequest("a replica state that is cut short")
            (replica_id,) = _I32(view, pos)
        pos += size
    return replica_id


_HEAD_V4: Final = struct.Struct(">ii").pack
_HEAD_V7: Final = struct.Struct(">iihi").pack
_HEAD_V12: Final = struct.Struct(">ixihi").pack
_ANSWER_V4: Final = struct.Struct(">ihqq").pack
_ANSWER_V5: Final = struct.Struct(">ihqqq").pack
_COUNT: Final = struct.Struct(">i").pack
_LENGTH: Final = struct.Struct(">i").pack
_ABORTED: Final = struct.Struct(">qq").pack
_NO_PREFERRED: Final = b"\xff\xff\xff\xff"

Buffers = list[bytes | bytearray | memoryview]


def encode_response(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    topics: list[TopicAnswers],
    throttle_ms: int = 0,
) -> Buffers:
    """A whole response frame as buffers to be written one after the other."""
    flexible = version >= FLEXIBLE_SINCE
    buffers: Buffers = []
    if flexible:
        text = bytearray(_HEAD_V12(correlation_id, throttle_ms, error_code, session_id))
        text += unsigned_varint(len(topics) + 1)
    elif version >= 7:
        text = bytearray(_HEAD_V7(correlation_id, throttle_ms, error_code, session_id))
        text += _COUNT(len(topics))
    else:
        text = bytearray(_HEAD_V4(correlation_id, throttle_ms))
        text += _COUNT(len(topics))
    size = 0
    for key, answers in topics:
        _append_key(text, key, flexible)
        text += unsigned_varint(len(answers) + 1) if flexible else _COUNT(len(answers))
        for answer in answers:
            _append_answer(text, version, answer)
            records = answer.records
            if len(records):
                buffers.append(text)
                buffers.append(records)
                size += len(text) + len(records)
                text = bytearray()
            if flexible:
                text.append(0)
        if flexible:
            text.append(0)
    if flexible:
        text.append(0)
    buffers.append(text)
    size += len(text)
    buffers.insert(0, _LENGTH(size))
    return buffers


def _append_key(text: bytearray, key: TopicKey, flexible: bool) -> None:
    if isinstance(key, bytes):
        text += key
        return
    name = key.encode()
    text += unsigned_varint(len(name) + 1) if flexible else len(name).to_bytes(2, "big")
    text += name


def _append_answer(text: bytearray, version: int, answer: PartitionAnswer) -> None:
    """One partition up to and with the length of its records."""
    index, error_code, high_watermark, last_stable, log_start, aborted, records = answer
    if version >= 5:
        text += _ANSWER_V5(index, error_code, high_watermark, last_stable, log_start)
    else:
        text += _ANSWER_V4(index, error_code, high_watermark, last_stable)
    flexible = version >= FLEXIBLE_SINCE
    if aborted is None:
        text += b"\x00" if flexible else b"\xff\xff\xff\xff"
    else:
        text += unsigned_varint(len(aborted) + 1) if flexible else _COUNT(len(aborted))
        for producer_id, first_offset in aborted:
            text += _ABORTED(producer_id, first_offset)
            if flexible:
                text.append(0)
    if version >= 11:
        text += _NO_PREFERRED
    text += unsigned_varint(len(records) + 1) if flexible else _LENGTH(len(records))
