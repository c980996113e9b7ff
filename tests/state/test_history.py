"""Versions with the times in which they held, against a plain search through all changes."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipelines.history import History
from tests.state.bucket import Bucket
from tests.state.streams import AT, frame

COLUMNS = {"id": pl.String(), "town": pl.String(), "tags": pl.List(pl.Int64())}
CHANGES = {**COLUMNS, "_deleted": pl.Boolean(), "_time": AT}
CHANGE = st.tuples(
    st.sampled_from(["a", "b"]), st.sampled_from(["x", "y", None]), st.booleans(), st.integers(0, 8)
).map(lambda g: (g[0], g[1], None if g[1] is None else [len(g[1])], g[2], g[3]))
BATCHES = st.lists(
    st.tuples(st.lists(CHANGE, min_size=1, max_size=4), st.sampled_from(["stay", "other worker", "lost"])), max_size=8
)


def as_of(changes: list[Any], key: str, second: int) -> Any:
    """The row that held at a time: the last by time, then by the order of arrival."""
    known = [(change[4], place) for place, change in enumerate(changes) if change[0] == key and change[4] <= second]
    if not known:
        return None
    _, town, tags, deleted, _ = changes[max(known)[1]]
    return None if deleted else (key, town, tags)


def seconds(time: Any) -> int | None:
    return None if time is None else int(time.timestamp())


@settings(max_examples=40)
@given(BATCHES, st.booleans())
def test_at_every_time_the_history_has_the_row_that_held_then(batches, before):
    bucket, worker = Bucket(History(COLUMNS, ("id",), before)), 0
    rows: dict[tuple[str, int | None], Any] = {}
    changes: list[Any] = []
    for batch, fate in batches:
        if fate == "lost":
            bucket.lose_caches()
        worker = 1 - worker if fate == "other worker" else worker
        changes += batch
        out = bucket.step({"rows": frame(batch, CHANGES)}, worker=worker)
        seen = set()
        for deletion in (True, False):
            for row in out.filter(pl.col("_deleted") == deletion).iter_rows(named=True):
                key = (row["id"], seconds(row["valid_from"]))
                whole = (row["id"], row["town"], row["tags"], seconds(row["valid_to"]))
                assert (key, deletion) not in seen, "a batch has at most one deletion and one row of a key"
                seen.add((key, deletion))
                if deletion:
                    assert rows.pop(key) == whole, "what is deleted is what was there"
                else:
                    assert not before or key not in rows, "a row that is replaced is deleted first"
                    assert rows.get(key) != whole, "only what has changed comes out"
                    rows[key] = whole
        for name in ("a", "b"):
            for second in range(-1, 10):
                holding = [
                    row[:3]
                    for (key, since), row in rows.items()
                    if key == name and since <= second and (row[3] is None or second < row[3])
                ]
                assert holding == ([found] if (found := as_of(changes, name, second)) else [])
    for name in ("a", "b"):
        mine = sorted((since, row) for (key, since), row in rows.items() if key == name)
        for (_, row), (since, later) in pairwise(mine):
            assert row[3] < since or row[:3] != later[:3], "a version that changes nothing is none"


def test_the_operator_travels_to_workers():
    assert pickle.loads(pickle.dumps(History(COLUMNS, ("id",)))) == History(COLUMNS, ("id",))
