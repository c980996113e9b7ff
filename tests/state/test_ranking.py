"""First rows of groups against a sort of all rows."""

from __future__ import annotations

import pickle
import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.changelog import DELETED, Before
from headrace.pipelines.ranking import Order, Ranking, TableRanking
from tests.examples import examples
from tests.state.stages import Result, Stage, in_batches

COLUMNS = {"id": pl.Int64(), "group": pl.String(), "price": pl.Int64(), "at": pl.Int64()}
EVENT = st.tuples(
    st.integers(0, 9), st.sampled_from(["a", "b", None]), st.integers(0, 3) | st.none(), st.integers(0, 2)
)
ORDER = (Order("price", True), Order("at"))


def sort_key(row):
    return (1, 0, row["at"]) if row["price"] is None else (0, -row["price"], row["at"])


def plain(rows, first, ties=lambda row: ()):
    found = {}
    for group in {row["group"] for row in rows}:
        here = sorted((row for row in rows if row["group"] == group), key=lambda row: (sort_key(row), ties(row)))
        for rank, row in enumerate(here[:first], 1):
            found[group, rank] = {**row, "rank": rank}
    return found


@pytest.mark.parametrize("first", [1, 3])
@examples(20)
@given(rows=st.lists(EVENT, max_size=60), seed=st.integers(0, 999), before=st.booleans())
def test_the_top_of_events_is_that_of_all_events_and_ties_are_by_arrival(first, rows, seed, before):
    chance = random.Random(seed)
    operator = pickle.loads(pickle.dumps(Ranking(COLUMNS, ("group",), ORDER, first, True, before, False)))
    stage, result = Stage(operator, {"rows": ("group",)}, chance), Result(operator.result_key, before=before)
    for batch in in_batches(rows, chance):
        result.take(stage.step({"rows": pl.DataFrame(batch, schema=COLUMNS, orient="row")}))
    assert result.rows == plain([dict(zip(COLUMNS, row, strict=True)) for row in rows], first)
    assert sum(len(bucket.rows("rows")) for bucket in stage.buckets) == len(result.rows), "nothing else is kept"


@examples(20)
@given(rows=st.lists(EVENT, max_size=60), seed=st.integers(0, 999))
def test_the_latest_event_of_each_group_is_the_newest_of_those_with_the_largest_time(rows, seed):
    chance = random.Random(seed)
    operator = Ranking(COLUMNS, ("group",), (Order("at", True),), 1, False, False, True)
    stage, result = Stage(operator, {"rows": ("group",)}, chance), Result(["group"], before=False)
    for batch in in_batches(rows, chance):
        result.take(stage.step({"rows": pl.DataFrame(batch, schema=COLUMNS, orient="row")}))
    latest = {}
    for row in (dict(zip(COLUMNS, row, strict=True)) for row in rows):
        if row["at"] >= latest.get((row["group"],), row)["at"]:
            latest[row["group"],] = row
    assert result.rows == latest


CHANGE = st.tuples(
    st.tuples(st.integers(0, 9), st.sampled_from(["a", "a", None]), st.integers(0, 3) | st.none(), st.integers(0, 2)),
    st.sampled_from([False, False, True]),
)


@examples(15)
@given(
    rows=st.lists(CHANGE, min_size=40, max_size=80),
    seed=st.integers(0, 999),
    before=st.booleans(),
    spare=st.integers(0, 2),
)
def test_the_top_of_a_table_is_that_of_its_rows_and_ties_are_by_key(rows, seed, before, spare):
    chance = random.Random(seed)
    operator = TableRanking(COLUMNS, ("group",), ORDER, 2, True, before, False, ("id",), True, spare)
    first = Stage(Before(COLUMNS, ("id",), ("group",)), {"rows": ("id",)}, chance)
    stage, result, table = Stage(operator, {"rows": ("group",)}, chance), Result(operator.result_key, before=before), {}
    for batch in in_batches(rows, chance):
        changes = [(row[0], None, None, None, True) if gone else (*row, False) for row, gone in batch]
        for row, gone in batch:
            table.pop(row[0], None)
            if not gone:
                table[row[0]] = dict(zip(COLUMNS, row, strict=True))
        moved = first.step({"rows": pl.DataFrame(changes, schema={**COLUMNS, DELETED: pl.Boolean()}, orient="row")})
        if len(moved):
            result.take(stage.step({"rows": moved}))
    assert result.rows == plain(list(table.values()), 2, lambda row: row["id"])


def test_rows_that_come_behind_what_is_kept_in_front_do_not_hide_those_between():
    operator = TableRanking(COLUMNS, ("group",), (Order("price"),), 2, True, False, False, ("id",), False, 1)
    stage, result = Stage(operator, {"rows": ("group",)}, random.Random(1)), Result(operator.result_key, before=False)
    schema = {**COLUMNS, DELETED: pl.Boolean()}
    batches = [
        [(n, "a", n, 0, False) for n in range(1, 7)],
        [(9, "a", 9, 0, False)],
        [(n, "a", n, 0, True) for n in (1, 2)],
    ]
    for batch in batches:
        result.take(stage.step({"rows": pl.DataFrame(batch, schema=schema, orient="row")}))
    assert [row["id"] for row in result.rows.values()] == [3, 4]
    assert sum(len(bucket.rows("front")) for bucket in stage.buckets) < 4, "not all rows"


@pytest.mark.parametrize("table", [False, True])
def test_a_group_with_half_of_all_rows_has_its_first_rows_as_the_others_do(table):
    chance, rows = random.Random(5), {}
    operator = Ranking(COLUMNS, ("group",), ORDER, 3, True, False, False)
    if table:
        operator = TableRanking(COLUMNS, ("group",), ORDER, 3, True, False, False, ("id",), False, 4)
    stage, result = Stage(operator, {"rows": ("group",)}, chance), Result(operator.result_key, before=False)
    for begin in range(0, 20_000, 2_000):
        came = [(n, "a" if n % 2 else f"g{n % 97}", chance.randrange(99), n) for n in range(begin, begin + 2_000)]
        went = [n for n in rows if chance.random() < 0.3] if table else []
        changes = [(*row, False) for row in came] + [(*rows.pop(n), True) for n in went]
        rows |= {row[0]: row for row in came}
        delta = pl.DataFrame(changes, schema={**COLUMNS, DELETED: pl.Boolean()}, orient="row")
        result.take(stage.step({"rows": delta if table else delta.drop(DELETED)}))
    assert result.rows == plain([dict(zip(COLUMNS, row, strict=True)) for row in rows.values()], 3)
