"""The first rows of each group in an order.

Of events, the state is those rows and no others: what has fallen out can never come back. Of a table, whose rows can
go, it is all rows, and a change looks at all rows of its group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headrace.pipelines.changelog import DELETED, OLD, changed, emitted, matching, settled
from headrace.pipelines.state import Changes, State, Step, TableType
from headrace.pipelines.state.operator import ID

__all__ = ["RANK", "Order", "Ranking"]

RANK = "rank"
_ARRIVAL = "_arrival"


@dataclass(frozen=True, slots=True)
class Order:
    """A column to order by. Null is less than everything, as in Spark."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Ranking:
    """Input ``rows``: events; or, with a ``key``, changes of a table by that key. By the ``by`` columns.

    Output: changes of a table with the columns of the rows. ``ranked``: and their rank, counted from 1, which is part
    of the key with the ``by`` columns; without, there is one row for each. Rows that the order does not tell apart are
    in the order of their keys; events in the order of arrival, or if ``newest``, the newest first.
    """

    columns: Mapping[str, pl.DataType]
    by: tuple[str, ...]
    order: tuple[Order, ...]
    first: int
    ranked: bool = True
    newest: bool = False
    key: tuple[str, ...] | None = None
    net: bool = False
    before: bool = False

    @property
    def tables(self) -> Mapping[str, TableType]:
        """Rows by group."""
        return {"rows": TableType(self.columns, self.by)}

    @property
    def result_key(self) -> tuple[str, ...]:
        """What tells rows of the result apart."""
        return (*self.by, RANK) if self.ranked else self.by

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """One batch."""
        rows = delta["rows"]
        if rows.is_empty():
            return Step()
        if self.key is None:
            new, gone = self._top(rows.select(*self.columns)).drop(RANK), None
            groups = new.select(self.by)
        else:
            new, gone, groups = self._moved(state, rows, self.key)
        old = state["rows"].lookup(groups)
        was = self._top(old)
        staying = old if gone is None else old.join(gone, on=ID, how="anti")
        now = self._top(pl.concat([staying, new.select(pl.lit(None, pl.UInt64).alias(ID), *self.columns)]))
        return Step(self._output(was, now), {"rows": self._changes(was, now, new, gone)})

    def _moved(
        self, state: State, rows: pl.DataFrame, key: tuple[str, ...]
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Rows that come, rows that go (with ids), and the groups of both."""
        changes = settled(rows, key, net=self.net)
        old = state["rows"].lookup(changes, key)
        both = matching(changes, old, key)
        others = [name for name in self.columns if name not in key]
        both = both.filter(pl.col(OLD + ID).is_null() | pl.col(DELETED) | changed(others))
        gone = old.join(both.select(pl.col(OLD + ID).alias(ID)), on=ID, how="semi")
        new = both.filter(~pl.col(DELETED)).select(*self.columns)
        return new, gone, pl.concat([gone.select(self.by), new.select(self.by)])

    def _top(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The first rows of each group, with their rank. Rows come in the order of arrival."""
        rows = rows.with_row_index(_ARRIVAL)
        ties = [_ARRIVAL] if self.key is None else list(self.key)
        descending = [one.descending for one in self.order]
        ordered = rows.sort(
            *self.by,
            *(one.column for one in self.order),
            *ties,
            descending=[*(False for _ in self.by), *descending, *(self.newest for _ in ties)],
            nulls_last=[*(False for _ in self.by), *descending, *(False for _ in ties)],
        )
        new_group = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in self.by)
        position = pl.int_range(pl.len())
        begins = pl.when(new_group | (position == 0)).then(position).forward_fill()
        rank = (position - begins + 1).alias(RANK)
        return ordered.with_columns(rank).filter(pl.col(RANK) <= self.first)

    def _output(self, was: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
        """What changes from one list of rows to another."""
        place = (*self.by, RANK)
        written = [*self.columns, *((RANK,) if self.ranked else ())]
        others = [name for name in self.columns if name not in self.by]
        new = matching(now, was.select(*self.columns, RANK, ID), place)
        new = new.filter(pl.col(OLD + ID).is_null() | changed(others))
        if self.before:
            same = matching(was, now.select(*self.columns, RANK).with_columns(_there=True), place)
            gone = same.filter(pl.col(OLD + "_there").is_null() | changed(others))
        else:
            gone = was.join(now, on=place, how="anti", nulls_equal=True)
        return emitted(gone.select(written), new.select(written), self.result_key, before=True)

    def _changes(self, was: pl.DataFrame, now: pl.DataFrame, new: pl.DataFrame, gone: pl.DataFrame | None) -> Changes:
        if gone is not None:
            return Changes(new, gone[ID])
        kept = now.filter(pl.col(ID).is_null()).sort(_ARRIVAL).select(*self.columns)
        return Changes(kept, was.join(now, on=ID, how="anti")[ID])
