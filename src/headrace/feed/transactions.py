"""Which batches of a partition belong to aborted transactions.

A transactional batch is decided by the next marker of its producer: markers stay in the log as long as what they
decide (compaction keeps them). So the batches and markers of each producer, in the order of their offsets, say it all.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from headrace import _kernel
from headrace.log.batch import BatchHeader

__all__ = ["Markers", "marker_commits"]

_ABORT = 0
_COMMIT = 1


class Markers:
    """The markers seen, by producer, and how far the log was looked through for them."""

    def __init__(self, start: int) -> None:
        self.seen_to = start
        self._offsets: dict[int, list[int]] = {}
        self._commits: dict[int, list[bool]] = {}

    def add(self, producer_id: int, offset: int, commits: bool) -> None:
        """Take in a marker; markers come in the order of their offsets."""
        self._offsets.setdefault(producer_id, []).append(offset)
        self._commits.setdefault(producer_id, []).append(commits)

    def undecided(self, batches: Iterable[BatchHeader]) -> bool:
        """Whether a batch waits for a marker that was not seen yet."""
        return any(
            not (offsets := self._offsets.get(batch.producer_id)) or offsets[-1] < batch.base_offset
            for batch in batches
        )

    def is_aborted(self, batch: BatchHeader) -> bool:
        """Whether the marker after a batch, which must have been seen, took it back."""
        offsets = self._offsets[batch.producer_id]
        return not self._commits[batch.producer_id][bisect.bisect_left(offsets, batch.base_offset)]

    def forget(self, before: int) -> None:
        """Drop the markers before an offset."""
        for producer_id, offsets in list(self._offsets.items()):
            cut = bisect.bisect_left(offsets, before)
            del offsets[:cut], self._commits[producer_id][:cut]
            if not offsets:
                del self._offsets[producer_id], self._commits[producer_id]


def marker_commits(batch: memoryview) -> bool | None:
    """Whether a control batch is a commit; None if it is no transaction marker.

    The key of its record is a version and a type, two bytes each.
    """
    for record in _kernel.records(batch):
        key = record[2] or b""
        return {_ABORT: False, _COMMIT: True}.get(int.from_bytes(key[2:4], "big")) if len(key) == 4 else None
    return None
