"""What NEXMark's queries must give: recomputed from the generated events, with DuckDB and, for patterns, plain Python.

A result is what a query has given when the stream has ended: every window is closed, and of results that change (q4,
q6, q9, q15 to q19) it is the last state. No event is late. Where the benchmark leaves a choice it is fixed here:

- q4, q6, q17 and c1, c2 cut averages of prices to integers, as SQL does for BIGINT.
- q6 is of the last ten auctions of a seller that had a winning bid, by (expires, id).
- q7 takes bids from a window's start to its end, both included: a bid at the very end with the price of the window's
  highest belongs to that window too. ``window_end`` tells the two apart.
- q5, q7, q8 and q11 show their windows, which the benchmark drops.
- q9 and q19 order bids by price, the highest first, then by dateTime, bidder and extra; q18 by dateTime, the latest
  first, then by price (highest first) and extra.
- q11: a bid exactly ten seconds after the last one still belongs to its session.
- q12 is in processing time: only its counts, per bidder over all windows, can be expected.
- q13 joins with 10,000 rows ``(i, "i")``.
- c0 to c3 take the bids of one bidder on one auction by dateTime, as MATCH_RECOGNIZE does: rows that follow each other,
  greedy, a match once the row after the greedy part is there. c0 needs two falling prices at least, because the rise
  is compared with the last but one. In c1 a start whose rows are all cheap until now holds back those after it, which
  may be part of its match. c3's rows are less than five seconds apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import duckdb
import polars as pl

from benchmarks.nexmark.generator import Events

__all__ = ["NAMES", "expected"]

_WON = """
    SELECT A.*, B.auction, B.bidder, B.price, B.channel, B.url, B.dateTime AS bid_dateTime, B.extra AS bid_extra
    FROM auction A JOIN bid B ON A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
    QUALIFY row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime, B.bidder, B.extra) = 1
