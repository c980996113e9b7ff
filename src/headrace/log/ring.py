"""A partition that forgets its oldest records when there are too many: topics with ``headrace.overflow=drop``.

The start of the log moves as records come, also inside a segment, so what can be read never exceeds the bound by more
than the newest batches (those since the last entry of the index). Whole segments that lie before it are then removed
like those that retention removes; for that they are small, a quarter of the bound.

Where the log starts follows from where it ends. So the start is not written with every record: opening the partition
finds the same one, and with it how many records were dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from headrace.log.segment import Segment

__all__ = ["Ring"]

_SEGMENT_MIN_BYTES = 1 << 20
_SEGMENTS = 4


class Ring(NamedTuple):
    """How much a partition keeps; -1 for no bound of that kind."""

    max_records: int = -1
    max_bytes: int = -1

    def start(self, segments: Sequence[Segment], high_watermark: int) -> int:
        """The first offset that is kept; 0 if all are."""
        by_records = high_watermark - self.max_records if self.max_records >= 0 else 0
        by_bytes = self._start_by_bytes(segments) if self.max_bytes >= 0 else 0
        return min(max(by_records, by_bytes, 0), high_watermark)

    def _start_by_bytes(self, segments: Sequence[Segment]) -> int:
        excess = sum(segment.size for segment in segments) - self.max_bytes
        if excess <= 0:
            return 0
        for segment, following in pairwise(segments):
            if excess < segment.size:
                found = segment.index.offset_after(excess)
                return following.base_offset if found is None else found
            excess -= segment.size
        active = segments[-1]
        found = active.index.offset_after(excess) if excess > 0 else active.base_offset
        return active.index.last_offset() if found is None else found

    def is_segment_full(self, size: int, records: int) -> bool:
        """Whether a segment holds enough, so that the ring frees its room in time."""
        if size < _SEGMENT_MIN_BYTES:
            return False
        return 0 <= self.max_records <= records * _SEGMENTS or 0 <= self.max_bytes <= size * _SEGMENTS
