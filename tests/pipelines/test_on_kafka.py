"""The same app on Apache Kafka: streams, views as changelogs, derived streams, dead and late rows, exactly once."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka import admin

from headrace.client import connect
from tests.cli.command import Cli
from tests.pipelines.conftest import order
from tests.pipelines.kill_rounds import PARTITIONS, Driver, Orders, aside, descendants, records, settle
from tests.pipelines.receivers import http_server
from tests.secured import SecureKafka, account
from tests.servers import ApacheKafka
from tests.serving.live import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

SECURED = """
import headrace as hr
from headrace import F

app = hr.App("secured")
app.stream("orders", "order_id string, customer_id long, amount double, ordered_at timestamp",
           event_time="ordered_at", lateness="5 seconds", idle_after="2 seconds")
app.table("customers", key="id", capture=hr.SQLite("{database}", table="customers"))

@app.view(key="customer_id")
def revenue(orders):
    return orders.groupBy("customer_id").agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))

@app.view(key="town")
def towns(customers):
    return hr.aggregate(customers, by="town", n=hr.count())

@app.alert(to=hr.Webhook("{hook}"))
def huge(orders):
    return orders.where("amount >= 100").select("order_id", "amount")
"""


def test_an_app_runs_on_apache_kafka_and_counts_once_over_a_kill(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    kafka = ApacheKafka(tmp_path / "kafka")
    made = admin.AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    made.create_topics([admin.NewTopic("orders", PARTITIONS)])["orders"].result(30)
    driver, source = Driver(tmp_path, kafka), Orders(kafka.bootstrap, seed)
    try:
        driver.wait_until_running()
        until_written(kafka, 100)
        driver.kill9()
        source.stop()
        settle(kafka, driver)

        late = json.dumps(order(-1, -100, 60.0)).encode()
        producer = ck.Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        producer.produce("orders", late, partition=0)
        assert producer.flush(30) == 0
        settle(kafka, driver)
        for query in ("shop.revenue", "shop.large"):
            assert len(aside(kafka, "orders.late", query)) == 1, f"seed {seed}"
        assert [record["value"] for record in records(kafka, "orders.late")] == [late, late]

        cli = Cli(kafka.bootstrap)
        wanted = {"revenue": ("running", 1), "large": ("running", 1), "sizes": ("running", 0)}
        eventually(  # a batch is reported a moment after it is written
            lambda: {one["name"]: (one["state"], one["late"]) for one in cli.run("query", "list", "-o", "json").json},
            lambda found: found == wanted,
        )
        assert driver.stop() == 0
    finally:
        driver.process.end(signal.SIGKILL, 10.0)
        kafka.stop()


def until_written(kafka: ApacheKafka, rows: int) -> None:
    deadline = time.monotonic() + 120
    while len(records(kafka, "large")) < rows:
        assert time.monotonic() < deadline, "nothing comes out"
        time.sleep(0.1)


def test_an_app_runs_where_tls_and_a_password_are_wanted_and_nobody_sees_the_password(tmp_path: Path) -> None:
    """A stream, a captured table, views of both, rows that are dead, an alert; produced, consumed and served."""
    secret = "4c0f-s3cret"
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as database:
        database.executescript(
            "CREATE TABLE customers (id INTEGER PRIMARY KEY, town TEXT);"
            "INSERT INTO customers VALUES (1, 'Bath'), (2, 'Bath'), (3, 'York')"
        )
    kafka = SecureKafka(tmp_path / "kafka", password=secret)
    told = "".join(f"{name}={value}\n" for name, value in account(kafka, "PLAIN", "admin", secret).items())
    (tmp_path / "client.properties").write_text(told)
    cli = Cli(f"kafka://{kafka.bootstrap}", env={"HEADRACE_CLIENT": told})
    cli("topic", "create", "orders", "--partitions", "2")
    with http_server() as receiver:
        app = SECURED.format(database=tmp_path / "shop.sqlite", hook=receiver.address)
        driver = Driver(tmp_path, kafka, ["-X", f"@{tmp_path / 'client.properties'}"], app=app)
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