"""
_RANKS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}
_COUNTS = ", ".join(
    ["count(*) AS total_bids", *(f"count(*) FILTER ({rule}) AS {rank}_bids" for rank, rule in _RANKS.items())]
)
_DISTINCT = ", ".join(
    f"count(DISTINCT {what}) {f'FILTER ({rule})' if rule else ''} AS {rank}_{what}s"
    for what in ("bidder", "auction")
    for rank, rule in {"total": "", **_RANKS}.items()
)
_DAY = "strftime(dateTime, '%Y-%m-%d')"
_MINUTE = "strftime(dateTime, '%H:%M')"
_TUMBLE = "time_bucket(INTERVAL 10 SECONDS, dateTime)"

_SQL = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')""",
    "q4": f"SELECT category, CAST(sum(price) // count(*) AS BIGINT) AS final FROM ({_WON}) GROUP BY category",
    "q5": """
        WITH hops AS (
            SELECT auction, time_bucket(INTERVAL 2 SECONDS, dateTime) - to_seconds(2 * hop) AS window_start
            FROM bid, range(5) AS hops(hop)
        )
        SELECT window_start, auction, count(*) AS num FROM hops GROUP BY window_start, auction
        QUALIFY num = max(num) OVER (PARTITION BY window_start)""",
    "q6": f"""
        WITH recent AS (
            SELECT seller, price FROM ({_WON})
            QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) <= 10
        )
        SELECT seller, CAST(sum(price) // count(*) AS BIGINT) AS avg_price FROM recent GROUP BY seller""",
    "q7": f"""
        WITH highest AS (
            SELECT max(price) AS price, {_TUMBLE} + INTERVAL 10 SECONDS AS window_end FROM bid GROUP BY window_end
        )
        SELECT window_end, auction, bidder, price, dateTime, extra FROM bid B JOIN highest H USING (price)
        WHERE B.dateTime BETWEEN H.window_end - INTERVAL 10 SECONDS AND H.window_end""",
    "q8": f"""
        WITH joined AS (SELECT DISTINCT id, name, {_TUMBLE} AS window_start FROM person),
            sold AS (SELECT DISTINCT seller, {_TUMBLE} AS window_start FROM auction)
        SELECT id, name, J.window_start FROM joined J JOIN sold S ON id = seller AND J.window_start = S.window_start""",
    "q9": _WON.replace("A.*", "A.* EXCLUDE (n)"),
    "q10": f"SELECT auction, bidder, price, dateTime, extra, {_DAY} AS dt, {_MINUTE} AS hm FROM bid",
    "q11": """
        WITH begun AS (
            SELECT bidder, dateTime,
                coalesce(dateTime - lag(dateTime) OVER w > INTERVAL 10 SECONDS, true)::INT AS begins
            FROM bid WINDOW w AS (PARTITION BY bidder ORDER BY dateTime)
        ), numbered AS (SELECT *, sum(begins) OVER (PARTITION BY bidder ORDER BY dateTime) AS number FROM begun)
        SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime,
            max(dateTime) + INTERVAL 10 SECONDS AS endtime
        FROM numbered GROUP BY bidder, number""",
    "q12": "SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder",
    "q13": "SELECT auction, bidder, price, dateTime, CAST(auction % 10000 AS VARCHAR) AS value FROM bid",
    "q14": """
        SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price,
            CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
            dateTime, extra, CAST(len(extra) - len(replace(extra, 'c', '')) AS BIGINT) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"SELECT {_DAY} AS day, {_COUNTS}, {_DISTINCT} FROM bid GROUP BY day",
    "q16": f"""
        SELECT channel, {_DAY} AS day, max({_MINUTE}) AS minute, {_COUNTS}, {_DISTINCT}
        FROM bid GROUP BY channel, day""",
    "q17": f"""
        SELECT auction, {_DAY} AS day, {_COUNTS}, min(price) AS min_price, max(price) AS max_price,
            CAST(sum(price) // count(*) AS BIGINT) AS avg_price, CAST(sum(price) AS BIGINT) AS sum_price
        FROM bid GROUP BY auction, day""",
    "q18": """
        SELECT * EXCLUDE (n) FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, price DESC, extra) = 1""",
    "q19": """
        SELECT * EXCLUDE (n),
            row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, bidder, extra) AS rank_number
        FROM bid QUALIFY rank_number <= 10""",
    "q20": """
        SELECT auction, bidder, price, channel, url, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
            itemName, description, initialBid, reserve, A.dateTime, expires, seller, category, A.extra
        FROM bid B JOIN auction A ON B.auction = A.id WHERE category = 10""",
    "q21": """
        WITH named AS (
            SELECT auction, bidder, price, channel, CASE lower(channel)
                WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id
            FROM bid
        ) SELECT * FROM named WHERE channel_id IS NOT NULL""",
    "q22": """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
            split_part(url, '/', 6) AS dir3 FROM bid""",
    "q23": """
        SELECT bidder, price, channel, url, B.extra AS bid_extra, P.id AS person_id, name, emailAddress, creditCard,
            city, state, P.extra AS person_extra, itemName, description, initialBid, reserve,
            A.dateTime AS auction_dateTime, expires, seller, category, A.extra AS auction_extra
        FROM bid B JOIN person P ON P.id = B.bidder JOIN auction A ON A.seller = B.bidder""",
}

Row = dict[str, Any]
Found = tuple[int, Row | None]
"""Where the search goes on, and the measures of a match."""


def expected(name: str, events: Events) -> pl.DataFrame:
    """The rows of a query (``q0`` to ``q23``, ``c0`` to ``c3``), in no order."""
    if name in _PATTERNS:
        return _matches(events.bids, _PATTERNS[name])
    with duckdb.connect() as connection:
        for table, frame in zip(("person", "auction", "bid"), events.frames, strict=True):
            connection.register(table, frame.to_arrow())
        return connection.sql(_SQL[name]).pl()


def _matches(bids: pl.DataFrame, find: Callable[[list[Row], int], Found | None]) -> pl.DataFrame:
    found = []
    ordered = bids.sort("dateTime", maintain_order=True)
    for (auction, bidder), rows in ordered.group_by(["auction", "bidder"], maintain_order=True):
        key = {"auction": auction, "bidder": bidder}
        found += [{**key, **measures} for measures in _search(rows.to_dicts(), find)]
    return pl.DataFrame(found, infer_schema_length=None)


def _search(rows: list[Row], find: Callable[[list[Row], int], Found | None]) -> Iterator[Row]:
    at = 0
    while at < len(rows):
        match = find(rows, at)
        if match is None:
            at += 1
        else:
            at, measures = match
            if measures is not None:
                yield measures


def _falls_then_rises(rows: list[Row], start: int) -> Found | None:
    """c0: from one price down at least twice, then above the last but one; on from the rise."""
    end = start + 1
    while end < len(rows) and rows[end]["price"] < rows[end - 1]["price"]:
        end += 1
    if end - start < 3 or end == len(rows) or rows[end]["price"] <= rows[end - 2]["price"]:
        return None
    times = [rows[at]["dateTime"] for at in (start, end - 1, end)]
    return end, dict(zip(("start_tstamp", "bottom_tstamp", "end_tstamp"), times, strict=True))


def _cheap(rows: list[Row], start: int) -> Found | None:
    """c1: as many rows as have a mean price below 10,000 so far, and one more; on after that."""
    total, end = 0, start
    while end < len(rows) and total + rows[end]["price"] < 10_000 * (end - start + 1):
        total += rows[end]["price"]
        end += 1
    if end in (start, len(rows)):
        return None if end == start else (end, None)
    times = {"start_tstamp": rows[start]["dateTime"], "end_tstamp": rows[end - 1]["dateTime"]}
    return end + 1, {**times, "avg_price": total // (end - start)}


def _cheap_everywhere(rows: list[Row], start: int) -> Found | None:
    """c2: on from the next row."""
    found = _cheap(rows, start)
    return (start + 1, found[1]) if found else None


def _drops(rows: list[Row], start: int) -> Found | None:
    """c3: from one price, rows above 50 less, then one below that; within five seconds; on after the last row."""
    first = rows[start]
    limit, latest = first["price"] - 50, _before(first["dateTime"])
    for end in range(start + 1, len(rows)):
        row = rows[end]
        if row["dateTime"] >= latest or row["price"] == limit:
            return None
        if row["price"] < limit:
            return end + 1, {"drop_time": row["dateTime"], "drop_diff": first["price"] - row["price"]}
    return None


def _before(begun: datetime) -> datetime:
    return begun + timedelta(seconds=5)


_PATTERNS: dict[str, Callable[[list[Row], int], Found | None]] = {
    "c0": _falls_then_rises,
    "c1": _cheap,
    "c2": _cheap_everywhere,
    "c3": _drops,
}
NAMES = (*_SQL, *_PATTERNS)
"""All queries."""
