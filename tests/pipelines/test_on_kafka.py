"""The same app on Apache Kafka: streams, views as changelogs, derived streams, dead and late rows, exactly once."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka import admin

from tests.cli.command import Cli
from tests.pipelines.conftest import order
from tests.pipelines.kill_rounds import PARTITIONS, Driver, Orders, aside, records, settle
from tests.servers import ApacheKafka

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


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

        found = Cli(kafka.bootstrap).run("query", "list", "-o", "json").json
        assert {one["name"]: (one["state"], one["late"]) for one in found} == {
            "revenue": ("running", 1),
            "large": ("running", 1),
            "sizes": ("running", 0),
        }
        assert driver.stop() == 0
    finally:
        driver.process.end(signal.SIGKILL, 10.0)
        kafka.stop()


def until_written(kafka: ApacheKafka, rows: int) -> None:
    deadline = time.monotonic() + 120
    while len(records(kafka, "large")) < rows:
        assert time.monotonic() < deadline, "nothing comes out"
        time.sleep(0.1)
