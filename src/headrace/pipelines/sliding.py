"""Windows that slide: for each event, aggregates over the events of its key up to a while before it.

::

    events, key 7      a    b        c   d           e
    window of d             |--- 5 minutes           from 5 minutes before d up to d: both ends count
                            b        c   d

An event is held until the watermark has passed its time, so that all of its window is there; events of the same time
see each other. One that comes when it has passed already, as operators in event time let them out, is not held: with
the next watermark it would be too late for a further step. Each batch looks once at the windows of the keys that are
due, and finds every event's aggregates by search, so a key with very many events costs no more than others with as
many. Sums of floats are exact and rounded once: the order in which events came does not show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.pipelines.aggregates import Aggregate, ensure_aggregates
from headrace.pipelines.arguments import column_types, columns_named, ensure_stream, event_time, length_us, struct_of
from headrace.pipelines.places import caller, wrong
from headrace.pipelines.state.dead import timed
from headrace.pipelines.state.frames import Keyed, keyed, polars_schema
from headrace.pipelines.state.operator import ID, Changes, State, Step, TableType
from headrace.pipelines.state.over_spans import distinct, exact_sums, extremes, totals
from headrace.pipelines.state.spans import codes, in_order, microseconds

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    Ints = NDArray[np.int64]

__all__ = ["Sliding", "sliding"]

_SLOT = "~slot"
_TOO_LARGE = 2**63
"""What sums in 64 bits have no room for."""


def sliding(stream: DataFrame, size: str, /, *, by: str | Iterable[str] = (), **aggregates: Aggregate) -> DataFrame:
    """Give each event aggregates over the events of its key in the ``size`` before it, itself included.

    ``hr.sliding(orders, "5 minutes", by="customer_id", total=hr.sum("amount"), n=hr.count())``: the stream's columns,
    then ``total`` and ``n``. Events of the same time see each other; an event exactly ``size`` before counts. It comes
    out when the watermark has passed it. Of ``first`` and ``last`` among events of the same time, the smallest and
    the largest value counts.
    """
    place, what = caller(), "hr.sliding"
    ensure_stream(what, stream, place, "use hr.aggregate for tables")
    columns = column_types(stream)
    keys = columns_named(f"by of {what}", by, columns, place)
    types = ensure_aggregates(what, aggregates, columns, place)
    for name in types:
        if name in columns:
            raise wrong(f"{what} has two columns {name!r}.", place, "give the aggregate another name")
    length = length_us(what, size, place)
    time = event_time(what, stream, place)
    operator = Sliding(polars_schema(stream.schema), keys, time, length, dict(aggregates))
    return keyed({"rows": Keyed(stream, keys)}, operator, struct_of({**columns, **types}), event_time=time)


@dataclass(frozen=True, slots=True)
class Sliding:
    """The operator; its input is ``rows``, its output is their columns and the aggregates."""

    columns: Mapping[str, pl.DataType]
    by: tuple[str, ...]
    time: str
    size_us: int
    aggregates: Mapping[str, Aggregate]

    @property
    def tables(self) -> Mapping[str, TableType]:
        """Events whose time has not passed; and what later windows need of those whose time has."""
        needed = [*self.by, self.time, *(one.column for one in self.aggregates.values() if one.column is not None)]
        recent = {name: self.columns[name] for name in needed}
        return {
            "waiting": TableType(self.columns, (), tuple(self.by)),
            "recent": TableType({**recent, _SLOT: pl.Int64()}, (*self.by, _SLOT)),
        }

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """Give out the events whose time has passed."""
        new, dead = timed(delta["rows"], self.time)
        now = -(2**62) if watermark_us is None else watermark_us
        time = pl.col(self.time).to_physical()
        waited = state["waiting"].where(time <= now)
        over = state["recent"].where(time <= now - self.size_us)
        due = pl.concat([waited.drop(ID), new.filter(time <= now).select(*self.columns)])
        early = new.filter(time > now)
        kept = due.filter(time > now - self.size_us).with_columns(self._slot().alias(_SLOT))
        changes = {
            "waiting": Changes(early, waited[ID]),
            "recent": Changes(kept.select(*state["recent"].kind.columns), over[ID]),
        }
        wakes = [
            (state["waiting"].min(self.time, above=now), 0),
            (early[self.time].to_physical().min(), 0),
            (state["recent"].min(self.time, above=now - self.size_us), self.size_us),
            (kept[self.time].to_physical().min(), self.size_us),
        ]
        wake = min((int(at) + more for at, more in wakes if at is not None), default=None)  # type: ignore[arg-type]
        return Step(self._windows(state, due), changes, wake, dead)

    def _slot(self, moved_us: int = 0) -> pl.Expr:
        """Slots are as long as windows, so that a window lies in two."""
        return (pl.col(self.time).to_physical() + moved_us) // (self.size_us + 1)

    def _windows(self, state: State, due: pl.DataFrame) -> pl.DataFrame:
        """The events with their aggregates."""
        ends = [due.select(*self.by, self._slot(moved).alias(_SLOT)) for moved in (-self.size_us, 0)]
        before = state["recent"].lookup(pl.concat(ends)).drop(ID, _SLOT)
        rows = pl.concat([before, due.select(before.columns)])
        keys = codes(rows.select(self.by))[0] if self.by else np.zeros(len(rows), np.int64)
        order = in_order(keys, microseconds(rows[self.time]))
        mine = order.order[order.order >= len(before)]
        found = due[mine - len(before)]
        times = microseconds(found[self.time])
        spans = order.spans(keys[mine], times - self.size_us, times)
        window = _Windows(rows[order.order], self.time, keys[order.order], *spans)
        return found.with_columns(window.of(one).alias(name) for name, one in self.aggregates.items())


@dataclass(frozen=True, slots=True)
class _Windows:
    """Rows by key and time, and where each window begins and ends in them."""

    rows: pl.DataFrame
    time: str
    keys: Ints
    first: Ints
    last: Ints

    def of(self, aggregate: Aggregate) -> pl.Series:
        """The aggregate of each window."""
        if aggregate.column is None:
            return pl.Series(self.last - self.first)
        values = self.rows[aggregate.column]
        match aggregate.kind:
            case "count":
                return pl.Series(self._counts(values))
            case "sum":
                sums = self._only_where_counted(self._sums(values), values)
                return sums.cast(pl.Int64, strict=False) if sums.dtype == pl.Int128 else sums
            case "avg":
                return self._only_where_counted(self._sums(values).cast(pl.Float64) / self._counts(values), values)
            case "min" | "max":
                without_nan = values.fill_nan(None) if values.dtype.is_float() else values
                return extremes(without_nan, self.first, self.last, largest=aggregate.kind == "max")
            case "first" | "last":
                return self._at_an_end(values, latest=aggregate.kind == "last")
            case "count_distinct":
                (numbers,) = codes(self.rows.select(pl.lit(pl.Series(self.keys)).alias("~key"), aggregate.column))
                return pl.Series(distinct(np.where(values.is_null(), -1, numbers), self.first, self.last))
        raise ValueError(f"{aggregate} is not an aggregate of windows")

    def _counts(self, values: pl.Series) -> Ints:
        return totals(values.is_not_null().to_numpy().astype(np.int64), self.first, self.last)

    def _only_where_counted(self, found: pl.Series, values: pl.Series) -> pl.Series:
        return found.set(pl.Series(self._counts(values) == 0), None)

    def _sums(self, values: pl.Series) -> pl.Series:
        """Of whole numbers with room for any sum, where 64 bits may not be enough."""
        kind = values.dtype
        if kind.is_float():
            return pl.Series(exact_sums(values.cast(pl.Float64).fill_null(0).to_numpy(), self.first, self.last))
        if isinstance(kind, pl.Decimal) or _largest(values) * len(values) >= _TOO_LARGE:
            wide = values.cast(pl.Decimal(38, kind.scale) if isinstance(kind, pl.Decimal) else pl.Int128).fill_null(0)
            before = pl.concat([wide.clear(1).fill_null(0), wide.cum_sum()])
            return before.gather(self.last) - before.gather(self.first)
        return pl.Series(totals(values.cast(pl.Int64).fill_null(0).to_numpy(), self.first, self.last))

    def _at_an_end(self, values: pl.Series, *, latest: bool) -> pl.Series:
        """The first or last value by time; of several at that time, the smallest or the largest."""
        times = microseconds(self.rows[self.time])
        begins = np.append(True, (np.diff(times) != 0) | (np.diff(self.keys) != 0))[: len(times)]
        begin = np.flatnonzero(begins)
        group = np.cumsum(begins) - 1
        if latest:
            return extremes(values, begin[group[self.last - 1]], self.last, largest=True, nulls=True)
        end = np.append(begin[1:], len(times))
        return extremes(values, self.first, end[group[self.first]], largest=False, nulls=True)


def _largest(values: pl.Series) -> int:
    """How far from zero whole numbers are at most."""
    return max((abs(int(one)) for one in (values.min(), values.max()) if one is not None), default=0)  # type: ignore[arg-type]
