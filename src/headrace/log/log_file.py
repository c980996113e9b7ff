"""A segment's file of batches, read from outside: no lock is taken, nothing is changed, damage does not end it.

For tools. It works on the folder of a running node and on Apache Kafka's, whose files of batches are the same. It does
not go through ``Files``, whose files are open for writing too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace import _kernel
from headrace.log.batch import HEADER_SIZE, BatchHeader
from headrace.log.segment import CHUNK_BYTES

__all__ = ["DamagedBytes", "FoundBatch", "read_log"]

_PREFIX = 12
_LENGTH = slice(8, 12)


class FoundBatch(NamedTuple):
    """A whole batch with a good checksum; ``header.position`` counts from the file's start."""

    header: BatchHeader
    data: memoryview


class DamagedBytes(NamedTuple):
    """Bytes that are no batch. ``cut_short``: they look like one that goes on after the end of the file."""

    position: int
    size: int
    reason: str
    cut_short: bool


def read_log(path: Path, *, known_positions: Sequence[int] = ()) -> Iterator[FoundBatch | DamagedBytes]:
    """All of the file, in order, as it was when it was opened.

    After damage the next batch is looked for where the damaged one says that it ends, and else at the next of
    ``known_positions`` (from an index).
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield from _read(fd, os.fstat(fd).st_size, known_positions)
    finally:
        os.close(fd)


def _read(fd: int, file_size: int, known: Sequence[int]) -> Iterator[FoundBatch | DamagedBytes]:
    position, want = 0, CHUNK_BYTES
    while position < file_size:
        data = memoryview(os.pread(fd, min(want, file_size - position), position))
        if not data:
            return
        headers, used, bad = _kernel.scan(data)
        for header in map(BatchHeader._make, headers):
            batch = data[header.position : header.position + header.size]
            yield FoundBatch(header._replace(position=position + header.position), batch)
        position += used
        want = CHUNK_BYTES
        if bad is None:
            continue
        rest = file_size - position
        claimed = _claimed_size(data[used:])
        if bad.kind == "truncated" and claimed is None and len(data) - used < rest:
            continue
        if bad.kind == "truncated" and claimed is not None and len(data) - used < claimed <= rest:
            want = claimed
            continue
        size = _damaged_size(position, rest, claimed, known)
        yield DamagedBytes(position, size, str(bad), bad.kind == "truncated")
        position += size


def _claimed_size(data: memoryview) -> int | None:
    """How long a batch says that it is; None if it is too short to say."""
    if len(data) < _PREFIX:
        return None
    return int.from_bytes(data[_LENGTH], "big", signed=True) + _PREFIX


def _damaged_size(position: int, rest: int, claimed: int | None, known: Sequence[int]) -> int:
    if claimed is not None and HEADER_SIZE <= claimed <= rest:
        return claimed
    return min((at - position for at in known if at > position), default=rest)
