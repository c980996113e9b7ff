"""Two streams joined where their event times are within an interval: ``hr.window_join``.

::

    right     ·····|--- from ----- l ---------- to ---|·····      rows of the same key in here are l's partners
    left      ·····|--- r - to ------- r --- r - from |·····      rows of the same key in here are r's

A row waits in the state until the watermark says that no partner can come. Rows are kept by key and slot of time, each
as long as the interval, so a row's partners lie in two: a key with very many rows costs what its intervals hold.
What is over is found by a look at the times of all rows that wait, about a nanosecond each.

The time of a joined row is the later of the two. The time of a row without a partner is when that became certain:
both are after the watermark of the batch before, so that a further step may follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.pipelines.arguments import (
    column_types,
    ensure_stream,
    event_time,
    length_us,
    on_columns,
    struct_of,
    with_equal_types,
)
from headrace.pipelines.places import Place, caller, wrong
from headrace.pipelines.state.dead import timed
from headrace.pipelines.state.frames import Keyed, keyed, polars_schema
from headrace.pipelines.state.operator import ID, Changes, State, Step, TableType
from headrace.pipelines.state.spans import codes, in_order, members, microseconds

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from headrace.pipelines.state.table import StateTable

__all__ = ["Side", "WindowJoin", "window_join"]

_SLOT, _MATCHED = "~slot", "~matched"
_OUTER = {"inner": (), "left": ("left",), "right": ("right",), "full": ("left", "right")}


def window_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: str | Iterable[str] | Mapping[str, str],
    within: str | tuple[str, str],
    how: str = "inner",
    suffix: str = "_right",
    time: str = "joined_at",
) -> DataFrame:
    """Join two streams where ``on`` is equal and their event times are ``within`` a length of time of each other.

    ``within="5 minutes"`` is either way; ``within=("-1 minute", "5 minutes")`` is from a minute before the left row to
    five minutes after it. ``on`` is a column of both, several, or a mapping from the left's to the right's. ``how`` is
    ``inner``, ``left``, ``right`` or ``full``: rows without a partner come out, with nulls, once the watermark says
    that none can come.

    The result has the left's columns, then the right's (a column of ``on`` with one name on both sides is there once;
    other names that the left has too get the ``suffix``), and ``time``, the result's event time: the later of the two,
    or when it was certain that there is no partner.
    """
    place, what = caller(), "hr.window_join"
    for frame in (left, right):
        ensure_stream(what, frame, place, "use hr.enrich for a stream and a table, hr.join for two tables")
    if how not in _OUTER:
        raise wrong(f"{what} has how={how!r}.", place, f"say one of: {', '.join(_OUTER)}")
    pairs = on_columns(what, on, place)
    left, right = with_equal_types(what, left, right, pairs, place)
    low, high = _interval(what, within, place)
    shared = {name for name, other in pairs.items() if name == other}
    taken = {name.lower() for name in left.columns}
    names = {n: f"{n}{suffix}" if n.lower() in taken and n not in shared else n for n in right.columns}
    times = event_time(what, left, place), event_time(what, right, place)
    same, outer = {name: name for name in left.columns}, _OUTER[how]
    operator = WindowJoin(
        Side(polars_schema(left.schema), tuple(pairs), times[0], low, high, same, "left" in outer),
        Side(polars_schema(right.schema), tuple(pairs.values()), times[1], -high, -low, names, "right" in outer),
        time,
    )
    output = column_types(left)
    more = {names[name]: kind for name, kind in column_types(right).items() if name not in shared}
    for name in [*more, time]:
        if name.lower() in taken:
            raise wrong(f"{what} has two columns {name!r}.", place, "say another suffix= or time=")
        output[name] = more.get(name, "timestamp")
        taken.add(name.lower())
    inputs = {"left": Keyed(left, tuple(pairs)), "right": Keyed(right, tuple(pairs.values()))}
    return keyed(inputs, operator, struct_of(output), event_time=time, passed=operator.passed)


def _interval(what: str, within: str | tuple[str, str], place: Place) -> tuple[int, int]:
    if isinstance(within, str):
        length = length_us(what, within, place)
        low, high = -length, length
    else:
        low, high = (length_us(what, end, place) for end in within)
    if low > high:
        raise wrong(
            f"{what} is within {within}, which nothing is.",
            place,
            'say the earlier end first: ("-1 minute", "5 minutes")',
        )
    return low, high


@dataclass(frozen=True, slots=True)
class Side:
    """What is joined, on one side."""

    columns: Mapping[str, pl.DataType]
    on: tuple[str, ...]
    """Of both sides as many, and of the same types."""
    time: str
    low_us: int
    """A partner's time is at least this row's plus this ..."""
    high_us: int
    """... and at most this row's plus this."""
    names: Mapping[str, str]
    """What its columns are called in the output. A name that both sides give is the key, of either."""
    outer: bool
    """Whether its rows come out without a partner, too."""

    def slot(self, moved_us: int = 0) -> pl.Expr:
        """In which slot a row's time is, or a time so much later."""
        return (pl.col(self.time).to_physical() + moved_us) // (self.high_us - self.low_us + 1)


