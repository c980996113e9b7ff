"""Aggregates of groups of rows that come and, in a table, go again: ``hr.aggregate``.

A group is one row of the state: what its counts, sums and extremes are now. Where that is not enough to go on from,
there is more: the bins of exact sums of doubles; and for each column that is counted distinct (or, if rows can go, that
has a minimum or maximum) the values of each group, with how often they are there. A batch costs what it brings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from headrace.pipelines.aggregates import Aggregate, ensure_aggregates
from headrace.pipelines.arguments import column_types, ensure_column, struct_of
from headrace.pipelines.changelog import DELETED, OLD, Before, Fused, changed, emitted, matching, row_columns
from headrace.pipelines.exact_sums import AMOUNT, BIN, split, totals
from headrace.pipelines.places import Place, caller, wrong
from headrace.pipelines.ranking import ROWS as SIZE
from headrace.pipelines.ranking import Order, TableRanking
from headrace.pipelines.state import Changes, Operator, State, Step, TableType
from headrace.pipelines.state.frames import Keyed, keyed
from headrace.pipelines.state.operator import ID
from headrace.pipelines.table import Table, computed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Groups", "Measure", "aggregate"]

SUM, VALUE, SIGN = "_sum", "_value", "_sign"


def aggregate(rows: DataFrame | Table, *, by: str | Column | Iterable[str | Column], **aggregates: Aggregate) -> Table:
    """Aggregate the rows of a table, or all events of a stream so far, in groups: a table with the key ``by``.

    ``hr.aggregate(orders, by="customer_id", total=hr.sum("amount"), n=hr.count())``. ``by`` is a column or several, by
    name or computed (``F.to_date("at").alias("day")``). Each aggregate may have a condition:
    ``hr.count(where="amount > 100")``. The result follows every change; a group without rows is no row. All are exact:
    distinct counts, and sums of doubles, which do not drift when rows go.
    """
    place, what = caller(), "hr.aggregate"
    columns = dict(rows.columns) if isinstance(rows, Table) else column_types(rows)
    types = ensure_aggregates(what, aggregates, columns, place, ordered=False)
    shape = _shape(rows)
    names = _by_names(what, by, shape, place)
    for name in types:
        if name in names:
            raise wrong(f"{what} has two columns {name!r}.", place, "give the aggregate another name")
    taken = _Taken(names, aggregates)
    kinds = column_types(taken.of(shape, ()))
    result = {**{name: kinds[name] for name in names}, **types}
    output = struct_of({**result, DELETED: "boolean"})

    def make(before: bool) -> DataFrame:
        frame, operator = taken.stepped(rows, before=before)
        return keyed({"rows": Keyed(frame, tuple(names))}, operator, output)

    name = rows.name if isinstance(rows, Table) else "a stream"
    return computed(f"aggregate of {name}", tuple(names), result, make)


def _by_names(
    what: str, by: str | Column | Iterable[str | Column], shape: DataFrame, place: Place
) -> dict[str, str | Column]:
    """The columns to group by, under their names."""
    from pyspark.sql import Column

    given = [by] if isinstance(by, str | Column) else list(by)
    if not given:
        raise wrong(f"{what} has no groups.", place, 'say by="customer_id"')
    found: dict[str, str | Column] = {}
    for one in given:
        if isinstance(one, str):
            ensure_column(f"by of {what}", one, shape.columns, place)
        name = one if isinstance(one, str) else shape.select(one).columns[0]
        if name in found:
            raise wrong(f"{what} has {name!r} twice in its by.", place, "name each column once")
        found[name] = one
    return found


def _shape(rows: DataFrame | Table) -> DataFrame:
    """A DataFrame with the columns of the rows, to see the types of expressions."""
    from pyspark.sql import SparkSession

    if not isinstance(rows, Table):
        return rows
    return SparkSession.active().createDataFrame([], struct_of(dict(rows.columns)))


@dataclass(frozen=True, slots=True)
class _Taken:
    """What aggregates take of their rows: the groups under their names, values as ``_v0``, conditions as ``_f0``."""

    by: Mapping[str, str | Column]
    aggregates: Mapping[str, Aggregate]

    @property
    def values(self) -> dict[str, str]:
        found = dict.fromkeys(one.column for one in self.aggregates.values() if one.column is not None)
        return {name: f"_v{number}" for number, name in enumerate(found)}

    @property
    def conditions(self) -> dict[str, str]:
        found = dict.fromkeys(one.where for one in self.aggregates.values() if one.where is not None)
        return {text: f"_f{number}" for number, text in enumerate(found)}

    @property
    def measures(self) -> dict[str, Measure]:
        values, conditions = self.values, self.conditions
        return {
            name: Measure(
                one.kind,
                None if one.column is None else values[one.column],
                None if one.where is None else conditions[one.where],
            )
            for name, one in self.aggregates.items()
        }

    def of(self, frame: DataFrame, key: tuple[str, ...], *more: str) -> DataFrame:
        """The columns of a frame that are taken; those of the key as ``_k0``."""
        from pyspark.sql import functions as F

        return frame.select(
            *(F.col(f"`{name}`").alias(f"_k{number}") for number, name in enumerate(key)),
            *(F.col(f"`{one}`") if isinstance(one, str) else one for one in self.by.values()),
            *(F.col(f"`{name}`").alias(named) for name, named in self.values.items()),
            *(F.expr(text).cast("boolean").alias(named) for text, named in self.conditions.items()),
            *more,
        )

    def stepped(self, rows: DataFrame | Table, *, before: bool) -> tuple[DataFrame, Operator]:
        """What the operator gets, and the operator."""
        if not isinstance(rows, Table):
            frame = self.of(rows, ())
            return frame, self._groups(frame, retracts=False, before=before)
        if rows.net:
            frame = self.of(rows.pairs, (), DELETED)
            return frame, self._groups(frame, retracts=True, before=before)
        key = tuple(f"_k{number}" for number in range(len(rows.key)))
        frame = self.of(rows.changes, rows.key, DELETED)
        columns = row_columns(frame)
        watch = Before(columns, key, tuple(name for name in columns if name not in key))
        groups = self._groups(frame, retracts=True, before=before)
        if all(isinstance(one, str) and one in rows.key for one in self.by.values()):
            return frame, Fused(watch, groups)
        return keyed({"rows": Keyed(frame, key)}, watch, frame.schema), groups

    def _groups(self, frame: DataFrame, *, retracts: bool, before: bool) -> Groups:
        kinds = row_columns(frame)
        by = {name: kinds[name] for name in self.by}
        return Groups(by, {name: kinds[name] for name in self.values.values()}, self.measures, retracts, before)


@dataclass(frozen=True, slots=True)
class Measure:
    """An aggregate: of which column (None counts rows), and which boolean column says what counts (None: all)."""

    kind: str
    value: str | None = None
    where: str | None = None

    @property
    def column(self) -> str:
        """What it is called in the state."""
        return f"{self.kind} {self.value or '*'} {self.where or ''}".rstrip()

    @property
    def taken(self) -> pl.Expr:
        """The values that count, null for others."""
        value = pl.lit(value=True) if self.value is None else pl.col(self.value)
        return value if self.where is None else pl.when(pl.col(self.where)).then(value)

    def of(self, kind: str) -> Measure:
        """Another aggregate of the same."""
        return Measure(kind, self.value, self.where)


ROWS = Measure("count")


@dataclass(frozen=True)
class Groups:
    """Input ``rows``: events; or, with ``retracts``, changes that add up, with ``_deleted``. By the ``by`` columns.

    Output: changes of a table with the ``by`` columns as its key, and a column for each measure.
    """

    by: Mapping[str, pl.DataType]
    values: Mapping[str, pl.DataType]
    measures: Mapping[str, Measure]
    retracts: bool = False
    before: bool = False
    spare: int = 100
    """How many values near the least and greatest are known without a look at all of a group (``TableRanking``)."""

    @cached_property
    def kept(self) -> dict[Measure, pl.DataType]:
        """What is kept of a group."""
        found: dict[Measure, pl.DataType] = {ROWS: pl.Int64()}
        for measure in self.measures.values():
            if measure.kind in ("sum", "avg"):
                found[measure.of("sum")] = self._sum_type(measure)
                found[measure.of("count")] = pl.Int64()
            elif measure.kind in ("min", "max") and measure.value is not None:
                found[measure] = self.values[measure.value]
                if self.retracts:
                    found[measure.of("count_distinct")] = pl.Int64()
            else:
                found[measure] = pl.Int64()
        return found

    def _sum_type(self, measure: Measure) -> pl.DataType:
        kind = self.values[measure.value or ""]
        if isinstance(kind, pl.Decimal):
            return pl.Decimal(38, kind.scale)
        return pl.Float64() if kind.is_float() else pl.Int128()

    @cached_property
    def _doubles(self) -> list[Measure]:
        return [one for one, kind in self.kept.items() if one.kind == "sum" and kind.is_float()]

    @cached_property
    def _fronts(self) -> dict[Measure, TableRanking]:
        """Of rows that can go: how the least or greatest values are kept."""
        found = {}
        for one, kind in self.kept.items():
            if self.retracts and one.kind in ("min", "max"):
                columns, by = {**self.by, VALUE: kind}, tuple(self.by)
                order = (Order(VALUE, one.kind == "max"),)
                found[one] = TableRanking(columns, by, order, 1, False, False, False, (*by, VALUE), True, self.spare)
        return found

    @cached_property
    def _multisets(self) -> dict[str, list[str | None]]:
        """Columns whose values are kept, with the conditions under which they are counted."""
        kinds = ("count_distinct", "min", "max") if self.retracts else ("count_distinct",)
        found: dict[str, list[str | None]] = {}
        for one in self.kept:
            if one.kind in kinds and one.value is not None:
                conditions = found.setdefault(one.value, [])
                if one.where not in conditions:
                    conditions.append(one.where)
        return found

    @cached_property
    def tables(self) -> Mapping[str, TableType]:
        """The groups, the bins of their sums of doubles, their values."""
        by = tuple(self.by)
        found = {"groups": TableType({**self.by, **{one.column: kind for one, kind in self.kept.items()}}, by)}
        if self._doubles:
            bins = {SUM: pl.Int16(), BIN: pl.Int16(), AMOUNT: pl.Int128()}
            found["sums"] = TableType({**self.by, **bins}, (*by, SUM))
        for value, conditions in self._multisets.items():
            times: dict[str, pl.DataType] = {
                _times(where): pl.Int64() if self.retracts else pl.Boolean() for where in conditions
            }
            found[f"values {value}"] = TableType({**self.by, VALUE: self.values[value], **times}, (*by, VALUE))
        for one, ranking in self._fronts.items():
            found[f"front {one.column}"] = ranking.tables["front"]
        return found

    def step(self, state: State, delta: Mapping[str, pl.DataFrame], watermark_us: int | None) -> Step:
        """One batch."""
        rows, by = delta["rows"], list(self.by)
        if rows.is_empty():
            return Step()
        if self.retracts:
            rows = rows.with_columns(pl.when(DELETED).then(-1).otherwise(1).cast(pl.Int64).alias(SIGN))
        groups = rows.group_by(by, maintain_order=True).agg(self._increments())
        old = state["groups"].lookup(groups)
        both = matching(groups, old, by)
        both = both.with_columns(self._additions()).with_row_index("_group")
        changes: dict[str, Changes] = {}
        if self._doubles:
            both, changes["sums"] = self._with_sums(state, rows, both)
        for value in self._multisets:
            both = self._with_values(state, rows, both, value, changes)
        return self._finished(both, changes)

    def _increments(self) -> Iterator[pl.Expr]:
        """What the batch adds to counts and sums (not of doubles), and, if nothing goes, its extremes."""
        sign = pl.col(SIGN)
        for one, kind in self.kept.items():
            taken = one.taken
            if one.kind == "count":
                there = taken.is_not_null()
                found = (pl.when(there).then(sign) if self.retracts else there).sum()
                if one == ROWS:
                    found = sign.sum() if self.retracts else pl.len()
                yield found.cast(pl.Int64).alias(one.column)
            elif one.kind == "sum" and not kind.is_float():
                wide = taken.cast(kind)
                yield (wide * sign.cast(kind) if self.retracts else wide).sum().cast(kind).alias(one.column)
            elif one.kind in ("min", "max") and not self.retracts:
                yield getattr(_number(taken, kind), one.kind)().alias(one.column)

    def _additions(self) -> Iterator[pl.Expr]:
        """After ``matching``: increments become what there is now."""
        for one, kind in self.kept.items():
            name = one.column
            if one.kind == "count" or (one.kind == "sum" and not kind.is_float()):
                yield (pl.col(name) + pl.col(OLD + name).fill_null(0)).cast(kind).alias(name)
            elif one.kind in ("min", "max") and not self.retracts:
                best = pl.min_horizontal if one.kind == "min" else pl.max_horizontal
                yield best(name, _number(pl.col(OLD + name), kind)).alias(name)

    def _with_sums(self, state: State, rows: pl.DataFrame, both: pl.DataFrame) -> tuple[pl.DataFrame, Changes]:
        by = list(self.by)
        parts = [self._bins(rows, number, one) for number, one in enumerate(self._doubles)]
        new = pl.concat(parts).group_by(*by, SUM, BIN, maintain_order=True).agg(pl.col(AMOUNT).sum())
        old = state["sums"].lookup(new.select(*by, SUM))
        summed = pl.concat([old.drop(ID), new]).group_by(*by, SUM, BIN, maintain_order=True).agg(pl.col(AMOUNT).sum())
        there = summed.filter(pl.col(AMOUNT) != 0)
        touched = (*by, SUM, BIN)
        changes = Changes(
            there.join(new, on=touched, how="semi", nulls_equal=True),
            old.join(new, on=touched, how="semi", nulls_equal=True)[ID],
        )
        indexed = there.join(both.select(*by, "_group"), on=by, how="left", nulls_equal=True)
        seen = new.select(*by, SUM).unique().join(both.select(*by, "_group"), on=by, how="left", nulls_equal=True)
        for number, one in enumerate(self._doubles):
            mine = indexed.filter(pl.col(SUM) == number)
            total = totals(mine["_group"], mine[BIN], mine[AMOUNT], len(both))
            touched_groups = seen.filter(pl.col(SUM) == number)["_group"]
            here = pl.col("_group").is_in(touched_groups.implode())
            was = pl.col(OLD + one.column).fill_null(0.0)
            both = both.with_columns(pl.when(here).then(total).otherwise(was).alias(one.column))
        return both, changes

    def _bins(self, rows: pl.DataFrame, number: int, measure: Measure) -> pl.DataFrame:
        """The doubles of one sum as bins."""
        sign = [SIGN] if self.retracts else []
        taken = rows.select(*self.by, measure.taken.cast(pl.Float64).alias(VALUE), *sign).drop_nulls(VALUE)
        found = taken.with_columns(*split(taken[VALUE]), pl.lit(number, pl.Int16).alias(SUM))
        if self.retracts:
            found = found.with_columns(pl.col(AMOUNT) * pl.col(SIGN).cast(pl.Int128))
        return found.select(*self.by, SUM, BIN, AMOUNT).group_by(*self.by, SUM, BIN).agg(pl.col(AMOUNT).sum())

    def _with_values(
        self, state: State, rows: pl.DataFrame, both: pl.DataFrame, value: str, changes: dict[str, Changes]
    ) -> pl.DataFrame:
        by, conditions = list(self.by), self._multisets[value]
        measures = {where: Measure("", value, where) for where in conditions}
        named = rows.filter(pl.col(value).is_not_null()).group_by(*by, pl.col(value).alias(VALUE), maintain_order=True)
        new = named.agg(self._times(one).alias(_times(where)) for where, one in measures.items())
        columns = [_times(where) for where in conditions]
        nothing = 0 if self.retracts else False
        new = new.filter(pl.any_horizontal(pl.col(name) != nothing for name in columns))
        old = state[f"values {value}"].lookup(new)
        values = matching(new, old, (*by, VALUE)).with_columns(
            pl.col(OLD + name).fill_null(nothing) for name in columns
        )
        if self.retracts:
            values = values.with_columns(pl.col(name) + pl.col(OLD + name) for name in columns)
        else:
            values = values.with_columns(pl.col(name) | pl.col(OLD + name) for name in columns)
            values = values.filter(changed(columns))
        kept = values.filter(pl.any_horizontal(pl.col(name) != nothing for name in columns))
        changes[f"values {value}"] = Changes(kept.select(*by, VALUE, *columns), values[OLD + ID].drop_nulls())
        mine = [one for one in self.kept if one.value == value]
        for one in (one for one in mine if one.kind == "count_distinct"):
            both = self._with_distinct(both, values, one)
        for one in (one for one in mine if one in self._fronts):
            both, changes[f"front {one.column}"] = self._with_extreme(state, both, values, one)
        return both

    def _times(self, measure: Measure) -> pl.Expr:
        """How often a value comes; without retractions, whether it comes."""
        there = measure.taken.is_not_null()
        return pl.when(there).then(pl.col(SIGN)).sum() if self.retracts else there.any()

    def _with_distinct(self, both: pl.DataFrame, values: pl.DataFrame, measure: Measure) -> pl.DataFrame:
        times, name = pl.col(_times(measure.where)), measure.column
        was = pl.col(OLD + _times(measure.where))
        more = (times > 0).cast(pl.Int64) - (was > 0).cast(pl.Int64)
        found = values.group_by(*self.by).agg(more.sum().alias(name))
        joined = both.join(found, on=list(self.by), how="left", nulls_equal=True, maintain_order="left")
        return joined.with_columns(pl.col(name).fill_null(0) + pl.col(OLD + name).fill_null(0))

    def _with_extreme(
        self, state: State, both: pl.DataFrame, values: pl.DataFrame, measure: Measure
    ) -> tuple[pl.DataFrame, Changes]:
        """The least or greatest value, from the front of the values of each group (see ``TableRanking``)."""
        by, times, name = tuple(self.by), _times(measure.where), measure.column
        ranking = self._fronts[measure]
        number = ~pl.col(VALUE).is_nan() if ranking.columns[VALUE].is_float() else pl.lit(value=True)
        came = values.filter(number & (pl.col(times) > 0) & (pl.col(OLD + times) <= 0)).select(*by, VALUE)
        went = values.filter(number & (pl.col(times) <= 0) & (pl.col(OLD + times) > 0)).select(*by, VALUE)
        distinct = measure.of("count_distinct").column
        sizes = both.select(*by, pl.col(distinct).alias(SIZE), pl.col(OLD + distinct).fill_null(0).alias(OLD + SIZE))
        sizes = sizes.join(pl.concat([came, went]), on=by, how="semi", nulls_equal=True)

        def staying_in(groups: pl.DataFrame) -> pl.DataFrame:
            found = state[f"values {measure.value}"].lookup(groups, by).filter(number & (pl.col(times) > 0))
            return found.join(values, left_on=ID, right_on=OLD + ID, how="anti")

        front = state[f"front {name}"].lookup(sizes)
        now = ranking.new_front(staying_in, front, came, went, sizes)
        best = ranking.first_rows(now).select(*by, pl.col(VALUE).alias(name))
        moved = sizes.select(by).with_columns(_here=True)
        both = both.join(moved, on=by, how="left", nulls_equal=True, maintain_order="left")
        both = both.join(best, on=by, how="left", nulls_equal=True, maintain_order="left")
        both = both.with_columns(pl.when("_here").then(pl.col(name)).otherwise(pl.col(OLD + name)).alias(name))
        return both.drop("_here"), ranking.front_changes(front, now)

    def _finished(self, both: pl.DataFrame, changes: dict[str, Changes]) -> Step:
        """The groups that change, in the state and in the result."""
        names, results = [one.column for one in self.kept], list(self.measures)
        there, had = pl.col(ROWS.column) > 0, pl.col(OLD + ID).is_not_null()
        both = both.filter(~had & there | had & changed(names))
        changes["groups"] = Changes(both.filter(there).select(*self.by, *names), both[OLD + ID].drop_nulls())
        both = both.with_columns(
            self._result(measure, prefix).alias(prefix + name)
            for name, measure in self.measures.items()
            for prefix in ("", OLD)
        )
        new = both.filter(there & (~had | changed(results))).select(*self.by, *results)
        gone = both.filter(had & (~there | changed(results) if self.before else ~there))
        was = gone.select(*self.by, *(pl.col(OLD + name).alias(name) for name in results))
        return Step(emitted(was, new, tuple(self.by), before=True), changes)

    def _result(self, measure: Measure, prefix: str) -> pl.Expr:
        if measure.kind not in ("sum", "avg"):
            return pl.col(prefix + measure.column)
        total = pl.col(prefix + measure.of("sum").column)
        count = pl.col(prefix + measure.of("count").column)
        if measure.kind == "avg":
            found = total.cast(pl.Float64) / count
        else:
            kind = self.kept[measure.of("sum")]
            found = total.cast(pl.Int64, strict=False) if kind == pl.Int128() else total
        return pl.when(count > 0).then(found)


def _number(value: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Values with null for NaN, which is neither the least nor the greatest."""
    return value.fill_nan(None) if kind.is_float() else value


def _times(where: str | None) -> str:
    """The column of a value's count."""
    return f"times {where or ''}".rstrip()
