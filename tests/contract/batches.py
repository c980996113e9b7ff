"""Record batches (magic 2) built and read byte by byte, so that tests can also make wrong ones."""

from __future__ import annotations

import gzip
import hashlib
import struct
import time
from collections.abc import Sequence
from typing import Any

import cramjam
import crc32c
import lz4.frame
import zstandard

from tests.contract.schema import Source, uvarint

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HEADER = struct.Struct(">qiibIhiqqqhii")
NOW = int(time.time()) * 1000 - 600_000
"""Ten minutes ago, fixed once, so that both brokers are sent the same bytes and retention keeps them."""

Record = tuple[bytes | None, bytes | None]
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63) if value >= 0 else ((-value) << 1) - 1)


def record(
    delta: int,
    key: bytes | None,
    value: bytes | None,
    *,
    timestamp_delta: int = 0,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(delta) + _blob(key) + _blob(value) + varint(len(headers))
    for name, content in headers:
        body += varint(len(name.encode())) + name.encode() + _blob(content)
    return varint(len(body)) + body


def compress(codec: str, data: bytes) -> bytes:
    match codec:
        case "gzip":
            return gzip.compress(data, mtime=0)
        case "snappy":
            block = bytes(cramjam.snappy.compress_raw(data))
            return XERIAL + struct.pack(">i", len(block)) + block
        case "lz4":
            return lz4.frame.compress(data, content_checksum=False, block_linked=False)
        case "zstd":
            return zstandard.compress(data)
        case _:
            return data


def batch(
    records: Sequence[Record] = ((b"key", b"value"),),
    *,
    codec: str = "none",
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    attributes: int = 0,
    timestamp: int = NOW,
    max_timestamp: int | None = None,
    timestamp_step: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    count: int | None = None,
    last_offset_delta: int | None = None,
    crc: int | None = None,
    body: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    """One batch; every field can be set, also to something wrong."""
    if body is None:
        body = b"".join(
            record(delta, key, value, timestamp_delta=delta * timestamp_step, headers=headers)
            for delta, (key, value) in enumerate(records)
        )
        body = compress(codec, body)
    newest = timestamp + timestamp_step * (len(records) - 1) if max_timestamp is None else max_timestamp
    tail = struct.pack(
        ">hiqqqhii",
        attributes | CODECS[codec],
        len(records) - 1 if last_offset_delta is None else last_offset_delta,
        timestamp,
        newest,
        producer_id,
        producer_epoch,
        sequence,
        len(records) if count is None else count,
    )
    tail += body
    checksum = crc32c.crc32c(tail) if crc is None else crc
    return struct.pack(">qiibI", base_offset, len(tail) + 9, leader_epoch, magic, checksum) + tail


def headers_of(data: bytes) -> list[dict[str, Any]]:
    """The batches in a fetch response, readable: header fields and a digest of the records. The last may be cut."""
    found, at = [], 0
    while len(data) - at >= HEADER.size:
        offset, length, epoch, magic, crc, attributes, last, first_ts, max_ts, pid, pepoch, seq, count = (
            HEADER.unpack_from(data, at)
        )
        if len(data) - at < length + 12:
            break
        body = data[at + HEADER.size : at + 12 + length]
        found.append(
            {
                "base_offset": offset,
                "length": length,
                "leader_epoch": epoch,
                "magic": magic,
                "crc": crc,
                "attributes": attributes,
                "last_offset_delta": last,
                "base_timestamp": first_ts,
                "max_timestamp": max_ts,
                "producer_id": pid,
                "producer_epoch": pepoch,
                "base_sequence": seq,
                "count": count,
                "body": hashlib.sha1(body).hexdigest()[:12],
            }
        )
        at += length + 12
    return found


def values_of(data: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every record of uncompressed batches."""
    found, at = [], 0
    while at < len(data):
        offset, length = struct.unpack_from(">qi", data, at)
        count = struct.unpack_from(">i", data, at + 57)[0]
        source = Source(data[at + HEADER.size : at + 12 + length])
        for _ in range(count):
            _svarint(source)
            source.take(1)
            _svarint(source)
            delta = _svarint(source)
            key, value = _read_blob(source), _read_blob(source)
            for _ in range(_svarint(source)):
                _read_blob(source)
                _read_blob(source)
            found.append((offset + delta, key, value))
        at += 12 + length
    return found


def _svarint(source: Source) -> int:
    raw = source.uvarint()
    return (raw >> 1) ^ -(raw & 1)


def _read_blob(source: Source) -> bytes | None:
    size = _svarint(source)
    return None if size < 0 else source.take(size)


def _blob(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data
