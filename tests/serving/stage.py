"""A node on which every screen of the page has something to show."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from headrace.capture.status import TableStatus
from headrace.feed.presence import began, this_machine
from headrace.views.catalog import CATALOG_TOPIC
from tests.serving.live import LiveNode, eventually

HTML = "<img src=x onerror=\"document.title='broken in'\">"
ORDERS = 60


def order(at: int) -> tuple[bytes, bytes, list[tuple[str, bytes]]]:
    region = ("EU", "US", "APAC")[at % 3]
    value = {"id": at, "region": region, "amount": round(9.5 + at * 1.25, 2), "items": [{"sku": f"S-{at % 7}", "n": 1}]}
    headers = [("source", b"shop" if at % 2 else b"app"), ("trace", f"t-{at}".encode())]
    return f"order-{at}".encode(), json.dumps(value).encode(), headers


def query(app: str, name: str, kind: str, **more: Any) -> dict[str, Any]:
    """An entry as a runner writes it."""
    progress = {
        "rate": 118.4,
        "batch_ms": [40 + (at * 37) % 90 for at in range(40)],
        "parts_ms": {"addBatch": 61, "queryPlanning": 7, "walCommit": 4, "latestOffset": 3},
        "state_rows": 1240,
        "state_bytes": 3_400_000,
        "positions": {"orders": {"0": 12, "1": 12, "2": 12}},
    }
    return {
        "app": app,
        "name": name,
        "kind": kind,
        "state": "running",
        "since": "2026-01-02T03:04:05.000000Z",
        "batch": 812,
        "rows_in": 12345,
        "late": 6,
        "dead": 3,
        "watermark": "2026-01-02T03:30:00.000Z",
        "last_error": None,
        "restarts": 0,
        "pid": os.getpid(),
        "began": began(os.getpid()),
        "machine": this_machine(),
        "reads": ["orders"],
        "topic": f"{app}.{name}",
        "place": "shop.py, line 14",
        "progress": progress,
    } | more


CAPTURE = TableStatus("shop", "customers", "postgresql://db/shop", "public.customers", "failed")
CAPTURE.last_error = "the slot is gone"


class Stage(LiveNode):
    """The node and its data."""

    def produce(self, topic: str, records: list[Any]) -> None:
        producer = ck.Producer({"bootstrap.servers": self.node.bootstrap, "log_level": 0})
        for key, value, headers in records:
            producer.produce(topic, value, key, headers=headers)
        assert producer.flush(30) == 0

    def make(self, topic: str, partitions: int = 1, **config: str) -> None:
        new = NewTopic(topic, partitions, 1, config={name.replace("_", "."): value for name, value in config.items()})
        self.admin.create_topics([new])[topic].result(30)

    def fill(self) -> None:
        self.make("orders", 3, retention_ms="604800000")
        self.make("payments", 2)
        self.make("empty")
        self.produce("orders", [order(at) for at in range(ORDERS)])
        self.produce(
            "payments", [(b"p-1", b"\xff\x00binary", []), (HTML.encode(), HTML.encode(), [(HTML, HTML.encode())])]
        )
        self._views()
        self._queries()
        self._asides()
        self._group()
        self._queue()

    def _views(self) -> None:
        columns = {"minute": "timestamp", "revenue": "double", "orders": "bigint"}
        self.declare("shop", "revenue", ["minute"], columns, partitions=1)
        self.declare("shop", "top", ["product"], {"product": "string", "sold": "bigint"}, partitions=1)
        self.write("shop.revenue", [minute(at, at * 10.0) for at in range(1, 31)])
        self.write("shop.top", [product(f"product {at}", at) for at in range(1, 20)])
        self.write("shop.top", [product(HTML, 1)])

    def _queries(self) -> None:
        self.make("big-orders", 1)
        self.make("shop.fraud", 1)
        plan = (
            "== Physical Plan ==\n*(1) HashAggregate(keys=[minute#1])\n+- StateStoreSave [minute#1]\n   +- Scan orders"
        )
        failed = {"state": "failed", "last_error": f"ValueError: {HTML}", "restarts": 5, "watermark": None}
        self.write(
            CATALOG_TOPIC,
            [
                (b"query/shop/revenue", query("shop", "revenue", "view")),
                (b"plan/shop/revenue", {"plan": plan, "at": "2026-01-02T03:04:05.000000Z"}),
                (b"query/shop/big-orders", query("shop", "big-orders", "derive", topic="big-orders")),
                (b"query/shop/fraud", query("shop", "fraud", "alert", reads=["big-orders"])),
                (b"query/shop/top", query("shop", "top", "view", **failed)),
                (b"capture/shop/customers", CAPTURE.entry()),
            ],
        )
        self.produce("big-orders", [order(at) for at in range(5)])
        self.produce(
            "shop.fraud", [(b"k", json.dumps({"card": at, "why": "three in a minute"}).encode(), []) for at in range(4)]
        )

    def _asides(self) -> None:
        self.make("orders.late", 1)
        self.make("orders.dead", 1)
        self.make("shop.revenue.dead", 1)
        self.make("shop.fraud.dead", 1)
        about = [("headrace.query", b"shop.revenue"), ("headrace.topic", b"orders"), ("headrace.partition", b"0")]
        late = [
            ("headrace.reason", b"late"),
            ("headrace.event_time", b"2026-01-02T03:00:00.000Z"),
            ("headrace.offset", b"7"),
        ]
        late += [
            ("headrace.detail", b"30 minutes behind the watermark"),
            ("headrace.watermark", b"2026-01-02T03:30:00.000Z"),
        ]
        self.produce("orders.late", [(b"shop.revenue/orders/0/7", b'{"id": 7}', [*about, *late])])
        dead = [("headrace.reason", b"not JSON"), ("headrace.detail", HTML.encode()), ("headrace.offset", b"9")]
        self.produce("orders.dead", [(b"orders/0/9", b"{oops", [*about, *dead])])
        for at in range(3):
            self.write("shop.revenue.dead", [({"minute": None}, {"minute": None, "revenue": at * 1.0})])
        grave = [("headrace.reason", b"undeliverable"), ("headrace.detail", b"the receiver answered 410")]
        self.produce("shop.fraud.dead", [(b"shop.fraud/0/1", b"{}", grave)])

    def _group(self) -> None:
        for group, topic, upto in (("billing", "orders", 5), ("shop.fraud.delivery", "shop.fraud", 3)):
            places = [ck.TopicPartition(topic, index, upto) for index in range(3 if topic == "orders" else 1)]
            asked = self.admin.alter_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(group, places)])
            asked[group].result(30)

    def _queue(self) -> None:
        self.make("mails", 1)
        self.make("mails.dead", 1)
        self.configure("mailers", {"share.auto.offset.reset": "earliest", "headrace.dead.letter.topic": "mails.dead"})
        self.configure("mailers", {"share.delivery.count.limit": "2"})
        self.produce(
            "mails", [(f"m-{at}".encode(), json.dumps({"to": f"user{at}@example.org"}).encode(), []) for at in range(8)]
        )
        self._work({b"m-0": "REJECT", b"m-1": "REJECT", b"m-2": "ACCEPT", b"m-3": "RELEASE"})

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[None]:
        """A consumer that stays in a group as long as the block runs."""
        settings = {"bootstrap.servers": self.node.bootstrap, "group.id": group, "client.id": f"{group[:-1]}-1"}
        consumer = ck.Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
        consumer.subscribe([topic])
        try:
            eventually(lambda: consumer.poll(0.2) or consumer.assignment(), bool)
            yield
        finally:
            consumer.close()

    @contextmanager
    def holding(self, group: str, topic: str) -> Iterator[None]:
        """A consumer that has three records of a queue, and does not settle them while the block runs."""
        self.make(topic)
        self.configure(group, {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"})
        self.produce(topic, [(b"page", b"{}", [])] * 3)
        settings = {"bootstrap.servers": self.node.bootstrap, "group.id": group, "client.id": f"{group[:-1]}-1"}
        consumer = ck.ShareConsumer({**settings, "share.acknowledgement.mode": "explicit"})
        consumer.subscribe([topic])
        held: list[ck.Message] = []
        try:
            held += eventually(lambda: consumer.poll(1.0), bool)
            assert len(held) == 3
            yield
        finally:
            for message in held:
                consumer.acknowledge(message, ck.AcknowledgeType.RELEASE)
            consumer.close()

    def configure(self, group: str, settings: dict[str, str]) -> None:
        changes = [
            ConfigEntry(key, text, incremental_operation=AlterConfigOpType.SET) for key, text in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=changes)
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def _work(self, how: dict[bytes, str]) -> None:
        consumer = ck.ShareConsumer(
            {"bootstrap.servers": self.node.bootstrap, "group.id": "mailers", "share.acknowledgement.mode": "explicit"}
        )
        consumer.subscribe(["mails"])
        left, deadline = set(how), time.monotonic() + 60
        while left and time.monotonic() < deadline:
            for message in consumer.poll(1.0) or ():
                kind = how.get(message.key(), "RELEASE") if message.key() in left else "RELEASE"
                left.discard(message.key())
                consumer.acknowledge(message, getattr(ck.AcknowledgeType, kind))
        consumer.commit_sync(30)
        consumer.close()
        assert not left


def minute(at: int, revenue: float) -> tuple[Any, Any]:
    key = {"minute": f"2026-01-02T03:{at:02d}:00.000000Z"}
    return key, {**key, "revenue": revenue, "orders": at}


def product(name: str, sold: int) -> tuple[Any, Any]:
    return {"product": name}, {"product": name, "sold": sold}


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """The node with its data, until the block ends."""
    stage = Stage(folder)
    try:
        stage.fill()
        eventually(lambda: stage.get("/ready"), lambda told: told[0] == 200)
        eventually(lambda: stage.get("/groups"), lambda told: told[0] == 200 and len(told[1]) >= 3)
        yield stage
    finally:
        stage.stop()