@dataclass(frozen=True, slots=True)
class WindowJoin:
    """The operator; its inputs are ``left`` and ``right``."""

    left: Side
    right: Side
    time: str
    """The output's last column: its event time."""

    @property
    def tables(self) -> Mapping[str, TableType]:
        """The rows of either side that may still find a partner."""
        more = {_SLOT: pl.Int64(), _MATCHED: pl.Boolean()}
        return {n: TableType({**s.columns, **more}, (*s.on, _SLOT)) for n, s in self._sides.items()}

    @property
    def output(self) -> dict[str, pl.DataType]:
        """The columns of the output."""
        kinds = {side.names[name]: kind for side in (self.left, self.right) for name, kind in side.columns.items()}
        return {**kinds, self.time: pl.Datetime("us", "UTC")}

    @property
    def passed(self) -> dict[str, tuple[str, str]]:
        """Columns of the output that are a side's and that are not looked at."""
        return {
            named: (tag, name)
            for tag, side in self._sides.items()
            for name, named in side.names.items()
            if name not in (*side.on, side.time)
        }

    @property
    def _sides(self) -> dict[str, Side]:
        return {"left": self.left, "right": self.right}

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """Join new rows with each other and with those that wait; let go of what is over."""
        new, old, output, dead = {}, {}, [], []
        for name, side in self._sides.items():
            given, lost = timed(delta[name], side.time)
            keyless = pl.any_horizontal(pl.col(side.on).is_null())
            new[name] = _as_kept(given.filter(~keyless), side, state[name])
            output.append(self._alone(name, given.filter(keyless)))
            dead += [] if lost is None else [lost]
        old["left"] = _near(state["left"], self.right, new["right"])
        old["right"] = _near(state["right"], self.left, new["left"])
        rows = {name: pl.concat([old[name], new[name]]) for name in self._sides}
        at = self._pairs(rows, len(old["left"]), len(old["right"]))
        output.append(self._joined(rows["left"][at[0]], rows["right"][at[1]]))
        changes, wakes = {}, []
        for met, (name, side) in zip(at, self._sides.items(), strict=True):
            seen = rows[name].with_columns((pl.col(_MATCHED) | _marked(len(rows[name]), met)).alias("~now"))
            changes[name], alone, wake = _kept(side, state[name], seen, len(old[name]), watermark_us)
            output.append(self._alone(name, alone))
            wakes += [] if wake is None else [wake]
        return Step(pl.concat(output), changes, min(wakes, default=None), pl.concat(dead) if dead else None)

    def _pairs(
        self, rows: Mapping[str, pl.DataFrame], old_left: int, old_right: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where in the rows of left and right the two of each pair are of which at least one is new."""
        sides = self._sides.items()
        keys = codes(*(rows[name].select(pl.col(on).alias(str(n)) for n, on in enumerate(s.on)) for name, s in sides))
        times = [microseconds(rows[name][side.time]) for name, side in sides]
        found = []
        for left, right in ((slice(old_left, None), slice(0, None)), (slice(0, old_left), slice(old_right, None))):
            order = in_order(keys[1][right], times[1][right])
            low, high = times[0][left] + self.left.low_us, times[0][left] + self.left.high_us
            which, place = members(*order.spans(keys[0][left], low, high))
            found.append((which + left.start, order.order[place] + right.start))
        (a, b), (c, d) = found
        return np.concatenate([a, c]), np.concatenate([b, d])

    def _joined(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        taken = set(self.left.names.values())
        mine = left.select(pl.col(name).alias(named) for name, named in self.left.names.items())
        other = right.select(pl.col(n).alias(named) for n, named in self.right.names.items() if named not in taken)
        later = pl.select(pl.max_horizontal(left[self.left.time], right[self.right.time]).alias(self.time))
        return pl.concat([mine, other, later], how="horizontal")

    def _alone(self, name: str, rows: pl.DataFrame) -> pl.DataFrame:
        side = self._sides[name]
        if not side.outer:
            rows = rows.clear()
        certain = pl.col(side.time) + pl.duration(microseconds=max(side.high_us, 0))
        named = {given: pl.col(own) for own, given in side.names.items()}
        found = ((n, named.get(n, pl.lit(None, kind))) for n, kind in self.output.items() if n != self.time)
        return rows.select(*(column.alias(n) for n, column in found), certain.alias(self.time))


def _as_kept(rows: pl.DataFrame, side: Side, table: StateTable) -> pl.DataFrame:
    """New rows with the columns of the state's, without ids."""
    more = (pl.lit(None, pl.UInt64).alias(ID), side.slot().alias(_SLOT), pl.lit(value=False).alias(_MATCHED))
    return rows.with_columns(*more).select(table.schema.names())


def _near(table: StateTable, side: Side, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that wait on the other side, in the two slots where partners of these rows may be."""
    on = [pl.col(mine).alias(other) for mine, other in zip(side.on, table.kind.by, strict=False)]
    ends = [rows.select(*on, side.slot(end).alias(_SLOT)) for end in (side.low_us, side.high_us)]
    return table.lookup(pl.concat(ends))


def _marked(length: int, at: NDArray[np.int64]) -> pl.Series:
    found = np.zeros(length, np.bool_)
    found[at] = True
    return pl.Series(found)


def _kept(
    side: Side, table: StateTable, rows: pl.DataFrame, old: int, watermark_us: int | None
) -> tuple[Changes, pl.DataFrame, int | None]:
    """What becomes of a side's state; the rows that are over and stayed alone; when the next are over.

    ``rows`` are those looked at, ``old`` ones from the state first; ``~now`` says if they have a partner by now.
    """
    bound = -(2**63) if watermark_us is None else watermark_us - side.high_us
    over = pl.col(side.time).to_physical() <= bound
    gone = table.where(over)
    newly = pl.col("~now") & ~pl.col(_MATCHED) if side.outer else pl.lit(value=False)
    found, new = rows[:old].filter(newly), rows[old:]
    still = found.filter(~over)
    added = pl.concat([still, new.filter(~over)]).with_columns(pl.col("~now").alias(_MATCHED)).drop("~now")
    stayed = gone.filter(~pl.col(_MATCHED)).join(found, on=ID, how="anti")
    alone = pl.concat([stayed, new.filter(over & ~pl.col("~now")).drop("~now")])
    next_us = [table.min(side.time, above=bound), added[side.time].to_physical().min()]
    wake = min((int(time) for time in next_us if time is not None), default=None)  # type: ignore[arg-type]
    changes = Changes(added.drop(ID), pl.concat([still[ID], gone[ID]]))
    return changes, alone, None if wake is None else wake + side.high_us
