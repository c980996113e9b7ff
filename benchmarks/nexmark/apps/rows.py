"""NEXMark's queries that look at one row at a time: q0, q1, q2, q10, q13, q14, q21, q22."""

import headrace as hr
from benchmarks.nexmark.events import bids, declare
from headrace import F

app = hr.App("nexmark-rows")
declare(app)

IN_DOLLARS = "CAST(0.908 * price AS DECIMAL(23, 3))"


@app.derive()
def q0(events):
    """Pass through: what reading and writing cost."""
    return bids(events).select("auction", "bidder", "price", "dateTime", "extra")


@app.derive()
def q1(events):
    """Currency conversion."""
    return bids(events).selectExpr("auction", "bidder", f"{IN_DOLLARS} AS price", "dateTime", "extra")


@app.derive()
def q2(events):
    """Selection."""
    return bids(events).where("auction % 123 = 0").select("auction", "price")


@app.derive(event_time="dateTime")
def q10(events):
    """The log into files: the rows with their folder, a day and a minute."""
    minute = F.date_format("dateTime", "HH:mm").alias("hm")
    day = F.date_format("dateTime", "yyyy-MM-dd").alias("dt")
    return bids(events).select("auction", "bidder", "price", "dateTime", "extra", day, minute)


@app.derive()
def q13(events):
    """Join with a bounded side input."""
    side = events.sparkSession.range(10_000).selectExpr("id AS key", "CAST(id AS STRING) AS value")
    joined = bids(events).withColumn("key", F.expr("auction % 10000")).join(F.broadcast(side), "key")
    return joined.select("auction", "bidder", "price", "dateTime", "value")


@app.derive()
def q14(events):
    """Calculation: a filter, a case, a count of characters."""
    hour = F.hour("dateTime")
    time = F.when(hour.between(8, 18), "dayTime").when((hour <= 6) | (hour >= 20), "nightTime").otherwise("otherTime")
    converted = bids(events).where("0.908 * price > 1000000 AND 0.908 * price < 50000000")
    return converted.select(
        "auction",
        "bidder",
        F.expr(IN_DOLLARS).alias("price"),
        time.alias("bidTimeType"),
        "dateTime",
        "extra",
        F.expr("CAST(length(extra) - length(replace(extra, 'c', '')) AS BIGINT)").alias("c_counts"),
    )


@app.derive()
def q21(events):
    """The channel's id: by its name, or out of the url."""
    named = F.expr(
        """CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
            WHEN 'baidu' THEN '3' ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END"""
    )
    found = bids(events).select("auction", "bidder", "price", "channel", named.alias("channel_id"))
    return found.where("channel_id IS NOT NULL")


@app.derive()
def q22(events):
    """The folders of the url."""
    folders = [F.expr(f"split_part(url, '/', {at + 3})").alias(f"dir{at}") for at in (1, 2, 3)]
    return bids(events).select("auction", "bidder", "price", "channel", *folders)
