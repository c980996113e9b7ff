"""The sink: a batch of a query's rows becomes records of its topic, once.

All records of a batch and its mark are one transaction, so a batch is visible as a whole or not at all. A batch that
Spark does again finds its mark and writes nothing. Taking over (``claim``) fences the run before; whoever was fenced
finds the other's mark and stops. The rows come to the driver as Arrow and leave through one producer per query: what a
view changes in a batch is small next to what it read, and one transaction per batch costs less than one per task.

A row of a window is written with ``"final":false`` while the window is open, and once more with ``"final":true`` when
the watermark has passed its end, in the batch in which that happens. The rows of open windows are kept here; a new
run reads them back from the topic.

Keys: a row with a null in its key goes to ``QUERY.dead`` (reason ``null-key``). Of several rows of one key in a batch
the last is written; rows of one task are in the order of the task, tasks are in order.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace import tracing
from headrace.errors import HeadraceError, ServerAway
from headrace.feed.cluster import Cluster, comes_back
from headrace.feed.protocol import ProtocolFeed
from headrace.feed.topics import MARKS, read_table
from headrace.pipelines.checkpoint import Checkpoint, watermark_ms
from headrace.pipelines.marks import Mark, mark_key
from headrace.pipelines.rows import to_json
from headrace.pipelines.source.shape import TRACE
from headrace.pipelines.traces import BatchTraces, headers_of

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["DELETED", "FINAL", "Sink", "Superseded", "Target"]

DELETED = "_deleted"
"""A boolean column of a view's result: true deletes the row of this key."""
FINAL = "final"

_OPEN, _CLOSED = b'"final":false}', b'"final":true}'
_CHUNK = 50_000
_TIMEOUT_S = 30.0
_silent = logging.getLogger(f"{__name__}.client")  # that it was fenced is said by what it raises
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class Superseded(HeadraceError):
    """A later run of the same query has taken over."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a query's rows go, and how."""

    query: str
    topic: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    generation: int
    fingerprint: str
    upsert: bool = True
    window_end: str | None = None
    """The column that says when the row's window ends, if rows get a final flag."""
    deletes: bool = False
    """Whether the result has a column ``_deleted``."""
    net: bool = False
    """Whether the rows are the net changes of a table, which come in no order: of one key, a deletion counts first. Its
    keys may have nulls: an outer join has rows without a partner."""

    @property
    def dead(self) -> str:
        """Where rows go that have no key."""
        return f"{self.query}.dead"


