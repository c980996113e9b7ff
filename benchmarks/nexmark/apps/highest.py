"""NEXMark's q7, with an operator of its own: the highest bids of each ten seconds."""

import polars as pl

import headrace as hr
from benchmarks.nexmark.events import bids, declare
from headrace import F

app = hr.App("nexmark-highest")
declare(app)

BID = "window_end timestamp, auction bigint, bidder bigint, price bigint, dateTime timestamp, extra string"


@hr.operator(by="window_end", state=f"{BID}, counts boolean", output=BID, wake="window_end")
def highest(state, rows, watermark):
    """Keeps those of a window that may be its highest; gives them when the window is over."""
    every = pl.concat([state, rows.select(state.columns)])
    price = pl.col("price").filter("counts").max().over("window_end")
    over = pl.col("window_end") <= watermark
    contenders = every.filter(pl.col("price") >= price.fill_null(0))
    return contenders.filter(~over), contenders.filter(over & (pl.col("price") == price)).drop("counts")


@app.derive()
def q7(events):
    """Highest bids. A bid at the very end of a window is in the next one, but is shown with the window's highest."""
    start = F.window("dateTime", "10 seconds").start
    own = F.struct((start + F.expr("INTERVAL 10 SECONDS")).alias("window_end"), F.lit(True).alias("counts"))
    before = F.struct(start.alias("window_end"), F.lit(False).alias("counts"))
    windows = F.when(F.col("dateTime") == start, F.array(own, before)).otherwise(F.array(own))
    offered = bids(events).select(F.inline(windows), "auction", "bidder", "price", "dateTime", "extra")
    return highest(offered)
