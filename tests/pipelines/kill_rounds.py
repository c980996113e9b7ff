"""Kills whatever takes part in a pipeline with SIGKILL, at random moments, while orders come in: the driver, one of
Spark's Python workers, an executor of a cluster, the broker, the materialiser. In the end every view must be what a
recomputation from the log gives, in its topic and in its store, and a derived stream must have each row once.

``python -m tests.pipelines.kill_rounds --kills 100 --seed 7 --spark 'local-cluster[2,1,1024]'`` (``make faults``).
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from confluent_kafka import admin

from headrace.client import connect
from headrace.errors import HeadraceError
from headrace.feed import open_feed
from tests.pipelines.conftest import BEGIN, at
from tests.servers import _SERVES, ROOT, Headrace, Server, _Process

APP = """
import headrace as hr
from headrace import F

app = hr.App("shop")
app.stream("orders", "order_id string, customer_id long, amount double, ordered_at timestamp",
           event_time="ordered_at", lateness="5 seconds", idle_after="2 seconds")

@app.view(key=["minute", "customer_id"])
def revenue(orders):
    by = hr.tumbling("1 minute").alias("minute"), "customer_id"
    return orders.groupBy(*by).agg(F.sum("amount").alias("revenue"), F.count("*").alias("orders"))

@app.derive(key="order_id")
def large(orders):
    return orders.where("amount >= 50").select("order_id", "amount")

@app.view(key="amount")
def sizes(large):
    return large.groupBy("amount").agg(F.count("*").alias("orders"))
"""
BEST = """
@app.view(key=["customer_id", "rank"])
def best(orders):
    return hr.top(orders, 3, by="customer_id", order="-amount, order_id")
"""
"""A keyed operator: its state is ours, in Spark's store, and goes from executor to executor."""
OPERATORS = """
app.table("customers", "customer_id long, level long, since timestamp",
          key="customer_id", valid_from="since", history=True)

@app.derive(key="order_id")
def levels(orders, customers):
    found = hr.enrich(orders, customers, on="customer_id", as_of="ordered_at")
    return found.select("order_id", "level", F.col("ordered_at").alias("time"))

@app.derive(key="first")
def pairs(orders):
    low, high = orders.where("amount < 10"), orders.where("amount >= 90")
    found = hr.window_join(low, high, on="customer_id", within=("0 seconds", "10 seconds"))
    return found.selectExpr("order_id AS first", "order_id_right AS second", "joined_at AS time")

@app.derive(key="first")
def rises(orders):
    found = hr.match(
        orders,
        by="customer_id",
        pattern="low high",
        define={"low": "amount < 10", "high": "amount >= 90"},
        measures={"first": "low.order_id", "second": "high.order_id"},
        within="10 seconds",
    )
    return found.selectExpr("first", "second", "match_end AS time")
"""
"""Operators in event time: what they hold and what they know is theirs alone."""
LEVEL_S, LEVELS = 20, 400
"""A customer's level changes every so many seconds, so often."""
LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,1024]"
QUICK = "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""An executor's life here is too short for Java's second compiler."""
PARTITIONS = 2
CUSTOMERS = 5
PATIENCE_S = 180.0
RUNNING = b"is running"
EXECUTOR = b"CoarseGrainedExecutorBackend"


class Wrong(AssertionError):
    """What was computed is not what the log says."""


class Orders:
    """A producer in a thread; some rows are broken, some come a little out of order. ``acknowledged``: the numbers of
    those that the log said it has."""

    def __init__(self, bootstrap: str, seed: int, first: int = 0) -> None:
        self.number = first
        self.acknowledged: list[int] = []
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 240_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self._producer.flush(120):
            raise Wrong("orders were never acknowledged")

    def end(self) -> None:
        """An order in each partition that is a minute after all others, so that the watermark passes those."""
        row = {"order_id": "end", "customer_id": 0, "amount": 50.0, "ordered_at": at(self.number * 0.1 + 60)}
        for partition in range(PARTITIONS):
            self._producer.produce("orders", partition=partition, value=json.dumps(row).encode())
        if self._producer.flush(120):
            raise Wrong("the last orders were never acknowledged")

    def _run(self) -> None:
        while not self._stopping.wait(0.02):
            for _ in range(self._random.randrange(1, 10)):
                self._send(self.number)
                self.number += 1
            self._producer.poll(0)

    def _send(self, number: int) -> None:
        seconds = number * 0.1 + self._random.uniform(-2, 2)
        row = {
            "order_id": str(number),
            "customer_id": number % CUSTOMERS,
            "amount": float(self._random.randrange(100)),
            "ordered_at": at(seconds),
        }
        value = b"{broken" if self._random.random() < 0.01 else json.dumps(row).encode()
        self._producer.produce("orders", key=str(number), value=value, on_delivery=self._delivered)

    def _delivered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is None:
            self.acknowledged.append(int(message.key() or b""))


