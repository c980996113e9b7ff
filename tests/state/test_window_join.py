"""Streams joined within an interval, against a plain loop over all pairs."""

from __future__ import annotations

import pickle

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.joins.window_join import Side, WindowJoin
from tests.examples import examples
from tests.state.bucket import Bucket
from tests.state.streams import AT, deliveries, frame, run, us

ROW = st.tuples(st.sampled_from(["a", "a", "b", None]), st.integers(0, 40))
ROWS, HOW = st.lists(ROW, min_size=3, max_size=12), st.sampled_from(["inner", "left", "right", "full"])
INTERVAL = st.tuples(st.integers(-9, 9), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))
COLUMNS = {"key": pl.String(), "n": pl.Int64(), "at": AT}


def joining(low: int, high: int, how: str) -> WindowJoin:
    left = Side(
        COLUMNS, ("key",), "at", us(low), us(high), {"key": "key", "n": "n", "at": "at"}, how in ("left", "full")
    )
    names = {"key": "key", "n": "n_right", "at": "at_right"}
    return WindowJoin(
        left, Side(COLUMNS, ("key",), "at", us(-high), us(-low), names, how in ("right", "full")), "joined_at"
    )


def expected(left: list[tuple], right: list[tuple], low: int, high: int, how: str) -> list[tuple]:
    found, met_left, met_right = [], set(), set()
    for key, n, at in left:
        for other, m, then in right:
            if key is not None and key == other and at + low <= then <= at + high:
                found.append((key, n, at, m, then, max(at, then)))
                met_left.add(n)
                met_right.add(m)
    if how in ("left", "full"):
        found += [(key, n, at, None, None, at + max(high, 0)) for key, n, at in left if n not in met_left]
    if how in ("right", "full"):
        found += [(key, None, None, m, at, at + max(-low, 0)) for key, m, at in right if m not in met_right]
    return sorted(found, key=str)


@examples(40)
@given(
    st.lists(ROW, max_size=14),
    st.lists(ROW, max_size=14),
    INTERVAL,
    st.sampled_from(["inner", "left", "right", "full"]),
    st.data(),
)
def test_every_pair_within_the_interval_comes_out_once_and_the_rest_as_asked(left, right, interval, how, data):
    rows = {
        "left": [(key, n, at) for n, (key, at) in enumerate(left)],
        "right": [(key, n, at) for n, (key, at) in enumerate(right)],
    }
    bucket = Bucket(joining(*interval, how))
    out = run(bucket, data.draw(deliveries(rows)), COLUMNS, "joined_at")
    assert sorted(out, key=str) == expected(rows["left"], rows["right"], *interval, how)
    assert bucket.rows("left").is_empty()
    assert bucket.rows("right").is_empty()


@examples(15)
@given(ROWS, st.data())
def test_a_stream_joins_itself(rows, data):
    numbered = [(key, n, at) for n, (key, at) in enumerate(rows)]
    batches = [({"left": d["rows"], "right": d["rows"]}, w, f) for d, w, f in data.draw(deliveries({"rows": numbered}))]
    out = run(Bucket(joining(0, 5, "left")), batches, COLUMNS, "joined_at")
    assert sorted(out, key=str) == expected(numbered, numbered, 0, 5, "left")


def test_a_partner_that_comes_as_its_time_is_over_is_a_partner():
    """As an operator in event time lets it out: with the batch whose watermark has passed it."""
    bucket = Bucket(joining(0, 5, "left"))
    rows, nothing = frame([("a", 1, 3)], COLUMNS), frame([], COLUMNS)
    assert bucket.step({"left": rows, "right": nothing}, us(2)).is_empty()
    out = bucket.step({"left": nothing, "right": frame([("a", 2, 8)], COLUMNS)}, us(8))
    assert out.select("n", "n_right").rows() == [(1, 2)]
    assert bucket.rows("left").is_empty()
    assert bucket.wake_us is None


def test_a_row_without_a_time_is_dead_and_the_rest_goes_on():
    bucket = Bucket(joining(0, 5, "inner"))
    rows = pl.DataFrame({"key": ["a", "a"], "n": [1, 2], "at": [None, 3]}, schema=COLUMNS)
    out = bucket.step({"left": rows, "right": rows.filter(pl.col("n") == 2)}, 0)
    assert out["n"].to_list() == [2]
    assert bucket.dead[0].rows() == [("null-time", "at is null", '{"key":"a","n":1,"at":null}')]


def test_a_key_with_half_of_all_rows_costs_what_its_intervals_hold():
    """100,000 rows of one key on either side, 10 partners each: all pairs would be ten thousand million."""
    n = 100_000
    rows = pl.DataFrame({"key": ["a"] * n, "n": range(n), "at": [us(at) for at in range(n)]}, schema=COLUMNS)
    bucket, found = Bucket(joining(0, 9, "inner")), 0
    for begin in range(0, n, 20_000):
        batch = rows[begin : begin + 20_000]
        found += len(bucket.step({"left": batch, "right": batch}, us(begin - 1)))
    assert found == 10 * n - 45
    assert len(bucket.rows("left")) < 20_020


@pytest.mark.parametrize("how", ["inner", "full"])
def test_the_operator_travels_to_workers(how):
    assert pickle.loads(pickle.dumps(joining(-1, 5, how))) == joining(-1, 5, how)
