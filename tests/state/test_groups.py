"""Aggregates of groups against a recomputation from the rows that there are."""

from __future__ import annotations

import pickle
import random
from decimal import Decimal
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.changelog import DELETED, Before, Fused
from headrace.pipelines.groups import Groups, Measure
from tests.examples import examples
from tests.state.stages import Result, Stage, in_batches

VALUES = {"whole": pl.Int64(), "real": pl.Float64(), "money": pl.Decimal(10, 2), "text": pl.String()}
MEASURES = {
    f"{kind}_{value}_{where}": Measure(kind, value, where)
    for where in (None, "flag")
    for kind, values in {
        "count": [None, "whole"],
        "sum": ["whole", "real", "money"],
        "avg": ["whole", "real"],
        "min": ["whole", "text"],
        "max": ["real", "text"],
        "count_distinct": ["whole", "text"],
    }.items()
    for value in values
}
EVENT = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.booleans() | st.none(),
    st.integers(-3, 3) | st.just(2**62) | st.none(),
    st.sampled_from([0.1, 0.2, 1e16, -1e16, 1e300, 2.5e-300, -0.3]) | st.floats(-1e6, 1e6) | st.none(),
    st.decimals(-5, 5, places=2) | st.none(),
    st.sampled_from(["x", "y", "z"]) | st.none(),
)
NAN = float("nan")
COLUMNS = {"group": pl.String(), "flag": pl.Boolean(), **VALUES}


def plain(rows):
    """Every measure of every group, one row at a time."""
    found = {}
    for group in {row["group"] for row in rows}:
        result = {"group": group}
        for name, one in MEASURES.items():
            taken = [row for row in rows if row["group"] == group and (one.where is None or row["flag"])]
            values = [1 if one.value is None else row[one.value] for row in taken]
            result[name] = measured(one, [value for value in values if value is not None])
        found[group,] = result
    return found


def measured(one, values):
    if one.kind == "count":
        return len(values)
    if one.kind == "count_distinct":
        return len(set(values))
    if not values:
        return None
    if one.kind in ("min", "max"):
        return (min if one.kind == "min" else max)(values)
    exact = sum(map(Fraction, values))
    if one.kind == "avg":
        return float(exact) / len(values)
    return {"whole": lambda: int(exact) if abs(exact) < 2**63 else None, "real": lambda: float(exact)}.get(
        one.value, lambda: Decimal(exact.numerator) / exact.denominator
    )()


def frame(rows, columns):
    return pl.DataFrame(rows, schema=columns, orient="row")


@examples(15)
@given(rows=st.lists(EVENT, max_size=60), seed=st.integers(0, 999), before=st.booleans())
def test_aggregates_of_events_are_those_of_all_events_whatever_the_batches(rows, seed, before):
    chance = random.Random(seed)
    operator = pickle.loads(pickle.dumps(Groups({"group": pl.String()}, VALUES, MEASURES, before=before)))
    stage, result = Stage(operator, {"rows": ("group",)}, chance), Result(["group"], before=before)
    for batch in in_batches(rows, chance):
        result.take(stage.step({"rows": frame(batch, COLUMNS)}))
    assert result.rows == plain([dict(zip(COLUMNS, row, strict=True)) for row in rows])


@examples(15)
@given(
    rows=st.lists(st.tuples(st.integers(0, 5), EVENT | st.none()), max_size=60),
    seed=st.integers(0, 999),
    before=st.booleans(),
)
def test_aggregates_of_a_table_are_those_of_its_rows_and_do_not_drift(rows, seed, before):
    chance, columns = random.Random(seed), {"id": pl.Int64(), **COLUMNS}
    watched = Stage(Before(columns, ("id",), tuple(COLUMNS)), {"rows": ("id",)}, chance)
    groups = Groups({"group": pl.String()}, VALUES, MEASURES, retracts=True, before=before, spare=chance.randrange(3))
    stage, result, table = Stage(groups, {"rows": ("group",)}, chance), Result(["group"], before=before), {}
    for batch in in_batches(rows, chance):
        changes = [(key, *(event or [None] * len(COLUMNS)), event is None) for key, event in batch]
        table |= dict(batch)
        pairs = watched.step({"rows": frame(changes, {**columns, DELETED: pl.Boolean()})})
        if len(pairs):
            result.take(stage.step({"rows": pairs}))
    assert result.rows == plain([dict(zip(COLUMNS, row, strict=True)) for row in table.values() if row])
    assert sum(map(len, (bucket.rows("groups") for bucket in stage.buckets))) == len(result.rows)