class Driver:
    """``headrace run`` as a process. It starts a node that serves the views, if its log has none."""

    def __init__(
        self,
        folder: Path,
        server: Server,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        spark: str = LOCAL,
        app: str = APP,
    ) -> None:
        self._folder, self._server, self._spark = folder, server, spark
        self._options, self._env = tuple(options), {"PYTHONWARNINGS": "ignore", **(env or {})}
        self.data = server.data or folder / "data"
        self.patience_s = PATIENCE_S if spark == LOCAL else 2 * PATIENCE_S  # a cluster has three times the processes
        app = app if spark == LOCAL else app + BEST
        (folder / "shop.py").write_text(app)
        self._queries = app.count("\n@app.")
        self._process: _Process | None = None
        self.start()

    def start(self) -> None:
        script = [str(Path(sys.executable).with_name("headrace")), "run", str(self._folder / "shop.py")]
        options = ["--log", f"kafka://{self._server.bootstrap}", "--data", str(self.data), "--spark", self._spark]
        options += [] if self._spark == LOCAL else ["--spark-conf", QUICK]
        options += ["--http", "127.0.0.1:0", *self._options]
        self._process = _Process([*script, *options], self._folder / "driver.log", self._env)

    @property
    def web(self) -> str:
        """Where the node that it started serves the views."""
        return _SERVES.findall(self.output)[-1]

    @property
    def process(self) -> _Process:
        assert self._process is not None
        return self._process

    @property
    def output(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")

    def wait_until_running(self) -> None:
        deadline = time.monotonic() + self.patience_s
        while self.process.printed().count(RUNNING) < self._queries:
            if self.process.dead(0.1) or time.monotonic() > deadline:
                raise Wrong(f"the driver does not run:\n{self.output}")

    def kill9(self) -> None:
        self.process.end(signal.SIGKILL, 10.0)
        self.start()
        self.wait_until_running()

    def kill_worker(self, chance: random.Random) -> bool:
        return _kill_one(self.process.popen.pid, b"pyspark.daemon", chance)

    def kill_executor(self, chance: random.Random) -> bool:
        return _kill_one(self.process.popen.pid, EXECUTOR, chance)

    def executors(self) -> list[int]:
        return [pid for pid, line in descendants(self.process.popen.pid) if EXECUTOR in line]

    def stop(self) -> int:
        return self.process.end(signal.SIGTERM, 30.0)


def _kill_one(parent: int, sign: bytes, chance: random.Random) -> bool:
    """Kill a descendant whose command line has this; False if there is none just now."""
    found = [pid for pid, line in descendants(parent) if sign in line]
    if not found:
        return False
    try:
        os.kill(chance.choice(found), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def descendants(pid: int) -> Iterator[tuple[int, bytes]]:
    children = set[int]()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread, or the process, that has just ended
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            children.update(int(one) for one in file.read_text().split())
    for child in children:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield child, Path(f"/proc/{child}/cmdline").read_bytes()
            yield from descendants(child)


def records(server: Server, topic: str) -> list[dict[str, Any]]:
    feed = open_feed(server.bootstrap, server.data)
    try:
        bounds = feed.bounds(topic)
        return [
            record
            for partition, (start, end) in bounds.items()
            for batch in feed.read(topic, partition, start, end)
            for record in batch.to_pylist()
        ]
    finally:
        feed.close()


def view(server: Server, topic: str) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for record in records(server, topic):
        if record["value"] is None:
            rows.pop(record["key"].decode(), None)
        else:
            rows[record["key"].decode()] = json.loads(record["value"])
    return rows


def aside(server: Server, topic: str, query: str | None = None) -> set[str]:
    """The places of rows that were put aside, by every query or by one."""
    keys = {record["key"].decode() for record in records(server, topic)} if topic in names(server) else set()
    return {key.removeprefix(f"{query}/") for key in keys if query is None or key.startswith(f"{query}/")}


def names(server: Server) -> set[str]:
    return set(
        admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0}).list_topics(timeout=30).topics
    )


def orders(server: Server) -> list[tuple[str, dict[str, Any] | None]]:
    """(place, row) of everything that was sent; None for a row that is none."""
    feed, found = open_feed(server.bootstrap, server.data), []
    for partition, (start, end) in feed.bounds("orders").items():
        for batch in feed.read("orders", partition, start, end):
            for record in batch.to_pylist():
                broken = record["value"].startswith(b"{broken")
                place = f"orders/{partition}/{record['offset']}"
                found.append((place, None if broken else json.loads(record["value"])))
    feed.close()
    return found


