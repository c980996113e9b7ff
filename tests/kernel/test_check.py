"""``check_batch``, and one test for every kind of flaw."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from headrace import _kernel as kernel

from . import batches
from .batches import CODECS, COMPRESSED, with_crc, with_field, with_stored

RECORDS: list[batches.Fields] = [(i, b"k%d" % i, b"v" * i, [("h", b"x")]) for i in range(10)]
BATCH = bytes(kernel.build_batch(RECORDS))
ZSTD = bytes(kernel.build_batch(RECORDS, codec=4))
NULL_KEY: list[batches.Fields] = [*RECORDS, (0, None, b"v", [])]


def varint(value: int) -> bytes:
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def record(*parts: bytes) -> bytes:
    """One record of these raw parts after the attributes."""
    content = b"\x00" + b"".join(parts)
    return varint(len(content)) + content


ZERO = varint(0)
GOOD = record(ZERO, ZERO, varint(1), b"k", varint(1), b"v", ZERO)
BAD_RECORDS = {
    "a length beyond the end": varint(1000) + GOOD[1:],
    "a negative length": varint(-5) + GOOD[1:],
    "a length too short": varint(6) + GOOD[1:],
    "bytes left inside": record(ZERO, ZERO, varint(1), b"k", varint(1), b"v", ZERO, b"rest"),
    "a key beyond the end": record(ZERO, ZERO, varint(500), b"k", varint(1), b"v", ZERO),
    "a key length of -2": record(ZERO, ZERO, varint(-2), varint(1), b"v", ZERO),
    "a value beyond the end": record(ZERO, ZERO, varint(1), b"k", varint(2**31 - 1), b"v", ZERO),
    "a negative header count": record(ZERO, ZERO, varint(1), b"k", varint(1), b"v", varint(-1)),
    "more headers than bytes": record(ZERO, ZERO, varint(1), b"k", varint(1), b"v", varint(2**30)),
    "a header without a name": record(ZERO, ZERO, varint(1), b"k", varint(1), b"v", varint(1), varint(-1), varint(-1)),
    "a header value beyond the end": record(ZERO, ZERO, ZERO, ZERO, varint(1), varint(1), b"n", varint(50), b"v"),
    "a varint without an end": record(b"\xff" * 12),
    "an offset delta beyond 32 bits": record(ZERO, b"\xff\xff\xff\xff\x7f", ZERO, ZERO, ZERO),
    "an offset delta that is not the next": record(ZERO, varint(3), varint(1), b"k", varint(1), b"v", ZERO),
}


def kind(call: Callable[[], object]) -> str:
    with pytest.raises(kernel.BadBatch) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    sentence = caught.value.args[0]
    assert isinstance(sentence, str)
    assert sentence
    return caught.value.kind


def check_kind(data: bytes | bytearray) -> str:
    return kind(lambda: kernel.check_batch(data))


@pytest.mark.parametrize("cut", [0, 1, 11, 16, 17, 60, 61, len(BATCH) - 1])
def test_truncated(cut: int) -> None:
    assert check_kind(BATCH[:cut]) == "truncated"


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 48])
def test_length(length: int) -> None:
    assert check_kind(with_field(BATCH, 8, "i", length)) == "length"


@pytest.mark.parametrize("magic", [-1, 0, 1, 3])
def test_magic(magic: int) -> None:
    assert check_kind(with_field(BATCH, 16, "b", magic)) == "magic"


def test_crc_notices_every_single_bit() -> None:
    for position in range(17, len(BATCH)):
        for bit in range(8):
            data = bytearray(BATCH)
            data[position] ^= 1 << bit
            assert check_kind(data) == "crc"


def test_several() -> None:
    assert check_kind(BATCH + BATCH) == "several"
    assert check_kind(BATCH + b"\x00") == "several"
    assert kind(lambda: kernel.recompress(BATCH + BATCH, 0)) == "several"


@pytest.mark.parametrize("count", [-1, 0, 1, 9, 11, 2**31 - 1])
def test_count(count: int) -> None:
    assert check_kind(with_field(BATCH, 57, "i", count)) == "count"
    consistent = with_field(with_field(BATCH, 57, "i", count), 23, "i", max(count - 1, 0))
    assert check_kind(consistent) == "count" if count <= 9 else check_kind(consistent) in {"count", "record"}
    assert kind(lambda: kernel.walk(consistent)) in {"count", "record"}


def test_count_of_a_compressed_batch_is_checked_when_it_is_walked() -> None:
    data = with_field(with_field(ZSTD, 57, "i", 9), 23, "i", 8)
    kernel.check_batch(data)
    assert kind(lambda: kernel.walk(data)) == "count"
    assert kind(lambda: kernel.check_batch(data, keys=True)) == "count"


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codec(codec: int) -> None:
    assert check_kind(with_field(BATCH, 21, "h", codec)) == "codec"


@pytest.mark.parametrize("codec", COMPRESSED.values())
@pytest.mark.parametrize("stored", [b"", b"\x00", b"garbage", b"\xff" * 100], ids=["empty", "zero", "garbage", "ones"])
def test_decompress(codec: int, stored: bytes) -> None:
    data = with_stored(BATCH, codec, stored)
    assert kind(lambda: kernel.walk(data)) in {"decompress", "count"}
    good = kernel.build_batch(RECORDS, codec=codec)
    cut = with_crc(good[:-5])
    assert kind(lambda: kernel.walk(cut)) == "decompress"


@pytest.mark.parametrize("codec", COMPRESSED.values())
def test_too_big(codec: int) -> None:
    data = kernel.build_batch([(0, b"k", bytes(100_000), [])], codec=codec)
    assert kind(lambda: kernel.walk(data, max_bytes=99_999)) == "too_big"
    assert kind(lambda: kernel.check_batch(data, keys=True, max_bytes=99_999)) == "too_big"
    assert kind(lambda: kernel.records(data, max_bytes=99_999)) == "too_big"
    kernel.check_batch(data, max_bytes=0)
    kernel.walk(data, max_bytes=101_000)


@pytest.mark.parametrize("flaw", BAD_RECORDS)
@pytest.mark.parametrize("codec", CODECS.values())
def test_record(flaw: str, codec: int) -> None:
    one = bytes(kernel.build_batch([(0, b"k", b"v", [])]))
    assert with_stored(one, 0, GOOD) == one
    data = with_stored(one, codec, batches.compressed(codec, BAD_RECORDS[flaw]))
    assert kind(lambda: kernel.check_batch(data, keys=True)) == "record"
    if codec:
        kernel.check_batch(data)
    if flaw != "an offset delta that is not the next":
        assert kind(lambda: kernel.walk(data)) == "record"
        assert kind(lambda: kernel.recompress(data, 0)) == "record"


@pytest.mark.parametrize("codec", CODECS.values())
def test_null_key(codec: int) -> None:
    data = kernel.build_batch(NULL_KEY, codec=codec)
    kernel.check_batch(data)
    assert kind(lambda: kernel.check_batch(data, keys=True)) == "null_key"
    kernel.check_batch(kernel.build_batch(RECORDS, codec=codec), keys=True)
    kernel.check_batch(kernel.build_batch([(0, b"", b"v", [])], codec=codec), keys=True)


def test_control_batches_are_not_asked_for_keys_or_order() -> None:
    data = kernel.build_batch([(0, None, b"\x00\x00", [])], control=True)
    assert kernel.check_batch(data, keys=True)[4] == 0x20
    loose = with_stored(data, 0, record(ZERO, varint(3), varint(-1), ZERO, ZERO))
    kernel.check_batch(loose, keys=True)


def test_an_empty_batch_is_fine_on_disk_but_not_from_a_producer() -> None:
    empty = with_stored(with_field(with_field(BATCH, 57, "i", 0), 22, "b", 0), 0, b"")
    assert check_kind(empty) == "count"
    headers, end, error = kernel.scan(empty)
    assert (len(headers), end, error) == (1, 61, None)
    assert kernel.records(empty) == []
    kernel.walk(empty)
    assert kernel.slice_batches(empty, 0, 100) == (0, 61, 10, None)
    assert kernel.find_timestamp(empty, 0) is None
    assert kernel.max_timestamp(empty) is None
    assert len(kernel.records_to_arrow(empty)) == 0


def test_a_batch_with_a_delete_horizon_is_legal() -> None:
    data = with_field(BATCH, 21, "h", 0x40)
    assert kernel.check_batch(data)[4] == 0x40
    kernel.walk(data)


def test_negative_timestamps_are_kept() -> None:
    records: list[batches.Fields] = [(-1, b"k", b"v", []), (-(2**62), b"k", b"v", []), (2**62, b"k", b"v", [])]
    data = kernel.build_batch(records)
    assert kernel.records(data) == batches.numbered(records)
    assert kernel.check_batch(data)[6:8] == (-1, 2**62)


def test_offsets_at_the_end_of_their_range_do_not_overflow() -> None:
    data = with_field(BATCH, 0, "q", 2**63 - 1)
    kernel.check_batch(data)
    kernel.walk(data)
    assert kernel.slice_batches(data, 0, 2**63 - 1)[:3] == (0, 0, 0)
    struct.pack_into(">q", data, 0, -(2**63))
    assert kernel.slice_batches(data, 0, 2**63 - 1)[:2] == (len(data), len(data))
