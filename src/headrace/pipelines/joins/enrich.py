"""Events with the row of a table that was valid when they happened: ``hr.enrich``.

::

    table, key 7      v1 ────────────── v2 ──── deleted      v3 ───────►
    events, key 7           a      b       c          d           e
    they see               v1     v1      v2         none        v3

With a time to look at, an event is held until the watermark has passed it: by then every version that was up to the
lateness late is there. The table has no watermark, so a quiet one holds nothing up. An event that looks at a time after
its own is dead: held until then it would be behind the watermark, and not held it sees what is there by chance. Without
a time to look at, an event sees the latest version at once.

Versions that no event can ask for any more go when their key is next touched. All versions that are kept of a key are
looked at together. As of the event time those are the ones since the watermark and one before; as of another time, all
that the key ever had, or those of ``keep_history``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.pipelines.arguments import (
    column_types,
    ensure_column,
    ensure_stream,
    event_time,
    event_times,
    length_us,
    on_columns,
    struct_of,
    with_equal_types,
)
from headrace.pipelines.building import remark
from headrace.pipelines.places import Place, caller, wrong
from headrace.pipelines.source.shape import DELETED, TIME, VERSION
from headrace.pipelines.state.dead import dead, timed
from headrace.pipelines.state.frames import Keyed, keyed, polars_schema
from headrace.pipelines.state.operator import ID, Changes, State, Step, TableType
from headrace.pipelines.state.spans import codes, in_order, microseconds
from headrace.pipelines.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from headrace.pipelines.state.table import StateTable

__all__ = ["Enrich", "enrich"]

_DUE, _NEVER = "~due", -(2**62)
_MISSING = ("null", "drop", "wait")


def enrich(
    stream: DataFrame,
    table: Table,
    *,
    on: str | Iterable[str] | Mapping[str, str],
    as_of: str | None = None,
    missing: str = "null",
    wait_for: str = "1 day",
    keep_history: str | None = None,
) -> DataFrame:
    """Give each event of a stream the row of a table with its key: the stream's columns, then the table's.

    ``on`` names the stream's columns for the table's key: ``{"customer_id": "id"}``, or just the names if they are the
    same. With ``as_of``, a timestamp column of the stream (mostly its event time), an event sees the version that was
    valid then: the last one with a time not after it. It comes out when the watermark has passed it. That time must not
    be after the event time: such an event is a dead letter (reason ``as-of-ahead``). Without ``as_of``, it sees the
    latest version at once. A query that is built anew finds the versions of then only if the table is declared with
    ``history=True``.

    ``missing`` says what becomes of an event whose key has no row: ``null`` keeps it with nulls, ``drop`` drops it,
    ``wait`` holds it until its key has a row (with ``as_of``: the first version after it), by the watermark up to
    ``wait_for``; then it comes out with nulls. Events that waited are behind the watermark, so with ``wait`` the result
    has no event time. ``keep_history`` bounds how far behind the watermark versions are kept where ``as_of`` is not
    the event time; an event that asks for an older one finds it missing. Without it, nothing does: all versions of a
    key are kept, and read whenever the key is touched.

    The table's columns come without its key; those with names that the stream has too are called ``TABLE_NAME``. The
    last column, ``TABLE_version``, is the id of the version.
    """
    place, what = caller(), "hr.enrich"
    ensure_stream(what, stream, place, "use hr.join for two tables")
    if not isinstance(table, Table):
        raise wrong(
            f"{what} has no table.", place, "its second argument is a table; use hr.window_join for two streams"
        )
    if missing not in _MISSING:
        raise wrong(f"{what} has missing={missing!r}.", place, f"say one of: {', '.join(_MISSING)}")
    pairs = on_columns(what, on, place)
    if set(pairs.values()) != set(table.key):
        raise wrong(
            f"{what} is on {', '.join(pairs.values())}, but the key of table {table.name!r} is {', '.join(table.key)}.",
            place,
            f"say on= with all of the key, like {{'column': {table.key[0]!r}}}",
        )
    timed = as_of is not None or missing == "wait" or event_times(stream)
    time = event_time(what, stream, place) if timed else None
    if as_of is not None:
        _ensure_time(what, as_of, stream, place)
        if not table.keeps_history:
            remark(
                f"{what} with as_of={as_of!r} finds only the latest version of a row of {table.name!r} when it is "
                f"built anew, for its topic keeps no others ({place}). app.table(..., history=True) keeps every "
                "version; a view keeps the latest"
            )
    stream, versions = with_equal_types(what, stream, table.versions, pairs, place)
    names = _names(what, stream, versions, table, place)
    operator = Enrich(
        polars_schema(stream.schema),
        {name: kind for name, kind in polars_schema(versions.schema).items() if name not in (DELETED, TIME, VERSION)},
        pairs,
        names,
        time,
        as_of,
        missing,
        length_us(what, wait_for, place),
        None if keep_history is None else length_us(what, keep_history, place),
    )
    inputs = {"stream": Keyed(stream, tuple(pairs)), "table": Keyed(versions, tuple(pairs.values()))}
    kinds = column_types(versions)
    output = struct_of({**column_types(stream), **{named: kinds[name] for name, named in names.items()}})
    return keyed(inputs, operator, output, event_time=None if missing == "wait" else time)


def _ensure_time(what: str, as_of: str, stream: DataFrame, place: Place) -> None:
    types = column_types(stream)
    ensure_column(f"as_of of {what}", as_of, types, place)
    if types[as_of] != "timestamp":
        raise wrong(f"as_of of {what}, {as_of!r}, is {types[as_of]}.", place, "name a timestamp column")


def _names(what: str, stream: DataFrame, versions: DataFrame, table: Table, place: Place) -> dict[str, str]:
    """What the table's columns are called in the result."""
    taken, names = {name.lower() for name in stream.columns}, {}
    for name in versions.columns:
        if name not in (*table.key, DELETED, TIME, VERSION):
            names[name] = f"{table.name}_{name}" if name.lower() in taken else name
    names[VERSION] = f"{table.name}_version"
    for name in names.values():
        if name.lower() in taken:
            raise wrong(f"{what} has two columns {name!r}.", place, "rename one of the stream's (withColumnRenamed)")
        taken.add(name.lower())
    return names


