"""How fast the native kernel is: nanoseconds per record beside aiokafka's compiled codec, and the checksum's GB/s.

``python benchmarks/bench_kernel.py`` takes some ten seconds. Every figure is the best of several rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from aiokafka.record.default_records import DefaultRecordBatch

from headrace import _kernel as kernel

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = 10_000
VALUE = b'{"order_id": "%08d", "customer_id": %d, "amount": %d.25, "region": "north-%d", "note": "thanks"}'
ROUNDS = 5
ROUND_SECONDS = 0.05


def seconds(work: Callable[[], object]) -> float:
    """The best time of one call."""
    work()
    best = float("inf")
    for _ in range(ROUNDS):
        calls, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < ROUND_SECONDS:
            work()
            calls += 1
        best = min(best, elapsed / calls)
    return best


def walk_with_aiokafka(data: bytes) -> int:
    batch = DefaultRecordBatch(data)
    assert batch.validate_crc()
    return sum(1 for _ in batch)


def per_record() -> None:
    """One batch of 10,000 records of about 100 bytes, in every codec."""
    records = [
        (1_700_000_000_000 + i, b"k%06d" % (i % 5000), VALUE % (i, i * 7 % 9999, i % 500, i % 9), [])
        for i in range(RECORDS)
    ]
    latest = kernel.LatestOffsets(RECORDS)
    work: dict[str, Callable[[bytes], object]] = {
        "aiokafka": walk_with_aiokafka,
        "walk": kernel.walk,
        "scan": kernel.scan,
        "check": kernel.check_batch,
        "check keys": lambda data: kernel.check_batch(data, keys=True),
        "to arrow": kernel.records_to_arrow,
        "objects": kernel.records,
        "map": lambda data: kernel.LatestOffsets(RECORDS).add(data, RECORDS),
        "compact": lambda data: kernel.compact(data, latest, now_ms=0, delete_retention_ms=0),
    }
    print("ns per record".ljust(14) + "".join(name.rjust(12) for name in work) + "walk/aiokafka".rjust(15))
    for codec, name in enumerate(CODECS):
        data = bytes(kernel.build_batch(records, codec=codec))
        latest.add(data, RECORDS)
        taken = {label: seconds(lambda call=call, data=data: call(data)) for label, call in work.items()}
        figures = "".join(f"{t / RECORDS * 1e9:12.2f}" for t in taken.values())
        print(name.ljust(14) + figures + f"{taken['aiokafka'] / taken['walk']:14.1f}x")


def per_call() -> None:
    """What a call costs when the batch is small: the produce and fetch paths."""
    print()
    print("ns per call".ljust(14) + "".join(name.rjust(12) for name in ("bytes", "check", "slice", "append time")))
    for count in (1, 10, 100):
        batch = kernel.build_batch([(0, None, bytes(100), [])] * count)
        calls = (
            lambda batch=batch: kernel.check_batch(batch),
            lambda batch=batch: kernel.slice_batches(batch, 0, 1 << 62),
            lambda batch=batch: kernel.set_append_time(batch, 5),
        )
        figures = "".join(f"{seconds(call) * 1e9:12.0f}" for call in calls)
        print(f"{count} records".ljust(14) + f"{len(batch):12d}" + figures)


def checksum() -> None:
    """The checksum alone, over three sizes of input."""
    print()
    print("CRC-32C".ljust(14) + "".join(f"{size:>12,}" for size in (1 << 10, 1 << 14, 1 << 20)))
    rates = []
    for size in (1 << 10, 1 << 14, 1 << 20):
        data = bytes(range(256)) * (size // 256)
        rates.append(size / seconds(lambda data=data: kernel.crc32c(data)) / 1e9)
    print("GB/s".ljust(14) + "".join(f"{rate:12.1f}" for rate in rates))


if __name__ == "__main__":
    per_record()
    per_call()
    checksum()
