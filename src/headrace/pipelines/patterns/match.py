"""``hr.match`` and ``hr.match_recognize``: patterns over a stream, as a keyed operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.pipelines.arguments import column_types, columns_named, ensure_stream, event_time, struct_of
from headrace.pipelines.patterns import declaration
from headrace.pipelines.patterns.declaration import MAX_PARTIALS, Pattern
from headrace.pipelines.patterns.engine import DUE, Found, kept_columns, progress_columns, run
from headrace.pipelines.patterns.program import Program, compile_pattern
from headrace.pipelines.patterns.recognize import recognize
from headrace.pipelines.places import Place, caller, wrong
from headrace.pipelines.state.dead import dead
from headrace.pipelines.state.frames import Keyed, keyed, polars_schema
from headrace.pipelines.state.operator import ID, Changes, State, Step, TableType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Matching", "match", "match_recognize"]

OUTCOME = "outcome"
_NEVER = -(2**62)
_SPARK = {
    "bool": "boolean",
    "int": "bigint",
    "float": "double",
    "text": "string",
    "interval": "double",
    "date": "date",
}


def match(
    stream: DataFrame,
    *,
    by: str | Iterable[str] = (),
    pattern: str,
    define: Mapping[str, str] | None = None,
    measures: Mapping[str, str] | None = None,
    within: str | None = None,
    after: str = "past last row",
    contiguity: str = "strict",
    order: str | Iterable[str] = (),
    timeouts: bool = False,
    partials: bool = False,
    rows: bool = False,
    max_partials: int = MAX_PARTIALS,
) -> DataFrame:
    """Find a pattern in the rows of each key, in order of event time; a row of the result for each match.

    ``hr.match(orders, by="customer_id", pattern="small{3,} big", within="5 minutes", define={"small": "amount < 1",
    "big": "amount > 500"}, measures={"paid": "sum(small.amount)", "then": "big.amount"})``: the key, ``match_start``,
    ``match_end``, then the measures. A match comes out when the watermark has passed all that decides it, so late
    rows and batches make no difference.

    The pattern: ``A B`` (one row after the other), ``A?``, ``A*``, ``A+``, ``A{2,4}`` (with ``?`` after them: as few
    as can be), ``A | B``, groups, ``PERMUTE(A, B)``, ``A ->> B`` (the next B, whatever is between), ``A !N B`` (the
    next B, with no N between), and at the end ``!N`` (no N until ``within`` is over: absence). Conditions are
    written as in SQL: columns of the row, ``A.price`` or ``last(A.price, 1)``, ``first(A.price)``, ``prev(price)``,
    ``sum``, ``avg``, ``min``, ``max`` and ``count`` over a variable's rows so far, ``abs``, ``coalesce``, ``cast``;
    anything else is a column computed before. A variable without a condition fits every row. A row that a condition
    fails on (a division by zero) is a dead letter; if the condition looks at other rows, that way to match is over and
    the row stays for the others. A measure that fails is null, with a dead letter that names it.

    ``after``: where the search goes on after a match: ``past last row``, ``to next row``, ``to first A``, ``to last
    A``. ``contiguity="relaxed"``: ``->>`` everywhere. ``order``: columns that put rows of the same time in order.
    ``timeouts``: also tell starts whose time ran out; ``partials``: also what is under way, as it grows; a column
    ``outcome`` then says ``match``, ``timeout`` or ``partial``. ``rows``: a column ``match_rows`` with the rows, each
    with its ``variable``. ``max_partials``: more ways at once to match in one key are an error. Intervals are in
    seconds.
    """
    place, what = caller(), "hr.match"
    ensure_stream(what, stream, place, "use its changes: match(table.changes, ...)")
    columns = column_types(stream)
    declared = declaration.pattern(
        by=columns_named(f"by of {what}", by, columns, place),
        time=event_time(what, stream, place),
        pattern=pattern,
        define=define,
        measures=measures,
        within=within,
        after=after,
        contiguity=contiguity,
        order=columns_named(f"order of {what}", order, columns, place),
        timeouts=timeouts,
        partials=partials,
        rows=rows,
        max_partials=max_partials,
        place=place,
    )
    return _matched(stream, declared, place)


def match_recognize(
    stream: DataFrame,
    sql: str,
    *,
    timeouts: bool = False,
    partials: bool = False,
    rows: bool = False,
    max_partials: int = MAX_PARTIALS,
) -> DataFrame:
    """Find a pattern that is written as SQL's MATCH_RECOGNIZE: see ``headrace.pipelines.patterns.recognize``.

    The text is the clause alone, or ``SELECT columns FROM name MATCH_RECOGNIZE (...)``, whose name does not matter.
    ``timeouts``, ``partials``, ``rows`` and ``max_partials`` are those of ``hr.match``: the columns ``outcome`` and
    ``match_rows`` that they add can be selected too, as can ``match_start`` and ``match_end``."""
    place, what = caller(), "hr.match_recognize"
    ensure_stream(what, stream, place, "use its changes")
    found = recognize(sql, timeouts=timeouts, partials=partials, rows=rows, max_partials=max_partials, place=place)
    time = event_time(what, stream, place)
    if found.pattern.time.lower() != time.lower():
        sentence = f"{what} is ordered by {found.pattern.time!r}, but the event time is {time!r}."
        raise wrong(sentence, place, f"write ORDER BY {time}")
    result = _matched(stream, found.pattern.with_columns(column_types(stream)), place)
    if found.columns is None:
        return result.drop("match_start", "match_end")
    known = {name.lower(): name for name in result.columns}
    wanted = [(known.get(name.lower(), name), alias) for name, alias in found.columns]
    columns_named(what, [name for name, _ in wanted], result.columns, place)
    return result.select(*(result[name].alias(alias) for name, alias in wanted))


def _matched(stream: DataFrame, declared: Pattern, place: Place) -> DataFrame:
    schema = polars_schema(stream.schema)
    program = compile_pattern(declared, schema)
    types, columns = column_types(stream), {}
    for name in declared.by:
        columns[name] = types[name]
    told = declared.timeouts or declared.partials
    columns |= {"match_start": types[declared.time], "match_end": types[declared.time]}
    columns |= {OUTCOME: "string"} if told else {}
    for measure in program.measures:
        own = types[measure.column] if measure.column is not None else None
        columns[measure.name] = own or _SPARK.get(measure.kind, types[declared.time])
    if declared.rows:
        fields = ",".join(f"`{name}`:{types[name]}" for name in program.kept)
        columns["match_rows"] = f"array<struct<{fields},`variable`:string>>"
    if len(columns) != len(declared.by) + 2 + told + len(program.measures) + declared.rows:
        raise wrong("the result has two columns of one name.", place, "give the measure another name")
    operator = Matching(program, schema, told)
    return keyed({"rows": Keyed(stream, declared.by)}, operator, struct_of(columns))


@dataclass(frozen=True, slots=True)
class Matching:
    """The operator; its input is ``rows``."""

    program: Program
    columns: pl.Schema
    told: bool
    """Whether there is a column that says what each row of the result is."""

    @property
    def tables(self) -> Mapping[str, TableType]:
        """Rows that wait or may still be part of a match; and where matching stands, by key."""
        by = self.program.by
        return {
            "rows": TableType(kept_columns(self.program, self.columns), by),
            "progress": TableType(progress_columns(self.program, self.columns), by),
        }

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """Look at the keys that have new rows or are due."""
        now, new = _NEVER if watermark_us is None else watermark_us, delta["rows"]
        kept, progress = self._of_keys(state, new, now)
        found = run(self.program, new, kept, progress, now)
        wakes = [state["progress"].min(DUE, above=now), *found.progress[DUE].drop_nulls().sort().head(1)]
        return Step(
            self._output(found),
            {"rows": Changes(found.append, found.remove), "progress": Changes(found.progress, progress[ID])},
            min((at for at in wakes if at is not None), default=None),
            _dead(found),
        )

    def _of_keys(self, state: State, new: pl.DataFrame, now: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """What is known of the keys of new rows, and of those that are due."""
        by = self.program.by
        if not by:
            return state["rows"].rows(), state["progress"].rows()
        due = state["progress"].where(pl.col(DUE) <= now)
        keys = pl.concat([new.select(by), due.select(by)]).unique()
        return state["rows"].lookup(keys), state["progress"].lookup(keys)

    def _output(self, found: Found) -> pl.DataFrame:
        parts = {"match": found.matches, "timeout": found.timeouts, "partial": found.partials}
        if not self.told:
            return _in_seconds(found.matches)
        return _in_seconds(pl.concat([rows.with_columns(pl.lit(name).alias(OUTCOME)) for name, rows in parts.items()]))


def _in_seconds(rows: pl.DataFrame) -> pl.DataFrame:
    """Lengths of time as numbers, rounded once: Polars would multiply them by 1e-6."""
    return rows.with_columns(_seconds(rows[name]) for name, kind in rows.schema.items() if kind == pl.Duration)


def _seconds(lengths: pl.Series) -> pl.Series:
    found = lengths.dt.total_microseconds().fill_null(0).to_numpy() / 1e6
    return pl.Series(lengths.name, found).set(lengths.is_null(), None)


def _dead(found: Found) -> pl.DataFrame | None:
    """Rows that conditions failed on, and rows that end a match whose measures did, by what they failed of."""
    parts = [
        dead(rows.drop("reason", "detail"), str(reason), str(detail))
        for failed in (found.dead, found.dead_later)
        for (reason, detail), rows in failed.partition_by("reason", "detail", as_dict=True).items()
    ]
    if len(found.late):
        parts.append(dead(found.late, "late", "later rows of its key had been matched"))
    return pl.concat(parts) if parts else None
