"""Every version of a table's rows with the time in which it held: ``hr.history``.

::

    changes of key 7     v1 ─── v2 ────── deleted       v3 ───────►
    history              v1 from..to, v2 from..to,      v3 from..(null)

At every time the row whose ``valid_from`` is not after it and whose ``valid_to`` is after it (or null) is the one that
``hr.enrich`` finds as of that time. Of several changes at one time the last counts. A change that changes nothing is no
version: rows that a snapshot reads again do not cut their history.

The state is all changes; those of a key that is touched are looked at together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.pipelines.arguments import column_types, struct_of
from headrace.pipelines.changelog import OLD, changed, emitted, matching
from headrace.pipelines.places import caller, wrong
from headrace.pipelines.source.shape import DELETED, TIME, VERSION
from headrace.pipelines.state import Changes, State, Step, TableType
from headrace.pipelines.state.frames import Keyed, keyed, polars_schema
from headrace.pipelines.state.operator import ID
from headrace.pipelines.table import Table, computed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["VALID_FROM", "VALID_TO", "History", "history"]

VALID_FROM, VALID_TO = "valid_from", "valid_to"
_AT = pl.Datetime("us", "UTC")


def history(table: Table) -> Table:
    """All versions of a table's rows: its columns, ``valid_from`` and ``valid_to`` (null while it holds).

    A table with the key of ``table`` and ``valid_from``. The table must be declared with ``history=True``, so that a
    view that is built anew sees the past too.
    """
    place, what = caller(), "hr.history"
    if not isinstance(table, Table):
        raise wrong(f"{what} has no table.", place, "its argument is a table that is declared with history=True")
    if not table.keeps_history:
        raise wrong(
            f"{what} of table {table.name!r}, whose topic keeps only the latest version of a row.",
            place,
            "declare it with app.table(..., history=True)",
        )
    for name in (VALID_FROM, VALID_TO):
        if name in table.columns:
            raise wrong(f"{what} has two columns {name!r}.", place, "table.columns has one; name it otherwise")
    columns = {**table.columns, VALID_FROM: "timestamp", VALID_TO: "timestamp"}
    output = struct_of({**columns, DELETED: "boolean"})

    def make(before: bool) -> DataFrame:
        versions = table.versions
        kinds = {n: k for n, k in polars_schema(versions.schema).items() if n not in (DELETED, TIME, VERSION)}
        frame = versions.select(*kinds, DELETED, TIME)
        return keyed({"rows": Keyed(frame, table.key)}, History(kinds, table.key, before), output)

    assert set(table.key) <= set(column_types(table.versions))
    return computed(f"history of {table.name}", (*table.key, VALID_FROM), columns, make)


@dataclass(frozen=True, slots=True)
class History:
    """The operator. Input ``rows``: changes in the order of each key, with ``_deleted`` and ``_time``. Output: changes
    of the table of versions."""

    columns: Mapping[str, pl.DataType]
    key: tuple[str, ...]
    before: bool = False
    """Whether a version that changes comes with a deletion of what it was."""

    @property
    def tables(self) -> Mapping[str, TableType]:
        """The changes, deletions too."""
        return {"versions": TableType({**self.columns, DELETED: pl.Boolean(), TIME: _AT}, self.key)}

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """One batch."""
        new = delta["rows"].with_columns(pl.col(DELETED).fill_null(value=False))
        new = new.filter(pl.all_horizontal(pl.col(*self.key, TIME).is_not_null()))
        if not len(new):
            return Step()
        old = state["versions"].lookup(new.select(self.key).unique())
        both = pl.concat([old, new.with_columns(pl.lit(None, pl.UInt64).alias(ID)).select(old.columns)])
        both = both.unique([*self.key, TIME], keep="last", maintain_order=True)
        gone = old.filter(~pl.col(ID).is_in(both[ID].drop_nulls().implode()))[ID]
        changes = Changes(both.filter(pl.col(ID).is_null()).drop(ID), gone)
        return Step(self._output(self._spans(old), self._spans(both)), {"versions": changes})

    def _spans(self, changes: pl.DataFrame) -> pl.DataFrame:
        """Rows of the result: changes in the order of time, without those that change nothing, with both times."""
        ordered = changes.sort(*self.key, TIME)
        others = [name for name in self.columns if name not in self.key]
        was_gone = pl.col(DELETED).shift().over(self.key)
        differs = [pl.col(name).ne_missing(pl.col(name).shift().over(self.key)) for name in others]
        changes_row = ~pl.col(DELETED) & pl.any_horizontal(pl.lit(value=False), *differs)
        is_version = was_gone.is_null() | (pl.col(DELETED) != was_gone) | changes_row
        versions = ordered.filter(is_version)
        until = pl.col(TIME).shift(-1).over(self.key).alias(VALID_TO)
        found = versions.with_columns(pl.col(TIME).alias(VALID_FROM), until).filter(~pl.col(DELETED))
        return found.select(*self.columns, VALID_FROM, VALID_TO)

    def _output(self, old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
        """What has changed in the result."""
        key = (*self.key, VALID_FROM)
        others = [name for name in new.columns if name not in key]
        gone = old.join(new, on=key, how="anti", nulls_equal=True)
        there = matching(new, old.with_columns(pl.lit(value=True).alias(ID)), key)
        fresh = there.filter(pl.col(OLD + ID).is_null())
        altered = there.filter(pl.col(OLD + ID).is_not_null() & changed(others))
        was = altered.select(*(pl.col(n) if n in key else pl.col(OLD + n).alias(n) for n in new.columns))
        come = pl.concat([fresh, altered]).select(new.columns)
        return emitted(pl.concat([gone, was]), come, key, before=self.before)
