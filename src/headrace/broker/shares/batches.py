"""Batches as a share group looks at them: where data lies, where batches end, and which of them to send."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from headrace import _kernel
from headrace.broker.shares.window import Acquired, Span
from headrace.log.batch import CONTROL, TRANSACTIONAL
from headrace.log.reading import ReadResult

__all__ = ["Batches", "split"]

_POSITION, _SIZE, _BASE, _ATTRIBUTES, _LAST_DELTA, _PRODUCER, _COUNT = 0, 1, 2, 4, 5, 8, 11
_SPECIAL: Final = CONTROL | TRANSACTIONAL


class Batches(NamedTuple):
    """What was read: the bytes, where each batch begins and ends in them, and the offsets.

    ``spans`` are the offsets of data that may be delivered: no transaction markers, nothing aborted, nothing that
    compaction left empty. Neighbouring batches make one span.
    """

    data: memoryview
    starts: list[int]
    firsts: list[int]
    ends: list[int]
    spans: list[Span]
    records: int

    @classmethod
    def of(cls, result: ReadResult) -> Batches:
        """Look at what was read."""
        headers = _kernel.scan(result.data, crc=False)[0]
        ends = [header[_BASE] + header[_LAST_DELTA] for header in headers]
        return cls(
            result.data,
            [header[_POSITION] for header in headers],
            [header[_BASE] for header in headers],
            ends,
            _spans(headers, ends, result.aborted),
            sum(header[_COUNT] for header in headers),
        )

    def gaps(self, first: int, last: int) -> Iterable[Span]:
        """The offsets from ``first`` to ``last`` that there is nothing to deliver at."""
        for begin, end in self.spans:
            if begin > last:
                break
            if begin > first:
                yield first, begin - 1
            first = max(first, end + 1)
        if first <= last:
            yield first, last

    def holding(self, acquired: Sequence[Acquired]) -> list[memoryview]:
        """The bytes of the batches that hold these offsets, in as few pieces as possible."""
        pieces: list[tuple[int, int]] = []
        for first, last, _ in acquired:
            begin = self.starts[bisect.bisect_left(self.ends, first)]
            after = bisect.bisect_right(self.firsts, last)
            end = self.starts[after] if after < len(self.starts) else len(self.data)
            if pieces and begin <= pieces[-1][1]:
                pieces[-1] = (pieces[-1][0], max(end, pieces[-1][1]))
            else:
                pieces.append((begin, end))
        return [self.data[begin:end] for begin, end in pieces]


def _spans(headers: Sequence[_kernel.Header], ends: list[int], aborted: list[tuple[int, int]]) -> list[Span]:
    spans: list[Span] = []
    waiting = sorted(((first, producer) for producer, first in aborted), reverse=True)
    aborting: set[int] = set()
    for header, last in zip(headers, ends, strict=True):
        first, attributes = header[_BASE], header[_ATTRIBUTES]
        if attributes & _SPECIAL:
            while waiting and waiting[-1][0] <= last:
                aborting.add(waiting.pop()[1])
            if attributes & CONTROL:
                aborting.discard(header[_PRODUCER])
                continue
            if header[_PRODUCER] in aborting:
                continue
        if header[_COUNT] == 0:
            continue
        if spans and spans[-1][1] == first - 1:
            spans[-1] = (spans[-1][0], last)
        else:
            spans.append((first, last))
    return spans


def split(acquired: Sequence[Acquired], ends: list[int], size: int) -> list[Acquired]:
    """What a member is told it got: ranges of about ``size``, cut where batches end."""
    if size <= 0 or all(one.last - one.first < size for one in acquired):
        return list(acquired)
    parts = []
    for first, last, count in acquired:
        while last - first >= size:
            end = ends[bisect.bisect_left(ends, first + size - 1)]
            if end >= last:
                break
            parts.append(Acquired(first, end, count))
            first = end + 1
        parts.append(Acquired(first, last, count))
    return parts
