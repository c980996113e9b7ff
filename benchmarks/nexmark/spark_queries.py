"""NEXMark in plain Spark: the apps' own functions where they use nothing but Spark; others as Spark can say them.

Spark cannot say q4, q6 and q9 (retractions), q7 (too slow to be practical), nor patterns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.nexmark.apps import rows, windows
from benchmarks.nexmark.events import auctions, bids, people

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["QUERIES"]


def q3(events: DataFrame) -> DataFrame:
    sold = auctions(events).where("category = 10").select("id", "seller")
    near = people(events).where("state IN ('OR', 'ID', 'CA')").selectExpr("id AS person", "name", "city", "state")
    return sold.join(near, sold.seller == near.person).select("name", "city", "state", "id")


def q15(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return bids(events).groupBy(F.date_format("dateTime", "yyyy-MM-dd").alias("day")).agg(*_counts())


def q16(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    day = F.date_format("dateTime", "yyyy-MM-dd").alias("day")
    minute = F.max(F.date_format("dateTime", "HH:mm")).alias("minute")
    return bids(events).groupBy("channel", day).agg(minute, *_counts())


def q18(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    last = F.max_by(F.struct("price", "channel", "url", "dateTime", "extra"), F.struct("dateTime", "price"))
    return bids(events).groupBy("bidder", "auction").agg(last.alias("bid"))


def q19(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    top = F.max_by(F.struct("bidder", "price", "channel", "url", "dateTime", "extra"), F.col("price"), 10)
    return bids(events).groupBy("auction").agg(top.alias("top"))


def q20(events: DataFrame) -> DataFrame:
    sold = auctions(events).where("category = 10").withColumnsRenamed({"dateTime": "sold_at", "extra": "sold_extra"})
    offered = bids(events)
    return offered.join(sold, offered.auction == sold.id)


def q23(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    who = people(events).select(F.col("id").alias("person_id"), F.struct("*").alias("person")).drop("dateTime")
    sold = auctions(events).select("seller", F.struct("*").alias("item"))
    offered = bids(events)
    both = offered.join(who, offered.bidder == who.person_id)
    return both.join(sold, both.bidder == sold.seller)


def _counts() -> list[Column]:
    """Counts of bids, and of distinct bidders and auctions, overall and by rank of price."""
    from pyspark.sql import functions as F

    ranks = {
        "total": "true",
        "rank1": "price < 10000",
        "rank2": "price >= 10000 AND price < 1000000",
        "rank3": "price >= 1000000",
    }
    found = [F.expr(f"count_if({rule})").alias(f"{rank}_bids") for rank, rule in ranks.items()]
    for what in ("bidder", "auction"):
        for rank, rule in ranks.items():
            found.append(F.expr(f"size(collect_set(CASE WHEN {rule} THEN {what} END))").alias(f"{rank}_{what}s"))
    return found


_APPS = [rows.app, windows.app]
QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    **{query.name: query.function for app in _APPS for query in app.queries},
    **{function.__name__: function for function in (q3, q15, q16, q18, q19, q20, q23)},
}
