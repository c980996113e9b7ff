"""Following a topic at a pace that a screen can keep: a few frames a second, each with a bounded number of rows.

::

    event: start    data: {"topic", "at"}
    event: frame    data: {"rows": [the newest of them], "count": how many came, "skipped": wanted, but not in rows,
                           "unseen": not even looked at}

An event's id is where it stands (``0:12,1:7``): a browser that comes back with it as Last-Event-ID goes on there. One
that was away so long that too much came since is told how much nobody looked at, and goes on near the end; so does one
whose records are so large that they come faster than they are read.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.operations.filters import Wanted
from headrace.serving.feeds import Feeds
from headrace.serving.pool import Pool
from headrace.serving.reading import CHUNK_BYTES, bounds_of, rows_of
from headrace.views.store import Offsets, version

if TYPE_CHECKING:
    from headrace.feed import Feed

__all__ = ["Follower", "event", "paced"]

FRAMES_A_SECOND = 8
ROWS_A_FRAME = 100
SHOWN_CHARACTERS = 600
READ_AT_MOST = 20_000
"""Records of a partition that are looked at for one frame."""
FRAME_BYTES, FRAME_S = 16 << 20, 1.0
"""A frame is sent when so much was looked at, or for so long, and the next one goes on from there."""
KEEP_ALIVE_S = 10.0
RETRY_MS = 1000


def event(kind: str, at: str, data: Any) -> bytes:
    """A server-sent event."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return f"event: {kind}\nid: {at}\ndata: {text}\n\n".encode()


class Follower:
    """How far somebody has come with a topic, or with one partition of it."""

    def __init__(
        self,
        feeds: Feeds,
        topic: str,
        offsets: Offsets,
        wanted: Wanted | None = None,
        partition: int | None = None,
    ) -> None:
        self.topic, self.offsets = topic, offsets
        self._feeds, self._wanted, self._partition = feeds, wanted or Wanted(), partition
        self._record_bytes = 0
        """Of a record of the last frame."""
        self._turn = -1
        """The partition at which the last frame had looked at enough."""

    def ends(self) -> Offsets:
        """Where the topic ends now."""
        with self._feeds.one() as feed:
            return {index: end for index, (_, end) in bounds_of(feed, self.topic, self._partition).items()}

    def begin(self, since: Offsets) -> None:
        """Stand where somebody says that they were, and at the end elsewhere. A place beyond the end is of another
        topic, which had this name before."""
        ends = self.ends()
        self.offsets = {index: min(since.get(index, end), end) for index, end in ends.items()}

    def take(self, ends: Offsets) -> dict[str, Any] | None:
        """What has come before these ends, or a part of it, as a frame; None if nothing has."""
        seen = _Seen(dict(self.offsets))
        behind = sorted(index for index, end in ends.items() if seen.offsets.get(index, 0) < end)
        at_most = self._at_most(len(behind))
        with self._feeds.one() as feed:
            for index in sorted(behind, key=lambda index: index <= self._turn):
                before = seen.offsets.get(index, 0)
                seen.offsets[index] = max(before, ends[index] - at_most)
                seen.unseen += seen.offsets[index] - before
                if not self._read(feed, index, ends[index], seen):
                    self._turn = index
                    break
        self.offsets = seen.offsets
        if seen.count:
            self._record_bytes = seen.size // seen.count
        if not seen.count + seen.unseen:
            return None
        seen.rows.sort(key=lambda row: (row["timestamp_ms"], row["partition"], row["offset"]))
        shown = seen.rows[-ROWS_A_FRAME:]
        count = seen.count + seen.unseen
        return {"rows": shown, "count": count, "skipped": seen.matched - len(shown), "unseen": seen.unseen}

    def _at_most(self, partitions: int) -> int:
        """How many records of each partition fit into a frame."""
        if not self._record_bytes:
            return READ_AT_MOST
        return max(1, min(READ_AT_MOST, FRAME_BYTES // self._record_bytes // max(1, partitions)))

    def _read(self, feed: Feed, index: int, end: int, seen: _Seen) -> bool:
        """Look at what there is before this end; False if this was enough for a frame."""
        for batch in feed.read(self.topic, index, seen.offsets[index], end, max_bytes=CHUNK_BYTES):
            kept = self._wanted.of(batch)
            tail = kept.slice(max(0, kept.num_rows - ROWS_A_FRAME))
            seen.rows += rows_of(self.topic, index, tail, SHOWN_CHARACTERS)
            seen.count += batch.num_rows
            seen.matched += kept.num_rows
            seen.size += batch.nbytes
            seen.offsets[index] = batch.column("offset")[-1].as_py() + 1
            if seen.size >= FRAME_BYTES or time.monotonic() > seen.until:
                return False
        seen.offsets[index] = end
        return True


@dataclass
class _Seen:
    """What was looked at for a frame, and up to where."""

    offsets: Offsets
    rows: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0
    matched: int = 0
    unseen: int = 0
    size: int = 0
    until: float = field(default_factory=lambda: time.monotonic() + FRAME_S)


async def paced(
    follower: Follower,
    ends: Callable[[], Awaitable[Offsets | None]],
    stopping: Callable[[], bool],
    pool: Pool,
) -> AsyncIterator[bytes]:
    """Frames of what comes, until the ends are None or the process stops. ``ends`` may wait for news, not for long;
    ``pool`` has the threads that read."""
    yield f"retry: {RETRY_MS}\n\n".encode()
    yield event("start", version(follower.offsets), {"topic": follower.topic, "at": version(follower.offsets)})
    said = time.monotonic()
    while not stopping():
        began = time.monotonic()
        try:
            known = await ends()
            if known is None:
                return
            frame = await pool.run(follower.take, known)
        except HeadraceError as error:
            yield event("trouble", version(follower.offsets), {"error": error.message})
            await asyncio.sleep(1.0)
            continue
        if frame is not None:
            yield event("frame", version(follower.offsets), frame)
            said = time.monotonic()
        elif time.monotonic() - said > KEEP_ALIVE_S:
            yield b": still here\n\n"
            said = time.monotonic()
        await asyncio.sleep(max(0.0, 1 / FRAMES_A_SECOND - (time.monotonic() - began)))
