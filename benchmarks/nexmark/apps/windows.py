"""NEXMark's queries over windows of time and over days that Spark's own aggregation says: q5, q8, q11, q12, q17."""

import headrace as hr
from benchmarks.nexmark.events import bids, declare
from headrace import F

app = hr.App("nexmark-windows")
declare(app)


@app.derive()
def q5(events):
    """Hot items: the auctions with the most bids of each ten seconds, every two seconds; all that have as many."""
    window = hr.hopping("10 seconds", every="2 seconds").alias("window")
    counts = bids(events).groupBy(window, "auction").agg(F.count("*").alias("num"))
    every = F.collect_list(F.struct("auction", "num")).alias("every")
    most = counts.groupBy("window").agg(F.max("num").alias("most"), every)
    hot = most.select("window.start", F.explode(F.expr("filter(every, one -> one.num = most)")).alias("hot"))
    return hot.select(F.col("start").alias("window_start"), "hot.auction", "hot.num")


@app.view(key=["window_start", "id"])
def q8(events):
    """New users who sell: people who joined and opened an auction within the same ten seconds."""
    either = events.where("event_type < 2").select(
        "dateTime",
        F.coalesce("person.id", "auction.seller").alias("id"),
        "person.name",
        F.col("auction.seller").isNotNull().alias("sells"),
    )
    window = hr.tumbling("10 seconds").alias("window_start")
    found = either.groupBy(window, "id").agg(F.max("name").alias("name"), F.max("sells").alias("sells"))
    return found.where("name IS NOT NULL AND sells").select("id", "name", "window_start")


@app.derive()
def q11(events):
    """User sessions: how many bids somebody made until there was none for ten seconds; once a session is over."""
    return (
        bids(events).groupBy("bidder", hr.session("10 seconds").alias("session")).agg(F.count("*").alias("bid_count"))
    )


@app.view(key=["bidder", "window"])
def q12(events):
    """How many bids somebody made within ten seconds of processing time."""
    now = F.window(F.current_timestamp(), "10 seconds").alias("window")
    return bids(events).groupBy("bidder", now).agg(F.count("*").alias("bid_count"))


@app.view(key=["auction", "day"])
def q17(events):
    """Statistics of an auction's day."""
    day = F.date_format("dateTime", "yyyy-MM-dd").alias("day")
    return (
        bids(events)
        .groupBy("auction", day)
        .agg(
            F.count("*").alias("total_bids"),
            F.expr("count_if(price < 10000)").alias("rank1_bids"),
            F.expr("count_if(price >= 10000 AND price < 1000000)").alias("rank2_bids"),
            F.expr("count_if(price >= 1000000)").alias("rank3_bids"),
            F.min("price").alias("min_price"),
            F.max("price").alias("max_price"),
            F.avg("price").cast("bigint").alias("avg_price"),
            F.sum("price").alias("sum_price"),
        )
    )
