"""Headrace beside plain PySpark Structured Streaming: the same node, the same topic, one after the other; medians.

    make bench-pipelines                                 everything, three rounds: about half an hour on two quiet cores
    make bench-pipelines BENCH='--only decode'           the cases whose name has this in it
    make bench-pipelines BENCH='--quick'                 one round with half of the records and of the time

``kafka reader`` is ``decode`` from Apache Kafka, over its protocol. Plain PySpark uses Spark's own Kafka source,
``from_json`` and an upsert into SQLite. Prints a table and writes
benchmarks/results/pipelines-TIME.json. ``others_percent`` is how much of the processors somebody else used meanwhile:
where that is more than a few, the figures say nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer, admin
from rich.console import Console
from rich.table import Table
from tests.servers import ROOT, ApacheKafka, Headrace, Server, die_with_parent

from benchmarks.meter import Others, cpu_seconds
from benchmarks.pipeline_engines import LATENESS, SCHEMA

RESULTS = ROOT / "benchmarks" / "results"
ENGINES = ("headrace", "spark")
PARTITIONS = 4
PATIENCE_S = 300.0
WARM_S = 20.0
"""How long records come before delays are measured: Java compiles what it runs often."""
REGIONS = ("north", "south", "east", "west")
APP = f'''
import headrace as hr
from headrace import F

app = hr.App("bench")
app.stream("orders", "{SCHEMA}", event_time="ordered_at", lateness="{LATENESS}")


@app.view(key=["minute", "region"])
def revenue(orders):
    minute = hr.tumbling("1 minute").alias("minute")
    return orders.groupBy(minute, "region").agg(F.count("*").alias("n"), F.sum("amount").alias("revenue"))
'''

console = Console(width=140 if not sys.stdout.isatty() else None)
Figures = dict[str, float]


@dataclass
class Bench:
    """A node with a topic, and a folder."""

    folder: Path
    records: int
    seconds: float
    kafka: bool = False
    node: Headrace = field(init=False)
    broker: Server = field(init=False)
    """The node, or Apache Kafka."""

    def __enter__(self) -> Bench:
        if self.kafka:
            self.broker = ApacheKafka(self.folder / "kafka")
        else:
            self.broker = self.node = Headrace(self.folder / "node", options=["--http", "127.0.0.1:0"])
        client = admin.AdminClient({"bootstrap.servers": self.broker.bootstrap})
        client.create_topics([admin.NewTopic("orders", PARTITIONS, 1)])["orders"].result(30)
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def fill(self) -> None:
        """All records at once, of the last minutes."""
        orders, producer = Orders(), self.producer()
        start = time.time() - 300
        for number in range(self.records):
            orders.send(producer, start + 300 * number / self.records)
        producer.flush()

    def producer(self) -> Producer:
        return Producer(
            {"bootstrap.servers": self.broker.bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 500_000}
        )

    @contextmanager
    def view(self, engine: str) -> Iterator[View]:
        found = View(self, engine)
        found.start()
        try:
            yield found
        finally:
            found.kill()


class Orders:
    """JSON rows of about 145 bytes, spread over the partitions."""

    def __init__(self) -> None:
        self._rng = random.Random(7)
        self._number = 0

    def send(self, producer: Producer, at: float) -> None:
        number, rng = self._number, self._rng
        self._number += 1
        moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}.{int(at * 1000) % 1000:03d}Z"
        dice = rng.getrandbits(32)
        value = (
            f'{{"order_id":"o{number:09d}","customer_id":{dice % 1_000_000},"amount":{dice % 9_973 / 100},'
            f'"region":"{REGIONS[dice % 4]}","ordered_at":"{moment}","note":"as usual, by post"}}'
        )
        while True:
            try:
                producer.produce("orders", value, partition=number % PARTITIONS, timestamp=int(at * 1000))
                return
            except BufferError:
                producer.poll(0.05)


class View:
    """A running engine that keeps a view of windows in SQLite."""

    def __init__(self, bench: Bench, engine: str) -> None:
        self.bench, self.engine = bench, engine
        self.folder = bench.folder / f"view-{engine}"
        self.folder.mkdir(parents=True, exist_ok=True)
        views = bench.node.data / "views" / "bench.sqlite"
        self.store = views if engine == "headrace" else self.folder / "view.sqlite"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        node = self.bench.node
        if self.engine == "headrace":
            app = self.folder / "app.py"
            app.write_text(APP)
            command = [str(Path(sys.executable).with_name("headrace")), "run", str(app), "--server", node.bootstrap]
            command += ["--data", str(node.data), "--master", "local[2]"]
        else:
            command = [sys.executable, "-m", "benchmarks.pipeline_engines", "view", "spark", node.bootstrap]
            command += [str(node.data), "orders", str(self.folder)]
        output = (self.folder / "output.log").open("ab")
        self.process = subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True, preexec_fn=die_with_parent
        )

    def kill(self) -> None:
        """SIGKILL of all its processes."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def rows(self) -> int:
        """How many records the view has counted."""
        try:
            with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=1)) as connection:
                return int(connection.execute("SELECT sum(n) FROM revenue").fetchone()[0] or 0)
        except sqlite3.Error:
            return 0

    def wait_for(self, rows: int, tell: Callable[[float, int], None] = lambda at, found: None) -> float:
        """When the view has counted so many."""
        deadline = time.perf_counter() + PATIENCE_S
        while True:
            found, now = self.rows(), time.perf_counter()
            tell(now, found)
            if found >= rows:
                return now
            if now > deadline or self.process is None or self.process.poll() is not None:
                text = (self.folder / "output.log").read_text(errors="replace")[-2000:]
                raise TimeoutError(f"{self.engine}: the view has {found} of {rows} rows:\n{text}")
            time.sleep(0.01)

    def cpu(self) -> float:
        assert self.process is not None
        return cpu_seconds(self.process.pid) + cpu_seconds(self.bench.node.pid)


