"""Traces from produce to view, through real processes, as a collector sees them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.cli.command import HEADRACE, Cli
from tests.collector import Collector, Seen, collecting
from tests.pipelines.conftest import order
from tests.servers import Headrace, _Process
from tests.serving.live import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

APP = """
import headrace as hr
from headrace import F

app = hr.App("traced")
app.stream("orders", "order_id string, customer_id long, amount double, ordered_at timestamp")

@app.derive(key="order_id")
def large(orders):
    return orders.where("amount >= 10").select("order_id", "customer_id", "amount")

@app.view(key="order_id")
def seen(large):
    return large.withColumn("twice", F.col("amount") * 2)

sums = "SELECT customer_id, sum(amount) AS total FROM orders GROUP BY customer_id"
app.view_sql("spent", key="customer_id", sql=sums)
"""


def produced(cli: Cli, collector: Collector, number: int, *options: str, amount: float = 50.0) -> str:
    """Sends one order in a trace of its own; which one."""
    before = {one.span for one in collector.spans("send orders")}
    line = json.dumps(order(number, 0, amount))
    assert cli.run("produce", "orders", *options, stdin=line).code == 0
    [sent] = [one for one in collector.spans("send orders") if one.span not in before]
    return sent.trace


def named(collector: Collector, name: str, good: Callable[[Seen], object]) -> list[Seen]:
    return eventually(lambda: [one for one in collector.spans(name) if good(one)], bool, 240.0)


def test_a_trace_goes_from_produce_through_queries_to_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        for name, value in {**collector.env, "OTEL_SERVICE_NAME": "shop"}.items():
            monkeypatch.setenv(name, value)
        node = Headrace(tmp_path / "node", http="127.0.0.1:0")
        cli = Cli(node.bootstrap)
        (tmp_path / "app.py").write_text(APP)
        assert cli.run("topic", "create", "orders").code == 0
        traces = {produced(cli, collector, number) for number in range(3)}
        small = produced(cli, collector, 3, amount=1.0)
        assert len(traces | {small}) == 4
        arguments = ["run", str(tmp_path / "app.py"), "--server", node.bootstrap, "--data", str(node.data)]
        arguments += ["--logs", "json"]
        run = _Process([HEADRACE, *arguments], tmp_path / "run.log")
        try:
            eventually(lambda: run.dead() or run.printed().count(b"is running") == 3, bool, 240.0)
            assert not run.dead(), run.printed().decode()
            follows_rows_of_one_record(collector, traces, small)
            stands_for_many_where_rows_are_made_of_many(collector, traces | {small})
            goes_on_in_the_one_trace_of_a_batch(cli, collector, node)
        finally:
            os.killpg(run.popen.pid, signal.SIGINT)
            run.end(signal.SIGCONT, 60.0)
            node.stop()
        assert {json.loads(line)["logger"] for line in run.printed().splitlines()} == {"headrace.run"}
        assert {one.service for one in collector.spans()} == {"shop"}


def follows_rows_of_one_record(collector: Collector, traces: set[str], small: str) -> None:
    """Three traces in one batch: each goes on by itself, through a derived stream and a view; one row was filtered."""
    for name in ("process traced.large", "process traced.seen", "apply traced.seen"):
        eventually(lambda name=name: {one.trace for one in collector.spans(name)}, traces.issubset, 240.0)
    for trace in traces:
        by_id = {one.span: one for one in collector.spans() if one.trace == trace}
        [applied] = [one for one in by_id.values() if one.name == "apply traced.seen"]
        path = [applied.name]
        while applied.parent in by_id:
            applied = by_id[applied.parent]
            path.append(applied.name)
        assert path == ["apply traced.seen", "process traced.seen", "process traced.large", "send orders"]
    assert not [one for one in collector.spans("apply traced.seen") if one.trace == small]


def stands_for_many_where_rows_are_made_of_many(collector: Collector, traces: set[str]) -> None:
    """A sum is of many records: its batch has a trace of its own, with links, and that goes on to the view."""
    [batch, *_] = named(collector, "process traced.spent", lambda one: one.links >= traces)
    assert batch.trace not in traces
    assert batch.attributes["headrace.rows"] == 1
    [applied, *_] = named(collector, "apply traced.spent", lambda one: one.trace == batch.trace)
    assert applied.parent == batch.span


def goes_on_in_the_one_trace_of_a_batch(cli: Cli, collector: Collector, node: Headrace) -> None:
    """With one trace in a batch, everything is in it, sums too. A traceparent that is given is kept."""
    given = "0af7651916cd43dd8448eb211c80319c"
    header = f"traceparent=00-{given}-b7ad6b7169203331-01"
    sent = len(collector.spans("send orders"))
    assert cli.run("produce", "orders", "--header", header, stdin=json.dumps(order(9, 0, 99.0))).code == 0
    for name in ("process traced.spent", "apply traced.spent", "apply traced.seen"):
        named(collector, name, lambda one: one.trace == given)
    assert len(collector.spans("send orders")) == sent
    consumer = ck.Consumer({"bootstrap.servers": node.bootstrap, "group.id": "looks", "auto.offset.reset": "earliest"})
    consumer.assign([ck.TopicPartition("orders", 0, 4)])
    found = eventually(lambda: consumer.poll(1.0), bool)
    consumer.close()
    assert found.headers() == [tuple(header.encode().split(b"=", 1)[i] if i else "traceparent" for i in range(2))]
