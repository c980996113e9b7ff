"""Two tables joined: the rows of the result, kept right while both change.

The rows of both sides lie in the bucket of their join columns. A change looks up its own row by key and the rows of the
other side by the join columns, so it costs what it changes in the result. Outer joins also count the rows of each
side by the join columns, to know when the first match comes and the last one goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

from headrace.pipelines.changelog import DELETED, OLD, changed, emitted, matching, settled
from headrace.pipelines.state import Changes, State, Step, TableType
from headrace.pipelines.state.operator import ID

__all__ = ["How", "JoinTables", "Side"]

How = Literal["inner", "left", "full"]


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
    how: How = "inner"
    before: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """What tells rows of the result apart. If each left row has one match at most, that is the left key."""
        if self.how == "full":
            return tuple(dict.fromkeys((*self.left.key, *self.right.key)))
        one_match = set(self.right.key) <= set(self.on)
        return (*self.left.key, *(() if one_match else (name for name in self.right.key if name not in self.on)))

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """Those of the result: the left side's, then what the right side adds."""
        return {**self.left.columns, **{n: kind for n, kind in self.right.columns.items() if n not in self.on}}

    @property
    def tables(self) -> Mapping[str, TableType]:
        """Both sides, and how many rows of a side there are where the other side needs to know."""
        counted = TableType({**{name: self.left.columns[name] for name in self.on}, "rows": pl.Int64()}, self.on)
        found = {"left": TableType(self.left.columns, self.on), "right": TableType(self.right.columns, self.on)}
        return found | {f"{name} count": counted for name in self._counted}

    @property
    def _counted(self) -> tuple[str, ...]:
        """Sides whose missing rows show in the result."""
        return {"inner": (), "left": ("right",), "full": ("left", "right")}[self.how]

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
            if other in self._counted:
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
        """For the join columns that change: how many rows a side has now and had before; and the change of the table."""
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
