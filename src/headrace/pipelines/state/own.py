"""Operators that users write: ``@hr.operator``.

The function gets the state of the keys that are touched and the new rows, as Polars frames of many keys at once, and
the watermark; it returns the new state of these keys and what comes out. A key is touched if it has new rows, or if its
state has asked, in the column named by ``wake``, for a time that the watermark has reached.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.errors import HeadraceError
from headrace.pipelines.state.operator import ID, Changes, State, Step, TableType

if TYPE_CHECKING:
    from headrace.pipelines.state.table import StateTable

__all__ = ["Function", "Own", "WrongResult"]

Function = Callable[[pl.DataFrame, pl.DataFrame, dt.datetime], tuple[pl.DataFrame, pl.DataFrame]]
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_BEFORE = dt.datetime.min.replace(tzinfo=dt.UTC)
"""The watermark while there is none."""


class WrongResult(HeadraceError):
    """A user's operator returned something that cannot be used."""


@dataclass(frozen=True, slots=True)
class Own:
    """A user's function as an operator; its input is ``rows``."""

    name: str
    function: Function
    by: tuple[str, ...]
    """Columns of the rows and of the state."""
    state: Mapping[str, pl.DataType]
    output: Mapping[str, pl.DataType]
    wake: str | None

    @property
    def tables(self) -> Mapping[str, TableType]:
        """What the function keeps."""
        return {"state": TableType(self.state, self.by)}

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """Call the function for the keys that are touched, if there are any."""
        table, rows = state["state"], delta["rows"]
        touched = pl.concat([rows.select(self.by), self._due(table, watermark_us)]).unique(maintain_order=True)
        if touched.is_empty():
            return Step(wake_us=self._next(table, None, watermark_us))
        old = table.lookup(touched)
        watermark = _BEFORE if watermark_us is None else _EPOCH + dt.timedelta(microseconds=watermark_us)
        result = self.function(old.drop(ID), rows, watermark)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise self._wrong(
                f"returns {type(result).__name__}", "return two frames: the new state, and what comes out"
            )
        kept = self._checked(result[0], self.state, "state")
        if not kept.join(touched, on=self.by, how="anti", nulls_equal=True).is_empty():
            raise self._wrong("returns state of keys that it was not called for", "keep to the keys of state and rows")
        out = self._checked(result[1], self.output, "output")
        return Step(out, {"state": Changes(kept, old[ID])}, self._next(table, kept, watermark_us))

    def _due(self, table: StateTable, watermark_us: int | None) -> pl.DataFrame:
        if self.wake is None or watermark_us is None:
            return table.schema.to_frame().select(self.by)
        return table.where(pl.col(self.wake).to_physical() <= watermark_us).select(self.by)

    def _next(self, table: StateTable, kept: pl.DataFrame | None, watermark_us: int | None) -> int | None:
        if self.wake is None:
            return None
        found = [
            table.min(self.wake, above=watermark_us),
            None if kept is None else kept[self.wake].to_physical().min(),
        ]
        return min((int(time) for time in found if time is not None), default=None)  # type: ignore[arg-type]

    def _checked(self, frame: object, schema: Mapping[str, pl.DataType], what: str) -> pl.DataFrame:
        if not isinstance(frame, pl.DataFrame):
            raise self._wrong(f"returns {type(frame).__name__} as its {what}", "return a Polars frame")
        lacks = [name for name in schema if name not in frame.columns]
        if lacks:
            raise self._wrong(
                f"returns {what} without {', '.join(lacks)}", f"its columns are declared as {', '.join(schema)}"
            )
        try:
            return frame.select(pl.col(name).cast(kind) for name, kind in schema.items())
        except pl.exceptions.PolarsError as error:
            raise self._wrong(f"returns {what} of other types than declared: {error}", "cast its columns") from error

    def _wrong(self, what: str, hint: str) -> WrongResult:
        return WrongResult(f"operator {self.name!r} {what}.", hint=hint)
