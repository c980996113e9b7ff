"""NEXMark's queries as Headrace apps: every row beside the oracle's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks.nexmark.apps import highest, joins, patterns, rows, tables, windows
from benchmarks.nexmark.generator import Stream
from benchmarks.nexmark.topic import fill

from headrace import App
from headrace.testing import AppUnderTest
from tests.nexmark.checking import COUNT, SETTINGS, ensure_same, last_values

pytestmark = pytest.mark.system


PARTITIONS = 1
"""Queries run while events come in: of several, one partition could be read ahead, and the rows of others be late."""


@contextmanager
def running(app: App, folder: Path, *, windows: bool = False) -> Iterator[AppUnderTest]:
    """The app after all events, in two batches, and with ``windows`` one by one those that close them."""
    with AppUnderTest(app, folder, partitions=PARTITIONS) as under_test:
        for first, last in pairwise((0, COUNT // 3, COUNT)):
            fill(under_test.bootstrap, "events", Stream(SETTINGS), range(first, last), PARTITIONS)
            under_test.settle()
        for values in [[one] for one in last_values()] if windows else [last_values()]:
            under_test.send("events", *values)
        yield under_test


def test_queries_over_single_rows(tmp_path: Path) -> None:
    with running(rows.app, tmp_path) as app:
        for query in ("q0", "q1", "q2", "q10", "q13", "q14", "q21", "q22"):
            ensure_same(query, app.stream(query))


def test_queries_over_windows(tmp_path: Path) -> None:
    with running(windows.app, tmp_path, windows=True) as app:
        ensure_same("q5", app.stream("q5"), closed="window_start")
        ensure_same("q8", app.view("q8"))
        ensure_same("q11", app.stream("q11"), {"starttime": "session", "endtime": "session_end"}, closed="starttime")
        ensure_same("q17", app.view("q17"))
        totals: dict[int, int] = {}
        for row in app.view("q12"):
            totals[row["bidder"]] = totals.get(row["bidder"], 0) + row["bid_count"]
        ensure_same("q12", [{"bidder": one, "bid_count": count} for one, count in totals.items()])


def test_joins(tmp_path: Path) -> None:
    with running(joins.app, tmp_path) as app:
        for query in ("q3", "q20", "q23"):
            ensure_same(query, app.stream(query))


def test_the_highest_bids_of_windows(tmp_path: Path) -> None:
    with running(highest.app, tmp_path, windows=True) as app:
        ensure_same("q7", app.stream("q7"), closed="window_end")


def test_results_that_change(tmp_path: Path) -> None:
    with running(tables.app, tmp_path) as app:
        for query in ("q9", "q15", "q16", "q18"):
            ensure_same(query, app.view(query))
        ensure_same("q4", [{**row, "final": int(row["final"])} for row in app.view("q4")])
        ensure_same("q6", [{**row, "avg_price": int(row["avg_price"])} for row in app.view("q6")])
        ensure_same("q19", app.view("q19"), {"rank_number": "rank"})


def test_patterns(tmp_path: Path) -> None:
    with running(patterns.app, tmp_path, windows=True) as app:
        for query in ("c0", "c3"):
            ensure_same(query, app.stream(query))
        for query in ("c1", "c2"):
            ensure_same(query, [{**row, "avg_price": int(row["avg_price"])} for row in app.stream(query)])
