"""NEXMark's generator: an event is a function of the seed and its number; the proportions are the benchmark's."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from benchmarks.nexmark.generator import Events, Settings, Stream, generate
from hypothesis import given, settings
from hypothesis import strategies as st

MANY = 100_000


@pytest.fixture(scope="module")
def many() -> Events:
    return generate(Settings(), 0, MANY)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    first, again, other = (Stream(Settings(seed=seed)).records(0, 1_000) for seed in (7, 7, 8))
    assert first.equals(again)
    assert not first["value"].equals(other["value"])


@settings(max_examples=25)
@given(
    start=st.integers(0, 10**9),
    sizes=st.lists(st.integers(0, 120), min_size=1, max_size=4),
    group=st.sampled_from([1, 7, 100]),
)
def test_ranges_can_be_generated_separately(start: int, sizes: list[int], group: int) -> None:
    stream = Stream(Settings(out_of_order=group))
    edges = [start, *(start + sum(sizes[: at + 1]) for at in range(len(sizes)))]
    whole = stream.records(edges[0], edges[-1])
    parts = pl.concat(stream.records(first, last) for first, last in pairwise(edges))
    assert parts.equals(whole)


def test_out_of_order_events_are_the_same_events_mixed_up_within_their_groups() -> None:
    ordered, mixed = (Stream(Settings(out_of_order=group)).records(0, 1_000) for group in (1, 100))
    assert mixed.sort("n").equals(ordered)
    assert not mixed.equals(ordered)
    assert (mixed["n"] // 100).to_list() == [place // 100 for place in range(1_000)]


def test_of_fifty_events_one_is_a_person_and_three_are_auctions_with_ids_in_order(many: Events) -> None:
    assert [len(frame) for frame in many.frames] == [MANY // 50, 3 * MANY // 50, 46 * MANY // 50]
    assert many.people["id"].to_list() == list(range(1000, 1000 + MANY // 50))
    assert many.auctions["id"].to_list() == list(range(1000, 1000 + 3 * MANY // 50))
    assert set((many.bids["n"] % 50).unique()) == set(range(4, 50))


def test_json_is_what_the_columns_say() -> None:
    events, records = generate(Settings(), 0, 500), Stream().records(0, 500)
    rows = dict(zip(records["n"], map(json.loads, records["value"]), strict=True))
    for kind, (name, frame) in enumerate(zip(("person", "auction", "bid"), events.frames, strict=True)):
        for row in frame.to_dicts():
            found = rows[number := row.pop("n")]
            inner = found.pop(name)
            times = {key: datetime.fromisoformat(inner[key]) for key in ("dateTime", "expires") if key in inner}
            assert {**inner, **times} == row
            others = {"person", "auction", "bid"} - {name}
            assert found == {"event_type": kind, "dateTime": inner["dateTime"], **dict.fromkeys(others)}
            timestamp = records.row(by_predicate=pl.col("n") == number, named=True)["timestamp"]
            assert timestamp == 1_748_822_340_000 + number // 10


def test_hot_ids_channels_prices_and_lengths_have_the_proportions_of_the_benchmark(many: Events) -> None:
    bids, auctions = many.bids, many.auctions
    newest = bids["n"] // 50 * 3 + 2
    behind = bids["auction"] - 1000 - newest
    assert (behind.min() >= -100, behind.max()) == (True, 10)
    assert np.isclose((bids["auction"] - 1000 == newest // 100 * 100).mean(), 0.5, atol=0.02)
    assert np.isclose((bids["bidder"] - 2000 == bids["n"] // 50 // 100 * 100 + 1).mean(), 0.75, atol=0.02)
    assert np.isclose((auctions["seller"] - 1000 == auctions["n"] // 50 // 100 * 100).mean(), 0.75, atol=0.03)
    assert np.isclose(bids["channel"].is_in(["Google", "Facebook", "Baidu", "Apple"]).mean(), 0.5, atol=0.02)
    assert np.isclose(bids["url"].str.contains("channel_id").mean(), 0.45, atol=0.02)
    assert np.isclose((bids["price"] < 10_000).mean(), 1 / 3, atol=0.02)
    assert (bids["price"].min() >= 100, bids["price"].max() <= 10**8) == (True, True)
    assert set(auctions["category"]) == {10, 11, 12, 13, 14}
    assert np.isclose(bids["extra"].str.len_bytes().mean(), 68, atol=1)
    open_for = (auctions["expires"] - auctions["dateTime"]).dt.total_milliseconds()
    assert (open_for.min() >= 1, open_for.max() <= 2 * 167) == (True, True)
    assert np.isclose(open_for.mean(), 167, atol=10)


def test_a_bidder_is_as_far_ahead_as_the_settings_say() -> None:
    far, near = (generate(Settings(bidder_lead=lead), 0, 5_000).bids for lead in (1000, 0))
    assert (far["bidder"] - 1000).equals(near["bidder"])
    assert far.drop("bidder").equals(near.drop("bidder"))
