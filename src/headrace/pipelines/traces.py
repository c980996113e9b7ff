"""Traces through a query: which ones a batch is about, and what its rows carry on.

Where each row of a result is made from one record (a query that only picks, filters and computes), the header of the
record comes along as a column that the query's function does not see: it is put through the plan afterwards. Of other
queries the traces are those of the first records of each range that a batch has read, as the log has them. All of this
is done only while something is traced; then rows are sent one by one, with their headers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.feed import Feed, open_feed
from headrace.feed.traceparents import sampled
from headrace.pipelines.catalyst import Catalyst, each, is_a
from headrace.pipelines.checkpoint import source_offsets
from headrace.pipelines.settings import RunSettings
from headrace.pipelines.source.planning import Position, Range
from headrace.pipelines.source.shape import TRACE
from headrace.tracing import HEADER, MOST, Traced

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BatchTraces", "carried", "headers_of"]

_ROW_BY_ROW = frozenset(["Project", "Filter", "Generate", "SubqueryAlias", "View", "EventTimeWatermark"])
_RANGES, _BYTES = 16, 64 << 10
"""So much of a batch's input is looked at: so many ranges, so many bytes of each."""


class BatchTraces:
    """Finds the traces of one query's batches."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._feed: Feed | None = None

    def of(self, entry: str, table: pa.Table) -> list[str]:
        """The traceparents that a batch is about, some of them."""
        if TRACE in table.column_names:
            return sampled(table[TRACE])
        found: dict[str, None] = {}
        with contextlib.suppress(HeadraceError):  # a trace is not worth a batch
            for topic, read in _read(entry):
                found |= dict.fromkeys(self._first(topic, read))
                if len(found) >= MOST:
                    break
        return list(found)

    def close(self) -> None:
        """Let go of files and connections."""
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def _first(self, topic: str, read: Range) -> list[str]:
        if self._feed is None:
            settings = self._settings
            self._feed = open_feed(settings.bootstrap, settings.log_data, settings.client)
        batches = self._feed.read(topic, read.partition, read.start, read.end, max_bytes=_BYTES)
        batch = next(batches, None)
        return [] if batch is None else sampled(batch)


def _read(entry: str) -> Iterator[tuple[str, Range]]:
    """The ranges that a batch has read, the first few."""
    positions = [Position.from_dict(one) for one in source_offsets(entry) if one is not None]
    found = {(one.topic, read): None for one in positions for read in one.ranges}
    yield from list(found)[:_RANGES]


def carried(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """A result with the column of its records' traceparents, if each of its rows is made from one; else as it is."""
    made: Any = frame
    node = made._jdf.queryExecution().analyzed()
    above: list[Any] = []
    while children := each(node.children()):
        if len(children) != 1 or node.nodeName() not in _ROW_BY_ROW:
            return frame
        above.append(node)
        node = children[0]
    column = next((one for one in each(node.output()) if one.name() == TRACE), None)
    if column is None:
        return frame
    catalyst = Catalyst(spark)
    for one in reversed(above):
        if is_a(one, "Project"):
            picked = [p for p in each(one.projectList()) if p.exprId().id() != column.exprId().id()]
            node = catalyst.project([*picked, column], node)
        else:
            node = one.withNewChildren(catalyst.seq([node]))
    return catalyst.frame(node)


def headers_of(rows: pl.DataFrame, traced: Traced) -> list[list[tuple[str, bytes]] | None]:
    """What each row carries on: the trace of its own record, or that of the batch."""
    own = rows[TRACE].to_list() if TRACE in rows.columns else [None] * len(rows)
    known: dict[str | None, list[tuple[str, bytes]] | None] = {}
    for one in set(own):
        text = traced.onward.get(one, one) if one is not None else traced.traceparent
        known[one] = None if text is None else [(HEADER, text.encode())]
    return [known[one] for one in own]
