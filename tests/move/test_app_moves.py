"""An app that has run on the embedded log goes on where it was on Apache Kafka: nothing is counted twice or lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Cli, Ran
from tests.move import logs
from tests.pipelines.conftest import order
from tests.servers import ApacheKafka, Headrace

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

APP = """
import headrace as hr
from headrace import F

app = hr.App("shop")
app.stream("orders", "order_id string, customer_id long, amount double, ordered_at timestamp",
           event_time="ordered_at", lateness="5 seconds", idle_after="2 seconds")

@app.view(key="customer_id")
def totals(orders):
    return orders.groupBy("customer_id").agg(F.count("*").alias("orders"))

@app.derive(key="order_id")
def large(orders):
    return orders.where("amount >= 50").select("order_id", "amount")
"""


def test_an_app_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    node, kafka = Headrace(tmp_path / "node"), ApacheKafka(tmp_path / "kafka")
    try:
        logs.make_topic(node.bootstrap, "orders", 2)
        write(node.bootstrap, 0, 60)
        run(node.bootstrap, node.data, tmp_path)
        assert totals(node.bootstrap) == {0: 20, 1: 20, 2: 20}
        batch = mark(node.bootstrap)["batch"]

        moved = Cli(node.bootstrap).run(
            "move", "--to", f"kafka://{kafka.bootstrap}", "--data", str(node.data), timeout=240
        )
        assert moved.code == 0, moved.err
        node.stop()
        write(kafka.bootstrap, 60, 90)
        run(kafka.bootstrap, node.data, tmp_path)

        assert totals(kafka.bootstrap) == {0: 30, 1: 30, 2: 30}
        assert mark(kafka.bootstrap)["batch"] > batch
        written = [json.loads(value)["order_id"] for *_, value, _ in logs.seen(kafka.bootstrap, "large") if value]
        assert sorted(map(int, written)) == [number for number in range(90) if number % 2]
    finally:
        node.stop()
        kafka.stop()


def write(bootstrap: str, first: int, end: int) -> None:
    made = logs.producer(bootstrap)
    for number in range(first, end):
        row = order(number, number * 0.1, 100.0 if number % 2 else 1.0, number % 3)
        made.produce("orders", json.dumps(row).encode(), partition=number % 2)
    assert made.flush(30) == 0


def run(bootstrap: str, data: Path, folder: Path) -> Ran:
    arguments = ("--once", "--server", bootstrap, "--data", str(data), "--master", "local[2]")
    ran = Cli().run("run", str(folder / "shop.py"), *arguments, timeout=300)
    assert ran.code == 0, ran.out + ran.err
    return ran


def totals(bootstrap: str) -> dict[int, int]:
    rows = [json.loads(value) for *_, value, _ in logs.seen(bootstrap, "shop.totals") if value]
    return {row["customer_id"]: row["orders"] for row in rows}


def mark(bootstrap: str) -> dict[str, int]:
    found = [value for _, _, _, key, value, _ in logs.seen(bootstrap, "headrace.marks") if key == b"shop.totals/0"]
    told: dict[str, int] = json.loads(found[-1] or b"{}")
    return told
