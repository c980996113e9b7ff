"""What apps read, from end to end: the record's own columns, devices' clocks, tables and their deletes, views of
views, and where a stream begins; and what a lag tool sees of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import headrace as hr
from headrace import F
from headrace.feed.topics import settings_of_topic
from headrace.testing import AppUnderTest, Crash, Deleted, ManualClock
from tests.pipelines.conftest import BEGIN, ORDERS, at, order

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

BEGIN_MS = int(BEGIN.timestamp() * 1000)


def devices() -> hr.App:
    app = hr.App("devices")
    clock = hr.DeviceClock(occurred="occurred", sent="sent")
    schema = "device string, occurred timestamp, sent timestamp, clock_offset_ms long"
    app.stream("readings", schema, event_time="occurred", clock=clock, raw=True)

    @app.view(key="minute", partitions=2)
    def by_minute(readings):  # type: ignore[no-untyped-def]
        found = readings.groupBy(hr.hopping("2 minutes", every="1 minute").alias("minute"))
        return found.agg(F.count("*").alias("readings"), F.max("clock_offset_ms").alias("worst"))

    @app.view(key=["topic", "partition", "offset"])
    def records(readings):  # type: ignore[no-untyped-def]
        text = (F.col(name).cast("string").alias(name) for name in ("key", "value"))
        first = F.col("headers")[0]
        named = F.concat_ws("=", first["key"], first["value"].cast("string")).alias("header")
        return readings.select("topic", "partition", "offset", "timestamp", *text, named, "occurred", "clock_offset_ms")

    return app


def test_a_devices_clock_is_put_right_and_the_records_own_columns_are_there(tmp_path: Path) -> None:
    received = 600.0
    with AppUnderTest(devices(), tmp_path, clock=ManualClock(BEGIN_MS + int(received * 1000))) as run:
        slow = {"device": "slow", "occurred": at(received - 3630), "sent": at(received - 3600)}
        right = {"device": "right", "occurred": at(received - 70), "sent": at(received)}
        producer = Producer({"bootstrap.servers": run.bootstrap})
        for name, row in (("a", slow), ("b", right)):
            value = json.dumps(row).encode()
            producer.produce("readings", value, name.encode(), headers=[("by", b"hand")], timestamp=run.clock.now_ms())
        producer.flush(30)
        run.settle()
        windows = {row["minute"]: (row["readings"], row["worst"]) for row in run.view("by_minute")}
        assert windows == {at(420): (1, 0), at(480): (2, 3_600_000), at(540): (1, 3_600_000)}
        first, second = run.view("records")
        assert first == {
            "topic": "readings",
            "partition": 0,
            "offset": 0,
            "timestamp": at(received),
            "key": "a",
            "value": json.dumps(slow),
            "header": "by=hand",
            "occurred": at(received - 30),
            "clock_offset_ms": 3_600_000,
        }
        assert (second["offset"], second["occurred"], second["clock_offset_ms"]) == (1, at(received - 70), 0)


def crm() -> hr.App:
    app = hr.App("crm")
    app.table("customers", "id long, name string, region string", key="id")

    @app.view(key="id")
    def names(customers):  # type: ignore[no-untyped-def]
        return customers.changes.select("id", "name", "_deleted")

    @app.view(key="id")
    def shouted(names):  # type: ignore[no-untyped-def]
        return names.changes.select("id", F.upper("name").alias("name"), "_deleted")

    changes = "SELECT ifnull(region, 'none') AS region, count(*) AS changes FROM customers_changes GROUP BY 1"
    app.view_sql("regions", key="region", sql=changes)
    return app


def customer(number: int, name: str = "", region: str = "EU") -> dict[str, Any]:
    return {"id": number, "name": name, "region": region}


def gone(number: int) -> Deleted:
    return Deleted({"id": number})


def test_the_changes_of_a_table_reach_views_and_views_of_views_deletes_too(tmp_path: Path) -> None:
    with AppUnderTest(crm(), tmp_path) as run:
        assert settings_of_topic(run.cluster, "customers")["cleanup.policy"] == "compact", "no row goes with its age"
        run.send("customers", customer(1, "ada"), customer(2, "bob", "US"), customer(3, "cyd"))
        assert [(row["id"], row["name"]) for row in run.view("shouted")] == [(1, "ADA"), (2, "BOB"), (3, "CYD")]
        run.send("customers", gone(2), Crash(), customer(1, "ann", "US"), gone(3))
        assert run.view("names") == [{"id": 1, "name": "ann"}]
        assert run.view("shouted") == [{"id": 1, "name": "ANN"}]
        producer = Producer({"bootstrap.servers": run.bootstrap})
        producer.produce("customers", key=b"no key of ours", value=None)
        producer.flush(30)
        run.send("customers", b"no row of ours")
        assert [letter.headers["headrace.offset"] for letter in run.letters("customers.dead")] == ["6", "7"]
        assert run.view("names") == [{"id": 1, "name": "ann"}]
        assert {row["region"]: row["changes"] for row in run.view("regions")} == {"EU": 2, "US": 2, "none": 2}


def reader(name: str, start: str) -> hr.App:
    app = hr.App(name)
    app.stream("orders", ORDERS, start=start)
    app.view_sql("seen", key="order_id", sql="SELECT order_id FROM orders")
    return app


def seen(run: AppUnderTest) -> list[str]:
    return [row["order_id"] for row in run.view("seen")]


def lag(run: AppUnderTest, group: str) -> int:
    """As a tool sees it: the end of the topic, less what the group has committed."""
    admin = AdminClient({"bootstrap.servers": run.bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    committed = asked[group].result(30).topic_partitions or []
    end = run.runner.cluster.ends("orders", [0])[0] if run.runner else 0
    return end - next((one.offset for one in committed if one == TopicPartition("orders", 0)), 0)


def test_a_stream_begins_where_it_is_told_and_a_lag_tool_sees_how_far_it_is(tmp_path: Path) -> None:
    with AppUnderTest(reader("all", "earliest"), tmp_path, clock=ManualClock(BEGIN_MS)) as run:
        run.send("orders", order(1, 0))
        run.clock.advance(60_000)
        run.send("orders", order(2, 0))
        assert seen(run) == ["1", "2"]
        for name, start, found in (("timed", at(30), ["2", "3"]), ("new", "latest", ["4"])):
            run.stop()
            run.app = reader(name, start)
            run.start()
            run.settle()
            run.send("orders", order(int(found[-1]), 0))
            assert seen(run) == found
            deadline = time.monotonic() + 60
            while lag(run, f"{name}.seen"):
                assert time.monotonic() < deadline, "its progress is not told"
                time.sleep(0.02)
        assert lag(run, "all.seen") == 2, "an app that is stopped falls behind"
