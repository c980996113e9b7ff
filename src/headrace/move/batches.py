"""Record batches on their way from one log to another: pure functions over bytes.

What is fetched are whole batches. Markers and what was aborted are left out here. A batch that has all its records goes
on byte for byte, only its producer and its checksum are written anew; one that compaction has made holes in becomes a
batch per run of offsets, and small ones that follow each other become one: a request for each would take longest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace import _kernel
from headrace.feed.transactions import marker_commits
from headrace.log.batch import CODEC_MASK, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader

__all__ = ["Fetched", "Piece", "committed", "filler", "joined", "pieces", "signed"]

SMALL_BYTES = 16 << 10
JOINED_BYTES = 256 << 10
_ZSTD = 4
_ATTRIBUTES, _PRODUCER, _CRC = 21, 43, 17


class Fetched(NamedTuple):
    """What one fetch brought: whole batches, and (producer id, first offset) of aborted transactions among them."""

    data: memoryview
    aborted: Sequence[tuple[int, int]]


class Piece(NamedTuple):
    """One batch to be written: records ``base`` to ``base + records - 1``, none missing."""

    base: int
    records: int
    data: bytearray

    @property
    def following(self) -> int:
        """The offset after it."""
        return self.base + self.records


def committed(fetched: Fetched) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of committed records, in order."""
    headers, _, _ = _kernel.scan(fetched.data, crc=False)
    coming = sorted(fetched.aborted, key=lambda one: one[1], reverse=True)
    aborted: set[int] = set()
    for header in map(BatchHeader._make, headers):
        batch = fetched.data[header.position : header.position + header.size]
        while coming and coming[-1][1] <= header.last_offset:
            aborted.add(coming.pop()[0])
        if header.is_control:
            if header.producer_id in aborted and marker_commits(batch) is False:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            yield header, batch


def pieces(fetched: Fetched, start: int, end: int) -> Iterator[Piece]:
    """The committed records of a fetch with start <= offset < end, as batches without holes."""
    for header, batch in committed(fetched):
        if header.next_offset <= start or header.base_offset >= end or not header.record_count:
            continue
        if _is_whole(header) and start <= header.base_offset and header.next_offset <= end:
            yield Piece(header.base_offset, header.record_count, bytearray(batch))
        else:
            yield from _rebuilt(header, batch, start, end)


def joined(found: Iterable[Piece]) -> Iterator[Piece]:
    """The same records, small batches that follow each other as one."""
    waiting: list[Piece] = []
    size = 0
    for piece in found:
        follows = not waiting or (waiting[-1].following == piece.base and _codec(waiting[-1]) == _codec(piece))
        if waiting and (not follows or len(piece.data) >= SMALL_BYTES or size + len(piece.data) > JOINED_BYTES):
            yield _one(waiting)
            waiting, size = [], 0
        if len(piece.data) >= SMALL_BYTES:
            yield piece
        else:
            waiting.append(piece)
            size += len(piece.data)
    if waiting:
        yield _one(waiting)


def filler(count: int) -> bytearray:
    """A batch of records that hold nothing, to be deleted or taken back."""
    return _kernel.build_batch([(0, None, None, ())] * count, codec=_ZSTD if count > 64 else 0)


def signed(batch: bytearray, producer: tuple[int, int], sequence: int, *, transactional: bool = False) -> bytearray:
    """The batch with another producer (id, epoch) and sequence, and the checksum that goes with it; in place."""
    (attributes,) = struct.unpack_from(">h", batch, _ATTRIBUTES)
    attributes = attributes | TRANSACTIONAL if transactional else attributes & ~TRANSACTIONAL
    struct.pack_into(">q", batch, 0, 0)
    struct.pack_into(">h", batch, _ATTRIBUTES, attributes)
    struct.pack_into(">qhi", batch, _PRODUCER, *producer, sequence)
    struct.pack_into(">I", batch, _CRC, _kernel.crc32c(memoryview(batch)[_ATTRIBUTES:]))
    return batch


def _is_whole(header: BatchHeader) -> bool:
    """Whether a batch can go as it is: nothing missing, and its times those that the producer gave."""
    all_there = header.record_count == header.last_offset_delta + 1
    return all_there and not header.attributes & (LOG_APPEND_TIME | DELETE_HORIZON)


def _rebuilt(header: BatchHeader, batch: memoryview, start: int, end: int) -> Iterator[Piece]:
    found = [record for record in _kernel.records(batch) if start <= record[0] < end]
    first = 0
    for at in range(1, len(found) + 1):
        if at == len(found) or found[at][0] != found[at - 1][0] + 1:
            run = found[first:at]
            codec = header.attributes & CODEC_MASK
            yield Piece(run[0][0], len(run), _kernel.build_batch([record[1:] for record in run], codec=codec))
            first = at


def _codec(piece: Piece) -> int:
    (attributes,) = struct.unpack_from(">h", piece.data, _ATTRIBUTES)
    return int(attributes & CODEC_MASK)


def _one(found: list[Piece]) -> Piece:
    if len(found) == 1:
        return found[0]
    records = [record[1:] for piece in found for record in _kernel.records(piece.data)]
    return Piece(found[0].base, len(records), _kernel.build_batch(records, codec=_codec(found[0])))
