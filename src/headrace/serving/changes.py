"""The changes of a view as server-sent events, from any version on.

::

    event: start      data: {"view", "topic", "version": where it starts, "log_start": the oldest version there is}
    event: gone       data: {"asked", "version"}      what was asked for is older than the log: it begins here
    event: change     data: {"partition", "offset", "timestamp", "key", "row" (null: deleted), "skipped"}
    event: rebuilt    data: {"view", "topic", "version"}   the view was rebuilt: read it again and go on from here

Every event's id is the version after it (``0:12,1:7``: per partition, the next offset); a client that comes back
with it as Last-Event-ID misses nothing. ``skipped`` counts offsets before this one that hold no change now:
compacted away because a later change of the same key replaced them, or markers and leftovers of transactions. An
event is sent only after the view's store has it, so a read that follows sees at least this version.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, InvalidQuery
from headrace.serving.hub import Hub
from headrace.serving.pool import Pool
from headrace.views.catalog import ViewName
from headrace.views.materialiser import ViewState
from headrace.views.store import Offsets, offsets_of, version

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["follow"]

KEEP_ALIVE_S = 15.0
READ_BYTES = 1 << 20
RETRY_MS = 1000


@dataclass
class _Place:
    """How far a client has come."""

    view: ViewName
    build: int
    topic: str
    offsets: Offsets

    def event(self, kind: str, data: dict[str, Any]) -> bytes:
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
        return f"event: {kind}\nid: {version(self.offsets)}\ndata: {text}\n\n".encode()


async def follow(hub: Hub, view: ViewName, asked: str | None, until: str | None, pool: Pool) -> AsyncIterator[bytes]:
    """The events of a view: from ``asked`` (a version, ``start``, or None for now), until a version or for ever.
    ``pool`` has the threads that read."""
    state = hub.states[view]
    starts = await pool.run(hub.log_start, state.spec.topic)
    place = _Place(view, state.build, state.spec.topic, _first(state, starts, asked))
    last = None if until is None else offsets_of(until)
    yield f"retry: {RETRY_MS}\n".encode()
    about = {"view": state.spec.full_name, "topic": place.topic}
    yield place.event("start", {**about, "version": version(place.offsets), "log_start": version(starts)})
    wanted = {} if asked in (None, "start") else offsets_of(asked or "")
    if any(offset < starts.get(partition, 0) for partition, offset in wanted.items()):
        yield place.event("gone", {"asked": asked, "version": version(place.offsets)})
    while not hub.stopping:
        if last is not None and all(place.offsets.get(part, 0) >= at for part, at in last.items()):
            return
        state_now = hub.states.get(view)
        if state_now is None:
            return
        if state_now.build != place.build:
            place = _Place(view, state_now.build, state_now.spec.topic, dict(state_now.offsets))
            about = {"view": state_now.spec.full_name, "topic": place.topic}
            yield place.event("rebuilt", {**about, "version": version(place.offsets)})
        busy = False
        async for events in _news(hub, place, state_now.offsets, pool):
            busy = True
            yield events
        if not busy and hub.states.get(view) is state_now:
            waiting = asyncio.ensure_future(hub.news(KEEP_ALIVE_S))
            await waiting
            if hub.states.get(view) is state_now:
                yield b": still here\n\n"


def _first(state: ViewState, starts: Offsets, asked: str | None) -> Offsets:
    if asked is None or asked == "now":
        return dict(state.offsets)
    wanted = {} if asked == "start" else offsets_of(asked)
    for partition, offset in wanted.items():
        if offset > state.ends.get(partition, 0):
            raise InvalidQuery(
                f"version {asked} is not there yet, or of a changelog that was replaced",
                hint=f"the view is at {version(state.offsets)}",
            )
    return {partition: max(wanted.get(partition, 0), start) for partition, start in starts.items()}


async def _news(hub: Hub, place: _Place, ends: Offsets, pool: Pool) -> AsyncIterator[bytes]:
    """What the store has taken in since, in bounded pieces."""
    for partition, end in ends.items():
        while (position := place.offsets.get(partition, 0)) < end:
            try:
                batch = await pool.run(hub.records, place.topic, partition, position, end, READ_BYTES)
            except HeadraceError:
                return
            if batch is None or not batch.num_rows:
                place.offsets[partition] = end
                continue
            yield b"".join(_events(place, partition, batch))


def _events(place: _Place, partition: int, batch: pa.RecordBatch) -> Iterator[bytes]:
    timestamps = batch.column("timestamp").cast("int64").to_pylist()
    columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
    for timestamp, offset, key, value in zip(timestamps, *columns, strict=True):
        skipped = offset - place.offsets.get(partition, 0)
        place.offsets[partition] = offset + 1
        if not _is_json(key) or not (value is None or _is_json(value)):
            continue
        head = f'"partition":{partition},"offset":{offset},"timestamp":{timestamp},"skipped":{skipped}'
        yield b'event: change\nid: %b\ndata: {%b,"key":%b,"row":%b}\n\n' % (
            version(place.offsets).encode(),
            head.encode(),
            _one_line(key),
            b"null" if value is None else _one_line(value),
        )


def _is_json(text: bytes | None) -> bool:
    try:
        return isinstance(json.loads(text or b""), dict)
    except (ValueError, RecursionError):
        return False


def _one_line(text: bytes) -> bytes:
    """JSON on one line: line breaks are only white space in it."""
    return text.replace(b"\r", b" ").replace(b"\n", b" ")
