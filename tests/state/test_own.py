"""Operators that users write: what they are called with, and what they may return."""

from __future__ import annotations

import datetime as dt
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import InvalidDeclaration
from headrace.pipelines.state.own import Own, WrongResult
from tests.examples import examples
from tests.state.bucket import Bucket
from tests.state.streams import AT, deliveries, frame, run, us

ROWS = {"who": pl.String(), "n": pl.Int64(), "at": AT}
STATE = {"who": pl.String(), "total": pl.Int64(), "quiet_at": AT}
OUTPUT = {"who": pl.String(), "total": pl.Int64(), "at": AT}
SECOND = dt.timedelta(seconds=1)


def silent(state, rows, watermark):
    """The total of each key once nothing came for 5 seconds."""
    both = pl.concat([state, rows.select("who", total="n", quiet_at=pl.col("at") + 5 * SECOND)])
    summed = both.group_by("who").agg(pl.col("total").sum(), pl.col("quiet_at").max())
    over = pl.col("quiet_at") <= watermark
    return summed.filter(~over), summed.filter(over).rename({"quiet_at": "at"})


def own(function=silent, wake="quiet_at"):
    return Own("silent", function, ("who",), STATE, OUTPUT, wake)


@examples(30)
@given(st.lists(st.tuples(st.sampled_from(["a", None]), st.integers(0, 9), st.integers(0, 40)), max_size=12), st.data())
def test_a_key_is_touched_by_rows_and_by_the_time_it_asked_for(rows, data):
    bucket = Bucket(own())
    out = run(bucket, data.draw(deliveries({"rows": rows})), ROWS, "at")
    assert bucket.rows("state").is_empty()
    assert sum(total for _, total, _ in out) == sum(n for _, n, _ in rows)
    for key in {who for who, _, _ in rows}:
        last = max(at for who, _, at in rows if who == key)
        assert max(at for who, _, at in out if who == key) == last + 5


def test_only_the_state_of_touched_keys_is_given_and_replaced():
    given_states = []

    def counting(state, rows, watermark):
        given_states.append(sorted(state["who"].to_list()))
        new = rows.group_by("who").agg(total=pl.col("n").sum()).with_columns(quiet_at=None)
        return new, new.drop("quiet_at").with_columns(at=watermark)

    bucket = Bucket(own(counting, None))
    for who in ("ab", "b", "c", ""):
        bucket.step({"rows": frame([(one, 1, 1) for one in who], ROWS)}, us(0))
    assert given_states == [[], ["b"], []]
    assert sorted(bucket.rows("state")["who"].to_list()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"by": "whom"}, "no column 'whom'.*did you mean 'who'"),
        ({"by": ()}, "has no key"),
        ({"state": "who strung"}, "'strung' is not a type"),
        ({"wake": "total"}, "wake of the operator, 'total', is double"),
    ],
)
def test_a_mistake_in_a_declaration_is_told_with_its_line(more, says):
    said = {"by": "who", "state": "who string, total double", "output": "who string", **more}
    with pytest.raises(InvalidDeclaration, match=says) as caught:
        hr.operator(**said)
    assert caught.value.detail.startswith(f"{__file__}, line ")


def returning(result):
    return own(lambda state, rows, watermark: result)


GOOD = frame([], STATE), frame([], OUTPUT)


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (None, "returns NoneType"),
        ((GOOD[0], 5), "returns int as its output"),
        ((GOOD[0].drop("total"), GOOD[1]), "returns state without total"),
        ((frame([("z", 1, 1)], STATE), GOOD[1]), "state of keys that it was not called for"),
        ((GOOD[0], pl.DataFrame({"who": ["x"], "total": ["many"], "at": [None]})), "output of other types"),
    ],
)
def test_a_result_that_cannot_be_used_is_an_error_that_names_the_operator(result, says):
    with pytest.raises(WrongResult, match=f"operator 'silent' .*{re.escape(says)}"):
        Bucket(returning(result)).step({"rows": frame([("a", 1, 1)], ROWS)}, us(0))