class Sink:
    """Writes the batches of one query."""

    def __init__(
        self,
        cluster: Cluster,
        target: Target,
        checkpoint: Checkpoint,
        *,
        crash: Callable[[str], None] | None = None,
        traces: BatchTraces | None = None,
    ) -> None:
        self.target = target
        self.dead_rows = 0
        self._cluster = cluster
        self._checkpoint = checkpoint
        self._crash = crash or (lambda point: None)
        self._traces = traces
        self._producer: Producer | None = None
        self._mark: Mark | None = None
        self._run = uuid.uuid4().hex[:12]
        self._epoch: int | None = None
        self._open: pl.DataFrame | None = None

    @property
    def mark(self) -> Mark | None:
        """The last batch written."""
        return self._mark

    def again(self) -> Sink:
        """A sink of the same run, for the query's next start; this one writes no more."""
        self.close()
        other = Sink(self._cluster, self.target, self._checkpoint, crash=self._crash, traces=self._traces)
        other._run, other._epoch, other.dead_rows = self._run, self._epoch, self.dead_rows
        return other

    def claim(self) -> Mark | None:
        """Take over the query: fence whoever wrote before, and find the mark. Superseded if a later run has done so."""
        if self._epoch is not None:
            self._read_mark()
        self._producer = self._transactional()
        found = self._read_mark()
        if self._epoch is None:
            self._epoch = found.epoch + 1 if found else 1
        return found

    def _read_mark(self) -> Mark | None:
        key = mark_key(self.target.query)
        value = read_table(self._cluster, MARKS, key).get(key)
        self._mark = Mark.read(value) if value else None
        found = self._mark
        if found is not None and self._epoch is not None and found.run != self._run and found.epoch >= self._epoch:
            self.close()
            raise Superseded(f"another run of {self.target.query!r} has taken over.")
        return found

    def adopt(self, batch: int, entry: str) -> None:
        """After ``claim``: take this for the last batch written; -1 and no entry to begin anew."""
        self._mark = self._marked(batch, entry)

    def ready(self) -> None:
        """After ``claim``, once it is clear that this run goes on: say so, and pick up the open windows."""
        batch, entry = (self._mark.batch, self._mark.entry) if self._mark else (-1, "")
        self._commit([], self._marked(batch, entry))
        if self.target.window_end is not None:
            self._open = _open_windows(self._cluster, self.target)

    def write(self, frame: DataFrame, batch: int) -> None:
        """Write a batch, unless its mark says that it was written."""
        if self._producer is None:
            raise Superseded(f"{self.target.query!r} is being stopped.")
        entry = self._checkpoint.entry(batch)
        if entry is None:
            raise HeadraceError(f"batch {batch} of {self.target.query!r} is not in its checkpoint.")
        began_ns = time.time_ns()
        table = frame.toArrow()
        if self._mark is not None and self._mark.entry == entry:
            return
        about = self._traces.of(entry, table) if self._traces is not None else []
        said = {"headrace.query": self.target.query, "headrace.batch": batch, "headrace.rows": table.num_rows}
        with tracing.span(f"process {self.target.query}", "consumer", about, said, began_ns=began_ns) as traced:
            self._write_rows(table, batch, entry, traced)

    def _write_rows(self, table: pa.Table, batch: int, entry: str, traced: tracing.Traced) -> None:
        rows, dead = _encoded(table, self.target)
        if self._open is not None:
            rows, still_open = _with_finals(self._open, rows, watermark_ms(entry))
        records = [(self.target.topic, _messages(rows, traced if self._traces is not None else None))]
        if dead:
            records.append((self.target.dead, _dead_messages(dead, self.target.query, batch)))
        self._checkpoint.sync(batch)
        self._crash("before-commit")
        self._commit(records, self._marked(batch, entry))
        self._crash("after-commit")
        self.dead_rows += len(dead)
        if self._open is not None:
            self._open = still_open

    def close(self) -> None:
        """Let go of the producer; a transaction that is open is aborted by whoever comes next."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            with contextlib.suppress(KafkaException):  # it was fenced
                producer.flush(0)

    def _marked(self, batch: int, entry: str) -> Mark:
        if self._epoch is None:
            raise HeadraceError(f"{self.target.query!r} was not claimed.")
        return Mark(self._epoch, self._run, batch, entry, self.target.generation, self.target.fingerprint)

    def _transactional(self) -> Producer:
        producer = Producer(
            self._cluster.config(
                transactional_id=f"{self.target.query}-0",
                transaction_timeout_ms=30_000,
                linger_ms=0,
                partitioner="murmur2_random",
                queue_buffering_max_messages=1_000_000,
                queue_buffering_max_kbytes=1 << 20,
                logger=_silent,
            )
        )
        self._asked(lambda: producer.init_transactions(_TIMEOUT_S), "its transactions could not be opened")
        return producer

    def _commit(self, records: list[tuple[str, list[dict[str, Any]]]], mark: Mark) -> None:
        producer = self._producer
        if producer is None:
            raise Superseded(f"{self.target.query!r} is being stopped.")
        try:
            producer.begin_transaction()
            for topic, messages in records:
                _produce(producer, topic, messages)
            producer.produce(MARKS, key=mark_key(self.target.query), value=mark.value())
            self._asked(lambda: producer.commit_transaction(_TIMEOUT_S), "its rows could not be written")
        except KafkaException as error:
            raise self._explained(error.args[0], "its rows could not be written") from error
        self._mark = mark

    def _asked(self, ask: Callable[[], None], doing: str) -> None:
        """Ask, again while the client says that this helps."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                ask()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise self._explained(error.args[0], doing) from error

    def _explained(self, error: KafkaError, doing: str) -> HeadraceError:
        sentence = f"{self.target.query}: {doing}: {error.str().rstrip('.')} ({error.name().lstrip('_')})."
        return ServerAway(sentence) if comes_back(error) else HeadraceError(sentence)


def _produce(producer: Producer, topic: str, messages: list[dict[str, Any]]) -> None:
    if any("headers" in message for message in messages):
        _produce_each(producer, topic, messages)
        return
    for start in range(0, len(messages), _CHUNK):
        chunk = messages[start : start + _CHUNK]
        while producer.produce_batch(topic, chunk) < len(chunk):
            chunk = [message for message in chunk if "_error" in message]
            for error in (message.pop("_error") for message in chunk):
                if error.code() != KafkaError._QUEUE_FULL:
                    raise KafkaException(error)
            producer.poll(0.1)


def _produce_each(producer: Producer, topic: str, messages: list[dict[str, Any]]) -> None:
    """One by one: the client takes no headers with many."""
    for message in messages:
        while True:
            try:
                producer.produce(topic, **message)
                break
            except BufferError:
                producer.poll(0.1)


