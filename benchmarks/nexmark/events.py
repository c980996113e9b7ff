"""The stream of NEXMark's events, as the apps declare it: all three kinds in one, and how to tell them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["AUCTION", "BID", "LATENESS", "PERSON", "SCHEMA", "auctions", "bids", "declare", "people"]

PERSON = (
    "id:bigint,name:string,emailAddress:string,creditCard:string,city:string,state:string,dateTime:timestamp,"
    "extra:string"
)
AUCTION = (
    "id:bigint,itemName:string,description:string,initialBid:bigint,reserve:bigint,dateTime:timestamp,"
    "expires:timestamp,seller:bigint,category:bigint,extra:string"
)
BID = "auction:bigint,bidder:bigint,price:bigint,channel:string,url:string,dateTime:timestamp,extra:string"
SCHEMA = f"event_type int, person struct<{PERSON}>, auction struct<{AUCTION}>, bid struct<{BID}>, dateTime timestamp"
LATENESS = "4 seconds"


def declare(app: hr.App) -> None:
    """Declare the stream ``events``."""
    app.stream("events", SCHEMA, event_time="dateTime", lateness=LATENESS)


def people(events: DataFrame) -> DataFrame:
    """Those who joined."""
    return _of_kind(events, 0, "person", PERSON)


def auctions(events: DataFrame) -> DataFrame:
    """What is sold."""
    return _of_kind(events, 1, "auction", AUCTION)


def bids(events: DataFrame) -> DataFrame:
    """What is offered."""
    return _of_kind(events, 2, "bid", BID)


def _of_kind(events: DataFrame, kind: int, name: str, fields: str) -> DataFrame:
    """The columns of one kind; ``dateTime`` is the stream's own, which carries the watermark."""
    names = [field.partition(":")[0] for field in fields.split(",")]
    chosen = ["dateTime" if field == "dateTime" else f"{name}.{field}" for field in names]
    return events.where(f"event_type = {kind}").select(*chosen)