def differences(server: Server) -> list[str]:
    """What is not as a recomputation from the log has it."""
    sent = orders(server)
    wrong = []
    dead = aside(server, "orders.dead")
    if dead != {place for place, row in sent if row is None}:
        wrong.append(f"{len(dead)} dead letters of {sum(row is None for _, row in sent)}")
    late = aside(server, "orders.late", "shop.revenue")
    revenue: Counter[tuple[str, int]] = Counter()
    count: Counter[tuple[str, int]] = Counter()
    for place, row in sent:
        if row is not None and place not in late:
            key = (row["ordered_at"][:17] + "00.000000Z", row["customer_id"])
            revenue[key] += row["amount"]
            count[key] += 1
    found = {
        (r["minute"], r["customer_id"]): (r["revenue"], r["orders"]) for r in view(server, "shop.revenue").values()
    }
    if found != {key: (revenue[key], count[key]) for key in count}:
        wrong.append(f"revenue: {sum(n for _, n in found.values())} orders of {sum(count.values())}")
    late = aside(server, "orders.late", "shop.large")
    wanted = Counter(row["order_id"] for place, row in sent if row and row["amount"] >= 50 and place not in late)
    derived = [json.loads(record["value"]) for record in records(server, "large")]
    if Counter(row["order_id"] for row in derived) != wanted:
        wrong.append(f"large: {len(derived)} rows of {wanted.total()}")
    sizes = {row["amount"]: row["orders"] for row in view(server, "shop.sizes").values()}
    if sizes != Counter(row["amount"] for row in derived):
        wrong.append(f"sizes: {sum(sizes.values())} rows of {len(derived)}")
    if "shop.best" in names(server):
        wrong += _best_differences(server, sent)
    if "levels" in names(server):
        wrong += _operator_differences(server, sent)
    return wrong


def _best_differences(server: Server, sent: list[tuple[str, dict[str, Any] | None]]) -> list[str]:
    late = aside(server, "orders.late", "shop.best")
    rows = sorted(
        ((row["customer_id"], -row["amount"], row["order_id"]) for place, row in sent if row and place not in late)
    )
    wanted = {
        (customer, rank): order_id
        for customer in range(CUSTOMERS)
        for rank, (_, _, order_id) in enumerate([row for row in rows if row[0] == customer][:3], 1)
    }
    found = {(row["customer_id"], row["rank"]): row["order_id"] for row in view(server, "shop.best").values()}
    return [] if found == wanted else [f"best: {len(found)} rows of {len(wanted)}, or others"]