@dataclass(frozen=True, slots=True)
class Enrich:
    """The operator; its inputs are ``stream`` and ``table`` (with ``_deleted``, ``_time`` and ``_version``)."""

    stream: Mapping[str, pl.DataType]
    table: Mapping[str, pl.DataType]
    on: Mapping[str, str]
    """The stream's column for each column of the table's key; of the same type."""
    names: Mapping[str, str]
    """What the table's columns are called in the output, ``_version`` too."""
    time: str | None
    """The stream's event time, if it has one."""
    as_of: str | None
    """The stream's column that says at which time to look; None for the latest version."""
    missing: str
    """What becomes of an event whose key has no row: ``null``, ``drop`` or ``wait``."""
    wait_us: int = 0
    """How long an event waits for its key, by the watermark; then it comes out with nulls."""
    history_us: int | None = None
    """How far behind the watermark versions are kept; None: as far as needed."""

    @property
    def tables(self) -> Mapping[str, TableType]:
        """The versions; events whose time has not passed; events whose key is awaited."""
        events = {**self.stream, _DUE: pl.Int64()}
        about = {DELETED: pl.Boolean(), TIME: pl.Datetime("us", "UTC"), VERSION: pl.String()}
        return {
            "versions": TableType({**self.table, **about}, tuple(self.on.values())),
            "held": TableType(events, (), tuple(self.on)),
            "awaiting": TableType(events, tuple(self.on)),
        }

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """Take in new versions, and give theirs to the events whose time has passed."""
        now = _NEVER if watermark_us is None else watermark_us
        new = delta["table"].filter(pl.all_horizontal(pl.col(*self.on.values()).is_not_null()))
        given, letters = self._given(delta["stream"])
        events = given.with_columns(self._due().alias(_DUE))
        due = state["held"].where(pl.col(_DUE) <= now)
        awaiting = self._awaiting(state["awaiting"], new, now)
        asking = _stacked(awaiting, due.drop(ID), events.filter(pl.col(_DUE) <= now))
        asked = asking.select(pl.col(mine).alias(key) for mine, key in self.on.items())
        old = state["versions"].lookup(pl.concat([asked, new.select(asked.columns)]))
        versions = _stacked(old, new)

        found, of_use = self._looked_up(asking, asked, versions, now)
        waits = pl.Series(found < 0) & asking.select(self._may_wait(now)).to_series()
        changes = {
            "versions": _changes(versions, of_use, len(old)),
            "held": Changes(events.filter(pl.col(_DUE) > now), due[ID]),
            "awaiting": _changes(asking.with_columns(self._until().alias(_DUE)), waits, len(awaiting)),
        }
        return Step(self._output(asking, versions, found, waits), changes, _wake(state, changes, now), letters)

    def _given(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Events that can be given a version; and the others as dead letters, if there are any."""
        if self.time is None:
            return rows, None
        given, without_time = timed(rows, self.time)
        if self.as_of is None or self.as_of == self.time:
            return given, without_time
        ahead = self._asks() & (pl.col(self.as_of) > pl.col(self.time))
        wrong = given.filter(ahead)
        if wrong.is_empty():
            return given, without_time
        letters = dead(wrong, "as-of-ahead", f"{self.as_of} is after the event time, {self.time}")
        return given.filter(~ahead), letters if without_time is None else pl.concat([without_time, letters])

    def _asks(self) -> pl.Expr:
        """Whether an event says what it asks for; nulls find nothing."""
        return pl.all_horizontal(pl.col(*self.on, *filter(None, [self.as_of])).is_not_null())

    def _due(self) -> pl.Expr:
        """When an event can be given its version: at once, unless the watermark has to pass its time first."""
        if self.as_of is None:
            return pl.lit(_NEVER, pl.Int64)
        return pl.when(self._asks()).then(pl.col(self.as_of).to_physical()).otherwise(_NEVER)

    def _until(self) -> pl.Expr:
        """How long an event waits for its key."""
        return pl.lit(0, pl.Int64) if self.time is None else pl.col(self.time).to_physical() + self.wait_us

    def _may_wait(self, now: int) -> pl.Expr:
        if self.missing != "wait":
            return pl.repeat(value=False, n=pl.len())
        return (self._until() > now) & self._asks()

    def _awaiting(self, table: StateTable, new: pl.DataFrame, now: int) -> pl.DataFrame:
        """Events that waited for a key that has come, or for too long."""
        came = table.lookup(new.select(pl.col(key).alias(mine) for mine, key in self.on.items()))
        return pl.concat([came.filter(pl.col(_DUE) > now), table.where(pl.col(_DUE) <= now)])

    def _looked_up(
        self, asking: pl.DataFrame, asked: pl.DataFrame, versions: pl.DataFrame, now: int
    ) -> tuple[NDArray[np.int64], pl.Series]:
        """Which version each event gets (-1: none); and which versions may still be asked for."""
        keys, of = codes(versions.select(asked.columns), asked)
        if self.as_of is None:
            since, at, bound = np.zeros(len(versions), np.int64), np.zeros(len(asking), np.int64), 0
        else:
            since = microseconds(versions[TIME])
            at = asking[self.as_of].to_physical().cast(pl.Int64).fill_null(_NEVER).to_numpy()
            bound = self._bound(now)
        order = in_order(keys, since)
        row, key, time = (np.append(values, -1) for values in (order.order, keys[order.order], since[order.order]))
        gone = np.append(versions[DELETED].to_numpy()[order.order], True)

        first, last = order.spans(of, np.full(len(of), _NEVER), at)
        found = np.where((last > first) & ~gone[last - 1], row[last - 1], -1)
        if self.missing == "wait" and self.as_of is not None:
            later = _next_that_is_not(gone)[last]
            found = np.where((found < 0) & (key[later] == of) & (at > _NEVER), row[later], found)

        replaced = (key[1:] == key[:-1]) & (time[1:] <= bound)
        of_use = np.ones(len(versions), np.bool_)
        of_use[row[:-1]] = ~(replaced | ((time[:-1] <= bound) & gone[:-1]))
        return found, pl.Series(of_use)

    def _bound(self, now: int) -> int:
        """Of the versions of a key up to this time only the last is asked for."""
        if self.history_us is not None:
            return now - self.history_us
        return now if self.as_of == self.time else _NEVER

    def _output(
        self, asking: pl.DataFrame, versions: pl.DataFrame, found: NDArray[np.int64], waits: pl.Series
    ) -> pl.DataFrame:
        out = ~waits if self.missing != "drop" else pl.Series(found >= 0)
        at = pl.Series(found, dtype=pl.Int64).filter(out)
        at = at.set(at < 0, None)
        given = versions.select(pl.col(name).gather(at).alias(named) for name, named in self.names.items())
        return pl.concat([asking.filter(out).select(*self.stream), given], how="horizontal")


def _stacked(kept: pl.DataFrame, *new: pl.DataFrame) -> pl.DataFrame:
    """Rows of the state, then rows without ids."""
    return pl.concat(
        [kept, *(rows.with_columns(pl.lit(None, pl.UInt64).alias(ID)).select(kept.columns) for rows in new)]
    )


def _changes(rows: pl.DataFrame, stay: pl.Series, old: int) -> Changes:
    """The first ``old`` rows are in the state already."""
    return Changes(rows[old:].filter(stay[old:]).drop(ID), rows[:old].filter(~stay[:old])[ID])


def _next_that_is_not(gone: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each place, the next one (or itself) where this does not hold; the last place if there is none."""
    places = np.where(gone, len(gone) - 1, np.arange(len(gone)))
    return np.minimum.accumulate(places[::-1])[::-1]


def _wake(state: State, changes: Mapping[str, Changes], now: int) -> int | None:
    found = []
    for name in ("held", "awaiting"):
        added = changes[name].append
        found += [state[name].min(_DUE, above=now), None if added is None else added[_DUE].min()]
    return min((int(time) for time in found if time is not None), default=None)  # type: ignore[arg-type]
