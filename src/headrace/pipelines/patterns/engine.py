"""Run a compiled pattern over the rows of many keys: pure, frames in and frames out.

Between steps there is nothing but the state, two frames: the rows of each key that may still be part of a match or wait
for the watermark (the columns that the program keeps, and an id), and of each key that has any where matching stands
(``PROGRESS``) and the watermark at which it must be looked at again, also without new rows (``DUE``).

A step costs in proportion to its new rows and to the rows kept for the keys that it is given. What is kept of a key is
bounded by ``within``: the rows since the first that may still start a match, besides those after the watermark.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from headrace import _kernel
from headrace.errors import TooManyPartialMatches
from headrace.pipelines.patterns.program import Measure, Program
from headrace.pipelines.state.operator import ID

__all__ = ["DUE", "PROGRESS", "Found", "kept_columns", "progress_columns", "run"]

PROGRESS, DUE = "_progress", "_due"
_KIND, _ROW, _GIVEN = "_kind", "_row", "_given"
_NEW, _KEPT, _STANDING = 0, 1, 2
_MATCH, _TIMEOUT, _PARTIAL = 0, 1, 2
_CASTS: dict[str, pl.DataType] = {
    "bool": pl.Boolean(),
    "int": pl.Int64(),
    "float": pl.Float64(),
    "decimal": pl.Float64(),
    "text": pl.String(),
}


@dataclass(frozen=True, slots=True)
class Found:
    """What a step gives.

    ``matches``, ``timeouts`` and ``partials`` have the key, ``match_start``, ``match_end``, the measures, and with
    ``rows=True`` ``match_rows`` (a list of the rows, each with its ``variable``). ``dead`` are new rows that a
    condition failed on, or that end a match of which a measure failed, with all their columns, ``reason`` and
    ``detail``; ``dead_later`` such rows of the state, with the kept columns; ``late`` new rows that came after later
    ones had been matched. The state changes by ``append`` and ``remove`` (ids); ``progress`` is that of all keys that
    the step was given."""

    matches: pl.DataFrame
    timeouts: pl.DataFrame
    partials: pl.DataFrame
    dead: pl.DataFrame
    dead_later: pl.DataFrame
    late: pl.DataFrame
    append: pl.DataFrame
    remove: pl.Series
    progress: pl.DataFrame


def kept_columns(program: Program, schema: pl.Schema) -> dict[str, pl.DataType]:
    """The columns of rows in the state."""
    return {name: schema[name] for name in program.kept}


def progress_columns(program: Program, schema: pl.Schema) -> dict[str, pl.DataType]:
    """The columns of progress in the state."""
    return {**{name: schema[name] for name in program.by}, PROGRESS: pl.Binary(), DUE: pl.Int64()}


def run(program: Program, rows: pl.DataFrame, kept: pl.DataFrame, progress: pl.DataFrame, watermark_us: int) -> Found:
    """One step: new rows, what is kept and where matching stands of the same keys (and of any others that are due), and
    the watermark: all rows up to it are here."""
    parts = [
        progress.select(*program.by, PROGRESS, pl.lit(_STANDING, pl.UInt8).alias(_KIND)),
        kept.select(ID, *program.kept, pl.lit(_KEPT, pl.UInt8).alias(_KIND)),
        rows.select(*program.kept, pl.lit(_NEW, pl.UInt8).alias(_KIND), pl.int_range(pl.len()).alias(_GIVEN)),
    ]
    table = pl.concat(parts, how="diagonal")
    if program.order:
        table = table.sort(program.time, *program.order, maintain_order=True)
    try:
        answer = _kernel.match_rows(program.code, _columns(program, table), _keys(program, table), watermark_us)
    except _kernel.TooManyMatches as error:
        raise _too_many(program, table.row(error.row, named=True)) from None
    outcomes, needed, standing, dead, late, unmeasured = (
        pl.DataFrame(pl.from_arrow(pa.record_batch(part))) for part in answer
    )
    told = _told(program, table, outcomes)
    is_kept = needed["kept"]
    letters = pl.concat([_failed(dead), _unmeasured(program, outcomes, unmeasured)])
    failed = table[letters["row"]].with_columns(letters["reason"], letters["detail"])
    failed_new = failed.filter(pl.col(_KIND) == _NEW)
    return Found(
        matches=told.filter(outcomes["told"] == _MATCH),
        timeouts=told.filter(outcomes["told"] == _TIMEOUT),
        partials=told.filter(outcomes["told"] == _PARTIAL),
        dead=rows[failed_new[_GIVEN]].with_columns(failed_new["reason"], failed_new["detail"]),
        dead_later=failed.filter(pl.col(_KIND) != _NEW).select(*program.kept, "reason", "detail"),
        late=rows[table[late["row"]][_GIVEN]],
        append=table.filter(is_kept & (table[_KIND] == _NEW)).select(program.kept),
        remove=table.filter(~is_kept & (table[_KIND] == _KEPT))[ID],
        progress=_of_keys(
            program, table, standing["row"], standing["progress"].alias(PROGRESS), standing["due"].alias(DUE)
        ),
    )


def _failed(dead: pl.DataFrame) -> pl.DataFrame:
    """The letters of rows that conditions failed on."""
    return dead.select("row", pl.lit("condition-failed").alias("reason"), pl.col("reason").alias("detail"))


def _unmeasured(program: Program, outcomes: pl.DataFrame, unmeasured: pl.DataFrame) -> pl.DataFrame:
    """A letter for each match of which measures failed: about its last row, naming all of them."""
    names = pl.Series([one.name for one in program.measures], dtype=pl.String)
    why = pl.Series(names[unmeasured["measure"]] + ": " + unmeasured["reason"]).alias("detail")
    found = pl.DataFrame([unmeasured["outcome"], why]).group_by("outcome", maintain_order=True).agg("detail")
    last = outcomes["taken"][found["outcome"]].list.last().alias("row")
    return found.select(last, pl.lit("measure-failed").alias("reason"), pl.col("detail").list.join("; "))


def _of_keys(program: Program, table: pl.DataFrame, rows: pl.Series, *columns: pl.Series) -> pl.DataFrame:
    """The keys of some rows, with further columns."""
    return pl.DataFrame([*(table[name].gather(rows) for name in program.by), *columns])


def _too_many(program: Program, row: dict[str, object]) -> TooManyPartialMatches:
    key = ", ".join(f"{name}={row[name]!r}" for name in program.by) or "all rows"
    return TooManyPartialMatches(
        f"pattern {program.text!r} has more than {program.max_partials} partial matches for {key}.",
        detail=f"max_partials={program.max_partials} is the limit for one key",
        hint="make the conditions or within= narrower, use reluctant quantifiers (A*?), or raise max_partials",
    )


def _columns(program: Program, table: pl.DataFrame) -> pa.RecordBatch:
    plain = [_plain(name, kind).alias(f"c{index}") for index, (name, kind) in enumerate(program.columns)]
    frame = table.select(_plain(program.time, "time").alias("time"), pl.col(_KIND), pl.col(PROGRESS), *plain)
    arrow = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
    batches = arrow.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=arrow.schema)


def _plain(name: str, kind: str) -> pl.Expr:
    """A column as the kernel takes it."""
    column = pl.col(name)
    if kind in ("time", "date"):
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
        _measured(table, outcomes[f"m{index}"], one, time).alias(one.name) for index, one in enumerate(program.measures)
    ]
    found = _of_keys(
        program,
        table,
        outcomes["key_row"],
        _shown(outcomes["start"], "time", time).alias("match_start"),
        _shown(outcomes["end"], "time", time).alias("match_end"),
        *measures,
    )
    return found.with_columns(_rows(program, table, outcomes)) if program.rows else found


def _measured(table: pl.DataFrame, values: pl.Series, measure: Measure, time: pl.DataType) -> pl.Series:
    if measure.column is not None:
        return table[measure.column].gather(values.cast(pl.UInt32))
    return _shown(values, measure.kind, time)


def _shown(values: pl.Series, kind: str, time: pl.DataType) -> pl.Series:
    if kind == "time":
        zone = time.time_zone if isinstance(time, pl.Datetime) else None
        return values.cast(pl.Datetime("us", zone))
    if kind == "date":
        return values.cast(pl.Datetime("us")).cast(pl.Date())
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