def decode(bench: Bench, engine: str) -> Figures:
    """The log to typed columns, once Java is warm, no sink."""
    broker, folder = bench.broker, bench.folder / f"decode-{engine}"
    folder.mkdir(parents=True)
    arguments = ["decode", engine, broker.bootstrap, str(broker.data or ""), "orders", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.pipeline_engines", *arguments],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=die_with_parent,
    )
    if done.returncode:
        raise RuntimeError(f"{done.stdout}\n{done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def end_to_end(bench: Bench, engine: str) -> Figures:
    """The log to a view in SQLite: from when the first batch is in the view to when all of them are."""
    with bench.view(engine) as view:
        begun: list[tuple[float, int, float]] = []

        def note(at: float, found: int) -> None:
            if not begun and found:
                begun.append((at, found, view.cpu()))

        ended = view.wait_for(bench.records, note)
        started, rows, cpu = begun[0]
        left = bench.records - rows
        if left <= 0:
            raise RuntimeError("all records came in the first batch: say more records")
        return {"rows_per_s": left / (ended - started), "rows_per_cpu_s": left / (view.cpu() - cpu)}


def latency(rate: int) -> Callable[[Bench, str], Figures]:
    """From produce to visible in the view, while records come at a rate."""

    def measure(bench: Bench, engine: str) -> Figures:
        with bench.view(engine) as view:
            orders, producer = Orders(), bench.producer()
            orders.send(producer, time.time())
            producer.flush()
            view.wait_for(1)
            warm = int(rate * WARM_S)
            total = warm + int(rate * bench.seconds)
            sent, seen = [0.0] * (total + 1), []
            sender = threading.Thread(target=_send, args=(orders, producer, rate, total, sent))
            sender.start()
            view.wait_for(total + 1, lambda at, found: seen.append((at, found)))
            sender.join()
            delays, at = [], 0
            for number in range(warm, total):
                while seen[at][1] <= number + 1:
                    at += 1
                delays.append(seen[at][0] - sent[number])
            delays.sort()
            return {"p50_ms": 1000 * delays[len(delays) // 2], "p99_ms": 1000 * delays[len(delays) * 99 // 100]}

    return measure


def _send(orders: Orders, producer: Producer, rate: int, total: int, sent: list[float]) -> None:
    start = time.perf_counter()
    for number in range(total):
        ahead = start + number / rate - time.perf_counter()
        if ahead > 0.001:
            producer.poll(0)
            time.sleep(ahead)
        sent[number] = time.perf_counter()
        orders.send(producer, time.time())
    producer.flush()


def recovery(bench: Bench, engine: str) -> Figures:
    """From SIGKILL, and a start at once, to a view that has what was produced meanwhile."""
    with bench.view(engine) as view:
        orders, producer = Orders(), bench.producer()
        for _ in range(1_000):
            orders.send(producer, time.time())
        producer.flush()
        view.wait_for(1_000)
        time.sleep(2)
        killed = time.perf_counter()
        view.kill()
        for _ in range(1_000):
            orders.send(producer, time.time())
        producer.flush()
        view.start()
        return {"back_after_s": view.wait_for(2_000) - killed}


@dataclass(frozen=True)
class Case:
    """What is measured, and what is to be reached: a ratio to plain PySpark, or a bound."""

    name: str
    run: Callable[[Bench, str], Figures]
    figure: str
    filled: bool = False
    kafka: bool = False
    ratio: float | None = None
    limit: float | None = None


CASES = [
    Case("decode", decode, "rows_per_s", filled=True, ratio=4),
    Case("kafka reader", decode, "rows_per_s", filled=True, kafka=True, ratio=1.5),
    Case("end to end", end_to_end, "rows_per_s", filled=True, ratio=2),
    Case("visible at 1,000/s", latency(1_000), "p99_ms"),
    Case("visible at 20,000/s", latency(20_000), "p99_ms", limit=1_000),
    Case("recovery", recovery, "back_after_s", limit=15),
]


def run(case: Case, engines: list[str], records: int, seconds: float) -> Iterator[tuple[str, Figures]]:
    """One round of a case: both engines over the same full topic, or each on a new one."""
    for together in [engines] if case.filled else [[engine] for engine in engines]:
        with Bench(Path(tempfile.mkdtemp(prefix="bench-")), records, seconds, case.kafka) as bench:
            if case.filled:
                bench.fill()
            for engine in together:
                os.sync()
                try:
                    with Others() as others:
                        figures = case.run(bench, engine)
                        figures["others_percent"] = others.percent
                    yield engine, figures
                except (RuntimeError, TimeoutError) as problem:
                    console.print(f"{case.name}, {engine}: [red]failed[/red]: {problem}")


def medians(rounds: list[Figures]) -> Figures:
    return {key: statistics.median(one[key] for one in rounds) for key in rounds[0]} if rounds else {}


def show(measured: dict[str, dict[str, list[Figures]]]) -> None:
    table = Table("case", "figure", "headrace", "plain PySpark", "ratio", "to reach")
    for case in (case for case in CASES if case.name in measured):
        ours, theirs = (medians(measured[case.name].get(engine, [])) for engine in ENGINES)
        for key in ours or theirs:
            one, two = ours.get(key), theirs.get(key)
            goal = ""
            if key == case.figure and one is not None:
                if case.ratio is not None and two:
                    goal = f"{case.ratio:g} times: {'yes' if one / two >= case.ratio else 'NO'}"
                elif case.limit is not None:
                    goal = f"below {case.limit:g}: {'yes' if one < case.limit else 'NO'}"
            shown = [f"{value:,.1f}" if value is not None else "" for value in (one, two)]
            table.add_row(case.name, key, *shown, f"{one / two:.2f}" if one and two else "", goal)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--engine", choices=ENGINES, help="only this one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=6_000_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long records come in the latency cases")
    parser.add_argument("--quick", action="store_true", help="one round with half of the records and of the time")
    given = parser.parse_args()
    rounds, records, seconds = given.rounds, given.records, given.seconds
    if given.quick:
        rounds, records, seconds = 1, records // 2, seconds / 2
    measured: dict[str, dict[str, list[Figures]]] = {}
    for number in range(rounds):
        for case in (case for case in CASES if given.only in case.name):
            engines = [engine for engine in ENGINES if given.engine in (None, engine)]
            for engine, figures in run(case, engines[:: 1 if number % 2 == 0 else -1], records, seconds):
                measured.setdefault(case.name, {}).setdefault(engine, []).append(figures)
                shown = ", ".join(f"{key} {value:,.1f}" for key, value in figures.items())
                console.print(f"round {number + 1}: {case.name}, {engine}: {shown}")
    show(measured)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"pipelines-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps({"records": records, "load": os.getloadavg(), "measured": measured}, indent=1))
    console.print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
