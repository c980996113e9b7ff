"""Sliding windows against a plain loop over all rows."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from decimal import Decimal

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.pipelines.aggregates import Aggregate
from headrace.pipelines.sliding import Sliding
from tests.examples import examples
from tests.state.bucket import Bucket
from tests.state.streams import AT, deliveries, frame, run, us

COLUMNS = {"n": pl.Int64(), "key": pl.String(), "x": pl.Int64(), "f": pl.Float64(), "at": AT}
AGGREGATES = {
    "rows": hr.count(),
    "xs": hr.count("x"),
    "total": hr.sum("x"),
    "mean": hr.avg("x"),
    "low": hr.min("x"),
    "high": hr.max("x"),
    "kinds": hr.count_distinct("x"),
    "begin": hr.first("x"),
    "end": hr.last("x"),
    "sum": hr.sum("f"),
}
NAN = float("nan")
NUMBER = st.none() | st.integers(-3, 3) | st.sampled_from([2**62, 2**63 - 1, -(2**63)])
FRACTION = st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 0.7, None])
ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), NUMBER, FRACTION, st.integers(0, 40)), min_size=3, max_size=20
)


def sliding(size: int, **aggregates: Aggregate) -> Sliding:
    return Sliding(COLUMNS, ("key",), "at", us(size), aggregates or AGGREGATES)


def moment(second: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(second, dt.UTC)


def expected(rows, size):
    found = []
    for n, key, x, f, at in rows:
        window = [row for row in rows if row[1] == key and at - size <= row[-1] <= at]
        xs = [row[2] for row in window if row[2] is not None]
        fs = [row[3] for row in window if row[3] is not None]
        by_time = sorted((row[-1], row[2] is not None, row[2] or 0) for row in window)
        begin, end = (one[2] if one[1] else None for one in (by_time[0], by_time[-1]))
        ends = (min(xs, default=None), max(xs, default=None), len(set(xs)), begin, end)
        whole = sum(xs) if -(2**63) <= sum(xs) < 2**63 else None
        total = (whole, float(sum(xs)) / len(xs)) if xs else (None, None)
        found.append((n, key, x, f, at, len(window), len(xs), *total, *ends, math.fsum(fs) if fs else None))
    return found


@examples(25)
@given(ROWS, st.integers(0, 15), st.data())
def test_every_event_has_the_aggregates_of_its_window(rows, size, data):
    numbered = [(n, *row) for n, row in enumerate(rows)]
    bucket = Bucket(sliding(size))
    out = run(bucket, data.draw(deliveries({"rows": numbered})), COLUMNS, "at")
    assert sorted(out, key=lambda row: row[0]) == expected(numbered, size)
    assert bucket.rows("waiting").is_empty()
    assert bucket.rows("recent").is_empty()


def test_a_row_that_the_watermark_has_passed_comes_out_with_its_batch():
    bucket = Bucket(sliding(5, n=hr.count()))
    assert bucket.step({"rows": frame([(1, "a", 0, 0.0, 3), (2, "a", 0, 0.0, 101)], COLUMNS)}, us(2)).is_empty()
    out = bucket.step({"rows": frame([(3, "a", 0, 0.0, 5)], COLUMNS)}, us(100))
    assert sorted(out.select("key", "at", "n").rows()) == [("a", moment(3), 1), ("a", moment(5), 2)]
    assert bucket.wake_us == us(101)
    assert bucket.rows("recent").is_empty()


def test_a_sum_that_is_no_bigint_is_null_and_its_average_is_right():
    rows = frame([(1, "a", 2**62, 0.0, 1), (2, "a", 2**62, 0.0, 2), (3, "a", -1, 0.0, 3), (4, "b", 7, 0.0, 3)], COLUMNS)
    bucket = Bucket(sliding(9, total=hr.sum("x"), mean=hr.avg("x")))
    out = bucket.step({"rows": rows}, us(3)).sort("n")
    assert out["total"].to_list() == [2**62, None, 2**63 - 1, 7]
    assert out["mean"].to_list() == [2.0**62, 2.0**62, float(2**63) / 3, 7.0]


def test_the_least_and_greatest_leave_nan_out():
    rows = frame([(n, key, 0, f, 1) for n, (key, f) in enumerate([("a", NAN), ("b", NAN), ("b", 2.0)])], COLUMNS)
    out = Bucket(sliding(9, low=hr.min("f"), high=hr.max("f"))).step({"rows": rows}, us(3)).sort("n")
    assert out.select("low", "high").rows() == [(None, None), (2.0, 2.0), (2.0, 2.0)]


def test_sums_of_decimals_are_decimals():
    columns = {"x": pl.Decimal(10, 2), "at": AT}
    bucket = Bucket(Sliding(columns, (), "at", us(5), {"total": hr.sum("x"), "mean": hr.avg("x")}))
    rows = pl.DataFrame({"x": [Decimal("0.10"), Decimal("0.25"), None], "at": [us(1), us(2), us(9)]}, schema=columns)
    assert bucket.step({"rows": rows}, 0).is_empty()
    out = bucket.step({"rows": rows.clear()}, us(20)).sort("at")
    assert out["total"].to_list() == [Decimal("0.10"), Decimal("0.35"), None]
    assert out["mean"].to_list() == [0.1, 0.175, None]


def test_a_key_with_all_rows_and_long_windows_is_not_quadratic():
    """100,000 events of one key, 50,000 in each window: five thousand million, if each window were looked through."""
    n = 100_000
    values = {"n": range(n), "key": ["a"] * n, "x": np.arange(n) % 1000, "f": np.arange(n) * 0.1}
    rows = pl.DataFrame({**values, "at": [us(at) for at in range(n)]}, schema=COLUMNS)
    bucket = Bucket(sliding(49_999))
    bucket.step({"rows": rows}, 0)
    out = bucket.step({"rows": rows.clear()}, us(n)).sort("n")
    assert out[-1].select("rows", "kinds", "low", "high").row(0) == (50_000, 1000, 0, 999)
    assert out["total"][-1] == sum(x % 1000 for x in range(50_000, n))


def test_the_operator_travels_to_workers():
    assert pickle.loads(pickle.dumps(sliding(5))) == sliding(5)
