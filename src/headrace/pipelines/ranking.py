"""The first rows of each group in an order: ``hr.top``, ``hr.latest``.

Of events, the state is those rows and no others: what has fallen out can never come back. Of a table, whose rows can
go, it is all rows, and a change looks at all rows of its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.pipelines.arguments import column_types, columns_named, ensure_column, struct_of
from headrace.pipelines.changelog import (
    DELETED,
    OLD,
    changed,
    emitted,
    matching,
    row_columns,
    settled,
    with_before,
)
from headrace.pipelines.places import Place, caller, wrong
from headrace.pipelines.state import Changes, State, Step, TableType
from headrace.pipelines.state.frames import Keyed, keyed
from headrace.pipelines.state.operator import ID
from headrace.pipelines.table import Table, computed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["RANK", "Order", "Ranking", "latest", "top"]

RANK = "rank"
_ARRIVAL = "_arrival"


def top(rows: DataFrame | Table, n: int, *, by: str | Iterable[str], order: str | Iterable[str]) -> Table:
    """The first ``n`` rows of each group in an order: a table with the key ``by`` and ``rank``, counted from 1.

    ``hr.top(bids, 10, by="auction", order="-price, at")``: the highest prices first, of equal prices the earliest. Rows
    that the order does not tell apart are in the order of arrival; rows of a table in the order of their keys. Of a
    stream only the first rows are kept; of a table, where rows can go, all of them.
    """
    place, what = caller(), "hr.top"
    if not isinstance(n, int) or n < 1:
        raise wrong(f"{what} gives the first {n!r} rows.", place, "say how many, 1 or more")
    return _ranking(what, rows, by, _order(what, order), place, first=n, ranked=True)


def latest(rows: DataFrame | Table, *, by: str | Iterable[str], order: str | Iterable[str] = ()) -> Table:
    """The last row of each group in an order: a table with the key ``by``.

    ``hr.latest(bids, by=["bidder", "auction"], order="at")``. Of rows that the order does not tell apart it is the one
    that came last; of a table, the one with the largest key. Without an order, the one that came last.
    """
    place, what = caller(), "hr.latest"
    given = _order(what, order)
    if isinstance(rows, Table) and not given:
        raise wrong(f"{what} of a table has no order.", place, 'say order= with a column, like order="updated_at"')
    backwards = tuple(Order(one.column, not one.descending) for one in given)
    return _ranking(what, rows, by, backwards, place, first=1, ranked=False)


def _order(what: str, order: str | Iterable[str]) -> tuple[Order, ...]:
    names = order.split(",") if isinstance(order, str) else order
    found = [name.strip() for name in names]
    return tuple(Order(name.lstrip("-").strip(), name.startswith("-")) for name in found if name)


def _ranking(
    what: str,
    rows: DataFrame | Table,
    by: str | Iterable[str],
    order: tuple[Order, ...],
    place: Place,
    *,
    first: int,
    ranked: bool,
) -> Table:
    columns = dict(rows.columns) if isinstance(rows, Table) else column_types(rows)
    groups = columns_named(f"by of {what}", by, columns, place)
    if not groups:
        raise wrong(f"{what} has no groups.", place, 'say by="auction"')
    for one in order:
        ensure_column(f"order of {what}", one.column, columns, place)
    if ranked and not order:
        raise wrong(f"{what} has no order.", place, 'say order="-price" for the highest price first')
    if ranked and RANK in columns:
        raise wrong(f"{what} has two columns {RANK!r}.", place, "rename yours")
    result = {**columns, **({RANK: "bigint"} if ranked else {})}
    output = struct_of({**result, DELETED: "boolean"})
    key = (*groups, RANK) if ranked else groups

    def make(before: bool) -> DataFrame:
        frame, net = _placed(rows, groups) if isinstance(rows, Table) else (rows, False)
        own_key = rows.key if isinstance(rows, Table) else None
        operator = Ranking(row_columns(frame), groups, order, first, ranked, not ranked, own_key, net, before)
        return keyed({"rows": Keyed(frame, groups)}, operator, output)

    name = rows.name if isinstance(rows, Table) else "a stream"
    return computed(f"{what.removeprefix('hr.')} of {name}", key, result, make)


def _placed(table: Table, groups: tuple[str, ...]) -> tuple[DataFrame, bool]:
    """The changes of a table, known in the group where a row was too; and whether they are net."""
    if set(groups) <= set(table.key):
        return table.changes, table.net
    return (table.pairs if table.net else with_before(table.changes, table.key, groups)), True


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
            new, gone = self._ranked(rows.select(*self.columns)).filter(self._first), None
            groups = new.select(self.by)
        else:
            new, gone, groups = self._moved(state, rows, self.key)
        old = state["rows"].lookup(groups)
        staying = old if gone is None else old.join(gone, on=ID, how="anti")
        ranked = self._ranked(pl.concat([staying, new.select(pl.lit(None, pl.UInt64).alias(ID), *self.columns)]))
        now = ranked.filter(self._first)
        if gone is not None:
            return Step(self._output(old, now), {"rows": Changes(new, gone[ID])})
        came = now.filter(pl.col(ID).is_null())
        fell = ranked.filter(~self._first & pl.col(ID).is_not_null())
        changes = Changes(came.sort(_ARRIVAL).select(*self.columns), fell[ID])
        old, now = (part.join(came, on=self.by, how="semi", nulls_equal=True) for part in (old, now))
        return Step(self._output(old, now), {"rows": changes})

    @property
    def _first(self) -> pl.Expr:
        return pl.col(RANK) <= self.first

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

    def _ranked(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows by group and in order, with their rank. They come in the order of arrival."""
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
        return ordered.with_columns(rank)

    def _output(self, old: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
        """What changes in groups that had the old rows and have these first rows now."""
        was = self._ranked(old).filter(self._first)
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