@examples(10)
@given(rows=st.lists(st.tuples(st.integers(0, 5), EVENT | st.none()), max_size=40), seed=st.integers(0, 999))
def test_by_columns_of_the_key_one_step_is_enough(rows, seed):
    chance, columns = random.Random(seed), {"id": pl.Int64(), **COLUMNS}
    before = Before(columns, ("group", "id"), tuple(name for name in COLUMNS if name != "group"))
    groups = Groups({"group": pl.String()}, VALUES, MEASURES, retracts=True)
    fused = pickle.loads(pickle.dumps(Fused(before, groups)))
    stage, result, table = Stage(fused, {"rows": ("group",)}, chance), Result(["group"], before=False), {}
    for batch in in_batches(rows, chance):
        changes = []
        for key, event in batch:
            group = event[0] if event else chance.choice(["a", "b", None])
            table[group, key] = event
            changes.append((key, *(event or [group, *[None] * (len(COLUMNS) - 1)]), event is None))
        result.take(stage.step({"rows": frame(changes, {**columns, DELETED: pl.Boolean()})}))
    assert result.rows == plain([dict(zip(COLUMNS, row, strict=True)) for row in table.values() if row])


def test_when_the_least_values_go_the_next_is_found_among_all_that_stay():
    columns = {"group": pl.String(), "whole": pl.Int64(), DELETED: pl.Boolean()}
    measures = {"least": Measure("min", "whole"), "most": Measure("max", "whole")}
    operator = Groups({"group": pl.String()}, {"whole": pl.Int64()}, measures, retracts=True, spare=1)
    stage, result = Stage(operator, {"rows": ("group",)}, random.Random(1)), Result(["group"], before=False)
    result.take(stage.step({"rows": frame([("a", n, False) for n in range(1, 20)], columns)}))
    assert sum(len(bucket.rows("front min whole")) for bucket in stage.buckets) == 2, "not all values are in front"
    for n in range(1, 9):
        result.take(stage.step({"rows": frame([("a", n, True), ("a", 20 - n, True)], columns)}))
        assert result.rows["a",] == {"group": "a", "least": n + 1, "most": 19 - n}


@pytest.mark.parametrize("retracts", [False, True])
def test_the_least_and_greatest_leave_nan_out_of_events_as_of_tables(retracts):
    columns = {"group": pl.String(), "real": pl.Float64()} | ({DELETED: pl.Boolean()} if retracts else {})
    measures = {"least": Measure("min", "real"), "most": Measure("max", "real")}
    operator = Groups({"group": pl.String()}, {"real": pl.Float64()}, measures, retracts=retracts)
    stage, result = Stage(operator, {"rows": ("group",)}, random.Random(1)), Result(["group"], before=False)
    for group, value, best in [("a", NAN, None), ("a", 2.0, 2.0), ("a", NAN, 2.0), ("b", NAN, None), ("b", NAN, None)]:
        change = [(group, value, *([False] if retracts else []))]
        found = stage.step({"rows": frame(change, columns)})
        if len(found):
            result.take(found)
        assert result.rows[group,] == {"group": group, "least": best, "most": best}


def any_event(chance, group):
    whole, real = chance.choice([None, 2**62, *range(50)]), chance.choice([None, 1e16, -0.3, chance.random()])
    money = Decimal(chance.randrange(1000)) / 100
    return (group, chance.choice([True, False, None]), whole, real, money, chance.choice("xyz"))


@pytest.mark.parametrize("retracts", [False, True])
def test_a_group_with_half_of_all_rows_is_as_right_as_the_others(retracts):
    chance, columns, table = random.Random(3), {"id": pl.Int64(), **COLUMNS}, {}
    watched = Stage(Before(columns, ("id",), tuple(COLUMNS)), {"rows": ("id",)}, chance)
    groups = Groups({"group": pl.String()}, VALUES, MEASURES, retracts=retracts)
    stage, result = Stage(groups, {"rows": ("group",)}, chance), Result(["group"], before=False)
    for begin in range(0, 4000, 500):
        batch = {n: any_event(chance, "a" if n % 2 else f"g{n % 101}") for n in range(begin, begin + 500)}
        went = [n for n in table if chance.random() < 0.2] if retracts else []
        table = {n: row for n, row in table.items() if n not in set(went)} | batch
        if not retracts:
            result.take(stage.step({"rows": frame(list(batch.values()), COLUMNS)}))
            continue
        changes = [(n, *row, False) for n, row in batch.items()] + [(n, *[None] * len(COLUMNS), True) for n in went]
        result.take(stage.step({"rows": watched.step({"rows": frame(changes, {**columns, DELETED: pl.Boolean()})})}))
    assert result.rows == plain([dict(zip(COLUMNS, row, strict=True)) for row in table.values()])
