"""A history: what clients asked of a broker and were told, as plain events that can be kept and checked again.

Every client writes its own file of JSON lines, each line before (``invoke``) or after (``ok``, ``fail``, ``unknown``)
the thing that it tells of; a folder of such files, merged by time, is a history. A client that is killed leaves
invocations without an end: nobody knows whether they happened, and the checker lets either be true.

===========  =========================================================================================================
send         ``topic, partition, value``, in a transaction ``txn``, made of another record ``source``; ok: ``offset``
end          ``txn, commit`` and what it consumed: ``group, positions`` ({"topic/partition": offset})
poll         ok: ``records`` ([topic, partition, offset, value]); ``isolation``; of a share group ``share``
assign       the reader starts anew: its next record may have any offset
commit       offsets of a group without a transaction: ``group, positions``
accept       a record of a share group: ``share, topic, partition, offset, value``
drained      everything up to the end was read by this process: ``ends`` ({"topic/partition": offset})
committed    what the broker says at the end: ``group, positions``
queue-empty  a share consumer was given all that was left: ``share, topics``
===========  =========================================================================================================

Values are unique: no two sends of a history have the same one. Other events (``kill``, ``pause``, ...) are for the
reader of the history; the checker needs none of them.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Type = Literal["invoke", "ok", "fail", "unknown"]
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history."""

    time: int
    process: str
    op: int
    type: Type
    f: str
    data: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        return json.dumps([self.time, self.process, self.op, self.type, self.f, self.data], separators=(",", ":"))

    @staticmethod
    def of_line(line: str) -> Event:
        return Event(*json.loads(line))


class Recorder:
    """Writes one process's events; each is with the operating system before the call returns."""

    def __init__(self, folder: Path, process: str) -> None:
        self.process = process
        self._ops = itertools.count(1)
        self._file = os.open(folder / f"{process}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def invoke(self, f: str, **data: Any) -> int:
        """The beginning of something; returns the number to end it with."""
        op = next(self._ops)
        self._write(op, "invoke", f, data)
        return op

    def end(self, op: int, type: Type, f: str, **data: Any) -> None:
        self._write(op, type, f, data)

    def note(self, f: str, **data: Any) -> None:
        """Something that has just happened as a whole."""
        self._write(next(self._ops), "ok", f, data)

    def _write(self, op: int, type: Type, f: str, data: dict[str, Any]) -> None:
        event = Event(time.monotonic_ns(), self.process, op, type, f, data)
        os.write(self._file, event.line().encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def load(folder: Path) -> list[Event]:
    """All files of a folder as one history. The last line of a killed process may be torn and is left out."""
    return merged(_events(path) for path in sorted(folder.glob("*.jsonl")))


def merged(files: Iterable[Iterable[Event]]) -> list[Event]:
    return sorted(itertools.chain.from_iterable(files), key=lambda event: event.time)


def _events(path: Path) -> list[Event]:
    text = path.read_text()
    whole, _, _ = text.rpartition("\n")
    return [Event.of_line(line) for line in whole.splitlines()]


def place_of(text: str) -> Place:
    topic, _, partition = text.rpartition("/")
    return topic, int(partition)


def positions(places: dict[Place, int]) -> dict[str, int]:
    """As they are written in an event."""
    return {f"{topic}/{partition}": offset for (topic, partition), offset in places.items()}
