"""Which rows belong to which session, as they come: a keyed operator.

A row is open from ``start`` to ``end`` (its time plus the gap); rows of a key whose spans touch are one session. Of
every session that a batch changes, all rows are put out. Where a session moved or was swallowed, its rows of before are
put out too, marked ``_before``, so that what was shown of it can be taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headrace.pipelines.state import Changes, State, Step, TableType
from headrace.pipelines.state.operator import ID

__all__ = ["BEFORE", "END", "START", "Sessions"]

START, END, BEFORE = "_start", "_end", "_before"
_SESSION, _NEW, _CHANGED = "_session", "_new", "_changed"


@dataclass(frozen=True)
class Sessions:
    """``columns`` are those of the rows, with the keys, ``_start`` and ``_end`` among them."""

    columns: Mapping[str, pl.DataType]
    keys: tuple[str, ...]
    before_always: bool = False
    """Put out the rows of before for every session that changes, not only for those that moved."""

    @property
    def tables(self) -> dict[str, TableType]:
        """The rows of open sessions; and by when their sessions end."""
        ends = {**{name: self.columns[name] for name in self.keys}, END: self.columns[END]}
        return {"rows": TableType(self.columns, self.keys), "ends": TableType(ends, self.keys)}

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """Sessions that changed; those that are over are forgotten."""
        new = delta["rows"]
        over = self._over(state, watermark_us)
        touched = pl.concat([new.select(self.keys), over.select(self.keys)]).unique()
        old, ends = state["rows"].lookup(touched), state["ends"].lookup(touched)
        closed = pl.lit(False) if watermark_us is None else pl.col("end") <= _moment(watermark_us)
        before = self._numbered(old)
        after = self._numbered(pl.concat([old.with_columns(_new=pl.lit(False)), _unnumbered(new)]))
        now = after.with_columns(
            pl.col(_NEW).any().over(_SESSION).alias(_CHANGED), end=pl.col(END).max().over(_SESSION)
        )
        changed = now.filter(_CHANGED)
        kept = now.filter(~closed)
        left = kept.group_by(_SESSION).agg(*(pl.col(name).first() for name in self.keys), pl.col("end").first())
        return Step(
            pl.concat([self._out(self._undone(before, now), True), self._out(changed, False)]),
            {
                "rows": Changes(kept.filter(_NEW).select(*self.columns), now.filter(closed & ~pl.col(_NEW))[ID]),
                "ends": Changes(left.rename({"end": END}).drop(_SESSION), ends[ID]),
            },
            _first_end(state["ends"].min(END), left["end"], watermark_us),
        )

    def _over(self, state: State, watermark_us: int | None) -> pl.DataFrame:
        if watermark_us is None:
            return state["ends"].schema.to_frame()
        return state["ends"].where(pl.col(END) <= _moment(watermark_us))

    def _numbered(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows in order, with the number of their session."""
        rows = rows.sort([*self.keys, START, END], maintain_order=True)
        latest = pl.col(END).cum_max().shift().over(self.keys)
        begins = (latest.is_null() | (pl.col(START) > latest)).cast(pl.UInt32)
        return rows.with_columns(begins.cum_sum().alias(_SESSION))

    def _undone(self, before: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
        """The rows of sessions as they were that are no more, or (if asked for) are different."""
        by = [*self.keys, "first"]
        was = before.with_columns(first=pl.col(START).min().over(_SESSION))
        sessions = now.group_by(_SESSION).agg(
            *(pl.col(name).first() for name in self.keys), pl.col(START).min().alias("first"), pl.col(_CHANGED).first()
        )
        same = sessions if not self.before_always else sessions.filter(~pl.col(_CHANGED))
        return was.join(same, on=by, how="anti", nulls_equal=True)

    def _out(self, rows: pl.DataFrame, before: bool) -> pl.DataFrame:
        return rows.select(*self.columns, pl.lit(before).alias(BEFORE))


def _first_end(known_us: int | None, ends: pl.Series, watermark_us: int | None) -> int | None:
    """When the first session is over."""
    found = [known_us, *ends.to_physical().sort().head(1)]
    return min((time for time in found if time is not None and time > (watermark_us or 0)), default=None)


def _unnumbered(new: pl.DataFrame) -> pl.DataFrame:
    """New rows, which have no id yet, as rows of the state."""
    return new.select(pl.lit(None, pl.UInt64).alias(ID), pl.all(), pl.lit(True).alias(_NEW))


def _moment(time_us: int) -> pl.Expr:
    return pl.lit(time_us, pl.Int64).cast(pl.Datetime("us", "UTC"))
