"""Produce, versions 3 to 13: the request is read where it lies, the response is packed with ``struct``.

::

    request    transactional id, acks i16, timeout i32, topics of (name, or id from 13; partitions of (index i32,
               records))
    response   topics of (name or id; partitions of (index i32, error i16, base offset i64, append time i64, log start
               i64 from 5, record errors and message from 8)), throttle i32

From 9 on lengths are varints and structs end with a tag section. Records are not copied: a partition is its index and
where its records begin and end in the frame.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from headrace.broker.codecs.scan import MAX_PARTITIONS, compact_string, legacy_string, skip_tags, too_many, varint
from headrace.broker.primitives import unsigned_varint
from headrace.errors import InvalidRequest

__all__ = ["NO_RECORDS", "PartitionResult", "ProduceRequest", "TopicRecords", "decode_request", "encode_response"]

NO_RECORDS: Final = -1
"""Where null records begin."""
FLEXIBLE_SINCE: Final = 9
TOPIC_ID_SINCE: Final = 13

_I32: Final = struct.Struct(">i").unpack_from
_INDEX_SIZE: Final = struct.Struct(">iB").unpack_from
_TWO_I32: Final = struct.Struct(">ii").unpack_from
_ACKS_TIMEOUT: Final = struct.Struct(">hi").unpack_from

PartitionRecords = tuple[int, int, int]
"""Partition index, where its records begin (or NO_RECORDS) and end."""
TopicRecords = tuple[str | bytes, list[PartitionRecords]]
"""Topic name, or id from version 13 on; its partitions."""


class ProduceRequest(NamedTuple):
    """One request; positions are those of the frame it was read from."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicRecords]


class PartitionResult(NamedTuple):
    """What became of one partition's records."""

    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None = None


def decode_request(version: int, view: memoryview, pos: int) -> ProduceRequest:
    """Read a request whose body begins at ``pos``."""
    try:
        if version >= FLEXIBLE_SINCE:
            return _decode_flexible(view, pos, version >= TOPIC_ID_SINCE)
        return _decode_legacy(view, pos)
    except (IndexError, struct.error):
        raise InvalidRequest("a Produce request that is cut short") from None


