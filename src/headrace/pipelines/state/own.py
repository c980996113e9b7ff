"""Operators that users write: ``@hr.operator``.

The function gets the state of the keys that are touched and the new rows, as Polars frames of many keys at once, and
the watermark; it returns the new state of these keys and what comes out. A key is touched if it has new rows, or if its
state has asked, in the column named by ``wake``, for a time that the watermark has reached.

Where the result has an event time, a row of it must not be before all that the function was called for: the new rows,
and the times that were asked for. Those are after the watermark of the batch before, so that a further step may follow.
It is looked at in every call, whatever the watermark happens to be.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.errors import HeadraceError
from headrace.pipelines.arguments import columns_named, ensure_column, ensure_stream, event_time, event_times, struct_of
from headrace.pipelines.places import Place, caller, of_function, wrong
from headrace.pipelines.schema import BadSchema, Column, parse_schema
from headrace.pipelines.state.dead import dead
from headrace.pipelines.state.frames import Keyed, keyed, polars_schema
from headrace.pipelines.state.operator import ID, Changes, State, Step, TableType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headrace.pipelines.state.table import StateTable

__all__ = ["DeclaredOperator", "Function", "Input", "Own", "WrongResult", "operator"]

Function = Callable[[pl.DataFrame, Any, dt.datetime], tuple[pl.DataFrame, ...]]
_ROWS, _REASON = "rows", "_reason"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_BEFORE = dt.datetime.min.replace(tzinfo=dt.UTC)
"""The watermark while there is none."""


def operator(
    *,
    by: str | Iterable[str],
    state: str,
    output: str,
    wake: str | None = None,
    inputs: Mapping[str, str | Iterable[str]] | None = None,
    event_time: str | None = None,
) -> Callable[[Function], DeclaredOperator]:
    """Make a function an operator over DataFrames: ``running_total(orders)`` is then a DataFrame.

    The function is called as ``function(state, rows, watermark)`` for many keys at once: ``state`` has what is kept of
    the keys that are touched, ``rows`` their new rows (both Polars frames), ``watermark`` is a time (the year 1 while
    there is none). It returns two frames: what is kept of these keys from now on, and what comes out; and if it likes a
    third: rows that it cannot process, which become dead letters (a column ``_reason`` says why). It must depend on
    nothing else: the same batch may come twice.

    ``by`` names columns of the rows and of the state; ``state`` and ``output`` are schemas. ``wake`` names a timestamp
    column of the state: when the watermark reaches it, its key is touched although it has no new rows. Set it to null
    or to a later time then.

    ``inputs={"orders": "customer_id", "payments": "payer"}``: several inputs, each with its columns for those of
    ``by``. The operator is called as ``unpaid(orders=..., payments=...)``, and ``rows`` is a dictionary of frames.

    ``event_time`` names a timestamp column of the output, so that windows may be put over it. No row that comes out may
    be before all new rows and due wake-ups of its call, and what is kept must not ask for a time that has passed.
    """
    place = caller()
    kept, out = _columns("state", state, place), _columns("output", output, place)
    kinds = {column.name: column.type for column in kept}
    keys = columns_named("by of the operator's state", by, kinds, place)
    if not keys:
        raise wrong("the operator has no key.", place, "say by= with the columns that its state is kept by")
    _ensure_timestamp("wake", wake, kept, place)
    _ensure_timestamp("event_time", event_time, out, place)
    tagged = {tag: _key_of_input(tag, columns, keys, place) for tag, columns in (inputs or {}).items()}

    def declare(function: Function) -> DeclaredOperator:
        return DeclaredOperator(function, keys, kept, out, wake, tagged, event_time)

    return declare


def _ensure_timestamp(what: str, name: str | None, columns: tuple[Column, ...], place: Place) -> None:
    if name is None:
        return
    kinds = {column.name: column.type for column in columns}
    ensure_column(f"{what} of the operator", name, kinds, place)
    if kinds[name] != "timestamp":
        raise wrong(f"{what} of the operator, {name!r}, is {kinds[name]}.", place, f'declare it as "{name} timestamp"')


def _key_of_input(tag: str, columns: str | Iterable[str], keys: tuple[str, ...], place: Place) -> tuple[str, ...]:
    found = (columns,) if isinstance(columns, str) else tuple(columns)
    if len(found) != len(keys):
        raise wrong(
            f"input {tag!r} of the operator is by {', '.join(found) or 'nothing'}, but the state by {', '.join(keys)}.",
            place,
            "name a column of the input for each, in the same order",
        )
    return found


@dataclass(frozen=True)
class DeclaredOperator:
    """A function that was made an operator; called with DataFrames, it gives a DataFrame."""

    __wrapped__: Function = field(repr=False)
    by: tuple[str, ...]
    state: tuple[Column, ...]
    output: tuple[Column, ...]
    wake: str | None
    inputs: Mapping[str, tuple[str, ...]]
    """By tag, its columns for those of ``by``; none: one input, which has no name."""
    event_time: str | None

    def __call__(self, rows: DataFrame | None = None, /, **tagged: DataFrame) -> DataFrame:
        """The operator's output for these rows."""
        place, name = caller(), self.__wrapped__.__name__
        frames = self._frames(rows, tagged, place)
        inputs = {tag: self._input(tag, frame, place) for tag, frame in frames.items()}
        if self.event_time is not None and all(one.time is None for one in inputs.values()):
            event_time(f"operator {name!r}", next(iter(frames.values())), place)
        state, output = polars_schema(_spark(self.state)), polars_schema(_spark(self.output))
        many = bool(self.inputs)
        own = Own(name, self.__wrapped__, self.by, state, output, self.wake, inputs, many, self.event_time)
        keys = {tag: Keyed(frame, inputs[tag].by) for tag, frame in frames.items()}
        return keyed(keys, own, _spark(self.output), event_time=self.event_time)

    def _frames(self, rows: DataFrame | None, tagged: Mapping[str, DataFrame], place: Place) -> dict[str, DataFrame]:
        """What it is called with, by tag."""
        given = dict(tagged) if rows is None else {_ROWS: rows, **tagged}
        wanted = list(self.inputs) or [_ROWS]
        if sorted(given) != sorted(wanted):
            call = ", ".join(f"{tag}=..." for tag in self.inputs) or "stream"
            name = self.__wrapped__.__name__
            raise wrong(f"operator {name!r} is not called with its inputs.", place, f"write {name}({call})")
        return {tag: given[tag] for tag in wanted}

    def _input(self, tag: str, frame: DataFrame, place: Place) -> Input:
        """An input, if its key is as declared."""
        what = f"operator {self.__wrapped__.__name__!r}"
        ensure_stream(what, frame, place, f"give it {getattr(frame, 'name', 'TABLE')}.changes")
        by = columns_named(f"by of {what}", self.inputs.get(tag, self.by), frame.columns, place)
        state = _spark(self.state)
        for name, key in zip(by, self.by, strict=True):
            if frame.schema[name].dataType != state[key].dataType:
                raise wrong(
                    f"by of {what}: {name!r} is {frame.schema[name].dataType.simpleString()}, and in the state "
                    f"{state[key].dataType.simpleString()}.",
                    of_function(self.__wrapped__),
                    "declare it in the state as it is in the rows",
                )
        times = event_times(frame)
        return Input(by, times[0] if len(times) == 1 else None)


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
class Input:
    """Rows that a function gets."""

    by: tuple[str, ...]
    """Their columns for those that the state is kept by."""
    time: str | None = None
    """Their event time, if they have one."""


