"""What NEXMark's oracle says of events made by hand, where the benchmark's definition is easy to get wrong."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
from benchmarks.nexmark.generator import Events, Settings, generate
from benchmarks.nexmark.oracle import NAMES, expected

START = datetime(2025, 6, 1, 12)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def bids(*rows: tuple[float, int], bidder: int = 1) -> Events:
    """Bids of one bidder on one auction: (seconds, price)."""
    made = generate(Settings(), 0, 50)
    offered = pl.DataFrame(
        [
            {
                "n": n,
                "auction": 1,
                "bidder": bidder,
                "price": price,
                "channel": "Apple",
                "url": "https://a/b/c/d",
                "dateTime": at(seconds),
                "extra": str(n),
            }
            for n, (seconds, price) in enumerate(rows)
        ],
        schema=made.bids.schema,
    )
    return Events(made.people.clear(), made.auctions.clear(), offered)


def test_there_are_twenty_four_queries_and_four_patterns() -> None:
    assert (*(f"q{number}" for number in range(24)), *(f"c{number}" for number in range(4))) == NAMES


def test_a_bid_at_the_end_of_a_window_is_shown_with_its_highest_too() -> None:
    found = expected("q7", bids((3, 9), (4, 8), (10, 9))).sort("window_end", "dateTime")
    assert found.select("window_end", "dateTime").rows() == [(at(10), at(3)), (at(10), at(10)), (at(20), at(10))]


def test_a_bid_just_ten_seconds_later_is_of_the_same_session() -> None:
    found = expected("q11", bids((0, 1), (10, 1), (20.001, 1))).sort("starttime")
    assert found.select("bid_count", "starttime", "endtime").rows() == [(2, at(0), at(20)), (1, at(20.001), at(30.001))]


def test_windows_that_hop_show_all_auctions_with_the_most_bids() -> None:
    found = expected("q5", bids((0, 1), (1, 1), (9, 1))).sort("window_start")
    assert found.select("window_start", "num").rows() == [
        (at(-8), 2),
        (at(-6), 2),
        (at(-4), 2),
        (at(-2), 2),
        (at(0), 3),
        (at(2), 1),
        (at(4), 1),
        (at(6), 1),
        (at(8), 1),
    ]


def test_prices_fall_twice_and_rise_above_the_last_but_one_and_the_rise_begins_anew() -> None:
    found = expected("c0", bids((0, 9), (1, 8), (2, 7), (3, 9), (4, 5), (5, 4), (6, 6), (7, 1), (8, 2)))
    assert found.select("start_tstamp", "bottom_tstamp", "end_tstamp").rows() == [
        (at(0), at(2), at(3)),
        (at(3), at(5), at(6)),
    ]


def test_one_falling_price_is_not_enough() -> None:
    assert expected("c0", bids((0, 9), (1, 8), (2, 9))).is_empty()


def test_prices_are_cheap_on_average_until_one_ends_it() -> None:
    events = bids((0, 5_000), (1, 12_000), (2, 30_000), (3, 100), (4, 200), (5, 90_000))
    once, everywhere = (
        expected(name, events).select("start_tstamp", "end_tstamp", "avg_price").rows() for name in ("c1", "c2")
    )
    assert once == [(at(0), at(1), 8_500), (at(3), at(4), 150)]
    assert everywhere == [(at(0), at(1), 8_500), (at(3), at(4), 150), (at(4), at(4), 200)]


def test_a_start_that_is_still_open_holds_back_those_after_it() -> None:
    events = bids((0, 100), (1, 200), (2, 20_000))
    assert expected("c1", events).is_empty()
    assert expected("c2", events).select("start_tstamp").rows() == [(at(1),)]


def test_a_price_drops_by_more_than_fifty_within_five_seconds() -> None:
    assert expected("c3", bids((0, 100), (1, 60), (4.9, 40))).select("drop_time", "drop_diff").rows() == [(at(4.9), 60)]
    assert expected("c3", bids((0, 100), (5, 40))).is_empty()
    assert expected("c3", bids((0, 100), (1, 50))).is_empty()
