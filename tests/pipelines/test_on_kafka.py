"""An app on Apache Kafka that wants TLS and a password. ``tests/cluster`` has what is killed, and late rows."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headrace.client import connect
from tests.cli.command import Cli
from tests.pipelines.conftest import order
from tests.pipelines.kill_rounds import Driver, descendants
from tests.pipelines.receivers import http_server
from tests.secured import SecureKafka, account
from tests.serving.live import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

SECURED = """
import headrace as hr
from headrace import F

app = hr.App("secured")
app.stream("orders", "order_id string, customer_id long, amount double, ordered_at timestamp",
           event_time="ordered_at", lateness="5 seconds", idle_after="2 seconds")
app.table("customers", key="id", capture=hr.SQLite("{database}", table="customers"))

@app.view(key="customer_id")
def revenue(orders):
    assert orders.sparkSession.sparkContext.getConf().get("spark.hadoop.fs.s3a.secret.key").endswith("t: #\\u00fc = 1")
    return orders.groupBy("customer_id").agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))

@app.view(key="town")
def towns(customers):
    return hr.aggregate(customers, by="town", n=hr.count())

@app.alert(to=hr.Webhook("{hook}"))
def huge(orders):
    return orders.where("amount >= 100").select("order_id", "amount")
"""


def test_an_app_runs_where_tls_and_a_password_are_wanted_and_nobody_sees_the_password(tmp_path: Path) -> None:
    """A stream, a captured table, views of both, rows that are dead, an alert; produced, consumed and served. Spark has
    a secret of its own."""
    secret = "4c0f-s3cret"
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as database:
        database.executescript(
            "CREATE TABLE customers (id INTEGER PRIMARY KEY, town TEXT);"
            "INSERT INTO customers VALUES (1, 'Bath'), (2, 'Bath'), (3, 'York')"
        )
    kafka = SecureKafka(tmp_path / "kafka", password=secret)
    told = "".join(f"{name}={value}\n" for name, value in account(kafka, "PLAIN", "admin", secret).items())
    (tmp_path / "client.properties").write_text(told)
    (tmp_path / "spark.properties").write_text(f"spark.hadoop.fs.s3a.secret.key={secret}: #\u00fc = 1\n")
    cli = Cli(f"kafka://{kafka.bootstrap}", env={"HEADRACE_CLIENT": told})
    cli("topic", "create", "orders", "--partitions", "2")
    with http_server() as receiver:
        app = SECURED.format(database=tmp_path / "shop.sqlite", hook=receiver.address)
        options = ["-X", f"@{tmp_path / 'client.properties'}", "--spark-conf", f"@{tmp_path / 'spark.properties'}"]
        driver = Driver(tmp_path, kafka, options, app=app)
        try:
            driver.wait_until_running()
            lines = [json.dumps(order(number, number, 1.0 + number)) for number in range(100)]
            cli("produce", "orders", stdin="\n".join(["{broken", *lines]))
            served = eventually(
                lambda: connect(driver.web).view("secured.revenue").rows(),
                lambda rows: sum(row["orders"] for row in rows) == 100,
            )
            assert sum(row["revenue"] for row in served) == 5050.0
            eventually(
                lambda: {row["town"]: row["n"] for row in connect(driver.web).view("towns").rows()},
                lambda found: found == {"Bath": 2, "York": 1},
            )
            eventually(
                lambda: [json.loads(body)["order_id"] for _, body in receiver.requests], lambda got: got == ["99"]
            )
            assert set(cli("consume", "orders.dead", "--exit-at-end").lines) == {"{broken"}  # of each query once
            assert {one["state"] for one in cli("query", "list", "-o", "json").json} == {"running"}
            for pid, line in descendants(driver.process.popen.pid):
                assert secret.encode() not in line, pid
            assert driver.stop() == 0
            for path in (*tmp_path.glob("*.log"), *(tmp_path / "data").rglob("*")):
                assert not path.is_file() or secret.encode() not in path.read_bytes(), path
        finally:
            driver.process.end(signal.SIGKILL, 10.0)
            kafka.stop()
