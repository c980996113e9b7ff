"""The log of chunks of one bucket, in Spark's state store.

Two state variables: ``head``, a JSON text ``{"chunks": [[number, pieces, bytes, id], ...], "next": number,
"wake": ms, "by": {table: [column, ...]}, "key": {table: [column, ...]}, "dead": rows, "operator": number}`` with the
chunks oldest first, and ``chunks``, a map from (number, piece) to data. An id is random: it
names what one attempt at one batch wrote, so a state that some other attempt made is never taken for it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from headrace.pipelines.state.chunks import decode, encode, merged, to_merge
from headrace.pipelines.state.keyed_state import KeyedState
from headrace.pipelines.state.operator import Changes, Operator

__all__ = ["CHUNK_KEY", "CHUNK_VALUE", "HEAD", "BucketLog", "Chunks", "Entry", "Head"]

HEAD = "text string"
CHUNK_KEY = "number long, piece int"
CHUNK_VALUE = "data binary"
PIECE = 4 << 20


class Chunks(Protocol):
    """Spark's map state."""

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The data of a piece."""
        ...

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        """Write a piece."""
        ...

    def removeKey(self, key: tuple[Any, ...]) -> None:
        """Take a piece away."""
        ...


class Entry(NamedTuple):
    """A chunk, as the head knows it."""

    number: int
    pieces: int
    size: int
    id: str


@dataclass
class Head:
    """What the head says."""

    chunks: list[Entry] = field(default_factory=list)
    next: int = 0
    wake_ms: int | None = None
    by: dict[str, list[str]] = field(default_factory=dict)
    """What the rows of each table are looked up by."""
    key: dict[str, list[str]] = field(default_factory=dict)
    """What decides the bucket of the rows of each table."""
    dead: int = 0
    """How many rows could not be processed so far."""
    operator: int | None = None
    """Which keyed operator of the query this is; older heads do not say it."""

    @classmethod
    def read(cls, text: str | None) -> Head:
        """From the state variable."""
        if text is None:
            return cls()
        found = json.loads(text)
        chunks = [Entry(*entry) for entry in found["chunks"]]
        said = found["next"], found["wake"], found["by"], found["key"]
        return cls(chunks, *said, found.get("dead", 0), found.get("operator"))

    def text(self) -> str:
        """For the state variable."""
        said = {"chunks": self.chunks, "next": self.next, "wake": self.wake_ms, "by": self.by, "key": self.key}
        return json.dumps({**said, "dead": self.dead, "operator": self.operator}, separators=(",", ":"))

    @property
    def last(self) -> str:
        """The id of the newest chunk; empty if there is none."""
        return self.chunks[-1].id if self.chunks else ""


class BucketLog:
    """Reads and writes the chunks of a bucket, during one batch."""

    def __init__(self, head: Head, chunks: Chunks, what: str) -> None:
        self.head = head
        self._chunks = chunks
        self._what = what

    def state(self, operator: Operator, cached: tuple[str, KeyedState] | None) -> KeyedState:
        """The state as the log has it: what was kept, brought up to date, or all of it anew."""
        ids = ["", *(entry.id for entry in self.head.chunks)]
        if cached is not None and cached[0] in ids and (cached[0] or not self.head.chunks):
            state, behind = cached[1], self.head.chunks[ids.index(cached[0]) :]
        else:
            state, behind = KeyedState(operator), self.head.chunks
        state.replay(map(self.read, behind))
        return state

    def append(self, changes: Mapping[str, Changes]) -> None:
        """Add what a batch changed, and merge older chunks if it is time."""
        self.head.chunks.append(self._write(encode(changes)))
        wanted = to_merge([entry.size for entry in self.head.chunks])
        if wanted is not None:
            old = self.head.chunks[wanted.start : wanted.stop]
            one = self._write(encode(merged([self.read(entry) for entry in old], oldest=wanted.start == 0)))
            self._remove(old)
            self.head.chunks[wanted.start : wanted.stop] = [one]

    def read(self, entry: Entry) -> dict[str, Changes]:
        """A chunk's changes."""
        found = [self._chunks.getValue((entry.number, piece)) for piece in range(entry.pieces)]
        data = b"".join(bytes(piece[0]) for piece in found if piece is not None)
        return decode(data, f"chunk {entry.number} of {self._what}")

    def _write(self, data: bytes) -> Entry:
        pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
        number, self.head.next = self.head.next, self.head.next + 1
        for piece, part in enumerate(pieces):
            self._chunks.updateValue((number, piece), (part,))
        return Entry(number, len(pieces), len(data), uuid.uuid4().hex[:16])

    def _remove(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            for piece in range(entry.pieces):
                self._chunks.removeKey((entry.number, piece))
