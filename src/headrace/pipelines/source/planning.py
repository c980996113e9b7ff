"""How far each partition is read in the next batch: pure functions over offsets and times.

The position of a query is a JSON object that Spark keeps in its checkpoint::

    {"topic": "orders", "from": {"0": 9, "1": 4}, "offsets": {"0": 17, "1": 4},
     "largest": 1790000000000000, "now": 1790000000123, "counts": [13, 0, 1]}

``from`` and ``offsets`` are where the batch begins and ends in each partition. ``largest`` is the largest event time
(microseconds) of all rows before that batch, and ``now`` the clock when it was planned: what is late and what is too
far in the future follows from these, so a batch that is done again takes its rows apart in the same way. ``counts``
are rows in, late and dead before that batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Counts", "Position", "Range", "ceiling_ms", "fit_to_limit", "tasks"]

_ROWS_PER_TASK = 10_000
_SEARCH_STEPS = 16


class Counts(NamedTuple):
    """Rows of a query since its beginning: read, sent to the late topic, sent to the dead one."""

    rows_in: int = 0
    late: int = 0
    dead: int = 0

    def plus(self, other: Counts) -> Counts:
        """The sum."""
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Range(NamedTuple):
    """Offsets of one partition: start <= offset < end."""

    partition: int
    start: int
    end: int


NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class Position:
    """Where a query is, as Spark keeps it."""

    topic: str
    start: Mapping[int, int]
    offsets: Mapping[int, int]
    largest_us: int | None = None
    now_ms: int = 0
    counts: Counts = NOTHING

    def to_dict(self) -> dict[str, Any]:
        """For Spark."""
        return {
            "topic": self.topic,
            "from": _named(self.start),
            "offsets": _named(self.offsets),
            "largest": self.largest_us,
            "now": self.now_ms,
            "counts": list(self.counts),
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Position:
        """What ``to_dict`` gave."""
        start, offsets = (
            {int(partition): offset for partition, offset in found[name].items()} for name in ("from", "offsets")
        )
        return cls(found["topic"], start, offsets, found["largest"], found["now"], Counts(*found["counts"]))

    @property
    def ranges(self) -> list[Range]:
        """What the batch reads; a partition that is new is read from its first record."""
        found = (Range(index, self.start.get(index, 0), offset) for index, offset in sorted(self.offsets.items()))
        return [one for one in found if one.start < one.end]


def tasks(found: list[Range]) -> list[list[Range]]:
    """Ranges put together into tasks: as few as can be while rows are few, at most one per partition.

    It depends on nothing but the ranges, so that a batch that is done again has the same tasks.
    """
    rows = sum(one.end - one.start for one in found)
    count = min(len(found), 1 + rows // _ROWS_PER_TASK)
    groups: list[list[Range]] = [[] for _ in range(count)]
    for one in sorted(found, key=lambda one: (one.start - one.end, one.partition)):
        min(groups, key=lambda group: sum(r.end - r.start for r in group)).append(one)
    return groups


def ceiling_ms(latest_ms: Mapping[int, int], now_ms: int, idle_after_ms: int, skew_ms: int) -> int | None:
    """The record time up to which partitions may be read; None if there is no bound.

    ``latest_ms`` is the time of each partition's newest record. The slowest of those that are not idle holds the
    others back; a partition that has none yet is idle.
    """
    active = [latest for latest in latest_ms.values() if latest >= 0 and now_ms - latest < idle_after_ms]
    if not active or max(latest_ms.values()) <= min(active) + skew_ms:
        return None
    return min(active) + skew_ms


def fit_to_limit(
    start: Mapping[int, int],
    end: Mapping[int, int],
    limit: int,
    times: tuple[int, int],
    offset_at: Callable[[int], Mapping[int, int]],
) -> dict[int, int]:
    """Ends so that about ``limit`` records are read: all partitions up to one record time, the latest that fits.

    ``offset_at`` gives the first offsets at or after a time, which is looked for between the two ``times``: where it
    must lie if records came evenly, and in the middle, by turns. Where no time fits (many records of one millisecond),
    every partition gets its share of the limit.
    """
    total = sum(end[index] - start[index] for index in end)
    if total <= limit:
        return dict(end)
    (low, high), below, above = times, 0, total
    best: dict[int, int] = {}
    for step in range(_SEARCH_STEPS):
        if high - low <= 1:
            break
        share = 0.5 if step % 2 else (limit * 0.9 - below) / (above - below)
        middle = min(max(low + int((high - low) * share), low + 1), high - 1)
        found = offset_at(middle)
        ends = {index: min(max(found.get(index, end[index]), start[index]), end[index]) for index in end}
        rows = sum(ends[index] - start[index] for index in ends)
        if rows > limit:
            high, above = middle, rows
            continue
        low, below = middle, rows
        if rows:
            best = ends
        if rows >= limit * 4 // 5:
            break
    return best or _shares(start, end, limit, total)


def _shares(start: Mapping[int, int], end: Mapping[int, int], limit: int, total: int) -> dict[int, int]:
    left = limit
    ends = dict(start)
    for index in sorted(end):
        rows = end[index] - start[index]
        share = min(rows, -(-rows * limit // total), left)
        ends[index] = start[index] + share
        left -= share
    return ends


def _named(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}
