"""``headrace run`` and ``headrace query`` as a person uses them: one run, from start to Ctrl-C, and the next."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from headrace.cli import child
from headrace.cli.child import node_for
from tests.cli.command import HEADRACE, Cli
from tests.pipelines.conftest import order
from tests.pipelines.kill_rounds import view
from tests.servers import Headrace, _Process, free_port

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

GOOD = """
import headrace as hr
from headrace import F

app = hr.App("shop")
app.stream("orders", "order_id string, customer_id long, amount double, ordered_at timestamp")

@app.view(key="customer_id")
def spent(orders):
    return orders.groupBy("customer_id").agg(F.sum("amount").alias("total"))

@app.alert(to=hr.LogLine())
def big(orders):
    return orders.where("amount >= 100").select("order_id")
"""
BAD = """
@F.udf("double")
def picky(amount):
    if amount > 1000:
        raise ValueError("too much money")
    return amount

@app.view(key="order_id")
def checked(orders):
    return orders.select("order_id", picky("amount").alias("amount"))
"""
ALERT = b'alert big: {"order_id":"%s"}'
PATIENCE_S = 240.0


def until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    server = Headrace(tmp_path_factory.mktemp("run"), http="127.0.0.1:0")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def cli(node: Headrace) -> Cli:
    return Cli(node.bootstrap)


def command(node: Headrace, *options: str) -> _Process:
    file = node.folder / "shop.py"
    arguments = [HEADRACE, "run", str(file), "--server", node.bootstrap, "--data", str(node.data), *options]
    return _Process(arguments, node.folder / "run.log")


def send(node: Headrace, *rows: dict[str, Any]) -> None:
    producer = ck.Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
    for row in rows:
        producer.produce("orders", value=json.dumps(row).encode())
    assert producer.flush(60) == 0


def asked(node: Headrace, path: str, method: str = "GET") -> Any:
    """What the page is told."""
    request = urllib.request.Request(node.web + path, method=method)
    with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())
    return {"plan": None}


def states(cli: Cli) -> dict[str, Any]:
    ran = cli.run("query", "list", "-o", "json")
    return {one["name"]: one for one in ran.json} if ran.code == 0 else {}


def totals(node: Headrace) -> dict[int, float]:
    return {row["customer_id"]: row["total"] for row in view(node, "shop.spent").values()}


def test_a_run_from_its_start_to_its_end_and_the_next(node: Headrace, cli: Cli) -> None:
    (node.folder / "shop.py").write_text(GOOD + BAD)
    run = command(node)
    try:
        until(lambda: run.printed().count(b"is running") == 3 or run.dead(), "it does not start")
        (node.folder / "same.py").write_text(GOOD)
        refused = cli.run("run", str(node.folder / "same.py"), "--server", node.bootstrap, "--data", str(node.data))
        assert f"already running here, as process {run.popen.pid}" in refused.err
        send(node, order(1, 0, 5.0), order(2, 0, 7.0, customer=2))
        until(lambda: totals(node) == {1: 5.0, 2: 7.0}, "rows do not come through")

        send(node, order(3, 0, 5000.0))
        until(lambda: states(cli)["checked"]["state"] == "failed", "the view whose function raises goes on")
        assert states(cli)["checked"]["last_error"] == "ValueError: too much money"
        until(lambda: totals(node) == {1: 5005.0, 2: 7.0}, "the other view stopped too")
        until(lambda: ALERT % b"3" in run.printed(), "nobody is alerted")

        until(lambda: asked(node, "/queries/shop/spent")["plan"], "it does not say how it runs")
        told = asked(node, "/queries/shop/spent")
        assert (told["lag"], told["reads"], told["topic"]) == (0, ["orders"], "shop.spent")
        assert told["state_bytes"] > 0
        assert all(took > 0 for took in told["batches_ms"])
        assert "shop.py" in told["place"]
        edges = [(edge["from"], edge["to"]) for edge in asked(node, "/pipelines")["edges"]]
        assert {("topic/orders", "query/shop/spent"), ("query/shop/spent", "view/shop/spent")} <= set(edges)

        node.kill9()
        node.start()
        send(node, order(4, 0, 1.0))
        until(lambda: totals(node) == {1: 5006.0, 2: 7.0}, "it did not go on when the broker was back")

        assert cli.run("query", "stop", "shop.spent").out == "shop.spent is stopped\n"
        assert cli.run("query", "stop", "shop.spent").out == "shop.spent is stopped already\n"
        send(node, order(5, 0, 1.0))
        assert cli.run("query", "restart", "shop.spent").out.startswith("shop.spent is ")
        until(lambda: totals(node) == {1: 5007.0, 2: 7.0}, "it does not start again")
        assert "there is no query" in cli.run("query", "stop", "shop.nothing").err
        until(lambda: states(cli)["spent"]["state"] == "running", "it does not run")
        assert asked(node, "/queries/shop/spent/restart", "POST")["query"] == "shop.spent"
    finally:
        os.killpg(run.popen.pid, signal.SIGINT)  # as a terminal does
        code = run.end(signal.SIGCONT, 60.0)
    assert code == 1, "a view has failed"
    assert all(line[2:3] == b":" for line in run.printed().splitlines()), "only our own lines"

    send(node, order(6, 0, 101.0))
    (node.folder / "shop.py").write_text(GOOD)
    again = command(node, "--until-idle")
    assert again.end(signal.SIGCONT, PATIENCE_S) == 0, again.printed().decode()
    assert totals(node) == {1: 5108.0, 2: 7.0}
    assert again.printed().count(b"alert big:") == again.printed().count(ALERT % b"6") == 1, "sent before it ends"
    assert states(cli)["spent"]["rows_in"] == 6


def test_a_run_that_is_stopped_while_spark_starts_ends_at_once(node: Headrace) -> None:
    (node.folder / "shop.py").write_text(GOOD.replace('"shop"', '"never"'))
    run = command(node)
    until(lambda: b"starting Spark" in run.printed() or run.dead(), "it does not start")
    os.killpg(run.popen.pid, signal.SIGINT)
    assert run.end(signal.SIGCONT, PATIENCE_S) == 130
    assert b"stopped before it ran" in run.printed()
    assert b"Traceback" not in run.printed()


def test_a_time_that_is_none_is_told(node: Headrace, cli: Cli) -> None:
    ran = cli.run("run", str(node.folder / "shop.py"), "--from", "yesterday")
    assert (ran.code, "2026-01-31T12:00Z" in ran.err) == (1, True)


def test_a_mistake_is_told_before_spark_starts(node: Headrace, cli: Cli) -> None:
    file = node.folder / "wrong.py"
    file.write_text("import headrace as hr\napp = hr.App('x')\napp.stream('s', 'a int', event_time='a')\n")
    ran = cli.run("run", str(file))
    assert ran.code == 1
    assert f"{file}, line 3" in ran.err
    assert "declare it as" in ran.err
    assert "Spark" not in ran.out


def test_a_node_is_started_if_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "DEFAULT_SERVER", f"127.0.0.1:{free_port()}")
    monkeypatch.setenv("HEADRACE_HTTP", "none")
    told: list[str] = []
    with node_for(None, tmp_path / "data", {}, told.append) as started:
        assert started.log_data == (tmp_path / "data").resolve()
        assert Cli(started.server).run("topic", "list").code == 0
        with node_for(None, tmp_path / "data", {}, told.append) as same:
            assert same == started
    assert len(told) == 1
    assert Cli(started.server).run("topic", "list").code == 1
