"""Gives the kernel batches that claim or unpack to much more than they are, and says how far memory grew.

A program, so that its high-water mark is its own: ``python -m tests.kernel.memory_probe bombs|claims|life``.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from collections.abc import Callable
from typing import Any

import cramjam
import lz4.frame

from headrace import _kernel as kernel

from .batches import compressed, with_field, with_stored, xerial

ONE = kernel.build_batch([(0, b"k", b"v", [])])
ZSTD_MAGIC = bytes.fromhex("28b52ffd")
ZSTD_EMPTY_BLOCK = b"\x01\x00\x00"
VARINT_2_GIB = b"\xff\xff\xff\xff\x07"

BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (1, lambda: compressed(1, bytes(16 << 20)) * 64),
    "snappy": (2, lambda: xerial([bytes(1 << 20)] * 64)),
    "raw snappy": (2, lambda: bytes(cramjam.snappy.compress_raw(bytes(32 << 20)))),
    "lz4": (3, lambda: lz4.frame.compress(bytes(16 << 20), block_size=7, block_linked=True) * 64),
    "zstd": (4, lambda: compressed(4, bytes(16 << 20)) * 64),
}

CLAIMS: dict[str, tuple[int, bytes]] = {
    "raw snappy": (2, VARINT_2_GIB + b"\x00a"),
    "xerial snappy": (2, xerial([]) + struct.pack(">i", 7) + VARINT_2_GIB + b"\x00a"),
    "xerial block": (2, xerial([]) + struct.pack(">i", 2**31 - 1) + b"xx"),
    "lz4 block": (3, lz4.frame.compress(b"x")[:7] + struct.pack("<I", 0x7FFFFFFF) + b"xx"),
    "lz4 content": (3, lz4.frame.compress(b"x" * 99).replace(struct.pack("<Q", 99), struct.pack("<Q", 1 << 40))),
    "zstd content": (4, ZSTD_MAGIC + b"\xe0" + struct.pack("<Q", 1 << 40) + ZSTD_EMPTY_BLOCK),
    "zstd window of 128 MiB": (4, ZSTD_MAGIC + b"\x00\x88" + ZSTD_EMPTY_BLOCK),
    "zstd window of 3 TiB": (4, ZSTD_MAGIC + b"\x00\xff" + ZSTD_EMPTY_BLOCK),
    "header count": (0, bytes(100)),
}


def high_water_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def kind_of(function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    try:
        function(*arguments, **options)
    except kernel.BadBatch as error:
        return error.kind
    return "accepted"


def kinds_of(data: bytes | bytearray, max_bytes: int) -> set[str]:
    """What every function that looks into batches says."""
    latest = kernel.LatestOffsets(10)
    options = {"max_bytes": max_bytes}
    return {
        kind_of(kernel.check_batch, data, keys=True, **options),
        kind_of(kernel.walk, data, **options),
        kind_of(kernel.records, data, **options),
        kind_of(kernel.records_to_arrow, data, **options),
        kind_of(kernel.recompress, data, 0, **options),
        kind_of(kernel.find_timestamp, data, -5, **options),
        kind_of(kernel.max_timestamp, data, **options),
        kind_of(latest.add, data, 10, **options),
        kind_of(kernel.compact, data, latest, now_ms=0, delete_retention_ms=0, **options),
        kind_of(kernel.drop_keys, data, [b"k"], **options),
    }


def bombs() -> tuple[set[str], int]:
    batches = [with_stored(ONE, codec, make()) for codec, make in BOMBS.values()]
    assert all(len(data) < 6 << 20 for data in batches)
    before = high_water_mib()
    kinds = set[str]().union(*(kinds_of(data, 4 << 20) for data in batches))
    return kinds, high_water_mib() - before


def claims() -> tuple[set[str], int]:
    kinds: set[str] = set()
    before = high_water_mib()
    for codec, stored in CLAIMS.values():
        data = with_stored(ONE, codec, stored)
        if codec == 0:
            data = with_field(data, 57, "i", 2**31 - 1)
        kinds |= kinds_of(data, kernel.MAX_DECOMPRESSED)
    return kinds, high_water_mib() - before


def life() -> tuple[set[str], int]:
    """The same calls, good and bad, many times over."""
    records = [(i, b"k%d" % (i % 10), bytes(100), [("h", b"x")]) for i in range(200)]
    good = [kernel.build_batch(records, codec=codec) for codec in range(5)]
    bad = [bytes(data[:-20]) + bytes(20) for data in good]

    def once() -> set[str]:
        kinds: set[str] = set()
        for data in good + bad:
            kinds |= kinds_of(data, 1 << 20)
            kernel.scan(data)
            kernel.slice_batches(data, 0, 100)
        kernel.alloc(100_000)
        return kinds

    for _ in range(40):
        once()
    before = high_water_mib()
    for _ in range(160):
        kinds = once()
    return kinds, high_water_mib() - before


if __name__ == "__main__":
    found, grown = {"bombs": bombs, "claims": claims, "life": life}[sys.argv[1]]()
    print(json.dumps([sorted(found), grown]))
