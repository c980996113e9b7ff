"""Keyed operators in apps, from rows sent to rows written: crashes, watermarks, what follows them in Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace import F
from headrace.errors import InvalidDeclaration
from headrace.pipelines.plan import planned
from headrace.testing import AppUnderTest, Crash
from headrace.testing.app import shared_spark
from tests.pipelines.conftest import ORDERS, at, order

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

SEARCHES = "search_id string, words string, searched_at timestamp"
CLICKS = "search_id string, page long, clicked_at timestamp"


def search(name: str | None, seconds: float) -> dict[str, Any]:
    return {"search_id": name, "words": f"words of {name}", "searched_at": at(seconds)}


def click(name: str | None, page: int, seconds: float) -> dict[str, Any]:
    return {"search_id": name, "page": page, "clicked_at": at(seconds)}


def test_streams_join_whichever_comes_first_and_windows_follow(tmp_path: Path) -> None:
    app = hr.App("web")
    app.stream("searches", SEARCHES, event_time="searched_at", lateness="20 seconds")
    app.stream("clicks", CLICKS, event_time="clicked_at", lateness="20 seconds")

    @app.view(key="minute")
    def found(searches, clicks):  # type: ignore[no-untyped-def]
        joined = hr.window_join(searches, clicks, on="search_id", within=("0 seconds", "30 seconds"), how="full")
        window = hr.tumbling("1 minute", on="joined_at").alias("minute")
        return joined.groupBy(window).agg(
            F.count("words").alias("searches"), F.count("page").alias("clicks"), F.count("*").alias("rows")
        )

    with AppUnderTest(app, tmp_path) as run:
        run.send("clicks", click("a", 1, 10), click("b", 2, 40), click(None, 9, 11))
        run.send("searches", search("a", 5), search("b", 5), search(None, 5), Crash("before-commit"), search("c", 12))
        run.send("clicks", click("c", 3, 30), click("a", 4, 35), click("z", 5, 200), Crash("after-commit"))
        run.send("searches", search("z", 200))
        assert [tuple(row.values()) for row in run.view("found")] == [
            (at(0), at(60), 5, 5, 7, True),  # joined: a twice, c; alone: b and nobody, on either side
            (at(180), at(240), 1, 1, 1, False),
        ]


def test_an_order_is_priced_with_the_rate_of_its_time_and_windows_follow(tmp_path: Path) -> None:
    app = hr.App("shop")
    app.stream("orders", ORDERS, event_time="ordered_at")
    app.table("rates", "id int, rate double, since timestamp", key="id", valid_from="since", history=True)

    @app.view(key=["minute"])
    def taxes(orders, rates):  # type: ignore[no-untyped-def]
        priced = hr.enrich(orders, rates, on={"customer_id": "id"}, as_of="ordered_at")
        rated = priced.withColumn("rated", F.concat_ws(":", "order_id", "rates_version"))
        return rated.groupBy(hr.tumbling("1 minute").alias("minute")).agg(
            F.sum(F.col("amount") * F.col("rate")).alias("tax"), F.sort_array(F.collect_list("rated")).alias("rated")
        )

    @app.derive()
    def latest(orders, rates):  # type: ignore[no-untyped-def]
        return hr.enrich(orders, rates, on={"customer_id": "id"}, missing="drop").select("order_id", "rate")

    with AppUnderTest(app, tmp_path) as run:
        run.send("rates", {"id": 1, "rate": 0.5, "since": at(0)}, {"id": 1, "rate": 0.25, "since": at(30)})
        run.send("orders", order(1, 29, 8.0), order(2, 30, 8.0), order(3, 31, 8.0, customer=2), Crash("before-commit"))
        run.send("rates", {"id": 2, "rate": 1.0, "since": at(31)})
        run.send("orders", order(4, 32, 8.0, customer=None), Crash("after-commit"), order(5, 120))
        (row,) = run.view("taxes")
        assert (row["minute"], row["tax"], row["final"]) == (at(0), 14.0, True)
        assert row["rated"] == ["1:0-0", "2:0-1", "3:0-2", "4"]
        assert sorted((row["order_id"], row["rate"]) for row in run.stream("latest")) == [
            ("1", 0.25),
            ("2", 0.25),
            ("5", 0.25),
        ]


def test_windows_slide_and_operators_of_the_users_own_remind(tmp_path: Path) -> None:
    app = hr.App("shop")
    app.stream("orders", ORDERS, event_time="ordered_at", lateness="5 seconds")

    @app.derive()
    def busy(orders):  # type: ignore[no-untyped-def]
        found = hr.sliding(orders, "10 seconds", by="customer_id", total=hr.sum("amount"), n=hr.count())
        return found.select("order_id", "total", "n")

    @hr.operator(
        by="customer_id",
        state="customer_id long, total double, remind_at timestamp",
        output="customer_id long, total double",
        wake="remind_at",
    )
    def quiet(state, rows, watermark):  # type: ignore[no-untyped-def]
        new = rows.select("customer_id", total="amount", remind_at=pl.col("ordered_at") + pl.duration(seconds=30))
        by_key = pl.concat([state, new]).group_by("customer_id")
        both = by_key.agg(pl.col("total").sum(), pl.col("remind_at").max())
        over = pl.col("remind_at") <= watermark
        return both.filter(~over), both.filter(over).drop("remind_at")

    @app.derive()
    def reminders(orders):  # type: ignore[no-untyped-def]
        return quiet(orders)

    with AppUnderTest(app, tmp_path) as run:
        run.send("orders", order(1, 10, 0.1), order(3, 20, 0.3), Crash("before-commit"), order(2, 16, 0.2))
        run.send("orders", order(4, 21, 5.0, customer=2), order(5, 100, customer=3))
        seen = sorted((row["order_id"], row["total"], row["n"]) for row in run.stream("busy"))
        assert seen == [("1", 0.1, 1), ("2", 0.30000000000000004, 2), ("3", 0.6, 3), ("4", 5.0, 1)]
        spent = sorted((row["customer_id"], row["total"]) for row in run.stream("reminders"))
        assert [(who, round(total, 9)) for who, total in spent] == [(1, 0.6), (2, 5.0)]


def test_operators_in_event_time_follow_each_other_and_nothing_is_late_for_a_window(tmp_path: Path) -> None:
    app = hr.App("shop")
    app.stream("orders", ORDERS, event_time="ordered_at", lateness="5 seconds")
    app.table("rates", "id int, rate double, since timestamp", key="id", valid_from="since", history=True)

    @app.view(key=["minute"])
    def taxes(orders, rates):  # type: ignore[no-untyped-def]
        priced = hr.enrich(orders, rates, on={"customer_id": "id"}, as_of="ordered_at")
        lately = hr.sliding(priced, "30 seconds", by="customer_id", paid=hr.sum("amount"))
        return lately.groupBy(hr.tumbling("1 minute").alias("minute")).agg(
            F.sum(F.col("amount") * F.col("rate")).alias("tax"), F.max("paid").alias("most"), F.count("*").alias("n")
        )

    with AppUnderTest(app, tmp_path) as run:
        run.send("rates", {"id": 1, "rate": 0.5, "since": at(0)})
        run.send("orders", order(1, 5, 8.0), order(2, 30, 2.0))
        run.send("orders", order(3, 200, 4.0), Crash("before-commit"), order(4, 400, 6.0))
        run.send("orders", order(5, 600))
        assert [(row["minute"], row["tax"], row["most"], row["n"]) for row in run.view("taxes") if row["final"]] == [
            (at(0), 5.0, 10.0, 2),
            (at(180), 2.0, 4.0, 1),
            (at(360), 3.0, 6.0, 1),
        ]


def test_an_operator_of_the_users_own_takes_several_inputs_and_windows_follow(tmp_path: Path) -> None:
    app = hr.App("web")
    app.stream("searches", SEARCHES, event_time="searched_at", lateness="5 seconds")
    app.stream("clicks", CLICKS.replace("search_id", "searched"), event_time="clicked_at", lateness="5 seconds")

    @hr.operator(
        by="search_id",
        inputs={"searches": "search_id", "clicks": "searched"},
        state="search_id string, until timestamp",
        output="search_id string, at timestamp",
        wake="until",
        event_time="at",
    )
    def ignored(state, rows, watermark):  # type: ignore[no-untyped-def]
        new = rows["searches"].select("search_id", until=pl.col("searched_at") + pl.duration(seconds=30))
        waiting = pl.concat([state, new]).join(rows["clicks"], left_on="search_id", right_on="searched", how="anti")
        over = pl.col("until") <= watermark
        nowhere = rows["clicks"].filter(pl.col("page").is_null()).with_columns(_reason=pl.lit("no page"))
        return waiting.filter(~over), waiting.filter(over).rename({"until": "at"}), nowhere

    @app.view(key="minute")
    def seen(searches, clicks):  # type: ignore[no-untyped-def]
        found = ignored(searches=searches, clicks=clicks)
        window = hr.tumbling("1 minute", on="at").alias("minute")
        return found.groupBy(window).agg(F.sort_array(F.collect_list("search_id")).alias("ignored"))

    def clicked(name: str, page: int | None, seconds: float) -> dict[str, Any]:
        return {"searched": name, "page": page, "clicked_at": at(seconds)}

    with AppUnderTest(app, tmp_path) as run:
        run.send("searches", search("a", 5), search("b", 6), search("c", 20))
        run.send("clicks", clicked("b", 1, 10), Crash("before-commit"), clicked("z", None, 11))
        run.send("searches", search("d", 200))
        run.send("clicks", clicked("y", 2, 200), Crash("after-commit"))
        run.send("searches", search("e", 400))
        run.send("clicks", clicked("y", 3, 400))
        assert [(row["minute"], row["ignored"]) for row in run.view("seen") if row["final"]] == [
            (at(0), ["a", "c"]),
            (at(180), ["d"]),
        ]
        (letter,) = run.letters("web.seen.dead")
        assert (letter.reason, letter.headers["headrace.detail"]) == ("no page", "by operator 'ignored'")


def test_a_stream_joins_itself_in_spark(tmp_path: Path) -> None:
    app = hr.App("shop")
    app.stream("orders", ORDERS, event_time="ordered_at")

    @app.derive()
    def twice(orders):  # type: ignore[no-untyped-def]
        both = hr.window_join(orders, orders, on="customer_id", within="5 seconds")
        return both.where("order_id < order_id_right").select("order_id", "order_id_right", "ordered_at_right")

    with AppUnderTest(app, tmp_path) as run:
        run.send("orders", order(1, 0), order(2, 4))
        run.send("orders", order(3, 9), order(4, 9, customer=2), Crash(), order(5, 10, customer=2))
        seen = sorted((row["order_id"], row["order_id_right"], row["ordered_at_right"]) for row in run.stream("twice"))
        assert seen == [("1", "2", at(4)), ("2", "3", at(9)), ("4", "5", at(10))]


MISTAKES: dict[str, Callable[[Any, Any], Any]] = {
    r"no column 'custmer_id'.*did you mean 'customer_id'": lambda o, r: hr.sliding(
        o, "1 s", by="custmer_id", n=hr.count()
    ),
    "'5 lightyears' is not a length": lambda o, r: hr.sliding(o, "5 lightyears", n=hr.count()),
    "has no aggregate": lambda o, r: hr.sliding(o, "5 s"),
    r"hr.sum\('order_id'\).*is string": lambda o, r: hr.sliding(o, "5 s", n=hr.sum("order_id")),
    "two columns 'amount'": lambda o, r: hr.sliding(o, "5 s", amount=hr.count()),
    "no event time": lambda o, r: hr.sliding(o.drop("ordered_at"), "5 s", n=hr.count()),
    "'rates' is a table.*hr.enrich": lambda o, r: hr.window_join(o, r, on="id", within="5 s"),
    "how='outer'": lambda o, r: hr.window_join(o, o, on="customer_id", within="5 s", how="outer"),
    "is string, and 'amount' is double": lambda o, r: hr.window_join(o, o, on={"order_id": "amount"}, within="5 s"),
    "which nothing is": lambda o, r: hr.window_join(o, o, on="customer_id", within=("5 s", "1 s")),
    "is on rate, but the key of table 'rates' is id": lambda o, r: hr.enrich(o, r, on={"amount": "rate"}),
    "missing='keep'": lambda o, r: hr.enrich(o, r, on={"customer_id": "id"}, missing="keep"),
    "'amount', is double": lambda o, r: hr.enrich(o, r, on={"customer_id": "id"}, as_of="amount"),
    "has no table": lambda o, r: hr.enrich(o, o, on="customer_id"),
}


def calling(mistake: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def result(orders, rates):  # type: ignore[no-untyped-def]
        return mistake(orders, rates)

    return result


def test_a_mistake_in_an_operator_is_told_with_its_line() -> None:
    for says, mistake in MISTAKES.items():
        app = hr.App("shop")
        app.stream("orders", ORDERS, event_time="ordered_at")
        app.table("rates", "id int, rate double", key="id")

        app.derive()(calling(mistake))
        with pytest.raises(InvalidDeclaration, match=says) as caught:
            planned(shared_spark(), app)
        assert caught.value.detail is not None
        assert caught.value.detail.startswith(f"{__file__}, line ")


def test_an_enrichment_as_of_a_time_whose_table_forgets_is_told_with_its_line() -> None:
    app = hr.App("shop")
    app.stream("orders", ORDERS, event_time="ordered_at")
    app.table("rates", "id int, rate double", key="id")
    app.table("prices", "id int, price double", key="id", history=True)

    @app.derive()
    def priced(orders, rates, prices):  # type: ignore[no-untyped-def]
        on = {"customer_id": "id"}
        rated = hr.enrich(orders, rates, on=on, as_of="ordered_at")
        return hr.enrich(rated, prices, on=on, as_of="ordered_at")

    @app.derive()
    def latest(orders, rates):  # type: ignore[no-untyped-def]
        return hr.enrich(orders, rates, on={"customer_id": "id"})

    plans = planned(shared_spark(), app)
    (remark,) = plans["priced"].remarks
    assert "only the latest version of a row of 'rates'" in remark
    assert f"({__file__}, line " in remark
    assert "history=True" in remark
    assert plans["latest"].remarks == ()


def test_what_the_documentation_shows_can_be_planned() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "apps.md").read_text()
    section = text.split("## What Spark lacks")[1].split("\n## ")[0]
    app = hr.App("docs")
    app.stream("orders", f"{ORDERS}, country string", event_time="ordered_at")
    app.stream("searches", SEARCHES, event_time="searched_at")
    app.stream("clicks", CLICKS, event_time="clicked_at")
    bids = "auction long, bidder long, price long, channel string, at timestamp"
    app.stream("bids", bids, event_time="at")
    shown = re.findall(r"^```python\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
    for block in shown:
        exec(block, {"app": app, "hr": hr, "F": F})
    assert len(shown) >= 4
    assert {"answered", "invoices", "busy", "totals", "ignored_searches"} <= set(planned(shared_spark(), app))
