"""Two tables joined, ``hr.join``: the rows of the result, kept right while both change.

The rows of both sides lie in the bucket of their join columns. A change looks up its own row by key and the rows of the
other side by the join columns, so it costs what it changes in the result. Outer joins also count the rows of each
side by the join columns, to know when the first match comes and the last one goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.pipelines.arguments import ensure_table, on_columns, struct_of, wider_types
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

__all__ = ["JoinTables", "Side", "join"]

_COUNTED = {"inner": (), "left": ("right",), "full": ("left", "right")}
"""Sides whose missing rows show in the result."""


def join(
    left: Table,
    right: Table,
    *,
    on: str | Iterable[str] | Mapping[str, str],
    how: str = "inner",
    suffix: str = "_right",
) -> Table:
    """Join two tables where ``on`` is equal: a table again, which follows all changes of both, deletions too.

    ``on`` is a column of both, several, or a mapping from the left's to the right's; it need not be the key of either.
    ``how`` is ``inner``, ``left`` or ``full``. The result has the left's columns, then the right's (a column of ``on``
    with one name on both sides is there once; other names that the left has too get the ``suffix``). Its key is the
    left's key, and the right's too unless each left row has one partner at most. Null equals nothing.
    """
    place, what = caller(), "hr.join"
    for side in (left, right):
        ensure_table(what, side, place, "use hr.enrich for a stream and a table, hr.window_join for two streams")
    if how not in _COUNTED:
        raise wrong(f"{what} has how={how!r}.", place, f"say one of: {', '.join(_COUNTED)}")
    pairs = on_columns(what, on, place)
    types = wider_types(what, left.columns, right.columns, pairs, place)
    names = _names(what, left, right, pairs, suffix, place)
    sides = _Sides(left, right, pairs, names, types)
    more = {names[name]: kind for name, kind in right.columns.items() if names[name] not in types}
    columns = {**left.columns, **types, **more}
    output = struct_of({**columns, DELETED: "boolean"})
    key = _key(left.key, sides.right_key, tuple(pairs), how)

    def make(before: bool) -> DataFrame:
        (first, left_net), (second, right_net) = sides.frames()
        operator = JoinTables(
            Side(row_columns(first), left.key, left_net),
            Side(row_columns(second), sides.right_key, right_net),
            tuple(pairs),
            how,
            before,
        )
        return keyed({"left": Keyed(first, tuple(pairs)), "right": Keyed(second, tuple(pairs))}, operator, output)

    return computed(f"join of {left.name} and {right.name}", key, columns, make)


def _names(what: str, left: Table, right: Table, pairs: Mapping[str, str], suffix: str, place: Place) -> dict[str, str]:
    """What the right's columns are called in the result."""
    shared = {name for name, other in pairs.items() if name == other}
    names = {n: f"{n}{suffix}" if n in left.columns and n not in shared else n for n in right.columns}
    taken = [*left.columns, *(name for other, name in names.items() if other not in shared)]
    for name in taken:
        if taken.count(name) > 1:
            raise wrong(f"{what} has two columns {name!r}.", place, "say another suffix=")
    return names


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both tables, as the operator takes them: the right's columns under their names in the result, and its columns of
    ``on`` also under the left's names."""

    left: Table
    right: Table
    pairs: Mapping[str, str]
    names: Mapping[str, str]
    types: Mapping[str, str]

    @property
    def right_key(self) -> tuple[str, ...]:
        same = {other: mine for mine, other in self.pairs.items()}
        return tuple(same.get(name, self.names[name]) for name in self.right.key)

    def frames(self) -> tuple[tuple[DataFrame, bool], tuple[DataFrame, bool]]:
        """The changes of each, known in the bucket where a row was too; and whether they are net."""
        from pyspark.sql import functions as F

        mine = {name: F.col(f"`{name}`") for name in self.left.columns}
        mine |= {name: mine[name].cast(kind) for name, kind in self.types.items()}
        others = {self.names[name]: F.col(f"`{name}`") for name in self.right.columns}
        others |= {name: F.col(f"`{self.pairs[name]}`").cast(kind) for name, kind in self.types.items()}
        found = []
        for table, columns, key in ((self.left, mine, self.left.key), (self.right, others, self.right_key)):
            stays = set(self.pairs) <= set(key)
            changes = table.changes if stays else table.pairs
            frame = changes.select(*(column.alias(name) for name, column in columns.items()), DELETED)
            if stays or table.net:
                found.append((frame, table.net))
            else:
                found.append((with_before(frame, key, self.pairs), True))
        return found[0], found[1]


def _key(left: tuple[str, ...], right: tuple[str, ...], on: tuple[str, ...], how: str) -> tuple[str, ...]:
    """What tells rows of a join apart. If each left row has one partner at most, that is the left key."""
    if how == "full":
        return tuple(dict.fromkeys((*left, *right)))
    one_partner = set(right) <= set(on)
    return (*left, *(() if one_partner else (name for name in right if name not in (*on, *left))))


@dataclass(frozen=True, slots=True)
class Side:
    """A table that is joined: its columns, under their names in the result, and its key."""

    columns: Mapping[str, pl.DataType]
    key: tuple[str, ...]
    net: bool = False


