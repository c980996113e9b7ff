"""The last record of every key of a partition: what compaction would leave, without waiting for it.

A state topic holds many records of the same keys, and the fold of the last ones is the fold of all. The kernel picks
them out, so that start-up does not decode a week of commits to find the newest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from headrace import _kernel
from headrace.errors import CorruptRange
from headrace.log.batch import BatchHeader
from headrace.log.partition import PartitionLog

__all__ = ["last_of_each_key"]

log = logging.getLogger(__name__)

_CHUNK_BYTES = 8 << 20
_FOREVER_MS = 1 << 60


def last_of_each_key(partition: PartitionLog) -> Iterator[_kernel.Record]:
    """Records in the order of the log, of each key (at least) the last one."""
    try:
        latest = _kernel.LatestOffsets(partition.end_offset + 1)
        for data in _chunks(partition):
            latest.add(data, partition.end_offset)
        chunks = list(_survivors(partition, latest))
    except CorruptRange as damaged:
        log.error("%s is damaged, what can be read of it is used: %s", partition.name, damaged)
        yield from partition.replay()
        return
    for chunk in chunks:
        yield from _kernel.records(chunk)


def _survivors(partition: PartitionLog, latest: _kernel.LatestOffsets) -> Iterator[bytearray]:
    for data in _chunks(partition):
        yield _kernel.compact(data, latest, now_ms=0, delete_retention_ms=_FOREVER_MS)[0]


def _chunks(partition: PartitionLog) -> Iterator[memoryview | bytes]:
    offset = partition.log_start
    while offset < partition.high_watermark:
        data = partition.read(offset, _CHUNK_BYTES).data
        headers, _, _ = _kernel.scan(data, crc=False)
        if not headers:
            return
        yield data
        offset = BatchHeader._make(headers[-1]).next_offset
