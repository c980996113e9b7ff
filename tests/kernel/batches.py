"""Batches by other hands: kafka-python's and aiokafka's codecs, and bytes put together one by one."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable
from typing import Any

import cramjam
import kafka.codec
import lz4.frame
import zstandard
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from headrace import _kernel as kernel

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
COMPRESSED = {name: codec for name, codec in CODECS.items() if codec}

Fields = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


class _Snappy:
    """What kafka-python wants of python-snappy, by cramjam: the framing stays kafka-python's own."""

    compress = staticmethod(lambda data: bytes(cramjam.snappy.compress_raw(data)))
    decompress = staticmethod(lambda data: bytes(cramjam.snappy.decompress_raw(data)))


kafka.codec.snappy = _Snappy

BUILDERS: dict[str, Any] = {"kafka-python": KafkaPythonBuilder, "aiokafka": AiokafkaBuilder}
READERS: dict[str, Any] = {"kafka-python": KafkaPythonBatch, "aiokafka": AiokafkaBatch}


def built_by(library: str, records: Iterable[Fields], codec: int = 0) -> bytes:
    """A batch as this library's producer makes it."""
    builder = BUILDERS[library](
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset, (timestamp, key, value, headers) in enumerate(records):
        assert builder.append(offset, timestamp=timestamp, key=key, value=value, headers=headers) is not None
    return bytes(builder.build())


def read_by(library: str, data: bytes | bytearray) -> list[kernel.Record]:
    """The records as this library's consumer sees them."""
    batch = READERS[library](bytes(data))
    assert batch.validate_crc()
    return [(r.offset, r.timestamp, r.key, r.value, [(k, v) for k, v in r.headers]) for r in batch]


def numbered(records: Iterable[Fields], base_offset: int = 0) -> list[kernel.Record]:
    """What must come out when these were put in."""
    return [(base_offset + i, *fields) for i, fields in enumerate(records)]


def with_crc(data: bytes | bytearray) -> bytearray:
    """The batch with its length and its checksum made right."""
    data = bytearray(data)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, kernel.crc32c(memoryview(data)[21:]))
    return data


def with_field(data: bytes | bytearray, position: int, layout: str, value: int) -> bytearray:
    """The batch with one header field changed, and its checksum right."""
    data = bytearray(data)
    struct.pack_into(">" + layout, data, position, value)
    struct.pack_into(">I", data, 17, kernel.crc32c(memoryview(data)[21:]))
    return data


def with_stored(data: bytes | bytearray, codec: int, stored: bytes) -> bytearray:
    """The batch with other bytes for its records, said to be of this codec."""
    attributes = struct.unpack_from(">h", data, 21)[0]
    changed = bytearray(data[:61]) + stored
    struct.pack_into(">h", changed, 21, attributes & ~7 | codec)
    return with_crc(changed)


def compressed(codec: int, data: bytes) -> bytes:
    """These bytes in a codec, by other libraries."""
    match codec:
        case 1:
            return gzip.compress(data, 1)
        case 2:
            return xerial([data])
        case 3:
            return lz4.frame.compress(data)
        case 4:
            return zstandard.ZstdCompressor().compress(data)
    return data


def xerial(chunks: Iterable[bytes], version: bytes = struct.pack(">ii", 1, 1)) -> bytes:
    """Snappy in Xerial's framing, one block for each chunk."""
    blocks = [bytes(cramjam.snappy.compress_raw(chunk)) for chunk in chunks]
    return b"\x82SNAPPY\x00" + version + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def body(records: Iterable[Fields]) -> bytes:
    """The records of a batch, uncompressed."""
    return bytes(kernel.build_batch(records)[61:])


nullable_bytes = st.none() | st.binary(max_size=40)
header_lists = st.lists(st.tuples(st.text(max_size=10), nullable_bytes), max_size=3)
fields = st.tuples(st.integers(0, 2**42), nullable_bytes, nullable_bytes, header_lists)
record_lists = st.lists(fields, min_size=1, max_size=20)
