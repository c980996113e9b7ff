"""NEXMark's queries that join people, auctions and bids as they come, however long apart: q3, q20, q23."""

import headrace as hr
from benchmarks.nexmark.events import auctions, bids, declare, people

app = hr.App("nexmark-joins")
declare(app)

EVER = "36500 days"


@app.derive()
def q3(events):
    """Local items: who sells in some states, and what."""
    sold = auctions(events).where("category = 10").select("id", "seller", "dateTime")
    near = people(events).where("state IN ('OR', 'ID', 'CA')").select("id", "name", "city", "state", "dateTime")
    found = hr.window_join(sold, near, on={"seller": "id"}, within=EVER)
    return found.select("name", "city", "state", "id")


@app.derive()
def q20(events):
    """Bids with what is sold."""
    sold = auctions(events).where("category = 10")
    offered = bids(events).withColumnsRenamed({"dateTime": "bid_dateTime", "extra": "bid_extra"})
    return hr.window_join(offered, sold, on={"auction": "id"}, within=EVER).drop("id", "joined_at")


@app.derive()
def q23(events):
    """Bids of people who sell something themselves, with who they are and what they sell."""
    who = people(events).withColumnsRenamed({"id": "person_id", "extra": "person_extra"})
    sold = auctions(events).withColumnsRenamed({"id": "sold", "dateTime": "auction_dateTime", "extra": "auction_extra"})
    offered = bids(events).withColumnsRenamed({"dateTime": "bid_dateTime", "extra": "bid_extra"})
    known = hr.window_join(offered, who, on={"bidder": "person_id"}, within=EVER, time="known_at")
    found = hr.window_join(known.drop("bid_dateTime", "dateTime"), sold, on={"bidder": "seller"}, within=EVER)
    return found.drop("auction", "known_at", "sold", "joined_at")
