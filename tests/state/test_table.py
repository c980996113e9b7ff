"""State tables and their chunks against a plain list of rows."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.state import Changes, Step, TableType
from headrace.pipelines.state.cache import Cache
from headrace.pipelines.state.chunks import DamagedChunk, decode, encode, to_merge
from headrace.pipelines.state.keyed_state import KeyedState
from headrace.pipelines.state.operator import ID
from tests.examples import examples
from tests.state.bucket import Bucket

KIND = TableType({"key": pl.String(), "number": pl.Int64()}, ("key",))
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 9)), max_size=6)
BATCH = st.tuples(ROWS, st.integers(0, 9), st.sampled_from(["stay", "other worker", "lost", "done twice"]))


class Keep:
    """Adds its rows, and removes those whose number was asked for."""

    tables = {"rows": KIND}

    def step(self, state, delta, watermark_us):
        gone = state["rows"].where(pl.col("number") == watermark_us)
        again = state["rows"].lookup(pl.DataFrame({"number": [watermark_us]}), ("number",))
        assert again.sort(ID).equals(gone.sort(ID)), "rows are found by other columns too"
        found = state["rows"].lookup(delta["rows"].select("key"))
        return Step(found, {"rows": Changes(delta["rows"], gone[ID])}, state["rows"].min("number"))


def frame(rows):
    return pl.DataFrame(rows, schema=KIND.columns, orient="row")


@examples(50)
@given(st.lists(BATCH, max_size=60))
def test_a_table_is_what_was_added_and_not_removed_whatever_is_merged_and_lost(batches):
    bucket, plain, worker = Bucket(Keep()), [], 0
    for rows, removed, fate in batches:
        if fate == "lost":
            bucket.lose_caches()
        worker = 1 - worker if fate == "other worker" else worker
        if fate == "done twice":
            bucket.step({"rows": frame([("a", 7), *rows])}, removed, worker=worker, aborted=True)
        found = bucket.step({"rows": frame(rows)}, removed, worker=worker)
        keys = {key for key, _ in rows}
        assert sorted(found.drop(ID).rows(), key=str) == sorted([r for r in plain if r[0] in keys], key=str)
        assert bucket.wake_us == min((number for _, number in plain), default=None)
        plain = [row for row in plain if row[1] != removed] + rows
    assert bucket.rows("rows").drop(ID).rows() == plain
    assert len(bucket.chunks) < 2 * 16 + 6
    assert len(bucket.store) == sum(entry.pieces for entry in bucket.chunks)


def test_a_cache_keeps_what_was_used_last_within_its_bound():
    states = [KeyedState(Keep()) for _ in range(3)]
    for state in states:
        state.take({"rows": Changes(frame([("a", number) for number in range(1000)]))})
    cache = Cache(2 * states[0].size)
    for number, state in enumerate(states):
        cache.put(("query", 0, number), "id", state)
    assert cache.take(("query", 0, 0)) is None
    assert cache.take(("query", 0, 2)) == ("id", states[2])
    small = Cache(1)
    small.put(("query", 0, 0), "id", states[0])
    assert small.take(("query", 0, 0)) is not None


def test_a_bucket_that_is_larger_than_the_bound_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    state = KeyedState(Keep())
    state.take({"rows": Changes(frame([("a", number) for number in range(1000)]))})
    roomy, small = Cache(state.size), Cache(state.size - 1)
    roomy.put(("shop.sums", 0, 5), "id", state)
    assert not caplog.messages
    for name in (("shop.sums", 0, 5), ("shop.sums", 0, 6), ("shop.sums", 0, 5), ("shop.sums", 1, 5)):
        small.put(name, "id", state)
    first, second = caplog.messages
    assert first.startswith("bucket 5 of the state of shop.sums, operator 0 takes ")
    assert "`headrace query rescale shop.sums --buckets N`" in first
    assert "operator 1" in second


def test_a_large_chunk_is_kept_in_pieces():
    bucket = Bucket(Keep())
    noise = random.Random(7)  # what cannot be made small
    rows = [(noise.randbytes(150).hex(), number) for number in range(40_000)]
    bucket.step({"rows": frame(rows)}, -1)
    assert bucket.chunks[0].pieces > 1
    assert bucket.rows("rows").drop(ID).rows() == rows
    del bucket.store[(0, 0)]
    with pytest.raises(DamagedChunk, match="chunk 0 of bucket 0"):
        bucket.rows("rows")


def test_a_chunk_with_a_flipped_bit_is_refused_and_named():
    chunk = encode({"rows": Changes(frame([("a", 1)]).with_row_index(ID), None, 1)})
    assert decode(chunk)["rows"].next_id == 1
    for at in range(0, len(chunk), 7):
        flipped = chunk[:at] + bytes([chunk[at] ^ 1]) + chunk[at + 1 :]
        with pytest.raises(DamagedChunk, match="bucket 3 cannot be read"):
            decode(flipped, "bucket 3")


def test_merging_leaves_a_number_of_chunks_that_grows_with_the_logarithm():
    sizes: list[int] = []
    for _ in range(5000):
        sizes.append(100)
        if (wanted := to_merge(sizes)) is not None:
            sizes[wanted.start : wanted.stop] = [sum(sizes[wanted.start : wanted.stop])]
    assert len(sizes) < 45
    assert sum(sizes) == 500_000
