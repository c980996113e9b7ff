"""Two streams joined where their event times are within an interval: ``hr.window_join``.

::

    right     ·····|--- from ----- l ---------- to ---|·····      rows of the same key in here are l's partners
    left      ·····|--- r - to ------- r --- r - from |·····      rows of the same key in here are r's

A row waits in the state until the watermark says that no partner can come: ``to`` after a left row, ``from`` before a
right one. Rows are kept by key and slot of time, a slot as long as the interval, so a row's partners lie in two slots: a
key with very many rows costs what its intervals hold. What is over is found by a look at all times that wait, about a
nanosecond each.

The time of a joined row is the later of the two. The time of a row without a partner is when that became certain:
both are after the watermark of the batch before, so that a further step may follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from headrace.pipelines.state.dead import timed
from headrace.pipelines.state.operator import ID, Changes, State, Step, TableType
from headrace.pipelines.state.spans import codes, in_order, members, microseconds
from headrace.pipelines.state.table import StateTable

__all__ = ["Side", "WindowJoin"]

SLOT, MATCHED, OTHER = "~slot", "~matched", {"left": "right", "right": "left"}


@dataclass(frozen=True, slots=True)
class Side:
    """What is joined, on one side."""

    columns: Mapping[str, pl.DataType]
    on: tuple[str, ...]
    """Of both sides as many, and of the same types."""
    time: str
    low_us: int
    """A partner's time is at least this row's time plus this ..."""
    high_us: int
    """... and at most plus this."""
    names: Mapping[str, str]
    """What its columns are called in the output. A name that both sides give is the key of either."""
    outer: bool
    """Whether its rows come out also without a partner."""

    @property
    def wait_us(self) -> int:
        """How long after its own time a row without a partner comes out."""
        return max(self.high_us, 0)


@dataclass(frozen=True, slots=True)
class WindowJoin:
    """The operator; its inputs are ``left`` and ``right``."""

    left: Side
    right: Side
    time: str
    """The output's column of its event time, the last one."""

    @property
    def tables(self) -> Mapping[str, TableType]:
        """The rows of either side that may still find a partner."""
        more = {SLOT: pl.Int64(), MATCHED: pl.Boolean()}
        return {n: TableType({**s.columns, **more}, (*s.on, SLOT)) for n, s in self._sides.items()}

    @property
    def _sides(self) -> dict[str, Side]:
        return {"left": self.left, "right": self.right}

    @property
    def _slot_us(self) -> int:
        return self.left.high_us - self.left.low_us + 1

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """Join the new rows with each other and with those that wait; let go of what is over."""
        new, found, lost = {}, {}, []
        for name, side in self._sides.items():
            rows, dead = timed(delta[name].select(side.columns), side.time)
            lost += [] if dead is None else [dead]
            new[name] = rows.with_columns(self._slot(side, 0).alias(SLOT), pl.lit(None, pl.UInt64).alias(ID))
        for name, side in self._sides.items():
            waiting = self._near(state[OTHER[name]], side, new[name])
            found[OTHER[name]] = waiting.select(*new[OTHER[name]].columns, MATCHED)
        pairs = [
            self._pairs(_plain(new["left"]), pl.concat([found["right"], _plain(new["right"])])),
            self._pairs(found["left"], _plain(new["right"])),
        ]
        output = [self._joined(left, right) for left, right in pairs]
        changes = {}
        for at, (name, side) in enumerate(self._sides.items()):
            matched = pl.concat([pair[at] for pair in pairs])
            changes[name], alone = self._changed(state[name], side, new[name], matched, watermark_us)
            output += [self._alone(rows, name) for rows in alone]
        wakes = [self._due(name, state[name], changes[name]) for name in changes]
        return Step(
            pl.concat(output), changes, min((w for w in wakes if w is not None), default=None),
            pl.concat(lost) if lost else None,
        )
