"""Tables of an SQLite file in an app: views, joins as of a time, history and outboxes follow every change."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import F
from headrace.errors import HeadraceError, InvalidDeclaration
from headrace.testing import AppUnderTest

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

CUSTOMERS = "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, town TEXT, credit DECIMAL(10,2), vip BOOLEAN)"


def execute(path: Path, *statements: str) -> list[Any]:
    """Run statements, each in a transaction of a connection of its own."""
    found: list[Any] = []
    for statement in statements:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            found = list(connection.execute(statement))
    return found


def copied(app: hr.App) -> None:
    """A view that is the table."""

    @app.view(key="id")
    def same(customers):  # type: ignore[no-untyped-def]
        return customers.changes


def test_a_view_of_a_captured_table_is_the_table_and_its_columns_are_the_databases(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    execute(path, CUSTOMERS, "INSERT INTO customers VALUES (1, 'Ada', 'Bath', 12.5, 1), (2, 'Bo', NULL, NULL, 0)")
    app = hr.App("shop")
    app.table("customers", key="id", capture=hr.SQLite(path, table="customers"))
    copied(app)

    @app.view(key="town")
    def towns(customers):  # type: ignore[no-untyped-def]
        return hr.aggregate(customers, by="town", n=hr.count(), vips=hr.count(where="vip"), credit=hr.sum("credit"))

    with AppUnderTest(app, tmp_path, partitions=2) as run:
        run.capture()
        assert [column.type for column in run.app["customers"].columns] == [  # type: ignore[union-attr]
            "bigint", "string", "string", "decimal(10,2)", "boolean"
        ]  # fmt: skip
        ada = {"id": 1, "name": "Ada", "town": "Bath", "credit": "12.50", "vip": True}
        bo = {"id": 2, "name": "Bo", "town": None, "credit": None, "vip": False}
        assert run.view("same") == [ada, bo]
        execute(
            path,
            "UPDATE customers SET town = 'York' WHERE id = 1",
            "UPDATE customers SET id = 3 WHERE id = 2",
            "INSERT OR REPLACE INTO customers VALUES (1, 'Ada', 'Ely', 1, 0)",
            "INSERT INTO customers VALUES (4, 'Cy', 'Ely', 2.25, 1)",
            "INSERT INTO customers VALUES (5, 'Di', 'Ely', 9, 1)",
            "DELETE FROM customers WHERE id = 5",
        )
        run.capture()
        run.crash()
        rows = execute(path, "SELECT id, name, town FROM customers ORDER BY id")
        assert [(row["id"], row["name"], row["town"]) for row in run.view("same")] == rows
        assert {row["town"]: (row["n"], row["vips"], row["credit"]) for row in run.view("towns")} == {
            "Ely": (2, 1, "3.25"),
            None: (1, 0, None),
        }


def test_an_event_sees_the_row_as_it_was_in_the_database_at_its_time(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    execute(path, CUSTOMERS)
    app = hr.App("shop")
    app.table("customers", key="id", capture=hr.SQLite(path, table="customers"), history=True)
    app.stream("orders", "order_id long, customer_id long, at timestamp", event_time="at")

    @app.view(key="order_id")
    def placed(orders, customers):  # type: ignore[no-untyped-def]
        return hr.enrich(orders, customers, on={"customer_id": "id"}, as_of="at").select("order_id", "town")

    @app.view(key=["id", "valid_from"])
    def versions(customers):  # type: ignore[no-untyped-def]
        return hr.history(customers)

    with AppUnderTest(app, tmp_path) as run:
        run.capture()
        execute(path, "INSERT INTO customers VALUES (1, 'Ada', 'Bath', 1, 1)")
        changes = '"_headrace.shop.customers.changes"'
        for number, sql in enumerate(
            ["UPDATE customers SET town = 'York'", "UPDATE customers SET town = 'York'", "DELETE FROM customers"], 2
        ):
            execute(path, sql, f"UPDATE {changes} SET at = {number}000 WHERE id = {number}")
        execute(path, f"UPDATE {changes} SET at = 1000 WHERE id = 1")
        run.capture()
        run.send("orders", *({"order_id": n, "customer_id": 1, "at": f"1970-01-01T00:00:0{n}.5Z"} for n in range(6)))
        run.send("orders", {"order_id": 9, "customer_id": 9, "at": "1970-01-01T00:10:00Z"})
        assert [row["town"] for row in run.view("placed")] == [None, "Bath", "York", "York", None, None]
        found = [(row["town"], row["valid_from"][17:19], row["valid_to"][17:19]) for row in run.view("versions")]
        assert found == [("Bath", "01", "02"), ("York", "02", "04")]


def test_history_of_a_table_that_does_not_keep_it_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    execute(path, CUSTOMERS)
    app = hr.App("shop")
    app.table("customers", capture=hr.SQLite(path, table="customers"))

    @app.view(key=["id", "valid_from"])
    def versions(customers):  # type: ignore[no-untyped-def]
        return hr.history(customers)

    with pytest.raises(InvalidDeclaration, match="keeps only the latest version"), AppUnderTest(app, tmp_path):
        pass


def test_an_outbox_is_a_stream_of_events_of_its_own_keys_and_types(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    execute(
        path,
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, total REAL)",
        "CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, type TEXT, payload TEXT, "
        "tenant TEXT)",
    )
    app = hr.App("shop")
    app.stream(
        "order_events",
        "order_id long, total double",
        capture=hr.outbox(hr.SQLite(path, table="outbox"), headers=["tenant"]),
    )

    @app.view(key="_type")
    def kinds(order_events):  # type: ignore[no-untyped-def]
        return order_events.groupBy("_type").agg(F.sum("total").alias("total"), F.max("_key").alias("key"))

    with AppUnderTest(app, tmp_path) as run:
        run.capture()
        with closing(sqlite3.connect(path)) as connection:
            for number in (1, 2, 3):
                with connection:  # state and event in one transaction; the event may be deleted at once
                    payload = json.dumps({"order_id": number, "total": 2.5})
                    connection.execute("INSERT INTO orders VALUES (?, 2.5)", (number,))
                    event = (f"e{number}", "order", f"o-{number}", "Placed" if number < 3 else "Paid", payload, "north")
                    connection.execute("INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?)", event)
                    connection.execute("DELETE FROM outbox")
            connection.execute("INSERT INTO outbox VALUES ('e4', 'order', 'o-4', 'Placed', '{}', NULL)")
            connection.rollback()
        run.capture()
        assert run.view("kinds") == [
            {"_type": "Paid", "total": 2.5, "key": "o-3"},
            {"_type": "Placed", "total": 5.0, "key": "o-2"},
        ]
        first = run._records("order_events")[0]
        assert first["key"] == b'"o-1"'
        headers = {header["key"]: header["value"] for header in first["headers"]}
        assert headers == {"id": b"e1", "type": b"Placed", "aggregate": b"order", "tenant": b"north"}


def test_new_columns_wait_for_a_rebuild_and_dropped_ones_are_null(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    execute(path, "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)", "INSERT INTO customers VALUES (1, 'a')")

    def shop() -> hr.App:
        app = hr.App("shop")
        app.table("customers", capture=hr.SQLite(path, table="customers"))
        copied(app)
        return app

    with AppUnderTest(shop(), tmp_path) as run:
        run.capture()
        run.stop()
        execute(path, "ALTER TABLE customers ADD COLUMN age INTEGER", "INSERT INTO customers VALUES (2, 'b', 30)")
        run.app = shop()
        run.start()
        run.capture()
        assert run.view("same") == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
        run.stop()
        run.app, run.rebuild = shop(), True
        run.start()
        execute(path, "UPDATE customers SET age = 31 WHERE id = 2")
        run.capture()
        rows = [{"id": 1, "name": "a", "age": None}, {"id": 2, "name": "b", "age": 31}]
        assert run.view("same") == rows


def test_a_database_that_cannot_be_asked_is_an_error_that_says_where_it_is_declared(tmp_path: Path) -> None:
    app = hr.App("shop")
    app.table("customers", capture=hr.SQLite(tmp_path / "none.sqlite", table="customers"))
    copied(app)
    with pytest.raises(HeadraceError, match="there is no SQLite file") as refused, AppUnderTest(app, tmp_path):
        pass
    assert Path(__file__).name in str(refused.value.detail)
