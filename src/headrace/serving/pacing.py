"""Following a topic at a pace that a screen can keep: a few frames a second, each with a bounded number of rows.

::

    event: start    data: {"topic", "at"}
    event: frame    data: {"rows": [the newest of them], "count": how many came, "skipped": wanted, but not in rows,
                           "unseen": not even looked at}

An event's id is where it stands (``0:12,1:7``): a browser that comes back with it as Last-Event-ID goes on there. One
that was away so long that too much came since is told how much nobody looked at, and goes on near the end.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from headrace.errors import HeadraceError
from headrace.operations.filters import Wanted
from headrace.serving.feeds import Feeds
from headrace.serving.pool import Pool
from headrace.serving.reading import CHUNK_BYTES, bounds_of, rows_of
from headrace.views.store import Offsets, version

__all__ = ["Follower", "event", "paced"]

FRAMES_A_SECOND = 8
ROWS_A_FRAME = 100
SHOWN_CHARACTERS = 600
READ_AT_MOST = 20_000
"""Records that are looked at for one frame."""
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
        """What has come before these ends, as a frame; None if nothing has."""
        rows: list[dict[str, Any]] = []
        count = matched = unseen = 0
        with self._feeds.one() as feed:
            for index, end in ends.items():
                start = self.offsets.get(index, 0)
                if start >= end:
                    continue
                if end - start > READ_AT_MOST:
                    unseen += end - start - READ_AT_MOST
                    start = end - READ_AT_MOST
                for batch in feed.read(self.topic, index, start, end, max_bytes=CHUNK_BYTES):
                    count += batch.num_rows
                    kept = self._wanted.of(batch)
                    matched += kept.num_rows
                    tail = kept.slice(max(0, kept.num_rows - ROWS_A_FRAME))
                    rows += rows_of(self.topic, index, tail, SHOWN_CHARACTERS)
                self.offsets[index] = end
        if not count + unseen:
            return None
        rows.sort(key=lambda row: (row["timestamp_ms"], row["partition"], row["offset"]))
        shown = rows[-ROWS_A_FRAME:]
        return {"rows": shown, "count": count + unseen, "skipped": matched - len(shown), "unseen": unseen}


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
