"""Broken batches with a right checksum: every function answers with a result or a ``BadBatch``, and nothing else."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import _kernel as kernel

from .batches import CODECS, Fields

SEED = 20_261_115
CASES = 5_000  # of each codec: 25,000 in all
MAX = 1 << 20
NASTY = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)

RECORDS: list[Fields] = [
    (
        i * 7 % 5,
        None if i % 4 == 3 else b"key%d" % (i % 6),
        None if i % 5 == 4 else b"value %d" % i,
        [("h", b"x")] * (i % 3),
    )
    for i in range(30)
]
LATEST = kernel.LatestOffsets(100)
LATEST.add(kernel.build_batch(RECORDS), 100)

FUNCTIONS: dict[str, Callable[[bytearray], object]] = {
    "check_batch": kernel.check_batch,
    "check_batch with keys": lambda data: kernel.check_batch(data, keys=True, max_bytes=MAX),
    "scan": kernel.scan,
    "scan without crc": lambda data: kernel.scan(data, crc=False),
    "slice_batches": lambda data: kernel.slice_batches(data, 3, 2**62),
    "walk": lambda data: kernel.walk(data, max_bytes=MAX),
    "find_timestamp": lambda data: kernel.find_timestamp(data, 3, 2, max_bytes=MAX),
    "max_timestamp": lambda data: kernel.max_timestamp(data, max_bytes=MAX),
    "records": lambda data: kernel.records(data, max_bytes=MAX),
    "records_to_arrow": lambda data: kernel.records_to_arrow(data, 1, 2**62, max_bytes=MAX),
    "recompress": lambda data: kernel.recompress(data, 2, max_bytes=MAX),
    "LatestOffsets.add": lambda data: kernel.LatestOffsets(4).add(data, 2**62, max_bytes=MAX),
    "compact": lambda data: kernel.compact(
        data, LATEST, now_ms=3, delete_retention_ms=2**62, keep_empty=[29], aborted=[(1, 0, 5)], max_bytes=MAX
    ),
    "drop_keys": lambda data: kernel.drop_keys(data, [b"key1"], max_bytes=MAX),
    "key_hashes": lambda data: kernel.key_hashes(data, 2, 40, max_bytes=MAX),
    "copy_records": lambda data: kernel.copy_records(
        data, [(1, 3, [(b"a", b"b")]), (9, 99, [])], now_ms=1, offset_header=b"o", timestamp_header=b"t", max_bytes=MAX
    ),
    "set_append_time": lambda data: kernel.set_append_time(bytearray(data), -1),
}


def mutate(chance: random.Random, data: bytearray) -> None:
    for _ in range(chance.randint(1, 4)):
        if not data:
            return
        at = chance.randrange(min(len(data), 95) if chance.random() < 0.5 else len(data))
        match chance.randrange(6):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at] = chance.randrange(256)
            case 2:
                data[at] = chance.choice(NASTY)
            case 3:
                del data[at : at + chance.randint(1, 8)]
            case 4:
                data[at:at] = chance.randbytes(chance.randint(1, 8))
            case 5:
                del data[at:]


def repair(chance: random.Random, data: bytearray) -> None:
    """Make length, magic and checksum right, so that the flaw is met deeper in."""
    if len(data) < 61:
        return
    if chance.random() < 0.9:
        struct.pack_into(">i", data, 8, len(data) - 12)
        data[16] = 2
    struct.pack_into(">I", data, 17, kernel.crc32c(memoryview(data)[21:]))


def try_everything(data: bytearray, outcomes: Counter[str]) -> None:
    for name, function in FUNCTIONS.items():
        try:
            function(data)
        except kernel.BadBatch as error:
            outcomes[error.kind] += 1
        except BaseException as error:
            raise AssertionError(f"{name} raised {error!r} for {data.hex()}") from error
        else:
            outcomes["accepted"] += 1


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_mutated_batches_are_answered(codec: int) -> None:
    chance = random.Random(SEED + codec)
    seeds = [kernel.build_batch(RECORDS[:count], codec=codec) for count in (1, 5, 30)]
    outcomes: Counter[str] = Counter()
    for _ in range(CASES):
        data = bytearray(chance.choice(seeds))
        mutate(chance, data)
        repair(chance, data)
        if chance.random() < 0.1:
            data += seeds[0]
        try_everything(data, outcomes)
    met = {"accepted", "truncated", "length", "magic", "several", "count", "codec", "record", "null_key"}
    assert outcomes.keys() >= met | ({"decompress"} if codec else set())


@settings(max_examples=150)
@given(st.binary(max_size=200), st.sampled_from(list(CODECS.values())))
def test_arbitrary_bytes_after_a_good_header_are_answered(stored: bytes, codec: int) -> None:
    data = bytearray(kernel.build_batch(RECORDS)[:61]) + stored
    struct.pack_into(">h", data, 21, codec)
    repair(random.Random(1), data)
    try_everything(data, Counter())


@settings(max_examples=100)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_answered(data: bytes) -> None:
    try_everything(bytearray(data), Counter())