@dataclass(frozen=True, slots=True)
class Own:
    """A user's function as an operator."""

    name: str
    function: Function
    by: tuple[str, ...]
    """Columns of the state."""
    state: Mapping[str, pl.DataType]
    output: Mapping[str, pl.DataType]
    wake: str | None
    inputs: Mapping[str, Input]
    tagged: bool = False
    """Whether the function gets its rows by tag."""
    event_time: str | None = None
    """The output's column that is its event time."""

    @property
    def tables(self) -> Mapping[str, TableType]:
        """What the function keeps."""
        return {"state": TableType(self.state, self.by)}

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """Call the function for the keys that are touched, if there are any."""
        table, due = state["state"], self._due(state["state"], watermark_us)
        keys = [self._keys(rows, self.inputs[tag]) for tag, rows in delta.items()]
        touched = pl.concat([*keys, due.select(self.by)]).unique(maintain_order=True)
        if touched.is_empty():
            return Step(wake_us=self._next(table, None, watermark_us))
        old = table.lookup(touched)
        kept, out, lost = self._called(old.drop(ID), delta, watermark_us)
        if not kept.join(touched, on=self.by, how="anti", nulls_equal=True).is_empty():
            raise self._wrong("returns state of keys that it was not called for", "keep to the keys of state and rows")
        if self.event_time is not None:
            self._ensure_in_time(out, self._earliest(delta, due, watermark_us))
            self._ensure_awake(kept, watermark_us)
        return Step(out, {"state": Changes(kept, old[ID])}, self._next(table, kept, watermark_us), lost)

    def _keys(self, rows: pl.DataFrame, given: Input) -> pl.DataFrame:
        return rows.select(pl.col(name).alias(key) for name, key in zip(given.by, self.by, strict=True))

    def _called(
        self, old: pl.DataFrame, delta: Mapping[str, pl.DataFrame], watermark_us: int | None
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame | None]:
        """What the function makes of it: the new state, what comes out, dead letters."""
        watermark = _BEFORE if watermark_us is None else _EPOCH + dt.timedelta(microseconds=watermark_us)
        result = self.function(old, dict(delta) if self.tagged else delta[_ROWS], watermark)
        if not (isinstance(result, tuple) and len(result) in (2, 3)):
            raise self._wrong(
                f"returns {type(result).__name__}",
                "return two frames: the new state, and what comes out; and a third, of dead rows, if there are any",
            )
        lost = self._dead(result[2]) if len(result) == 3 else None
        return self._checked(result[0], self.state, "state"), self._checked(result[1], self.output, "output"), lost

    def _dead(self, rows: object) -> pl.DataFrame | None:
        """Rows that the function gave back, as dead letters."""
        if not isinstance(rows, pl.DataFrame):
            raise self._wrong(f"returns {type(rows).__name__} as its dead rows", "return a Polars frame")
        if rows.is_empty():
            return None
        said = pl.col(_REASON).cast(pl.String) if _REASON in rows.columns else pl.lit(None, pl.String)
        parts = rows.with_columns(said.fill_null("refused").alias(_REASON)).partition_by(_REASON, as_dict=True)
        detail = f"by operator {self.name!r}"
        return pl.concat([dead(part.drop(_REASON), str(why), detail) for (why,), part in parts.items()])

    def _earliest(self, delta: Mapping[str, pl.DataFrame], due: pl.DataFrame, watermark_us: int | None) -> int | None:
        """The earliest event time of what a call is about: nothing that comes out may be before it. Rows without an
        event time come after the watermark."""
        times = [due[self.wake].to_physical().min()] if self.wake is not None else []
        for tag, given in self.inputs.items():
            if given.time is not None:
                times.append(delta[tag][given.time].to_physical().min())
            elif len(delta[tag]) and watermark_us is not None:
                times.append(watermark_us + 1)
        return min((int(time) for time in times if time is not None), default=None)  # type: ignore[arg-type]

    def _ensure_in_time(self, out: pl.DataFrame, earliest_us: int | None) -> None:
        times = out[self.event_time] if self.event_time is not None else pl.Series()
        if times.null_count():
            raise self._wrong(f"returns output without {self.event_time}, its event time", "give every row a time")
        if earliest_us is not None and len(times.filter(times.to_physical() < earliest_us)):
            bound = _EPOCH + dt.timedelta(microseconds=earliest_us)
            raise self._wrong(
                f"returns output of {times.min()!s}, before all that it was called for ({bound})",
                "give what comes out the time of the new rows, or the one asked for by wake=: what follows takes "
                "earlier rows for late ones",
            )

    def _ensure_awake(self, kept: pl.DataFrame, watermark_us: int | None) -> None:
        if self.wake is None or watermark_us is None:
            return
        if len(kept.filter(pl.col(self.wake).to_physical() <= watermark_us)):
            raise self._wrong(
                f"keeps state whose {self.wake} the watermark has reached",
                "let out at once what is due, and set it to null or to a later time",
            )

    def _due(self, table: StateTable, watermark_us: int | None) -> pl.DataFrame:
        if self.wake is None or watermark_us is None:
            return table.schema.to_frame()
        return table.where(pl.col(self.wake).to_physical() <= watermark_us)

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
