"""Operators over tables from end to end: joins, aggregates and their chains follow every change, over crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace import F
from headrace.errors import InvalidDeclaration
from headrace.pipelines.plan import planned
from headrace.testing import AppUnderTest, Crash, Deleted
from headrace.testing.app import shared_spark
from tests.pipelines.conftest import at

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

ORDERS = "id long, customer long, amount double"
CUSTOMERS = "id int, region string"


def shop() -> hr.App:
    app = hr.App("shop")
    app.table("orders", ORDERS, key="id")
    app.table("customers", CUSTOMERS, key="id")

    @app.view(key="region")
    def regions(orders, customers):  # type: ignore[no-untyped-def]
        joined = hr.join(orders, customers, on={"customer": "id"}, how="left")
        return hr.aggregate(
            joined,
            by="region",
            n=hr.count(),
            total=hr.sum("amount"),
            large=hr.count(where="amount >= 10"),
            most=hr.max("amount"),
            customers=hr.count_distinct("customer"),
        )

    return app


def order(number: int, customer: int | None, amount: float) -> dict[str, object]:
    return {"id": number, "customer": customer, "amount": amount}


def region(name: str | None, n: int, total: float, large: int, most: float, customers: int) -> dict[str, object]:
    return {"region": name, "n": n, "total": total, "large": large, "most": most, "customers": customers}


def test_a_join_of_tables_and_what_is_counted_of_it_follow_every_change(tmp_path: Path) -> None:
    with AppUnderTest(shop(), tmp_path) as run:
        run.send("orders", order(1, 1, 0.1), order(2, 1, 10.0), order(3, 2, 0.2))
        run.send("customers", {"id": 1, "region": "north"}, Crash(), {"id": 2, "region": "south"})
        by_region = {row["region"]: row for row in run.view("regions")}
        assert by_region == {"north": region("north", 2, 10.1, 1, 10.0, 1), "south": region("south", 1, 0.2, 0, 0.2, 1)}
        run.send("orders", order(2, 2, 10.0), order(3, 7, 0.2))
        by_region = {row["region"]: row for row in run.view("regions")}
        assert by_region == {
            "north": region("north", 1, 0.1, 0, 0.1, 1),
            "south": region("south", 1, 10.0, 1, 10.0, 1),
            None: region(None, 1, 0.2, 0, 0.2, 1),
        }
        run.send("orders", Deleted({"id": 2}), Deleted({"id": 3}))
        assert {row["region"]: row for row in run.view("regions")} == {"north": region("north", 1, 0.1, 0, 0.1, 1)}


def test_running_aggregates_tops_and_latest_rows_of_a_stream(tmp_path: Path) -> None:
    app = hr.App("auction")
    app.stream("bids", "auction long, bidder long, price long, at timestamp", event_time="at", lateness="1 minute")

    @app.view(key=["auction", "day"])
    def daily(bids):  # type: ignore[no-untyped-def]
        day = F.to_date("at").alias("day")
        bidders = hr.count_distinct("bidder")
        return hr.aggregate(bids, by=["auction", day], n=hr.count(), bidders=bidders, avg=hr.avg("price"))

    @app.view(key=["auction", "rank"])
    def best(bids):  # type: ignore[no-untyped-def]
        return hr.top(bids.select("auction", "bidder", "price"), 2, by="auction", order="-price")

    @app.view(key=["bidder"])
    def newest(bids):  # type: ignore[no-untyped-def]
        return hr.latest(bids, by="bidder", order="at")

    @app.view(key="rank")
    def most_bids(daily):  # type: ignore[no-untyped-def]
        ranked = hr.top(daily, 1, by="day", order="-n")
        return hr.aggregate(ranked, by="rank", days=hr.count(), bids=hr.sum("n"))

    def bid(auction: int, bidder: int, price: int, second: int) -> dict[str, object]:
        return {"auction": auction, "bidder": bidder, "price": price, "at": f"2026-01-01T00:00:{second:02}Z"}

    with AppUnderTest(app, tmp_path) as run:
        run.send("bids", bid(1, 1, 10, 1), bid(1, 2, 30, 2), Crash("before-commit"), bid(2, 1, 5, 9), bid(1, 1, 20, 3))
        run.send("bids", bid(1, 3, 30, 4), bid(2, 1, 6, 8))
        assert [(row["auction"], row["n"], row["bidders"], row["avg"]) for row in run.view("daily")] == [
            (1, 4, 3, 22.5),
            (2, 2, 1, 5.5),
        ]
        assert [tuple(row[n] for n in ("auction", "rank", "bidder", "price")) for row in run.view("best")] == [
            (1, 1, 2, 30),
            (1, 2, 3, 30),
            (2, 1, 1, 6),
            (2, 2, 1, 5),
        ]
        assert [(row["bidder"], row["auction"], row["price"]) for row in run.view("newest")] == [
            (1, 2, 5),
            (2, 1, 30),
            (3, 1, 30),
        ]
        assert run.view("most_bids") == [{"rank": 1, "days": 1, "bids": 4}]


def wrong_type(orders, customers):  # type: ignore[no-untyped-def]
    return hr.join(orders, customers, on={"amount": "region"})


def other_key(orders, customers):  # type: ignore[no-untyped-def]
    return hr.join(orders, customers, on={"customer": "id"}, suffix="")


def no_table(orders, customers):  # type: ignore[no-untyped-def]
    return hr.join(orders, customers.changes, on={"customer": "id"})


def no_column(orders, customers):  # type: ignore[no-untyped-def]
    return hr.aggregate(orders, by="custmer", n=hr.count())


def no_text(orders, customers):  # type: ignore[no-untyped-def]
    return hr.aggregate(customers, by="id", n=hr.sum("region"))


def no_first(orders, customers):  # type: ignore[no-untyped-def]
    return hr.aggregate(orders, by="id", n=hr.first("amount"))


def no_order(orders, customers):  # type: ignore[no-untyped-def]
    return hr.latest(orders, by="id")


def no_condition(orders, customers):  # type: ignore[no-untyped-def]
    return hr.aggregate(orders, by="id", n=hr.count(where="amonut > 1"))


def test_a_mistake_in_an_operator_is_told_with_its_line(tmp_path: Path) -> None:
    says = {
        wrong_type: "'amount' is double, and 'region' is string",
        other_key: "two columns 'id'",
        no_table: "is about tables, but got a DataFrame",
        no_column: "there is no column 'custmer'",
        no_text: "the column is string",
        no_first: "has no first row",
        no_order: "has no order",
        no_condition: "amonut",
    }
    for function, sentence in says.items():
        app = hr.App("shop")
        app.table("orders", ORDERS, key="id")
        app.table("customers", CUSTOMERS, key="id")
        app.view(key="id")(function)
        with pytest.raises(InvalidDeclaration, match=sentence) as caught:
            planned(shared_spark(), app)
        assert caught.value.detail is not None
        assert caught.value.detail.startswith(f"{__file__}, line ")


def test_groups_of_a_table_may_be_computed_and_types_are_known_before_anything_runs() -> None:
    app = hr.App("shop")
    app.table("orders", ORDERS, key="id")

    @app.view(key="size")
    def sizes(orders):  # type: ignore[no-untyped-def]
        size = F.floor("amount").alias("size")
        return hr.aggregate(orders, by=size, n=hr.count(), most=hr.max("id", where="customer > 1"), mean=hr.avg("id"))

    columns = planned(shared_spark(), app)["sizes"].columns
    assert [(one.name, one.type) for one in columns] == [
        ("size", "bigint"),
        ("n", "bigint"),
        ("most", "bigint"),
        ("mean", "double"),
    ]


def test_distinct_counts_are_taken_of_windows_by_their_start(tmp_path: Path) -> None:
    app = hr.App("shop")
    app.stream("visits", "who string, at timestamp", event_time="at", lateness="1 minute")

    @app.view(key=["minute"])
    def visitors(visits):  # type: ignore[no-untyped-def]
        return hr.aggregate(visits, by=[hr.tumbling("1 minute").start.alias("minute")], n=hr.count_distinct("who"))

    with AppUnderTest(app, tmp_path) as run:
        run.send(
            "visits", *({"who": who, "at": at(second)} for who, second in [("a", 0), ("b", 59), ("a", 7), ("a", 60)])
        )
        assert run.view("visitors") == [{"minute": at(0), "n": 2}, {"minute": at(60), "n": 1}]
