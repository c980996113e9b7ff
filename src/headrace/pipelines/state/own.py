"""Operators that users write: ``@hr.operator``.

The function gets the state of the keys that are touched and the new rows, as Polars frames of many keys at once, and
the watermark; it returns the new state of these keys and what comes out. A key is touched if it has new rows, or if its
state has asked, in the column named by ``wake``, for a time that the watermark has reached.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from headrace.errors import HeadraceError
from headrace.pipelines.arguments import columns_named, ensure_column, ensure_stream, struct_of
from headrace.pipelines.places import Place, caller, of_function, wrong
from headrace.pipelines.schema import BadSchema, Column, parse_schema
from headrace.pipelines.state.frames import Keyed, keyed, polars_schema
from headrace.pipelines.state.operator import ID, Changes, State, Step, TableType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headrace.pipelines.state.table import StateTable

__all__ = ["DeclaredOperator", "Function", "Own", "WrongResult", "operator"]

Function = Callable[[pl.DataFrame, pl.DataFrame, dt.datetime], tuple[pl.DataFrame, pl.DataFrame]]
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_BEFORE = dt.datetime.min.replace(tzinfo=dt.UTC)
"""The watermark while there is none."""


def operator(
    *, by: str | Iterable[str], state: str, output: str, wake: str | None = None
) -> Callable[[Function], DeclaredOperator]:
    """Make a function an operator over DataFrames: ``running_total(orders)`` is then a DataFrame.

    The function is called as ``function(state, rows, watermark)`` for many keys at once: ``state`` has what is kept of
    the keys that are touched, ``rows`` their new rows (both Polars frames), ``watermark`` is a time (the year 1 while
    there is none). It returns two frames: what is kept of these keys from now on, and what comes out. It must depend on
    nothing else: the same batch may come twice.

    ``by`` names columns of the rows and of the state; ``state`` and ``output`` are schemas. ``wake`` names a timestamp
    column of the state: when the watermark reaches it, its key is touched although it has no new rows. Set it to null
    or to a later time then.
    """
    place = caller()
    kept, out = _columns("state", state, place), _columns("output", output, place)
    kinds = {column.name: column.type for column in kept}
    keys = columns_named("by of the operator's state", by, kinds, place)
    if not keys:
        raise wrong("the operator has no key.", place, "say by= with the columns that its state is kept by")
    if wake is not None:
        ensure_column("wake of the operator", wake, kinds, place)
        if kinds[wake] != "timestamp":
            raise wrong(
                f"wake of the operator, {wake!r}, is {kinds[wake]}.", place, f'declare it as "{wake} timestamp"'
            )

    def declare(function: Function) -> DeclaredOperator:
        return DeclaredOperator(function, keys, kept, out, wake)

    return declare


@dataclass(frozen=True)
class DeclaredOperator:
    """A function that was made an operator; called with a DataFrame, it gives a DataFrame."""

    __wrapped__: Function = field(repr=False)
    by: tuple[str, ...]
    state: tuple[Column, ...]
    output: tuple[Column, ...]
    wake: str | None

    def __call__(self, rows: DataFrame) -> DataFrame:
        """The operator's output for these rows."""
        place, what = caller(), f"operator {self.__wrapped__.__name__!r}"
        ensure_stream(what, rows, place, f"give it {getattr(rows, 'name', 'TABLE')}.changes")
        columns_named(f"by of {what}", self.by, rows.columns, place)
        state, output = _spark(self.state), _spark(self.output)
        for name in self.by:
            if rows.schema[name].dataType != state[name].dataType:
                raise wrong(
                    f"by of {what}: {name!r} is {rows.schema[name].dataType.simpleString()}, and in the state "
                    f"{state[name].dataType.simpleString()}.",
                    of_function(self.__wrapped__),
                    "declare it in the state as it is in the rows",
                )
        own = Own(
            self.__wrapped__.__name__, self.__wrapped__, self.by, polars_schema(state), polars_schema(output), self.wake
        )
        return keyed({"rows": Keyed(rows, self.by)}, own, output)


def _columns(what: str, schema: str, place: Place) -> tuple[Column, ...]:
    try:
        return parse_schema(schema)
    except BadSchema as bad:
        raise wrong(
            f"the operator's {what} cannot be read: {bad}.", place, 'write it like "customer_id long, total double"'
        ) from None


def _spark(columns: tuple[Column, ...]) -> StructType:
    return struct_of({column.name: column.type for column in columns})


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
            first = str(error).partition("\n")[0]
            raise self._wrong(f"returns {what} of other types than declared: {first}", "cast its columns") from error

    def _wrong(self, what: str, hint: str) -> WrongResult:
        return WrongResult(f"operator {self.name!r} {what}.", hint=hint)