def _decode_legacy(view: memoryview, pos: int) -> ProduceRequest:
    end = len(view)
    left = MAX_PARTITIONS
    transactional_id, pos = legacy_string(view, pos)
    acks, timeout_ms = _ACKS_TIMEOUT(view, pos)
    (topic_count,) = _I32(view, pos + 6)
    pos += 10
    left -= topic_count
    if topic_count < 0 or topic_count > end - pos or left < 0:
        raise too_many(topic_count)
    topics: list[TopicRecords] = []
    for _ in range(topic_count):
        name, pos = legacy_string(view, pos)
        (count,) = _I32(view, pos)
        pos += 4
        left -= count
        if name is None or count < 0 or count > end - pos or left < 0:
            raise too_many(count)
        partitions: list[PartitionRecords] = []
        for _ in range(count):
            index, size = _TWO_I32(view, pos)
            pos += 8
            if size < 0:
                if size != -1:
                    raise InvalidRequest(f"records of {size} bytes")
                partitions.append((index, NO_RECORDS, NO_RECORDS))
                continue
            stop = pos + size
            if stop > end:
                raise InvalidRequest(f"records of {size} bytes where {end - pos} are left")
            partitions.append((index, pos, stop))
            pos = stop
        topics.append((name, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_flexible(view: memoryview, pos: int, by_id: bool) -> ProduceRequest:
    end = len(view)
    left = MAX_PARTITIONS
    transactional_id, pos = compact_string(view, pos)
    acks, timeout_ms = _ACKS_TIMEOUT(view, pos)
    topic_count, pos = varint(view, pos + 6)
    topic_count -= 1
    left -= topic_count
    if topic_count < 0 or topic_count > end - pos or left < 0:
        raise too_many(topic_count)
    topics: list[TopicRecords] = []
    for _ in range(topic_count):
        key: str | bytes | None
        if by_id:
            key = bytes(view[pos : pos + 16])
            pos += 16
        else:
            key, pos = compact_string(view, pos)
        count, pos = varint(view, pos)
        count -= 1
        left -= count
        if key is None or count < 0 or count > end - pos or left < 0:
            raise too_many(count)
        partitions: list[PartitionRecords] = []
        for _ in range(count):
            index, size = _INDEX_SIZE(view, pos)
            pos += 5
            if size >= 0x80:
                size, pos = varint(view, pos - 1)
            if size == 0:
                partitions.append((index, NO_RECORDS, NO_RECORDS))
            else:
                stop = pos + size - 1
                if stop > end:
                    raise InvalidRequest(f"records of {size - 1} bytes where {end - pos} are left")
                partitions.append((index, pos, stop))
                pos = stop
            pos = pos + 1 if view[pos] == 0 else skip_tags(view, pos)
        pos = pos + 1 if view[pos] == 0 else skip_tags(view, pos)
        topics.append((key, partitions))
    skip_tags(view, pos)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


_V3: Final = struct.Struct(">ihqq").pack
_V5: Final = struct.Struct(">ihqqq").pack
_V8: Final = struct.Struct(">ihqqqih").pack
_V9: Final = struct.Struct(">ihqqq3s").pack
_COUNT: Final = struct.Struct(">i").pack
_HEAD: Final = struct.Struct(">ii").pack
_TAIL: Final = struct.Struct(">xix").pack

_MAX_PREFIXES: Final = 1000
_prefixes: dict[str | bytes, bytes] = {}
"""The beginning of a response with one partition, by topic."""

TopicResults = tuple[str | bytes, list[PartitionResult]]


def encode_response(version: int, correlation_id: int, topics: list[TopicResults], throttle_ms: int = 0) -> bytes:
    """A whole response frame."""
    if version >= FLEXIBLE_SINCE:
        if len(topics) == 1 and len(topics[0][1]) == 1:
            return _encode_single(correlation_id, topics[0][0], topics[0][1][0], throttle_ms)
        parts = [b"\x00", unsigned_varint(len(topics) + 1)]
        for key, results in topics:
            if isinstance(key, bytes):
                parts.append(key)
            else:
                name = key.encode()
                parts.append(unsigned_varint(len(name) + 1))
                parts.append(name)
            parts.append(unsigned_varint(len(results) + 1))
            parts.extend([_flexible_result(result) for result in results])
            parts.append(b"\x00")
        parts.append(_COUNT(throttle_ms) + b"\x00")
    else:
        parts = [_COUNT(len(topics))]
        for key, results in topics:
            assert isinstance(key, str)
            name = key.encode()
            parts.append(len(name).to_bytes(2, "big") + name)
            parts.append(_COUNT(len(results)))
            parts.extend([_legacy_result(version, result) for result in results])
        parts.append(_COUNT(throttle_ms))
    body = b"".join(parts)
    return _HEAD(len(body) + 4, correlation_id) + body


def _encode_single(correlation_id: int, key: str | bytes, result: PartitionResult, throttle_ms: int) -> bytes:
    """The most usual response: one partition of one topic."""
    prefix = _prefixes.get(key)
    if prefix is None:
        name = key if isinstance(key, bytes) else key.encode()
        size = b"" if isinstance(key, bytes) else unsigned_varint(len(name) + 1)
        prefix = b"".join((b"\x00\x02", size, name, b"\x02"))
        if len(_prefixes) >= _MAX_PREFIXES:
            _prefixes.clear()
        _prefixes[key] = prefix
    body = _flexible_result(result)
    return b"".join((_HEAD(len(prefix) + len(body) + 10, correlation_id), prefix, body, _TAIL(throttle_ms)))


def _flexible_result(result: PartitionResult) -> bytes:
    index, error_code, base_offset, append_time, log_start, message = result
    if message is None:
        return _V9(index, error_code, base_offset, append_time, log_start, b"\x01\x00\x00")
    text = message.encode()
    return b"".join(
        (
            _V5(index, error_code, base_offset, append_time, log_start),
            b"\x01",
            unsigned_varint(len(text) + 1),
            text,
            b"\0",
        )
    )


def _legacy_result(version: int, result: PartitionResult) -> bytes:
    index, error_code, base_offset, append_time, log_start, message = result
    if version >= 8:
        if message is None:
            return _V8(index, error_code, base_offset, append_time, log_start, 0, -1)
        text = message.encode()[:32767]
        return _V8(index, error_code, base_offset, append_time, log_start, 0, len(text)) + text
    if version >= 5:
        return _V5(index, error_code, base_offset, append_time, log_start)
    return _V3(index, error_code, base_offset, append_time)
