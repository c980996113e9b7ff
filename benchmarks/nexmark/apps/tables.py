"""NEXMark's queries whose results change: winning bids, what follows from them, and rows and counts of groups.

q4, q6, q9, q15, q16, q18, q19.
"""

import headrace as hr
from benchmarks.nexmark.events import auctions, bids, declare
from headrace import F

app = hr.App("nexmark-tables")
declare(app)

LONGEST = "10 minutes"
"""No auction is open for longer."""
RANKS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}
COUNTS = {
    **{f"{rank}_bids": hr.count(where=rule) for rank, rule in {"total": None, **RANKS}.items()},
    **{f"{rank}_bidders": hr.count_distinct("bidder", where=rule) for rank, rule in {"total": None, **RANKS}.items()},
    **{f"{rank}_auctions": hr.count_distinct("auction", where=rule) for rank, rule in {"total": None, **RANKS}.items()},
}


def winning(auctions, bids):
    """Of each auction the highest bid while it was open, of equal ones the earliest."""
    offered = bids.withColumnsRenamed({"dateTime": "bid_dateTime", "extra": "bid_extra"})
    pairs = hr.window_join(auctions, offered, on={"id": "auction"}, within=("0 seconds", LONGEST))
    open_bids = pairs.where("bid_dateTime <= expires").drop("joined_at")
    return hr.latest(open_bids, by="id", order="price, -bid_dateTime, -bidder, -bid_extra")


def day():
    """The day of an event."""
    return F.date_format("dateTime", "yyyy-MM-dd").alias("day")


@app.view(key="category")
def q4(events):
    """The average winning price of a category."""
    sold = auctions(events).select("id", "category", "dateTime", "expires")
    offered = bids(events).select("auction", "bidder", "price", "dateTime", "extra")
    return hr.aggregate(winning(sold, offered), by="category", final=hr.avg("price"))


@app.view(key="seller")
def q6(events):
    """The average price of a seller's last ten auctions."""
    sold = auctions(events).select("id", "seller", "dateTime", "expires")
    offered = bids(events).select("auction", "bidder", "price", "dateTime", "extra")
    last = hr.top(winning(sold, offered), 10, by="seller", order="-expires, -id")
    return hr.aggregate(last, by="seller", avg_price=hr.avg("price"))


@app.view(key="id")
def q9(events):
    """Winning bids, with what was sold."""
    return winning(auctions(events), bids(events))


@app.view(key="day")
def q15(events):
    """Bids, bidders and auctions of a day, by rank of price."""
    return hr.aggregate(bids(events).select("bidder", "auction", "price", "dateTime"), by=day(), **COUNTS)


@app.view(key=["channel", "day"])
def q16(events):
    """The same of each channel."""
    offered = bids(events).select(
        "channel", "bidder", "auction", "price", "dateTime", F.date_format("dateTime", "HH:mm").alias("minute")
    )
    return hr.aggregate(offered, by=["channel", day()], minute=hr.max("minute"), **COUNTS)


@app.view(key=["bidder", "auction"])
def q18(events):
    """The last bid of a bidder on an auction."""
    return hr.latest(bids(events), by=["bidder", "auction"], order="dateTime, price, -extra")


@app.view(key=["auction", "rank"])
def q19(events):
    """The ten highest bids on an auction."""
    return hr.top(bids(events), 10, by="auction", order="-price, dateTime, bidder, extra")