def _encoded(table: pa.Table, target: Target) -> tuple[pl.DataFrame, list[bytes]]:
    """Rows as (key, value, end) in order, and the rows without a key as JSON."""
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc

    dead: list[bytes] = []
    if target.upsert and not target.net and table.num_rows:
        bad = pa.nulls(0)
        for name in target.key:
            bad = pc.is_null(table[name]) if not len(bad) else pc.or_(bad, pc.is_null(table[name]))
        if pc.any(bad).as_py():
            dead = to_json(table.filter(bad), target.columns).to_pylist()
            table = table.filter(pc.invert(bad))
    keys = to_json(table, target.key) if target.key else pa.nulls(table.num_rows, pa.binary())
    frame = pl.DataFrame(
        {
            "key": pl.Series(keys, dtype=pl.Binary),
            "value": pl.Series(to_json(table, target.columns), dtype=pl.Binary),
            "end": pl.from_arrow(table[target.window_end]).dt.epoch("ms")  # type: ignore[union-attr]
            if target.window_end and table.num_rows
            else pl.Series([None] * table.num_rows, dtype=pl.Int64),
        }
    )
    if TRACE in table.column_names:
        frame = frame.with_columns(pl.Series(TRACE, table[TRACE], dtype=pl.String))
    if target.deletes:
        gone = pl.Series(pc.fill_null(table[DELETED], False).to_pylist(), dtype=pl.Boolean)
        frame = frame.with_columns(value=pl.when(gone).then(None).otherwise(pl.col("value")))
        if target.net:
            frame = pl.concat([frame.filter(gone), frame.filter(~gone)])
    if target.window_end is not None:
        frame = frame.with_columns(value=_replaced_end(b"}", b"," + _OPEN))
    if target.upsert:
        frame = frame.unique("key", keep="last", maintain_order=True)
    return frame, dead


def _with_finals(open_: pl.DataFrame, new: pl.DataFrame, watermark: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What to write (new rows, and those whose window is over, as final), and the rows that stay open."""
    import polars as pl

    current = pl.concat([open_.with_columns(new=pl.lit(False)), new.with_columns(new=pl.lit(True))])
    current = current.unique("key", keep="last", maintain_order=True)
    over = pl.col("value").is_not_null() & (pl.col("end") <= watermark)
    written = current.filter(pl.col("new") | over).with_columns(
        value=pl.when(over).then(_replaced_end(_OPEN, _CLOSED)).otherwise(pl.col("value"))
    )
    still_open = current.filter(pl.col("value").is_not_null() & ~over)
    return written.drop("new"), still_open.drop("new")


def _replaced_end(old: bytes, new: bytes) -> pl.Expr:
    import polars as pl

    text = pl.col("value").cast(pl.String)
    return pl.concat_str(text.str.head(-len(old)), pl.lit(new.decode())).cast(pl.Binary)


def _messages(rows: pl.DataFrame, traced: tracing.Traced | None) -> list[dict[str, Any]]:
    pairs = zip(rows["key"].to_list(), rows["value"].to_list(), strict=True)
    messages: list[dict[str, Any]] = [{"key": key, "value": value} for key, value in pairs]
    if traced is not None:
        for message, headers in zip(messages, headers_of(rows, traced), strict=True):
            if headers is not None:
                message["headers"] = headers
    return messages


def _dead_messages(rows: Iterable[bytes], query: str, batch: int) -> list[dict[str, Any]]:
    headers = [
        ("headrace.reason", b"null-key"),
        ("headrace.detail", b"a column of the view's key is null"),
        ("headrace.query", query.encode()),
    ]
    return [{"key": f"{query}/{batch}/{number}", "value": row, "headers": headers} for number, row in enumerate(rows)]


def _open_windows(cluster: Cluster, target: Target) -> pl.DataFrame:
    """The rows of windows that are not final, as the topic has them."""
    import polars as pl

    rows: dict[bytes, bytes] = {}
    for partition, (start, end) in cluster.bounds(target.topic).items():
        for key, value in _records(cluster, target.topic, partition, start, end):
            if value is not None and value.endswith(_OPEN):
                rows[key] = value
            else:
                rows.pop(key, None)
    ends = [json.loads(value)[target.window_end] for value in rows.values()]
    return pl.DataFrame(
        {"key": list(rows), "value": list(rows.values()), "end": ends},
        schema={"key": pl.Binary, "value": pl.Binary, "end": pl.String},
    ).with_columns(end=pl.col("end").str.to_datetime(time_zone="UTC", strict=True).dt.epoch("ms"))


def _records(
    cluster: Cluster, topic: str, partition: int, start: int, end: int
) -> Iterable[tuple[bytes, bytes | None]]:
    with contextlib.closing(ProtocolFeed(cluster)) as feed:
        for batch in feed.read(topic, partition, start, end):
            yield from zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
