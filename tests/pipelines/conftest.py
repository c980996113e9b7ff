"""An app to try things with."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import headrace as hr
from headrace import F

ORDERS = "order_id string, customer_id long, amount double, ordered_at timestamp"
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(seconds: float) -> str:
    return (BEGIN + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def order(number: int, seconds: float, amount: float | None = 1.0, customer: int | None = 1) -> dict[str, Any]:
    return {"order_id": str(number), "customer_id": customer, "amount": amount, "ordered_at": at(seconds)}


@pytest.fixture
def shop() -> hr.App:
    """Orders, their sum per minute and customer, and the large ones as a stream."""
    app = hr.App("shop")
    app.stream("orders", ORDERS, event_time="ordered_at", lateness="10 seconds")

    @app.view(key=["minute", "customer_id"])
    def revenue(orders):  # type: ignore[no-untyped-def]
        by = hr.tumbling("1 minute").alias("minute"), "customer_id"
        return orders.groupBy(*by).agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))

    @app.derive(key="order_id", event_time="ordered_at", lateness="10 seconds")
    def large(orders):  # type: ignore[no-untyped-def]
        return orders.where("amount >= 100")

    return app


def revenue_row(minute: int, customer: int, revenue: float, orders: int, *, final: bool) -> dict[str, Any]:
    return {
        "minute": at(60 * minute),
        "minute_end": at(60 * minute + 60),
        "customer_id": customer,
        "revenue": revenue,
        "orders": orders,
        "final": final,
    }
