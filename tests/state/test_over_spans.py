"""Aggregates over spans, against plain ones of each span."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.pipelines.state.over_spans import distinct, exact_sums, extremes, totals

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=8)


def clipped(spans, length):
    ends = [sorted((min(a, length), min(b, length))) for a, b in spans]
    return np.array([a for a, _ in ends], np.int64), np.array([b for _, b in ends], np.int64)


@given(st.lists(st.integers(-(2**40), 2**40), max_size=40), SPANS)
def test_totals(values, spans):
    first, last = clipped(spans, len(values))
    assert totals(np.array(values, np.int64), first, last).tolist() == [
        sum(values[a:b]) for a, b in zip(first, last, strict=True)
    ]


@given(st.lists(st.none() | st.sampled_from("abcdef"), max_size=40), SPANS, st.booleans(), st.booleans())
def test_extremes_with_and_without_nulls(values, spans, largest, nulls):
    first, last = clipped(spans, len(values))
    found = extremes(pl.Series(values, dtype=pl.String), first, last, largest=largest, nulls=nulls)
    for value, a, b in zip(found, first, last, strict=True):
        counted = [one for one in values[a:b] if nulls or one is not None]
        best = (max if largest else min)(counted, key=lambda one: (one is not None, one or ""), default=None)
        assert value == best


@given(st.lists(st.integers(-1, 6), max_size=40), SPANS)
def test_distinct_numbers_that_are_not_negative(values, spans):
    first, last = clipped(spans, len(values))
    found = distinct(np.array(values, np.int64), first, last)
    assert found.tolist() == [len({v for v in values[a:b] if v >= 0}) for a, b in zip(first, last, strict=True)]


FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1000, 1000),
    st.sampled_from([0.1, 0.2, 0.3, -0.3, 1e16, -1e16, 1.0, 5e-324, -0.0, 2.0**53 + 2, 1.0 + 2.0**-52]),
)


@given(st.lists(FLOATS, max_size=40), SPANS)
@example([1e16, 1.0, -1e16, 1.0], [(0, 4), (1, 4), (0, 2)])
@example([1e308, 1e308, -1e308], [(0, 3), (0, 2)])
@example([2.0**53, 1.0, 2.0**-60], [(0, 2), (0, 3)])
def test_sums_of_floats_are_the_true_sums_rounded_once(values, spans):
    first, last = clipped(spans, len(values))
    found = exact_sums(np.array(values), first, last)
    for value, a, b in zip(found.tolist(), first, last, strict=True):
        assert value == exact(values[a:b])


def exact(values):
    try:
        return math.fsum(values)
    except OverflowError:
        from fractions import Fraction

        total = sum(map(Fraction, values))
        try:
            return float(total)
        except OverflowError:
            return math.inf if total > 0 else -math.inf


def test_infinities_and_what_is_not_a_number_count_only_where_they_are():
    values = np.array([1.0, np.inf, 2.0, -np.inf, np.nan, 3.0])
    first, last = np.array([0, 0, 2, 1, 4, 5]), np.array([1, 2, 4, 4, 6, 6])
    assert str(exact_sums(values, first, last).tolist()) == "[1.0, inf, -inf, nan, nan, 3.0]"