def _operator_differences(server: Server, sent: list[tuple[str, dict[str, Any] | None]]) -> list[str]:
    """Of what operators in event time give, up to half a minute before the last orders."""
    bound = max(row["ordered_at"] for _, row in sent if row is not None)
    until = (dt.datetime.fromisoformat(bound) - dt.timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    wrong = []
    for name, recomputed in (("levels", _levels), ("pairs", _pairs), ("rises", _rises)):
        late = aside(server, "orders.late", f"shop.{name}")
        rows = sorted((row for place, row in sent if row and place not in late), key=lambda row: row["ordered_at"])
        wanted = Counter((*values, time) for *values, time in recomputed(rows) if time <= until)
        derived = [json.loads(record["value"]) for record in records(server, name)]
        found = Counter(tuple(row.values()) for row in derived if row["time"] <= until)
        if found != wanted:
            wrong.append(f"{name}: {found.total()} rows of {wanted.total()}, or others")
    return wrong


def _levels(rows: list[dict[str, Any]]) -> Iterator[tuple[str, int, str]]:
    for row in rows:
        since = dt.datetime.fromisoformat(row["ordered_at"]) - BEGIN
        yield row["order_id"], _level(row["customer_id"], since // dt.timedelta(seconds=LEVEL_S)), row["ordered_at"]


def _level(customer: int, number: int) -> int:
    return customer * 10_000 + number


def _pairs(rows: list[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    low: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        if row["amount"] < 10:
            low.setdefault(row["customer_id"], []).append(row)
        if row["amount"] >= 90:
            for one in reversed(low.get(row["customer_id"], [])):
                if _seconds(one, row) > 10:
                    break
                yield one["order_id"], row["order_id"], row["ordered_at"]


def _rises(rows: list[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    before: dict[int, dict[str, Any]] = {}
    for row in rows:
        one = before.get(row["customer_id"])
        if one is not None and one["amount"] < 10 and row["amount"] >= 90 and _seconds(one, row) <= 10:
            yield one["order_id"], row["order_id"], row["ordered_at"]
        before[row["customer_id"]] = row


def _seconds(one: Mapping[str, Any], later: Mapping[str, Any]) -> float:
    begin, end = (dt.datetime.fromisoformat(row["ordered_at"]) for row in (one, later))
    return (end - begin).total_seconds()


def _send_levels(bootstrap: str) -> None:
    """All versions of all customers, before any order asks for one."""
    producer = ck.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(-1, LEVELS):
        for customer in range(CUSTOMERS):
            row = {"customer_id": customer, "level": _level(customer, number), "since": at(number * LEVEL_S)}
            producer.produce("customers", key=str(customer), value=json.dumps(row).encode())
        producer.poll(0)
    if producer.flush(60):
        raise Wrong("levels were never acknowledged")


def campaign(
    folder: Path,
    seed: int,
    kills: int,
    drivers: int,
    pause_s: float = 1.5,
    spark: str = LOCAL,
    *,
    operators: bool = False,
) -> dict[str, int]:
    """Kill so often, of that the driver ``drivers`` times; raises Wrong if something is not as it should be.

    ``operators``: also with operators in event time.
    """
    print(f"seed {seed}, {kills} kills", flush=True)
    chance, done = random.Random(seed), Counter[str]()
    server = Headrace(folder / "node", http="127.0.0.1:0")
    made = admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    made.create_topics([admin.NewTopic("orders", PARTITIONS)])["orders"].result(30)
    if operators:
        kept = {"cleanup.policy": "delete", "retention.ms": "-1"}
        made.create_topics([admin.NewTopic("customers", 1, config=kept)])["customers"].result(30)
        _send_levels(server.bootstrap)
    app = APP + OPERATORS if operators else APP
    driver, source = Driver(folder, server, spark=spark, app=app), Orders(server.bootstrap, seed)
    victims = ["worker", "broker", "materialiser"] + ([] if spark == LOCAL else ["executor"] * 3)
    plan = ["driver"] * drivers + [chance.choice(victims) for _ in range(kills - drivers)]
    chance.shuffle(plan)
    try:
        driver.wait_until_running()
        for victim in plan:
            time.sleep(chance.uniform(0, 2 * pause_s))
            done[_kill(victim, server, driver, chance)] += 1
        source.stop()
        if operators:
            source.end()
        settle(server, driver)
        if driver.stop() != 0:
            raise Wrong(f"the driver did not stop cleanly:\n{driver.output[-3000:]}")
        return dict(done)
    except AssertionError as error:
        raise Wrong(f"seed {seed}: {error}\n{driver.output[-6000:]}") from error
    finally:
        driver.process.end(signal.SIGKILL, 10.0)
        server.stop()


def _kill(victim: str, server: Headrace, driver: Driver, chance: random.Random) -> str:
    """Kill one of that kind, or the broker if there is none of it; returns what was killed."""
    if victim == "driver":
        driver.kill9()
        return victim
    deadline = time.monotonic() + 5.0
    while victim != "broker" and time.monotonic() < deadline:
        if victim == "worker" and driver.kill_worker(chance):
            return victim
        if victim == "executor" and driver.kill_executor(chance):
            return victim
        if victim == "materialiser" and _kill_one(server.pid, b"headrace.serving.process", chance):
            return victim
        time.sleep(0.05)
    server.kill9()
    server.start()
    return "broker"


def stored(server: Server, web: str) -> list[str]:
    """What is not in the store as the topic has it."""
    wanted = sorted(
        (row["customer_id"], row["orders"], row["revenue"]) for row in view(server, "shop.revenue").values()
    )
    try:
        rows = connect(web).view("revenue").to_arrow().to_pylist()
    except HeadraceError as error:
        return [str(error)]
    found = sorted((row["customer_id"], row["orders"], row["revenue"]) for row in rows)
    return [] if found == wanted else [f"store of revenue: {len(found)} rows of {len(wanted)}"]


def settle(server: Server, driver: Driver) -> None:
    """Wait until everything is as a recomputation has it, also in the stores."""
    deadline = time.monotonic() + driver.patience_s
    while wrong := differences(server) or stored(server, server.web if isinstance(server, Headrace) else driver.web):
        if time.monotonic() > deadline or driver.process.dead():
            raise Wrong("; ".join(wrong))
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--spark", default=LOCAL, metavar="URL", help="Spark's master")
    given = parser.parse_args()
    left, seed = given.kills, given.seed if given.seed is not None else int(time.time())
    while left > 0:
        count = min(left, 25)
        with tempfile.TemporaryDirectory(prefix="headrace-kills-") as folder:
            drivers, operators = max(1, count // 6), given.spark == LOCAL
            print(campaign(Path(folder), seed, count, drivers, spark=given.spark, operators=operators), flush=True)
        left, seed = left - count, seed + 1


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
