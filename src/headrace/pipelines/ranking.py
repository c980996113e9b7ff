"""The first rows of each group in an order: ``hr.top``, ``hr.latest``.

Of events, the state is those rows and no others: what has fallen out can never come back. Of a table, whose rows can
go, it is all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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

__all__ = ["RANK", "ROWS", "Order", "Ranking", "TableRanking", "latest", "top"]

RANK = "rank"
_ARRIVAL = "_arrival"
ROWS = "_rows"


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
        given = (row_columns(frame), groups, order, first, ranked, before, not ranked)
        operator = Ranking(*given) if own_key is None else TableRanking(*given, own_key, net)
        looked_at = {*groups, *(own_key or ()), *(one.column for one in order)}
        passed = {name: ("rows", name) for name in columns if name not in looked_at}
        return keyed({"rows": Keyed(frame, groups)}, operator, output, passed=passed)

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


@dataclass(frozen=True)
class _Ordered:
    """What is ranked, and how.

    Output: changes of a table with the columns of the rows. ``ranked``: and their rank, counted from 1, which is part
    of the key with the ``by`` columns; without, there is one row for each.
    """

    columns: Mapping[str, pl.DataType]
    by: tuple[str, ...]
    order: tuple[Order, ...]
    first: int
    ranked: bool
    before: bool
    newest: bool
    """Of rows that the order does not tell apart, the last comes first."""
    ties: tuple[str, ...] = field(default=(_ARRIVAL,), init=False)

    @property
    def result_key(self) -> tuple[str, ...]:
        """What tells rows of the result apart."""
        return (*self.by, RANK) if self.ranked else self.by

    @property
    def _first(self) -> pl.Expr:
        return pl.col(RANK) <= self.first

    def _in_order(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows by group and in order, with their rank. They come in the order of arrival."""
        descending = [one.descending for one in self.order]
        ordered = rows.with_row_index(_ARRIVAL).sort(
            *self.by,
            *(one.column for one in self.order),
            *self.ties,
            descending=[*(False for _ in self.by), *descending, *(self.newest for _ in self.ties)],
            nulls_last=[*(False for _ in self.by), *descending, *(False for _ in self.ties)],
        )
        new_group = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in self.by)
        position = pl.int_range(pl.len())
        begins = pl.when(new_group | (position == 0)).then(position).forward_fill()
        return ordered.with_columns((position - begins + 1).alias(RANK))

    def _output(self, old: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
        """What changes in groups that had these first rows and have those now."""
        place = (*self.by, RANK)
        was, now = (self._in_order(rows).filter(self._first) for rows in (old, now))
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


@dataclass(frozen=True)
class Ranking(_Ordered):
    """The first events of each group. Input ``rows``, by the ``by`` columns. Ties are in the order of arrival."""

    @property
    def tables(self) -> Mapping[str, TableType]:
        """The first rows of each group."""
        return {"rows": TableType(self.columns, self.by)}

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """One batch."""
        if delta["rows"].is_empty():
            return Step()
        new = self._in_order(delta["rows"].select(*self.columns)).filter(self._first).sort(_ARRIVAL)
        old = state["rows"].lookup(new)
        ranked = self._in_order(pl.concat([old, _without_id(new.select(*self.columns))]))
        now = ranked.filter(self._first).drop(RANK)
        came = now.filter(pl.col(ID).is_null())
        fell = ranked.filter(~self._first & pl.col(ID).is_not_null())
        changes = Changes(came.sort(_ARRIVAL).select(*self.columns), fell[ID])
        now = now.sort(_ARRIVAL).drop(_ARRIVAL)
        old, now = (part.join(came, on=self.by, how="semi", nulls_equal=True) for part in (old, now))
        return Step(self._output(old, now), {"rows": changes})


@dataclass(frozen=True)
class TableRanking(_Ordered):
    """The first rows of each group of a table. Input ``rows``: changes by ``key``, by the ``by`` columns. Ties are in
    the order of keys.

    All rows are kept. Of each group some of the first ones, more than are asked for, are the *front*: nothing outside
    of it comes before any of it. Only when so many of them are gone that too few are left, all rows of the group are
    looked at, and ``spare`` more than asked for are the front again.
    """

    key: tuple[str, ...] = ()
    net: bool = False
    spare: int = 100

    def __post_init__(self) -> None:
        object.__setattr__(self, "ties", self.key)

    @property
    def tables(self) -> Mapping[str, TableType]:
        """All rows; the front of each group; how many rows a group has."""
        sizes = {**{name: self.columns[name] for name in self.by}, ROWS: pl.Int64()}
        return {
            "rows": TableType(self.columns, self.key),
            "front": TableType(self.columns, self.by),
            "sizes": TableType(sizes, self.by),
        }

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """One batch."""
        new, gone = self._moved(state, delta["rows"])
        if new.is_empty() and gone.is_empty():
            return Step()
        sizes, sizes_change = self._sizes(state, new, gone)
        front = state["front"].lookup(sizes)
        now = self.new_front(lambda groups: _staying(state, groups, gone, self.by), front, new, gone, sizes)
        changes = {
            "rows": Changes(new, gone[ID]),
            "front": self.front_changes(front, now),
            "sizes": sizes_change,
        }
        return Step(self._output(front, now), changes)

    def _moved(self, state: State, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows that come, and rows that go, with ids."""
        changes = settled(rows, self.key, net=self.net)
        old = state["rows"].lookup(changes)
        both = matching(changes, old, self.key)
        others = [name for name in self.columns if name not in self.key]
        both = both.filter(pl.col(OLD + ID).is_null() | pl.col(DELETED) | changed(others))
        gone = old.join(both.select(pl.col(OLD + ID).alias(ID)), on=ID, how="semi")
        return both.filter(~pl.col(DELETED)).select(*self.columns), gone

    def _sizes(self, state: State, new: pl.DataFrame, gone: pl.DataFrame) -> tuple[pl.DataFrame, Changes]:
        """The groups that change: how many rows they have and had; and the change of the table."""
        signed = [part.select(*self.by, pl.lit(sign, pl.Int64).alias("more")) for part, sign in ((new, 1), (gone, -1))]
        more = pl.concat(signed).group_by(self.by, maintain_order=True).agg(pl.col("more").sum())
        both = matching(more, state["sizes"].lookup(more), self.by)
        both = both.with_columns(pl.col(OLD + ROWS).fill_null(0))
        both = both.with_columns((pl.col(OLD + ROWS) + pl.col("more")).alias(ROWS))
        kept = both.filter(pl.col(ROWS) > 0).select(*self.by, ROWS)
        return both, Changes(kept, both[OLD + ID].drop_nulls())

    def front_changes(self, old: pl.DataFrame, now: pl.DataFrame) -> Changes:
        """What becomes of the front's table."""
        came = now.filter(pl.col(ID).is_null()).select(*self.columns)
        return Changes(came, old.join(now, on=ID, how="anti")[ID])

    def first_rows(self, front: pl.DataFrame) -> pl.DataFrame:
        """The rows that were asked for."""
        return self._in_order(front).filter(self._first)

    def new_front(
        self,
        staying_in: Callable[[pl.DataFrame], pl.DataFrame],
        front: pl.DataFrame,
        new: pl.DataFrame,
        gone: pl.DataFrame,
        sizes: pl.DataFrame,
    ) -> pl.DataFrame:
        """The front as it is now; rows that were not in it have no id. ``staying_in`` gives the rows of groups but for
        those that come and go; ``sizes`` are how many rows each group has and had."""
        groups = sizes.select(*self.by, ROWS, OLD + ROWS)
        ranked = self._in_order(pl.concat([front, _without_id(new)]))
        lasts = ranked.filter(pl.col(ID).is_not_null()).group_by(self.by)
        known = lasts.agg(pl.col(RANK).max().alias("_last"), pl.len().alias("_known"))
        ranked = _beside(_beside(ranked, groups, self.by), known, self.by)
        whole = pl.col("_known").fill_null(0) == pl.col(OLD + ROWS)
        ranked = ranked.filter(whole | (pl.col(RANK) <= pl.col("_last")))
        went = ranked.join(gone, on=self.key, how="semi", nulls_equal=True).filter(pl.col(ID).is_not_null())
        staying = ranked.join(went, on=ID, how="anti").select(ID, *self.columns)
        left = _beside(groups, staying.group_by(self.by).agg(pl.len().alias("_left")), self.by)
        few = left.filter(pl.col("_left").fill_null(0) < pl.min_horizontal(pl.lit(self.first), ROWS))
        many = left.filter(pl.col("_left") > self.first + 2 * self.spare)
        if few.is_empty() and many.is_empty():
            return staying
        everything = staying_in(few).select(*self.columns)
        fresh = new.join(few, on=self.by, how="semi", nulls_equal=True)
        again = _without_id(pl.concat([everything, fresh]))
        large = staying.join(many, on=self.by, how="semi", nulls_equal=True)
        cut = [self._in_order(part).filter(pl.col(RANK) <= self.first + self.spare) for part in (again, large)]
        rest = staying.join(pl.concat([few, many]), on=self.by, how="anti", nulls_equal=True)
        return pl.concat([rest, *(part.select(ID, *self.columns) for part in cut)])


def _without_id(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.lit(None, pl.UInt64).alias(ID), pl.all())


def _staying(state: State, groups: pl.DataFrame, gone: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    return state["rows"].lookup(groups, by).join(gone, on=ID, how="anti")


def _beside(left: pl.DataFrame, right: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    return left.join(right, on=by, how="left", nulls_equal=True, maintain_order="left")