@dataclass(frozen=True, slots=True)
class _Rows:
    """What changes on one side: rows that go (with ids), rows that come, and those beside them that stay."""

    gone: pl.DataFrame
    new: pl.DataFrame
    staying: pl.DataFrame
    """All others of the join columns that change on the other side."""

    @property
    def before(self) -> pl.DataFrame:
        return pl.concat([self.staying, self.gone])

    @property
    def after(self) -> pl.DataFrame:
        return pl.concat([self.staying.drop(ID), self.new])


@dataclass(frozen=True, slots=True)
class JoinTables:
    """Inputs ``left`` and ``right``: changes, in the bucket of the ``on`` columns. Output: changes of the result."""

    left: Side
    right: Side
    on: tuple[str, ...]
    how: str = "inner"
    before: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """What tells rows of the result apart."""
        return _key(self.left.key, self.right.key, self.on, self.how)

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """Those of the result: the left side's, then what the right side adds."""
        return {**self.left.columns, **{n: kind for n, kind in self.right.columns.items() if n not in self.on}}

    @property
    def tables(self) -> Mapping[str, TableType]:
        """Both sides, and how many rows of a side there are where the other side needs to know."""
        counted = TableType({**{name: self.left.columns[name] for name in self.on}, "rows": pl.Int64()}, self.on)
        found = {"left": TableType(self.left.columns, self.on), "right": TableType(self.right.columns, self.on)}
        return found | {f"{name} count": counted for name in _COUNTED[self.how]}

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """One batch."""
        sides = {"left": self.left, "right": self.right}
        moved = {name: _moved(state, name, side, delta[name]) for name, side in sides.items()}
        staying = {name: self._staying(state, name, moved) for name in sides}
        left, right = (_Rows(*moved[name], staying[name]) for name in sides)
        gone = [self._joined(left.gone, right.before), self._joined(left.staying, right.gone)]
        new = [self._joined(left.new, right.after), self._joined(left.staying, right.new)]
        changes = {
            name: Changes(new_rows.select(*sides[name].columns), gone_rows[ID])
            for name, (gone_rows, new_rows) in moved.items()
        }
        for other, own, opposite in (("right", left, right), ("left", right, left)):
            if other in _COUNTED[self.how]:
                counts, changes[f"{other} count"] = self._count(state, other, opposite)
                gone.append(self._alone(own.gone, opposite.before, own.staying, counts, OLD + "rows"))
                new.append(self._alone(own.new, opposite.after, own.staying, counts, "rows"))
        output = emitted(pl.concat(gone), pl.concat(new), self.key, before=self.before)
        return Step(output, changes)

    def _staying(self, state: State, name: str, moved: Mapping[str, tuple[pl.DataFrame, pl.DataFrame]]) -> pl.DataFrame:
        other = moved["right" if name == "left" else "left"]
        wanted = pl.concat([part.select(self.on) for part in other]).drop_nulls()
        rows = state[name].lookup(wanted)
        gone = moved[name][0]
        return rows.join(gone, on=ID, how="anti") if len(gone) and len(rows) else rows

    def _joined(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        found = left.join(right, on=self.on, how="inner", suffix="_right")
        return found.select(*self.columns)

    def _count(self, state: State, name: str, rows: _Rows) -> tuple[pl.DataFrame, Changes]:
        """For the join columns that change: how many rows a side has now and had; and the change of the table."""
        signed = [
            part.select(*self.on, pl.lit(sign, pl.Int64).alias("by")) for part, sign in ((rows.gone, -1), (rows.new, 1))
        ]
        by = pl.concat(signed).drop_nulls().group_by(self.on, maintain_order=True).agg(pl.col("by").sum())
        known = state[f"{name} count"].lookup(by.select(self.on))
        both = matching(by, known, self.on).with_columns(pl.col(OLD + "rows").fill_null(0))
        both = both.with_columns(rows=pl.col(OLD + "rows") + pl.col("by")).filter(pl.col("by") != 0)
        kept = both.filter(pl.col("rows") > 0).select(*self.on, "rows")
        return both, Changes(kept, both[OLD + ID].drop_nulls())

    def _alone(
        self, moved: pl.DataFrame, others: pl.DataFrame, staying: pl.DataFrame, counts: pl.DataFrame, rows: str
    ) -> pl.DataFrame:
        """Rows without a match: of those that move, and of those that stay while the other side changes."""
        none = counts.filter(pl.col(rows) == 0)
        found = [moved.join(others, on=self.on, how="anti"), staying.join(none, on=self.on, how="semi")]
        return pl.concat([self._padded(part) for part in found])

    def _padded(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(
            pl.col(name) if name in rows.columns else pl.lit(None, kind).alias(name)
            for name, kind in self.columns.items()
        )


def _moved(state: State, name: str, side: Side, delta: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that go, with ids, and those that come; rows that stay as they are left out."""
    changes = settled(delta, side.key, net=side.net)
    old = state[name].lookup(changes.select(side.key), side.key)
    both = matching(changes, old, side.key)
    others = [column for column in side.columns if column not in side.key]
    same = pl.col(OLD + ID).is_not_null() & ~pl.col(DELETED) & ~changed(others)
    both = both.filter(~same)
    ids = both.select(pl.col(OLD + ID).alias(ID)).drop_nulls()
    new = both.filter(~pl.col(DELETED)).select(*side.columns)
    return old.join(ids, on=ID, how="semi"), new
