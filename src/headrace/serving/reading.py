"""Records of a topic for people to look at: from a place on, or the newest; filtered, and bounded in every way."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidQuery, UnknownTopic
from headrace.operations.filters import Wanted
from headrace.operations.positions import Position, Relative
from headrace.operations.record_json import record_json
from headrace.views.store import Offsets, version

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.feed import Feed

__all__ = ["Found", "bounds_of", "from_place", "newest", "rows_of"]

SHOWN_CHARACTERS = 4096
WHOLE_CHARACTERS = 1 << 20
SCAN_S = 5.0
SCAN_RECORDS = 500_000
SCAN_BYTES = 256 << 20
SHOWN_BYTES = 32 << 20
"""Of keys and values in one answer."""
CHUNK_BYTES = 2 << 20
CHUNK_OFFSETS = 5_000
PIECE_OFFSETS, PIECE_BYTES = 16, 16 << 20
"""Looking backwards begins with so many offsets, and goes on in pieces of about so many bytes."""


@dataclass
class Found:
    """What was found. ``next`` is where reading goes on; ``complete``: looking was not broken off before there was
    enough, or nothing more."""

    records: list[dict[str, Any]] = field(default_factory=list)
    next: Offsets = field(default_factory=dict)
    scanned: int = 0
    complete: bool = False

    def to_json(self) -> dict[str, Any]:
        """As it is answered."""
        about = {"scanned": self.scanned, "complete": self.complete, "next": version(self.next)}
        return {"records": self.records, **about}


class _Budget:
    """How much may be looked at for one request, and how much answered."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + SCAN_S
        self.scanned = self.shown_bytes = self._bytes = 0

    def count(self, batch: pa.RecordBatch) -> None:
        """A batch was read."""
        self.scanned += batch.num_rows
        self._bytes += batch.nbytes

    @property
    def spent(self) -> bool:
        """Whether this was enough."""
        if self.scanned >= SCAN_RECORDS or self._bytes >= SCAN_BYTES or self.shown_bytes >= SHOWN_BYTES:
            return True
        return time.monotonic() > self._deadline

    def piece(self, offsets: int) -> int:
        """As many offsets, but no more than what was seen lets expect to be a piece."""
        return max(1, min(offsets, PIECE_BYTES * self.scanned // self._bytes)) if self._bytes else offsets


def rows_of(topic: str, partition: int, batch: pa.RecordBatch, characters: int = SHOWN_CHARACTERS) -> Iterator[Any]:
    """Records as JSON objects; long keys and values are cut, and said to be."""
    times = batch.column("timestamp").cast("int64").to_pylist()
    columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value", "headers"))
    for at, offset, key, value, headers in zip(times, *columns, strict=True):
        pairs = [(one["key"], one["value"]) for one in headers or []]
        size = len(key or b"") + len(value or b"")
        row = record_json(topic, partition, offset, at, _cut(key, characters), _cut(value, characters), pairs)
        yield row | {"size": size, "cut": len(key or b"") > characters or len(value or b"") > characters}


def _cut(data: bytes | None, characters: int) -> bytes | None:
    if data is None or len(data) <= characters:
        return data
    return data[:characters].decode(errors="ignore").encode() or data[:characters]


def bounds_of(feed: Feed, topic: str, partition: int | None) -> dict[int, tuple[int, int]]:
    """Where the wanted partitions begin and end."""
    bounds = feed.bounds(topic)
    if partition is None:
        return bounds
    if partition not in bounds:
        raise UnknownTopic(f"topic {topic!r} has no partition {partition}", hint=f"it has 0 to {len(bounds) - 1}")
    return {partition: bounds[partition]}


def from_place(
    feed: Feed,
    topic: str,
    place: Position | Mapping[int, int],
    limit: int,
    wanted: Wanted,
    partition: int | None = None,
    characters: int = SHOWN_CHARACTERS,
) -> Found:
    """Up to ``limit`` records from a place on: a position in every partition, or an offset for each."""
    bounds = bounds_of(feed, topic, partition)
    starts = _starts(feed, topic, place, bounds)
    found, budget = Found(next=dict(starts)), _Budget()
    open_ones = {index: bounds[index][1] for index in starts if starts[index] < bounds[index][1]}
    while open_ones and len(found.records) < limit and not budget.spent:
        for index in list(open_ones):
            end = min(open_ones[index], found.next[index] + CHUNK_OFFSETS)
            room = limit - len(found.records)
            _read_on(feed, topic, index, end, room, wanted, found, budget, characters)
            if found.next[index] >= open_ones[index]:
                del open_ones[index]
            if len(found.records) >= limit or budget.spent:
                break
    found.scanned, found.complete = budget.scanned, not open_ones
    found.records.sort(key=lambda row: (row["timestamp_ms"], row["partition"], row["offset"]))
    return found


def _read_on(
    feed: Feed,
    topic: str,
    index: int,
    end: int,
    room: int,
    wanted: Wanted,
    found: Found,
    budget: _Budget,
    characters: int,
) -> None:
    for batch in feed.read(topic, index, found.next[index], end, max_bytes=CHUNK_BYTES):
        budget.count(batch)
        rows = list(rows_of(topic, index, wanted.of(batch).slice(0, room), characters))
        found.records += rows
        budget.shown_bytes += _shown_bytes(rows, characters)
        room -= len(rows)
        if room <= 0:
            found.next[index] = rows[-1]["offset"] + 1
            return
        found.next[index] = batch.column("offset")[-1].as_py() + 1
        if budget.spent:
            return
    found.next[index] = end


def newest(
    feed: Feed,
    topic: str,
    limit: int,
    wanted: Wanted,
    partition: int | None = None,
    characters: int = SHOWN_CHARACTERS,
) -> Found:
    """The newest records that are wanted, the oldest of them first; looked for backwards, in pieces."""
    bounds = bounds_of(feed, topic, partition)
    found, budget = Found(next={index: end for index, (_, end) in bounds.items()}), _Budget()
    ends = {index: end for index, (start, end) in bounds.items() if start < end}
    counts = dict.fromkeys(bounds, 0)
    most = limit + 16 if wanted.everything else CHUNK_OFFSETS
    step = min(most, PIECE_OFFSETS)
    while ends and not budget.spent:
        for index, end in list(ends.items()):
            start = max(bounds[index][0], end - step)
            rows, to_the_end = _last_of(feed, topic, index, range(start, end), limit, wanted, budget, characters)
            if not to_the_end and found.records:
                break  # there are newer ones that nobody looked at: these are shown only if there is nothing else
            found.records = _latest(found.records + rows, limit)
            budget.shown_bytes = _shown_bytes(found.records, characters)
            if not to_the_end:
                break
            counts[index] += len(rows)
            ends[index] = start
            if start <= bounds[index][0] or counts[index] >= limit:
                del ends[index]
            if budget.spent:
                break
        step = budget.piece(min(max(step * 4, most), 100_000))
    found.scanned, found.complete = budget.scanned, not ends
    return found


def _last_of(
    feed: Feed,
    topic: str,
    index: int,
    offsets: range,
    limit: int,
    wanted: Wanted,
    budget: _Budget,
    characters: int,
) -> tuple[list[Any], bool]:
    """The last ``limit`` that are wanted of these offsets, and whether all were looked at."""
    rows: list[Any] = []
    at = offsets.start
    for batch in feed.read(topic, index, offsets.start, offsets.stop, max_bytes=CHUNK_BYTES):
        budget.count(batch)
        kept = wanted.of(batch)
        rows = [*rows, *rows_of(topic, index, kept.slice(max(0, kept.num_rows - limit)), characters)]
        rows = rows[-limit:] if limit else []
        at = batch.column("offset")[-1].as_py() + 1
        if budget.spent:
            return rows, at >= offsets.stop
    return rows, True


def _latest(rows: list[Any], limit: int) -> list[Any]:
    rows = sorted(rows, key=lambda row: (row["timestamp_ms"], row["partition"], row["offset"]))
    return rows[-limit:] if limit else []


def _shown_bytes(rows: list[Any], characters: int) -> int:
    return sum(min(row["size"], 2 * characters) for row in rows)


def _starts(
    feed: Feed, topic: str, place: Position | Mapping[int, int], bounds: Mapping[int, tuple[int, int]]
) -> Offsets:
    if not isinstance(place, Position):
        return {index: min(max(place.get(index, start), start), end) for index, (start, end) in bounds.items()}
    match place.relative:
        case Relative.BEGINNING:
            return {index: start for index, (start, _) in bounds.items()}
        case Relative.END:
            return {index: end for index, (_, end) in bounds.items()}
        case Relative.LAST:
            return {index: max(start, end - place.value) for index, (start, end) in bounds.items()}
        case Relative.TIME:
            at = feed.offset_at(topic, place.value)
            return {index: min(max(at[index], start), end) for index, (start, end) in bounds.items()}
    if place.value > max((end for _, end in bounds.values()), default=0):
        raise InvalidQuery(f"offset {place.value} is beyond the end of topic {topic!r}")
    return {index: min(max(place.value, start), end) for index, (start, end) in bounds.items()}
