"""The same bytes, read and written by us, by kafka-python and by aiokafka."""

from __future__ import annotations

import gzip
import itertools
import struct

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings

from headrace import _kernel as kernel

from . import batches
from .batches import CODECS, COMPRESSED, Fields, xerial

LIBRARIES = ["kafka-python", "aiokafka"]

SAMPLES: dict[str, list[Fields]] = {
    "one empty record": [(0, b"", b"", [])],
    "nothing at all": [(0, None, None, [])],
    "null keys and values": [(5, None, b"v", []), (6, b"k", None, []), (7, None, None, [("h", None)])],
    "headers": [(1, b"k", b"v", [("a", b"1"), ("a", b"2"), ("", b""), ("naïve", None), ("長い名前", b"\x00\xff")])],
    "many headers": [(1, None, b"v", [(f"h{i}", bytes([i])) for i in range(200)])],
    "time goes back": [
        (10_000, b"a", b"1", []),
        (9_000, b"b", b"2", []),
        (0, b"c", b"3", []),
        (20_000, b"d", b"4", []),
    ],
    "far apart": [(0, b"a", b"", []), (2**41, b"b", b"", [])],
    "large values": [(i, b"k" * 300, bytes([i]) * 400_000, []) for i in range(3)],
    "incompressible": [(1, b"k", bytes((i * i * 31 + i // 7) % 251 for i in range(100_000)), [])],
    "many": [(1_700_000_000_000 + i, b"key-%d" % (i % 100), b"value %d " % i * 4, []) for i in range(3000)],
}


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_we_read_what_they_build(library: str, codec: str, sample: str) -> None:
    data = batches.built_by(library, SAMPLES[sample], CODECS[codec])
    header = kernel.check_batch(data)
    assert header[1] == len(data)
    assert header[-1] == len(SAMPLES[sample])
    assert kernel.records(data) == batches.numbered(SAMPLES[sample])


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_they_read_what_we_build(library: str, codec: str, sample: str) -> None:
    data = kernel.build_batch(SAMPLES[sample], codec=CODECS[codec], base_offset=1234)
    assert batches.read_by(library, data) == batches.numbered(SAMPLES[sample], 1234)


@settings(max_examples=60)
@given(batches.record_lists)
def test_uncompressed_batches_are_the_same_bytes_whoever_builds_them(records: list[Fields]) -> None:
    ours = bytes(kernel.build_batch(records, leader_epoch=0))
    theirs = batches.built_by("kafka-python", records)
    assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]
    assert kernel.records(theirs) == batches.numbered(records)


@settings(max_examples=60)
@given(batches.record_lists)
def test_every_batch_goes_both_ways_in_every_codec(records: list[Fields]) -> None:
    expected = batches.numbered(records)
    for codec in CODECS.values():
        ours = kernel.build_batch(records, codec=codec)
        assert kernel.records(ours) == expected
        for library in LIBRARIES:
            assert batches.read_by(library, ours) == expected
            assert kernel.records(batches.built_by(library, records, codec)) == expected


def test_the_header_fields_are_where_they_expect_them() -> None:
    data = kernel.build_batch(
        [(100, b"k", b"v", []), (50, b"k", b"v", [])],
        base_offset=7,
        leader_epoch=3,
        producer_id=2**40,
        producer_epoch=12,
        base_sequence=99,
        transactional=True,
        control=True,
    )
    batch = batches.READERS["kafka-python"](data)
    assert (batch.base_offset, batch.leader_epoch, batch.last_offset, batch.magic) == (7, 3, 8, 2)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (2**40, 12, 99)
    assert (batch.is_transactional, batch.is_control_batch, batch.records_count) == (True, True, 2)
    assert (batch.first_timestamp, batch.max_timestamp, batch.timestamp_type) == (100, 100, 0)
    assert kernel.check_batch(data) == (0, len(data), 7, 3, 0x30, 1, 100, 100, 2**40, 12, 99, 2)


RECORDS: list[Fields] = [(i, b"k%d" % i, b"some value " * 30, []) for i in range(1000)]
BODY = batches.body(RECORDS)
EXPECTED = batches.numbered(RECORDS)


def records_of(codec: int, stored: bytes) -> list[kernel.Record]:
    return kernel.records(batches.with_stored(kernel.build_batch(RECORDS), codec, stored))


@pytest.mark.parametrize(
    ("linked", "content_checksum", "block_checksum", "size"), list(itertools.product([False, True], repeat=4))
)
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
def test_every_kind_of_lz4_frame(
    block_size: int, linked: bool, content_checksum: bool, block_checksum: bool, size: bool
) -> None:
    stored = lz4.frame.compress(
        BODY,
        block_size=block_size,
        block_linked=linked,
        content_checksum=content_checksum,
        block_checksum=block_checksum,
        store_size=size,
    )
    assert records_of(3, stored) == EXPECTED


@pytest.mark.parametrize("checksum", ["content", "block"])
def test_a_wrong_checksum_inside_an_lz4_frame_is_noticed(checksum: str) -> None:
    stored = bytearray(lz4.frame.compress(BODY, **{f"{checksum}_checksum": True}))
    stored[-1 if checksum == "content" else -5] ^= 1
    with pytest.raises(kernel.BadBatch) as caught:
        records_of(3, bytes(stored))
    assert caught.value.kind == "decompress"


@pytest.mark.parametrize(
    "stored",
    [
        bytes(cramjam.snappy.compress_raw(BODY)),
        xerial([BODY]),
        xerial([BODY[i : i + 1000] for i in range(0, len(BODY), 1000)]),
        xerial([BODY], struct.pack("<ii", 1, 1)),
        xerial([BODY[:5000]]) + xerial([BODY[5000:]]),
    ],
    ids=["raw block", "one block", "many blocks", "little-endian version", "two streams"],
)
def test_every_kind_of_snappy(stored: bytes) -> None:
    assert records_of(2, stored) == EXPECTED


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("size", [False, True])
@pytest.mark.parametrize("level", [-5, 1, 19])
def test_every_kind_of_zstd_frame(level: int, size: bool, checksum: bool) -> None:
    compressor = zstandard.ZstdCompressor(level=level, write_content_size=size, write_checksum=checksum)
    assert records_of(4, compressor.compress(BODY)) == EXPECTED
    assert records_of(4, compressor.compress(BODY[:999]) + compressor.compress(BODY[999:])) == EXPECTED


def test_gzip_of_several_members_and_levels() -> None:
    assert records_of(1, gzip.compress(BODY[:999]) + gzip.compress(BODY[999:], 1)) == EXPECTED
    assert records_of(1, gzip.compress(BODY, 0)) == EXPECTED


@pytest.mark.parametrize("codec", COMPRESSED)
def test_recompressing_keeps_the_header_and_the_records(codec: str) -> None:
    ours = kernel.build_batch(RECORDS, base_offset=9, producer_id=4, producer_epoch=1, base_sequence=2)
    other = kernel.recompress(ours, COMPRESSED[codec])
    assert len(other) < len(ours)
    before, after = kernel.check_batch(ours), kernel.check_batch(other)
    assert after[2:4] + after[5:] == before[2:4] + before[5:]
    assert after[4] == COMPRESSED[codec]
    assert batches.read_by("aiokafka", other) == kernel.records(ours)
    assert kernel.recompress(other, 0) == ours


@pytest.mark.parametrize(("codec", "levels"), [(1, (1, 9)), (4, (-10, 19))])
def test_a_higher_level_makes_smaller_batches(codec: int, levels: tuple[int, int]) -> None:
    text = [(i, None, " ".join(str(j * i % 977) for j in range(50)).encode(), []) for i in range(300)]
    low, high = (len(kernel.build_batch(text, codec=codec, level=level)) for level in levels)
    assert high < low
