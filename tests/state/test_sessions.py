"""Sessions as they come, against sessions found in all rows at once."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.sessions.operator import BEFORE, END, START, Sessions
from tests.examples import examples
from tests.state.bucket import Bucket

AT = pl.Datetime("us", "UTC")
COLUMNS = {START: AT, END: AT, "k0": pl.String(), "c1": pl.Int64()}
GAP = 10
ROW = st.tuples(st.sampled_from(["a", "b", None]), st.integers(1, 120))
Row = tuple[str | None, int]
Spans = dict[tuple[str | None, int], list[int]]


def frame(rows: Iterable[Row]) -> pl.DataFrame:
    plain = {START: pl.Int64, END: pl.Int64, "k0": pl.String, "c1": pl.Int64}
    return pl.DataFrame([(at, at + GAP, key, at) for key, at in rows], schema=plain, orient="row").cast(COLUMNS)


def sessions(rows: Iterable[Row]) -> Spans:
    """By key and first time: the times."""
    found: Spans = {}
    for key in {key for key, _ in rows}:
        times: list[int] = []
        for at in sorted(at for mine, at in rows if mine == key):
            if times and at > times[-1] + GAP:
                found[key, times[0]] = times
                times = []
            times.append(at)
        found[key, times[0]] = times
    return found


@examples(40)
@given(st.lists(st.lists(ROW, min_size=1, max_size=8), max_size=10), st.data())
def test_what_is_shown_is_the_sessions_of_all_rows_so_far(batches, data):
    bucket, seen, shown, watermark = Bucket(Sessions(COLUMNS, ("k0",))), [], {}, 0
    for batch in batches:
        rows = [(key, at) for key, at in batch if at > watermark]
        if data.draw(st.booleans()):
            bucket.lose_caches()
        out = bucket.step({"rows": frame(rows)}, watermark or None, worker=data.draw(st.integers(0, 1)))
        seen += rows
        told = out.with_columns(pl.col(START, END).to_physical())
        for name in (True, False):  # what is undone goes first
            part = told.filter(pl.col(BEFORE) == name).select("k0", START).rows()
            for key, times in sessions(part).items() if part else ():
                if name:
                    shown.pop(key)
                else:
                    shown[key] = times
        assert shown == (sessions(seen) if seen else {})
        watermark = max(watermark, max((at for _, at in seen), default=0) - data.draw(st.integers(5, 60)))
    for at in range(watermark, watermark + 200, 50):
        out = bucket.step({"rows": frame([])}, at + 1)
        assert out.is_empty()
    assert bucket.rows("rows").is_empty()
    assert bucket.rows("ends").is_empty()
    assert bucket.wake_us is None
