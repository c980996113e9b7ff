"""What SQLite's triggers noted, carried into the log: in order, each change once.

A transaction of the producer holds records and, in ``headrace.marks`` under ``capture/APP/NAME``, the id of the last
change among them. Whoever takes over fences the one before, reads that id, and goes on after it; so a kill at any
moment loses and repeats nothing. Changes that are in the log are deleted from the file some time later.

::

    wanted ──► snapshot: rows are copied into the changes, chunk by chunk, while others write ──► streaming
    triggers gone (table dropped and made anew) ──► snapshot again, then what is in the topic and not in the table goes
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.capture.declarations import Captured, SQLite
from headrace.capture.envelopes import Change, ChangeRecord, change_records, json_value, to_json
from headrace.capture.outbox import event_record
from headrace.capture.reading import keyed
from headrace.capture.sqlite import Installed, SQLiteFile
from headrace.errors import HeadraceError, ServerAway, UnknownTopic
from headrace.feed.cluster import Cluster, comes_back
from headrace.feed.topics import MARKS, ensure_topic, read_table

__all__ = ["SQLiteDrain", "SourceMoved", "position_key"]

BATCH = 5_000
POLL_S = 0.02
FORGET_EVERY_S = 1.0
RETRY_S = 1.0
_TIMEOUT_S = 30.0


class SourceMoved(HeadraceError):
    """The database is not where the log says that it was: another file, or one from an older backup."""


def position_key(app: str, name: str) -> str:
    """Where the position of a captured table is, in ``headrace.marks``."""
    return f"capture/{app}/{name}"


class SQLiteDrain:
    """One captured table of an SQLite file. ``open`` takes over, ``step`` carries what there is; one thread's."""

    def __init__(
        self,
        app: str,
        captured: Captured,
        cluster: Cluster,
        *,
        told: Callable[[str], None] = lambda sentence: None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        if not isinstance(captured.source, SQLite):
            raise HeadraceError(f"table {captured.name!r} is not one of an SQLite file.")
        self.app, self.captured, self.source = app, captured, captured.source
        self.rows_captured = 0
        self._cluster, self._told, self._now_ms = cluster, told, now_ms
        self._file: SQLiteFile | None = None
        self._installed: Installed | None = None
        self._producer: Producer | None = None
        self._position = 0
        self._forgotten, self._forget_at = 0, 0.0
        self._seen: tuple[int, int] | None = None

    @property
    def state(self) -> str:
        """``snapshot`` or ``streaming``."""
        return "snapshot" if self._installed is not None and self._installed.is_copying else "streaming"

    @property
    def position(self) -> int:
        """The id of the last change that is in the log."""
        return self._position

    def pending(self) -> tuple[int, int | None]:
        """How many changes wait, and of when the oldest is (milliseconds)."""
        file, installed = self._opened
        return file.pending(installed.watched, self._position)

    def open(self, *, as_truth: bool = False) -> None:
        """Make the triggers, take over from whoever drained before, and find out where to go on. A file that is not the
        one of before is refused, unless it is taken for the truth."""
        ensure_topic(self._cluster, MARKS)
        self._file = self._file or SQLiteFile(self.source)
        self._installed = self._file.install(self.app, self.captured)
        self._producer = self._transactional()
        key = position_key(self.app, self.captured.name)
        found = read_table(self._cluster, MARKS, key).get(key)
        self._go_on(json.loads(found) if found else None, as_truth=as_truth)

    def step(self) -> bool:
        """Carry the next changes, or copy the next rows of a snapshot; False if there is nothing to do."""
        file, installed = self._opened
        rows = file.changes(installed.watched, self._position, BATCH)
        if rows:
            self._carry(rows, installed)
            return True
        if installed.is_copying:
            self._copy(file, installed)
            return True
        self._forget()
        return False

    def wait(self, seconds: float, stopping: threading.Event) -> None:
        """Wait until somebody has written to the file, so long at most."""
        file, _ = self._opened
        deadline = time.monotonic() + seconds
        while not stopping.is_set() and time.monotonic() < deadline:
            version = file.version
            if version != self._seen:
                if self._seen is not None and version[1] != self._seen[1]:
                    self._look_again(file)
                self._seen = version
                return
            stopping.wait(POLL_S)

    def snapshot(self) -> None:
        """Capture all rows anew, while writes go on; then what is in the topic and not in the table is deleted."""
        file, installed = self._opened
        self._installed = file.ask_for_snapshot(installed, again=True)

    def close(self) -> None:
        """Let go of file and producer; a transaction that is open is aborted by whoever comes next."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            with contextlib.suppress(KafkaException):
                producer.flush(0)
        file, self._file = self._file, None
        if file is not None:
            file.close()

    @property
    def _opened(self) -> tuple[SQLiteFile, Installed]:
        if self._file is None or self._installed is None:
            raise HeadraceError(f"the capture of {self.captured.name!r} is not open.")
        return self._file, self._installed

    def _go_on(self, mark: Mapping[str, Any] | None, *, as_truth: bool) -> None:
        """Begin at the mark, if the file is the one that it speaks of.

        Changes that were deleted from the file though this log does not have them are made up for by a snapshot. That
        is asked for before the mark is moved, so that a kill in between does not forget it."""
        file, installed = self._opened
        last = file.last_id(installed.watched)
        if mark is None:
            self._position, anew = 0, installed.forgotten > 0
        elif mark["file"] != installed.file or mark["id"] > last:
            if not as_truth:
                raise self._moved(mark, installed, last)
            self._position, anew = 0 if mark["file"] != installed.file else last, True
        else:
            self._position, anew = mark["id"], mark["id"] < installed.forgotten
        if anew and (as_truth or installed.snapshot != "never"):
            self._told(f"table {self.captured.name}: the log does not have it as it is, so it is captured anew")
            self.snapshot()
        elif installed.renewed:
            self._told(f"table {self.captured.name}: its triggers were gone, so it is captured anew")
        if mark is None or anew:
            self._commit((), self._position, installed.file)
        if self._opened[1].snapshot == "wanted":
            self._installed = file.ask_for_snapshot(installed, again=self._has_records())

    def _has_records(self) -> bool:
        """Whether the topic may have rows of an earlier capture."""
        try:
            return any(end > start for start, end in self._cluster.bounds(self.captured.topic).values())
        except UnknownTopic:
            return False

    def _moved(self, mark: Mapping[str, Any], installed: Installed, last: int) -> SourceMoved:
        older = f"Its changes end at {last}, but {mark['id']} is in the log: it is an older copy, or they were dropped."
        name = f"{self.app}.{self.captured.name}"
        return SourceMoved(
            f"the SQLite file {str(self.source.path)!r} is not the one that {self.captured.name!r} was captured from.",
            detail="It is another file." if mark["file"] != installed.file else older,
            hint="put the right file back; or take this one for the truth: "
            f"`headrace capture snapshot {name}` captures all its rows and deletes what it does not have",
        )

    def _look_again(self, file: SQLiteFile) -> None:
        """The schema was changed: put the triggers right."""
        self._installed = installed = file.install(self.app, self.captured)
        last = file.last_id(installed.watched)
        if last < self._position:
            raise self._moved({"file": installed.file, "id": self._position}, installed, last)
        if installed.renewed:
            self._told(f"table {self.captured.name}: it was made anew without its triggers, so it is captured anew")

    def _copy(self, file: SQLiteFile, installed: Installed) -> None:
        copied = file.copy_chunk(installed)
        if copied is not None:
            self._installed = copied
            return
        keys: list[tuple[Any, ...]] = []
        if installed.snapshot == "again" and self.captured.outbox is None:
            found = (json.loads(key) for key in _live_keys(self._cluster, self.captured.topic))
            keys = [tuple(key[name] for name in installed.watched.key) for key in found]
        self._installed, gone = file.end_snapshot(installed, keys, self._position)
        more = f"; {gone} that only the topic had are deleted" if gone else ""
        self._told(f"table {self.captured.name}: all rows are captured{more}")

    def _carry(self, rows: list[tuple[Any, ...]], installed: Installed) -> None:
        """Records and position, in one transaction."""
        last = int(rows[-1][0])
        self._commit(self._records(rows, installed), last, installed.file)
        self.rows_captured += len(rows)
        self._position = last

    def _records(self, rows: Iterable[tuple[Any, ...]], installed: Installed) -> Iterator[ChangeRecord]:
        watched, now = installed.watched, self._now_ms()
        source = {
            "connector": "sqlite",
            "name": self.captured.name,
            "db": Path(self.source.path).name,
            "table": watched.table,
        }
        for change in _changes(rows, watched.columns, watched.booleans):
            if self.captured.outbox is not None:
                yield from event_record(change, self.captured.outbox)
            else:
                yield from change_records(change, watched.key, source, now)

    def _commit(self, records: Iterable[ChangeRecord], last: int, file: str) -> None:
        producer = self._producer
        if producer is None:
            raise ServerAway(f"the capture of {self.captured.name!r} has no producer.")
        mark = {"id": last, "file": file}
        try:
            producer.begin_transaction()
            for record in records:
                _produce(producer, self.captured.topic, record)
            key = position_key(self.app, self.captured.name)
            producer.produce(MARKS, key=key.encode(), value=to_json(mark))
            _asked(lambda: producer.commit_transaction(_TIMEOUT_S))
        except KafkaException as error:
            raise self._explained(error.args[0]) from error

    def _transactional(self) -> Producer:
        producer = Producer(
            self._cluster.config(
                transactional_id=f"headrace.capture.{self.app}.{self.captured.name}",
                transaction_timeout_ms=30_000,
                linger_ms=0,
                partitioner="murmur2_random",
                compression_type="lz4",
                message_max_bytes=64 << 20,
            )
        )
        try:
            _asked(lambda: producer.init_transactions(_TIMEOUT_S))
        except KafkaException as error:
            raise self._explained(error.args[0]) from error
        return producer

    def _explained(self, error: KafkaError) -> HeadraceError:
        sentence = f"the changes of {self.captured.name!r} could not be written: {error.str().rstrip('.')}."
        if comes_back(error):
            return ServerAway(sentence)
        if error.code() == KafkaError._FENCED:
            return HeadraceError(sentence, hint="another run of the app has taken over")
        return HeadraceError(sentence)

    def _forget(self) -> None:
        """Delete from the file what is in the log, now and then."""
        if self._position > self._forgotten and time.monotonic() >= self._forget_at:
            file, installed = self._opened
            if file.forget_changes(installed.watched, self._position):
                self._forgotten = self._position
            self._forget_at = time.monotonic() + FORGET_EVERY_S


def _changes(rows: Iterable[tuple[Any, ...]], columns: tuple[str, ...], booleans: frozenset[str]) -> Iterator[Change]:
    count = len(columns)
    for number, op, at_ms, *values in rows:
        if op == "x":  # a candidate that came to nothing
            continue
        old, new = (
            {name: _said(value, name in booleans) for name, value in zip(columns, side, strict=True)}
            for side in (values[:count], values[count:])
        )
        yield Change(op, old if op in "ud" else None, new if op != "d" else None, at_ms, number)


def _said(value: Any, boolean: bool) -> Any:
    return bool(value) if boolean and value in (0, 1) else json_value(value)


def _produce(producer: Producer, topic: str, record: ChangeRecord) -> None:
    while True:
        try:
            producer.produce(topic, key=record.key, value=record.value, headers=list(record.headers))
            return
        except BufferError:
            producer.poll(0.1)


def _asked(ask: Callable[[], None]) -> None:
    """Ask, again while the client says that this helps."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            ask()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def _live_keys(cluster: Cluster, topic: str) -> set[bytes]:
    """The keys of a topic whose last record has a value."""
    live: set[bytes] = set()
    for partition, (start, end) in cluster.bounds(topic).items():
        if start < end:
            for _, key, value in keyed(cluster, topic, partition, start, end):
                (live.discard if value is None else live.add)(key)
    return live
