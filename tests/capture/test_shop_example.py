"""The shop example on a real PostgreSQL: its views are what the database says, also of the past."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

import pytest

from headrace.capture.run import CaptureRun
from headrace.capture.settings import CaptureSettings
from headrace.clock import SystemClock
from headrace.pipelines.load import load_app
from headrace.testing import AppUnderTest
from tests.capture.databases import Postgres
from tests.servers import ROOT

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


def test_views_of_the_shop_are_what_its_database_says(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.execute("create database shop")
    for statement in (
        "create table customers (id bigint primary key, name text, town text)",
        "create table products (id bigint primary key, name text, price numeric(10,2), "
        "updated_at timestamptz default now())",
        "insert into customers values (1, 'Ada', 'Bath'), (2, 'Bo', 'Bath'), (3, 'Cy', 'Ely')",
        "insert into products values (7, 'tea', 3.50)",
    ):
        postgres.execute(statement, "shop")
    monkeypatch.setenv("SHOP_DSN", postgres.dsn("shop"))
    app = load_app(str(ROOT / "examples" / "shop.py"))
    with AppUnderTest(app, tmp_path, clock=SystemClock()) as run:  # type: ignore[arg-type]  # Connect needs time to pass
        settings = CaptureSettings(run.bootstrap, tmp_path, home=ROOT / ".tools" / "capture")
        captures = CaptureRun(app.name, app.captured, settings, print)
        captures.start()
        try:
            assert captures.wait_until_current(threading.Event())
            before = dt.datetime.now(dt.UTC)
            for statement in (
                "update products set price = 4.25 where id = 7",
                "update customers set town = 'Ely' where id = 1",
                "delete from customers where id = 3",
                "begin; insert into customers values (9, 'No', 'York'); rollback",
            ):
                postgres.execute(statement, "shop")
            after = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
            assert captures.wait_until_current(threading.Event())
        finally:
            captures.stop()
        orders = [(1, before, 2), (2, after, 2), (3, after + dt.timedelta(minutes=30), 1)]
        run.send(
            "orders",
            *(
                {"order_id": n, "customer_id": 1, "product_id": 7, "quantity": q, "ordered_at": at.isoformat()}
                for n, at, q in orders
            ),
        )
        assert {row["town"]: row["customers"] for row in run.view("customers_by_town")} == dict(
            postgres.execute("select town, count(*) from customers group by town", "shop")
        )
        assert [(row["order_id"], row["name"], row["total"]) for row in run.view("invoices")] == [
            (1, "tea", "7.00"),
            (2, "tea", "8.50"),
        ]
        versions = run.view("prices")
        assert [row["price"] for row in versions] == ["3.50", "4.25"]
        assert versions[0]["valid_to"] == versions[1]["valid_from"]
        assert versions[1]["valid_to"] is None
