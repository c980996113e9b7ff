"""Copying partitions, several at a time, and comparing what came of it.

A copy knows nothing but the two logs: where the target's partition ends is where it goes on, after a lost connection as
after a kill.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import HeadraceError, ServerAway
from headrace.move.batches import joined, pieces
from headrace.move.connection import Brokers, Refused
from headrace.move.reading import fetches, rows
from headrace.move.writing import Gaps, Misplaced, PartitionWriter, log_end

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Address", "Difference", "Part", "compare_all", "copy_all", "ensure_ends"]

THREADS = 8
_PATIENCE_S = 120.0

Progress = Callable[[int], None]
"""Is told how many offsets more are done."""


class Address(NamedTuple):
    """Where a cluster is, and the client's settings for it."""

    bootstrap: str
    settings: Mapping[str, str]

    def brokers(self) -> Brokers:
        """Connections to it, for one thread."""
        return Brokers(self.bootstrap, self.settings)


class Part(NamedTuple):
    """A partition and the offsets of it that are moved: start <= offset < end."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> str:
        """For people."""
        return f"{self.topic}[{self.partition}]"


class Difference(NamedTuple):
    """Where two copies of a partition are not the same, and how."""

    place: str
    told: str


def copy_all(source: Address, target: Address, name: str, parts: Sequence[Part], progress: Progress) -> None:
    """Copy partitions; ``name`` begins the transactional ids that are used, the same in every attempt."""
    names = [f"{name}-{number}" for number in range(THREADS)]
    _end_earlier(target, names)

    def copy(number: int, part: Part, told: Progress) -> None:
        _Copy(source, target, names[number], told).copy(part)

    _in_threads(parts, copy, progress)


def compare_all(source: Address, target: Address, parts: Sequence[Part], progress: Progress) -> list[Difference]:
    """Compare every record of partitions: offset, time, key, value and headers; the first difference of each."""
    found: list[Difference] = []

    def compare(number: int, part: Part, told: Progress) -> None:
        difference = _compared(source, target, part, told)
        if difference is not None:
            found.append(difference)

    _in_threads(parts, compare, progress)
    return sorted(found)


def ensure_ends(target: Address, parts: Sequence[Part]) -> None:
    """Raise unless partitions of the target end where they are to: a batch of a connection that broke may come late,
    and nobody has compared what is behind the end."""

    def look(number: int, part: Part, told: Progress) -> None:
        brokers = target.brokers()
        try:
            end = brokers.patiently(lambda: log_end(brokers, part.topic, part.partition))
        finally:
            brokers.close()
        if end != part.end:
            raise _ends_elsewhere(part, end)

    _in_threads(parts, look, lambda more: None)


def _ends_elsewhere(part: Part, end: int) -> Misplaced:
    return Misplaced(
        f"{part.place} ends at {end} on the target, and at {part.end} here.",
        detail="something else has written to it, or a batch of a connection that broke came late",
        hint="delete the topic there and start the move again: it copies that topic anew",
    )


def _end_earlier(target: Address, names: Sequence[str]) -> None:
    """End the transactions of an attempt that was killed, before anybody asks where a partition ends."""
    brokers = target.brokers()
    try:
        for name in names:
            Gaps(brokers, name).begin()
    finally:
        brokers.close()


class _Stopped(Exception):
    """Another thread has failed, or somebody wants the move to stop."""


def _in_threads(parts: Sequence[Part], work: Callable[[int, Part, Progress], None], progress: Progress) -> None:
    """Do a piece of work on every part, the largest first; the first error ends it all."""
    waiting = sorted(parts, key=lambda part: part.end - part.start)
    stop = threading.Event()

    def told(more: int) -> None:
        if stop.is_set():
            raise _Stopped
        progress(more)

    def run(number: int) -> None:
        while waiting and not stop.is_set():
            try:
                part = waiting.pop()
            except IndexError:
                return
            try:
                work(number, part, told)
            except BaseException:
                stop.set()
                raise

    with ThreadPoolExecutor(THREADS) as pool:
        running = [pool.submit(run, number) for number in range(min(THREADS, len(parts)))]
        try:
            wait(running)
        except BaseException:
            stop.set()
            raise
    failed = [error for one in running if (error := one.exception()) and not isinstance(error, _Stopped)]
    if failed:
        raise failed[0]


class _Copy:
    """Copies one partition; tries again as long as something moves."""

    def __init__(self, source: Address, target: Address, name: str, progress: Progress) -> None:
        self._source, self._target = source.brokers(), target.brokers()
        self._gaps = Gaps(self._target, name)
        self._progress = progress
        self._told = 0

    def copy(self, part: Part) -> None:
        self._told = 0
        deadline, before = time.monotonic() + _PATIENCE_S, -1
        while True:
            try:
                self._attempt(part)
                return
            except (ServerAway, Refused) as error:
                if self._told > before:
                    deadline, before = time.monotonic() + _PATIENCE_S, self._told
                if (isinstance(error, Refused) and not error.passes) or time.monotonic() > deadline:
                    raise
            finally:
                self._source.close()
                self._target.close()
            time.sleep(0.5)  # what was under way has arrived by then, or never will

    def _attempt(self, part: Part) -> None:
        self._gaps.begin()
        writer = PartitionWriter(self._target, part.topic, part.partition)
        at = writer.end()
        if at > part.end:
            raise _ends_elsewhere(part, at)
        if at < part.start:
            writer.fill_to(part.start)
            at = part.start
        if part.start:
            writer.delete_before(part.start)
        self._reached(part, at)
        for fetched, following in fetches(self._source, part.topic, part.partition, at, part.end):
            for piece in joined(pieces(fetched, at, part.end)):
                self._fill(part, writer, at, piece.base)
                writer.put(piece)
                at = piece.following
            self._reached(part, following)
        self._fill(part, writer, at, part.end)
        writer.settle()
        self._reached(part, part.end)

    def _fill(self, part: Part, writer: PartitionWriter, start: int, end: int) -> None:
        if end > start:
            writer.settle()
            self._gaps.fill(writer, start, end)
            self._reached(part, end)

    def _reached(self, part: Part, at: int) -> None:
        done = at - part.start
        if done > self._told:
            self._progress(done - self._told)
            self._told = done


def _compared(source: Address, target: Address, part: Part, progress: Progress) -> Difference | None:
    here, there = source.brokers(), target.brokers()
    try:
        ours = rows(here, part.topic, part.partition, part.start, part.end)
        theirs = rows(there, part.topic, part.partition, part.start, part.end)
        told = _first_difference(ours, theirs, part.start, progress)
        return None if told is None else Difference(part.place, told)
    except ServerAway:
        raise
    except HeadraceError as error:
        return Difference(part.place, error.message)
    finally:
        here.close()
        there.close()


def _first_difference(
    ours: Iterator[pyarrow.RecordBatch], theirs: Iterator[pyarrow.RecordBatch], start: int, progress: Progress
) -> str | None:
    mine, other = next(ours, None), next(theirs, None)
    while mine is not None and other is not None:
        count = min(mine.num_rows, other.num_rows)
        one, two = mine.slice(0, count), other.slice(0, count)
        if not one.equals(two):
            return _named(one, two)
        last = one.column("offset")[-1].as_py() + 1
        progress(last - start)
        start = last
        mine = mine.slice(count) if mine.num_rows > count else next(ours, None)
        other = other.slice(count) if other.num_rows > count else next(theirs, None)
    if mine is not None:
        return f"the record at offset {mine.column('offset')[0].as_py()} is missing on the target"
    if other is not None:
        return f"the target has a record at offset {other.column('offset')[0].as_py()} that is not here"
    return None


def _named(one: pyarrow.RecordBatch, two: pyarrow.RecordBatch) -> str:
    for row in range(one.num_rows):
        for name in one.schema.names:
            if one.column(name)[row] != two.column(name)[row]:
                return f"the {name} of the record at offset {one.column('offset')[row].as_py()} is another"
    return "the records are of other types"
