"""NEXMark's patterns in the bids of one bidder on one auction: c0 to c3."""

import headrace as hr
from benchmarks.nexmark.events import bids, declare

app = hr.App("nexmark-patterns")
declare(app)

CHEAP = """
    MATCH_RECOGNIZE (
        PARTITION BY auction, bidder ORDER BY dateTime
        MEASURES first(A.dateTime) AS start_tstamp, last(A.dateTime) AS end_tstamp, avg(A.price) AS avg_price
        ONE ROW PER MATCH AFTER MATCH SKIP {}
        PATTERN (A+ B) DEFINE A AS avg(A.price) < 10000
    )"""


def offered(events):
    """What patterns look at."""
    return bids(events).select("auction", "bidder", "price", "dateTime")


@app.derive()
def c0(events):
    """A price that falls and falls, and then rises."""
    return hr.match(
        offered(events),
        by=["auction", "bidder"],
        pattern="start down+ up",
        define={
            "down": "(last(down.price, 1) IS NULL AND price < start.price) OR price < last(down.price, 1)",
            "up": "price > last(down.price, 1)",
        },
        measures={
            "start_tstamp": "start.dateTime",
            "bottom_tstamp": "last(down.dateTime)",
            "end_tstamp": "last(up.dateTime)",
        },
        after="to last up",
    )


@app.derive()
def c1(events):
    """As many bids as are cheap on average; on after the last of them."""
    return hr.match_recognize(offered(events), CHEAP.format("PAST LAST ROW"))


@app.derive()
def c2(events):
    """The same from every bid on."""
    return hr.match_recognize(offered(events), CHEAP.format("TO NEXT ROW"))


@app.derive()
def c3(events):
    """A price that drops by more than 50 within five seconds."""
    return hr.match(
        offered(events),
        by=["auction", "bidder"],
        pattern="A B* C",
        define={"B": "price > A.price - 50", "C": "price < A.price - 50"},
        measures={"drop_time": "C.dateTime", "drop_diff": "A.price - C.price"},
        within="5 seconds",
    )
