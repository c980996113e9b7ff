"""The last record of every key of a partition: what compaction would leave, without waiting for it.

A state topic holds many records of the same keys, and the fold of the last ones is the fold of all. The kernel picks
them out, so that start-up does not decode a week of commits to find the newest.

Only what lies below the last stable offset: there every transaction has ended, and records of aborted ones are left
out. What lies behind it has to be read one by one, because its outcome is open.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace import _kernel
from headrace.log.batch import BatchHeader
from headrace.log.partition import PartitionLog

__all__ = ["last_of_each_key"]

_CHUNK_BYTES = 8 << 20
_FOREVER_MS = 1 << 60


def last_of_each_key(partition: PartitionLog) -> list[_kernel.Record]:
    """Committed records in the order of the log, of each key (at least) the last one. CorruptRange if it is damaged."""
    aborted = [(a[0], a[1], a[2]) for s in partition.segments if s.aborted_count for a in s.index.aborted]
    latest = _kernel.LatestOffsets(partition.end_offset + 1)
    for data in _chunks(partition):
        latest.add(data, partition.end_offset, aborted=aborted)
    return [
        record
        for data in _chunks(partition)
        for record in _data_records(
            _kernel.compact(data, latest, now_ms=0, delete_retention_ms=_FOREVER_MS, aborted=aborted)[0]
        )
    ]


def _data_records(data: bytearray) -> Iterator[_kernel.Record]:
    view = memoryview(data)
    start = end = 0
    for header in map(BatchHeader._make, _kernel.scan(data, crc=False)[0]):
        end = header.position
        if header.is_control:
            yield from _kernel.records(view[start:end])
            start = end + header.size
    yield from _kernel.records(view[start:])


def _chunks(partition: PartitionLog) -> Iterator[memoryview | bytes]:
    offset = partition.log_start
    while offset < partition.last_stable_offset:
        data = partition.read(offset, _CHUNK_BYTES, committed=True).data
        headers, _, _ = _kernel.scan(data, crc=False)
        if not headers:
            return
        yield data
        offset = BatchHeader._make(headers[-1]).next_offset
