"""The same app on executors of their own, which read and write over the Kafka protocol: an executor is killed, then the
driver, and what comes out is what a recomputation gives.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka import admin

from tests.pipelines.conftest import order
from tests.pipelines.kill_rounds import CLUSTER, PARTITIONS, Driver, Orders, aside, records, settle
from tests.servers import ApacheKafka

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]


def test_a_cluster_counts_once_though_an_executor_and_the_driver_are_killed(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    kafka = ApacheKafka(tmp_path / "kafka")
    made = admin.AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    made.create_topics([admin.NewTopic("orders", PARTITIONS)])["orders"].result(30)
    checkpoints = ["--checkpoints", (tmp_path / "shared").as_uri()]
    driver, source = Driver(tmp_path, kafka, checkpoints, spark=CLUSTER), Orders(kafka.bootstrap, seed)
    try:
        driver.wait_until_running()
        until_written(kafka, 50)
        before = driver.executors()
        assert driver.kill_executor(random.Random(seed)), f"seed {seed}"
        until_replaced(driver, before)
        until_written(kafka, len(records(kafka, "large")) + 50)
        driver.data = tmp_path / "another machine"  # all that it needs is where the checkpoints are
        driver.kill9()
        source.stop()
        settle(kafka, driver)

        late = json.dumps(order(-1, -100, 60.0)).encode()
        producer = ck.Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        producer.produce("orders", late, partition=0)
        assert producer.flush(30) == 0
        settle(kafka, driver)
        for query in ("shop.revenue", "shop.large", "shop.best"):
            until_late(kafka, query)
        assert driver.stop() == 0
        (cluster,) = (tmp_path / "shared").iterdir()
        assert {one.name for one in (cluster / "shop").iterdir()} == {
            f"shop.{query}" for query in ("revenue", "large", "sizes", "best")
        }
    finally:
        driver.process.end(signal.SIGKILL, 10.0)
        kafka.stop()


def until(holds: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.2)


def until_written(kafka: ApacheKafka, rows: int) -> None:
    until(lambda: len(records(kafka, "large")) >= rows, "nothing comes out")


def until_late(kafka: ApacheKafka, query: str) -> None:
    until(lambda: len(aside(kafka, "orders.late", query)) == 1, f"{query} has no late row")


def until_replaced(driver: Driver, before: list[int]) -> None:
    """Spark has started another executor in the place of the one that was killed."""

    def replaced() -> bool:
        now = driver.executors()
        return not set(now) <= set(before) and len(now) >= len(before)

    until(replaced, "no other executor was started")
