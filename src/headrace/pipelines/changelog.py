"""Tables as they travel between operators: frames of changes, and the operator that adds what a row was before.

A change is a row of the table with ``_deleted``. The changes of a topic are in order for each key. What an operator
gives out is *net*: in a batch there is at most one deletion and at most one row for each key of its result, in no order
(they may come from two buckets, if the row moved from one to the other), and the deletion counts first. A deletion by
an operator that was asked for it (``before``) has all columns of the row that goes, and comes with every change of a
row too: then the changes add up, whatever their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.pipelines.state import Changes, Operator, State, Step, TableType
from headrace.pipelines.state.frames import Keyed, keyed, polars_schema
from headrace.pipelines.state.operator import ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "DELETED",
    "Before",
    "Fused",
    "changed",
    "emitted",
    "matching",
    "row_columns",
    "settled",
    "with_before",
]

DELETED = "_deleted"
OLD = "_old_"


def settled(changes: pl.DataFrame, key: tuple[str, ...], *, net: bool) -> pl.DataFrame:
    """The last change of each key."""
    changes = changes.with_columns(pl.col(DELETED).fill_null(value=False))
    if net:
        changes = pl.concat([changes.filter(DELETED), changes.filter(~pl.col(DELETED))])
    return changes.unique(key, keep="last", maintain_order=True)


def matching(left: pl.DataFrame, right: pl.DataFrame, key: Iterable[str]) -> pl.DataFrame:
    """Each row of ``left`` beside the row of the same key, whose other columns are named ``_old_...``; null is a key
    like any other."""
    key = tuple(key)
    renamed = right.rename({name: OLD + name for name in right.columns if name not in key})
    return left.join(renamed, on=key, how="left", nulls_equal=True, maintain_order="left")


def changed(names: Iterable[str]) -> pl.Expr:
    """After ``matching``: whether any of these columns is not what it was."""
    differences = [pl.col(name).ne_missing(pl.col(OLD + name)) for name in names]
    return pl.any_horizontal(differences) if differences else pl.lit(value=False)


def emitted(gone: pl.DataFrame, new: pl.DataFrame, key: tuple[str, ...], *, before: bool) -> pl.DataFrame:
    """Changes from rows that go and rows that come: without ``before``, a row that is replaced is not deleted."""
    if not before and len(gone) and len(new):
        gone = gone.join(new, on=key, how="anti", nulls_equal=True)
    return pl.concat(
        [gone.with_columns(pl.lit(value=True).alias(DELETED)), new.with_columns(pl.lit(value=False).alias(DELETED))]
    )


@dataclass(frozen=True, slots=True)
class Before:
    """Says of each change of a row also what the row was in its ``watched`` columns, so that changes find the place
    where the row was when they are sent by columns that are not its key. It keeps those columns of every row.

    Input ``rows``: changes, by key. Output: changes; a deletion, with key and watched columns, for a row that goes or
    whose watched columns change; and the new row.
    """

    columns: Mapping[str, pl.DataType]
    key: tuple[str, ...]
    watched: tuple[str, ...]
    net: bool = False

    @property
    def tables(self) -> Mapping[str, TableType]:
        """The rows by key, as far as they are watched."""
        kept = {name: self.columns[name] for name in (*self.key, *self.watched)}
        return {"rows": TableType(kept, self.key)}

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """One batch."""
        changes = settled(delta["rows"], self.key, net=self.net)
        old = state["rows"].lookup(changes.select(self.key))
        both = matching(changes, old, self.key)
        differs = pl.col(OLD + ID).is_null() | changed(self.watched)
        gone = both.filter(pl.col(OLD + ID).is_not_null() & (pl.col(DELETED) | differs))
        all_watched = len(self.key) + len(self.watched) == len(self.columns)
        new = both.filter(~pl.col(DELETED) & (differs if all_watched else pl.lit(value=True)))
        kept = (*self.key, *self.watched)
        output = pl.concat([gone.select(self._deletion()), new.select(*self.columns, DELETED)])
        return Step(output, {"rows": Changes(new.filter(differs).select(kept), gone[OLD + ID])})

    def _deletion(self) -> list[pl.Expr]:
        found = []
        for name, kind in self.columns.items():
            if name in self.key:
                found.append(pl.col(name))
            elif name in self.watched:
                found.append(pl.col(OLD + name).alias(name))
            else:
                found.append(pl.lit(None, kind).alias(name))
        return [*found, pl.lit(value=True).alias(DELETED)]


@dataclass(frozen=True, slots=True)
class Fused:
    """Two operators as one, where rows stay in their bucket: the second reads what the first gives as ``rows``."""

    first: Operator
    second: Operator

    @property
    def tables(self) -> Mapping[str, TableType]:
        """Those of both."""
        return {
            f"{n}.{name}": kind for n, one in enumerate((self.first, self.second)) for name, kind in one.tables.items()
        }

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """One batch."""
        first = self.first.step({name: state[f"0.{name}"] for name in self.first.tables}, delta, watermark_us)
        given = {"rows": first.output} if first.output is not None else {}
        second = self.second.step({name: state[f"1.{name}"] for name in self.second.tables}, given, watermark_us)
        changes = {
            f"{n}.{name}": change for n, one in enumerate((first, second)) for name, change in one.changes.items()
        }
        return Step(second.output, changes, second.wake_us)


def row_columns(changes: DataFrame) -> dict[str, pl.DataType]:
    """The columns of a table, from the DataFrame of its changes."""
    return {name: kind for name, kind in polars_schema(changes.schema).items() if name != DELETED}


def with_before(changes: DataFrame, key: tuple[str, ...], by: Iterable[str]) -> DataFrame:
    """Changes in the order of each key, as net changes that also say what the ``by`` columns were."""
    watched = tuple(name for name in by if name not in key)
    operator = Before(row_columns(changes), key, watched)
    return keyed({"rows": Keyed(changes, key)}, operator, changes.schema)
