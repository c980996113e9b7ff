"""What Spark calls in its workers: an operator's step for each bucket that has rows or is due."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headrace.pipelines.source.planning import Counts, Range
from headrace.pipelines.source.reports import TIMES, Report, report_key
from headrace.pipelines.state.cache import worker_cache
from headrace.pipelines.state.chunks import decode
from headrace.pipelines.state.keyed_state import ensure_fits
from headrace.pipelines.state.log import CHUNK_KEY, CHUNK_VALUE, HEAD, BucketLog, Head
from headrace.pipelines.state.operator import ID, Changes, Operator, Step
from headrace.pipelines.state.packing import read_blob, write_blob
from headrace.pipelines.worker import settle

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Address", "KeyedProcessor", "letters"]

Letter = tuple[str, bytes, list[tuple[str, str | bytes | None]]]


@dataclass(frozen=True, slots=True)
class Address:
    """Which operator of which query this is, and where its dead rows go."""

    query: str
    operator: int
    bootstrap: str
    client: tuple[tuple[str, str], ...]
    buckets: int

    def __str__(self) -> str:
        return f"the state of {self.query or 'a query'}, operator {self.operator}"


class KeyedProcessor(StatefulProcessor):
    """Spark's side of an operator. Its output is blobs."""

    def __init__(self, operator: Operator, inputs: Mapping[str, pl.Schema], keys: int, address: Address) -> None:
        self._operator = operator
        self._inputs = inputs
        self._keys = keys
        self._address = address

    def init(self, handle: Any) -> None:
        """Spark begins with a partition."""
        self._handle = handle
        self._head = handle.getValueState("head", HEAD)
        self._chunks = handle.getMapState("chunks", CHUNK_KEY, CHUNK_VALUE)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """The blobs of a bucket."""
        packed = [row for frame in rows for row in frame.itertuples(index=False)]
        packed.sort(key=lambda row: (row.task, row.number))
        delta = {tag: [read_blob(row.rows) for row in packed if row.tag == tag] for tag in self._inputs}
        frames = {tag: pl.concat(found) if found else self._inputs[tag].to_frame() for tag, found in delta.items()}
        return self._step(int(key[0]), frames, timerValues, due=False)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """A bucket is due."""
        empty = {tag: schema.to_frame() for tag, schema in self._inputs.items()}
        return self._step(int(key[0]), empty, timerValues, due=True)

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:
        """A bucket of a query that was rescaled, or a part of it."""
        found = self._head.get()
        head = Head.read(found[0] if found else None)
        self._describe(head)
        what = f"bucket {key[0]} of {self._address}"
        log = BucketLog(head, self._chunks, what)
        begin = {table: change.next_id for entry in head.chunks for table, change in log.read(entry).items()}
        for seed in initialState.itertuples(index=False):
            changes = decode(bytes(seed.data), f"what {what} begins with")
            ensure_fits(changes, self._operator, what)
            log.append({table: _moved(change, begin.get(table, 0)) for table, change in changes.items()})
            begin |= {table: begin.get(table, 0) + change.next_id for table, change in changes.items()}
            if seed.wake >= 0 and head.wake_ms is None:
                head.wake_ms = int(seed.wake)
                self._handle.registerTimer(head.wake_ms)
        self._head.update((head.text(),))

    def close(self) -> None:
        """Spark is done with a partition."""
        settle("state")

    def _step(self, bucket: int, delta: Mapping[str, pl.DataFrame], times: Any, *, due: bool) -> Iterator[pd.DataFrame]:
        import pandas as pd

        name = (self._address.query, self._address.operator, bucket)
        found = self._head.get()
        head = Head.read(found[0] if found else None)
        log = BucketLog(head, self._chunks, f"bucket {bucket} of {self._address}")
        state = log.state(self._operator, worker_cache.take(name))
        watermark_ms = times.getCurrentWatermarkInMs()
        step = self._operator.step(state.tables, delta, watermark_ms * 1000 if watermark_ms > 0 else None)
        changes = state.take(step.changes)
        self._describe(head)
        if changes:
            log.append(changes)
        buried = step.dead is not None and len(step.dead) > 0
        head.dead += len(step.dead) if step.dead is not None else 0
        if self._wake(head, step, watermark_ms, due=due) or changes or buried:
            self._head.update((head.text(),))
        worker_cache.put(name, head.last, state)
        if step.dead is not None and buried:
            self._bury(step.dead, bucket, head.dead)
        if step.output is not None and len(step.output):
            yield pd.DataFrame({"rows": [write_blob(step.output)]})

    def _describe(self, head: Head) -> None:
        """Have the head say whose it is and what the tables are, for those who look from outside."""
        head.operator = self._address.operator
        head.by = {table: list(kind.by) for table, kind in self._operator.tables.items()}
        head.key = {table: list(kind.key_of(self._keys)) for table, kind in self._operator.tables.items()}

    def _wake(self, head: Head, step: Step, watermark_ms: int, *, due: bool) -> bool:
        """Have the timer that the step wants; whether it is another one."""
        wanted = None if step.wake_us is None else max(-(-step.wake_us // 1000), watermark_ms + 1)
        if wanted == head.wake_ms:
            return False
        if head.wake_ms is not None and not due:  # Spark takes the timer that has rung away itself
            self._handle.deleteTimer(head.wake_ms)
        if wanted is not None:
            self._handle.registerTimer(wanted)
        head.wake_ms = wanted
        return True

    def _bury(self, rows: pl.DataFrame, bucket: int, total: int) -> None:
        """Rows that the operator could not process, on the query's dead-letter topic.

        How many there were so far in this bucket is reported as a source reports what it has read: see ``reports``.
        """
        from headrace.pipelines.source.tasks import aside_writer

        address = self._address
        writer = aside_writer(address.bootstrap, address.client)
        for key, row, headers in letters(rows, address, bucket, total - len(rows)):
            writer.put(f"{address.query}.dead", key, row, headers)
        counted = Range(bucket, address.buckets, address.buckets + 1)
        report = Report(Counts(0, 0, total), None)
        writer.put(TIMES, report_key(address.query, f"~operator-{address.operator}", counted), report.to_json())
        writer.flush()


def _moved(change: Changes, by: int) -> Changes:
    """Added rows with larger ids."""
    rows = None if change.append is None else change.append.with_columns(pl.col(ID) + by)
    return Changes(rows, None, change.next_id + by)


def letters(rows: pl.DataFrame, address: Address, bucket: int, before: int) -> Iterator[Letter]:
    """Dead rows of a step as records: key, value, headers. ``before``: how many the bucket had before this step.

    The key is ``QUERY/OPERATOR/BUCKET/BUCKETS/NUMBER/HASH``, on a compacted topic: equal rows are told apart by
    their number, and a batch that is done again, in whatever order its rows come then, writes the same keys.
    """
    found = rows.select("reason", "detail", "row").sort("row", "reason", "detail").rows()
    for number, (reason, detail, row) in enumerate(found, before):
        mark = hashlib.sha256(row.encode()).hexdigest()[:24]
        key = f"{address.query}/{address.operator}/{bucket}/{address.buckets}/{number}/{mark}"
        said = {"reason": reason, "detail": detail, "query": address.query}
        yield key, row.encode(), [(f"headrace.{name}", text.encode()) for name, text in said.items()]
