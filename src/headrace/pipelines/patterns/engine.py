"""Run a compiled pattern over the rows of many keys: pure, frames in and frames out.

Between steps there is nothing but the state, a frame: the columns that the program keeps, and

- ``__kind``: 1 waits for the watermark, 2 may still be part of a match, 3 the same but dead, 4 is no row;
- ``__progress``: where matching stands in this key, on the first row of each key that has an open match;
- ``__due``: on the same row, the watermark at which the key must be looked at again, also without new rows.

A step costs in proportion to its new rows and to the rows kept for the keys that it is given. What is kept of a key is
bounded by ``within``: the rows since the first that may still start a match, besides those after the watermark.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from headrace import _kernel
from headrace.errors import TooManyPartialMatches
from headrace.pipelines.patterns.program import Program

__all__ = ["DUE", "KIND", "PROGRESS", "Found", "empty_state", "run"]

KIND, PROGRESS, DUE = "__kind", "__progress", "__due"
_OWN = {KIND: pl.UInt8, PROGRESS: pl.Binary, DUE: pl.Int64}
_NEW, _MARKER = 0, 4
_MATCH, _TIMEOUT, _PARTIAL = 0, 1, 2
_CASTS: dict[str, pl.DataType] = {"bool": pl.Boolean(), "int": pl.Int64(), "float": pl.Float64(), "text": pl.String()}
_ROW = "__row"


@dataclass(frozen=True, slots=True)
class Found:
    """What a step gives.

    ``matches``, ``timeouts`` and ``partials`` have the key, ``match_start``, ``match_end``, the measures, and with
    ``rows=True`` ``match_rows`` (a list of the rows, each with its ``variable``). ``dead`` has the kept columns of rows
    that a condition failed on, and the ``reason``; ``late`` those that came after later ones had been matched."""

    matches: pl.DataFrame
    timeouts: pl.DataFrame
    partials: pl.DataFrame
    state: pl.DataFrame
    dead: pl.DataFrame
    late: pl.DataFrame


def empty_state(program: Program, schema: dict[str, pl.DataType] | pl.Schema) -> pl.DataFrame:
    """The state before the first step."""
    columns: dict[str, pl.DataType] = {name: schema[name] for name in program.kept}
    return pl.DataFrame(schema={**columns, **_OWN})


def run(program: Program, rows: pl.DataFrame, state: pl.DataFrame, watermark_us: int) -> Found:
    """One step: new rows of some keys, the state of the same keys, and the watermark, up to which all rows are here."""
    new = rows.select(
        *program.kept,
        pl.lit(_NEW, pl.UInt8).alias(KIND),
        pl.lit(None, pl.Binary).alias(PROGRESS),
        pl.lit(None, pl.Int64).alias(DUE),
    )
    table = pl.concat([state, new]).rechunk() if len(state) else new
    if program.order:
        table = table.sort(program.time, *program.order, maintain_order=True)
    try:
        found = _kernel.match_rows(program.code, _columns(program, table), _keys(program, table), watermark_us)
    except _kernel.TooManyMatches as error:
        raise _too_many(program, table.row(error.row, named=True)) from None
    outcomes, kept, dead, late = (pl.DataFrame(pl.from_arrow(pa.record_batch(part))) for part in found)
    told = _told(program, table, outcomes)
    return Found(
        matches=told.filter(outcomes["told"] == _MATCH),
        timeouts=told.filter(outcomes["told"] == _TIMEOUT),
        partials=told.filter(outcomes["told"] == _PARTIAL),
        state=_state(program, table, kept),
        dead=table[dead["row"]].select(program.kept).with_columns(dead["reason"]),
        late=table[late["row"]].select(program.kept),
    )


def _too_many(program: Program, row: dict[str, object]) -> TooManyPartialMatches:
    key = ", ".join(f"{name}={row[name]!r}" for name in program.by) or "all rows"
    return TooManyPartialMatches(
        f"pattern {program.text!r} has more than {program.max_partials} partial matches for {key}.",
        detail=f"max_partials={program.max_partials} is the limit for one key",
        hint="make the conditions or within= narrower, use reluctant quantifiers (A*?), or raise max_partials",
    )


def _columns(program: Program, table: pl.DataFrame) -> pa.RecordBatch:
    plain = [_plain(name, kind).alias(f"c{index}") for index, (name, kind) in enumerate(program.columns)]
    frame = table.select(_plain(program.time, "time").alias("time"), pl.col(KIND), pl.col(PROGRESS), *plain)
    arrow = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
    batches = arrow.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=arrow.schema)


def _plain(name: str, kind: str) -> pl.Expr:
    """A column as the kernel takes it."""
    column = pl.col(name)
    if kind == "time":
        return column.cast(pl.Datetime("us")).cast(pl.Int64)
    if kind == "interval":
        return column.cast(pl.Duration("us")).cast(pl.Int64)
    return column.cast(_CASTS[kind])


def _keys(program: Program, table: pl.DataFrame) -> pa.Array:
    """For each key where its rows are."""
    rows = table.select(*program.by, pl.int_range(pl.len(), dtype=pl.UInt32).alias(_ROW))
    lists = rows.group_by(program.by, maintain_order=True).agg(_ROW)[_ROW] if program.by else rows[_ROW].implode()
    arrow = lists.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    return arrow.combine_chunks() if isinstance(arrow, pa.ChunkedArray) else arrow


def _told(program: Program, table: pl.DataFrame, outcomes: pl.DataFrame) -> pl.DataFrame:
    """Matches and the like, as users see them."""
    time = table.schema[program.time]
    measures = [
        _shown(outcomes[f"m{index}"], kind, time).alias(name) for index, (name, kind) in enumerate(program.measures)
    ]
    found = table.select(program.by)[outcomes["key_row"]] if program.by else pl.DataFrame()
    found = found.with_columns(
        _shown(outcomes["start"], "time", time).alias("match_start"),
        _shown(outcomes["end"], "time", time).alias("match_end"),
        *measures,
    )
    return found.with_columns(_rows(program, table, outcomes)) if program.rows else found


def _shown(values: pl.Series, kind: str, time: pl.DataType) -> pl.Series:
    if kind == "time":
        zone = time.time_zone if isinstance(time, pl.Datetime) else None
        return values.cast(pl.Datetime("us", zone))
    if kind == "interval":
        return values.cast(pl.Duration("us"))
    return values


def _rows(program: Program, table: pl.DataFrame, outcomes: pl.DataFrame) -> pl.Series:
    """The matched rows of each, with their variables."""
    match = pl.int_range(pl.len(), dtype=pl.UInt32).alias("match")
    taken = outcomes.select(match, "taken", "taken_for").explode("taken", "taken_for")
    names = pl.Series(program.variables, dtype=pl.String)[taken["taken_for"]].alias("variable")
    struct = table.select(program.kept)[taken["taken"]].with_columns(names).to_struct("match_rows")
    listed = pl.DataFrame([taken["match"], struct]).group_by("match", maintain_order=True).agg("match_rows")
    return listed["match_rows"]


def _state(program: Program, table: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    columns = table.select(program.kept)[kept["row"]]
    return columns.with_columns(
        kept["kind"].alias(KIND), kept["progress"].cast(pl.Binary).alias(PROGRESS), kept["due"].alias(DUE)
    )
