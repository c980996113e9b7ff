"""Joins of tables against a join of what the tables are in the end."""

from __future__ import annotations

import pickle
import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.changelog import DELETED, Before
from headrace.pipelines.joins.tables import JoinTables, Side
from tests.examples import examples
from tests.state.stages import Result, Stage, in_batches

LEFT = {"id": pl.Int64(), "on": pl.String(), "x": pl.Int64()}
RIGHT = {"rid": pl.Int64(), "on": pl.String(), "y": pl.Int64()}
ROW = st.tuples(
    st.sampled_from(["left", "right"]),
    st.integers(0, 4),
    st.sampled_from(["a", "b", "c", None]),
    st.integers(0, 2),
    st.booleans() | st.just(value=False),
)


def frame(rows, columns):
    return pl.DataFrame(rows, schema={**columns, DELETED: pl.Boolean()}, orient="row")


def plain_join(left, right, how, right_key):
    """Rows of the result, by comparing every row with every other."""
    found, matched = [], set()
    for a in left.values():
        matches = [b for b in right.values() if a["on"] is not None and a["on"] == b["on"]]
        matched.update(b[right_key] for b in matches)
        found += [{**b, **a} for b in matches]
        if not matches and how != "inner":
            found.append({**a, **{name: None for name in next(iter(SCHEMAS[right_key])) if name not in a}})
    if how == "full":
        found += [{"id": None, "x": None, **b} for b in right.values() if b[right_key] not in matched]
    return found


SCHEMAS = {"rid": [("rid", "on", "y")], "on": [("on", "y")]}


def as_set(rows):
    return sorted(tuple(sorted((k, str(v)) for k, v in row.items())) for row in rows)


@pytest.mark.parametrize("how", ["inner", "left", "full"])
@examples(20)
@given(rows=st.lists(ROW, max_size=60), seed=st.integers(0, 999), before=st.booleans())
def test_a_join_over_any_columns_is_the_join_of_the_tables_as_they_are(how, rows, seed, before):
    chance = random.Random(seed)
    operator = pickle.loads(
        pickle.dumps(JoinTables(Side(LEFT, ("id",), True), Side(RIGHT, ("rid",), True), ("on",), how, before))
    )
    first = {"left": Before(LEFT, ("id",), ("on",)), "right": Before(RIGHT, ("rid",), ("on",))}
    stages = {name: Stage(one, {"rows": one.key}, chance) for name, one in first.items()}
    join = Stage(operator, {"left": ("on",), "right": ("on",)}, chance)
    result, tables = Result(operator.key, before=before), {"left": {}, "right": {}}
    for batch in in_batches(rows, chance):
        delta = {}
        for name, columns in (("left", LEFT), ("right", RIGHT)):
            changes = [
                (key, None, None, True) if gone else (key, on, n, False)
                for side, key, on, n, gone in batch
                if side == name
            ]
            for key, on, n, gone in changes:
                tables[name].pop(key, None)
                if not gone:
                    tables[name][key] = dict(zip(columns, (key, on, n), strict=True))
            out = stages[name].step({"rows": frame(changes, columns)})
            delta[name] = out if len(out.columns) else frame([], columns)
        if all(one.is_empty() for one in delta.values()):
            continue
        result.take(join.step(delta))
    assert as_set(result.rows.values()) == as_set(plain_join(tables["left"], tables["right"], how, "rid"))


def test_where_the_other_side_is_joined_by_its_key_the_result_has_the_keys_of_the_left():
    right = Side({"on": pl.String(), "y": pl.Int64()}, ("on",))
    join = JoinTables(Side(LEFT, ("id",)), right, ("on",), "left")
    assert join.key == ("id",)
    assert list(join.columns) == ["id", "on", "x", "y"]
    many = JoinTables(Side(LEFT, ("id",)), Side(RIGHT, ("rid",)), ("on",))
    assert many.key == ("id", "rid")


@examples(20)
@given(rows=st.lists(ROW, max_size=60), seed=st.integers(0, 999), how=st.sampled_from(["inner", "left", "full"]))
def test_a_join_with_a_table_by_its_key_needs_no_other_step_on_that_side(rows, seed, how):
    chance = random.Random(seed)
    right = Side({"on": pl.String(), "y": pl.Int64()}, ("on",))
    operator = JoinTables(Side(LEFT, ("id",), True), right, ("on",), how)
    before = Stage(Before(LEFT, ("id",), ("on",)), {"rows": ("id",)}, chance)
    join = Stage(operator, {"left": ("on",), "right": ("on",)}, chance)
    result, tables = Result(operator.key, before=False), {"left": {}, "right": {}}
    for batch in in_batches(rows, chance):
        lefts = [
            (key, None, None, True) if gone else (key, on, n, False)
            for side, key, on, n, gone in batch
            if side == "left"
        ]
        rights = [
            (on, None, True) if gone else (on, n, False) for side, _, on, n, gone in batch if side == "right" and on
        ]
        for key, on, n, gone in lefts:
            tables["left"].pop(key, None)
            if not gone:
                tables["left"][key] = {"id": key, "on": on, "x": n}
        for on, n, gone in rights:
            tables["right"].pop(on, None)
            if not gone:
                tables["right"][on] = {"on": on, "y": n}
        out = before.step({"rows": frame(lefts, LEFT)})
        left = out if len(out.columns) else frame([], LEFT)
        result.take(join.step({"left": left, "right": frame(rights, right.columns)}))
    assert as_set(result.rows.values()) == as_set(plain_join(tables["left"], tables["right"], how, "on"))


def test_a_value_that_half_of_all_rows_are_joined_by_follows_every_change():
    """2,000 rows of the left with 10 of the right; then rows of either side go, change, and move to another value."""
    chance, result = random.Random(7), Result(("id", "rid"), before=True)
    operator = JoinTables(Side(LEFT, ("id",), True), Side(RIGHT, ("rid",), True), ("on",), "left", True)
    first = {"left": Before(LEFT, ("id",), ("on",)), "right": Before(RIGHT, ("rid",), ("on",))}
    stages = {name: Stage(one, {"rows": one.key}, chance) for name, one in first.items()}
    join = Stage(operator, {"left": ("on",), "right": ("on",)}, chance)
    tables = {"left": {}, "right": {}}

    def value(number):
        return "a" if number % 2 else f"v{number % 31}"

    batches = [
        {"left": [(n, value(n), n, False) for n in range(2000)], "right": [(1, "a", 1, False)]},
        {"left": [(n, value(n), n, False) for n in range(2000, 4000)], "right": [(n, "a", n, False) for n in range(9)]},
        {"left": [(n, value(n + n % 3), -n, False) for n in range(0, 4000, 5)], "right": [(30, value(30), 0, False)]},
        {
            "left": [(n, None, None, True) for n in range(0, 4000, 7)],
            "right": [(2, None, None, True), (3, "a", 9, False)],
        },
    ]
    for batch in batches:
        delta = {}
        for name, columns in (("left", LEFT), ("right", RIGHT)):
            for key, on, n, gone in batch[name]:
                tables[name].pop(key, None)
                if not gone:
                    tables[name][key] = dict(zip(columns, (key, on, n), strict=True))
            delta[name] = stages[name].step({"rows": frame(batch[name], columns)})
        result.take(join.step(delta))
    assert as_set(result.rows.values()) == as_set(plain_join(tables["left"], tables["right"], "left", "rid"))
    assert len(result.rows) > 10_000
