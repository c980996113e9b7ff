"""NEXMark: Headrace's apps beside Flink SQL and plain Spark, over the same topic of the same node; medians.

    make bench-nexmark                                   every query, three rounds of 10 million events: many hours
    make bench-nexmark BENCH='--only q5,q8 --rounds 1'   these queries
    make bench-nexmark BENCH='--quick'                   one round of 2 million events

A node is filled with events (see nexmark/generator.py), in 4 partitions. Each engine has a process that runs the
queries one after the other, and the engines take turns at each query. A query runs twice: over a tenth of the events,
to warm up, and then from the start over all of them. Only the second run counts: events per second from its start to
its end, and events per second of processor time of all processes of the engine. Flink and Spark read over the Kafka
protocol, Headrace the node's files; the node's own processor time is not counted. Every engine drops the rows that a
query gives (q10 writes files). Patterns (c0 to c3) run over
100,000 events. Prints a table and writes benchmarks/results/nexmark-TIME.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.servers import ROOT, Headrace, die_with_parent

from benchmarks.nexmark.answers import MARK
from benchmarks.nexmark.generator import Settings, Stream
from benchmarks.nexmark.oracle import NAMES
from benchmarks.nexmark.topic import create_topic, fill

RESULTS = ROOT / "benchmarks" / "results"
FLINK = ROOT / ".tools" / "flink" / "venv" / "bin" / "python"
PARTITIONS = 4
PATIENCE_S = 1800.0
PATTERN_EVENTS = 100_000
"""Patterns run over so many: Flink takes a minute for them."""
STATELESS = ("q0", "q1", "q2", "q14", "q21", "q22")
IMPOSSIBLE = {
    "flink": {"q6", "q13"},
    "spark": {"q4", "q6", "q7", "q9", "c0", "c1", "c2", "c3"},
}
"""What cannot be said; see nexmark/flink.py and nexmark/spark_queries.py."""

Figures = dict[str, float]
console = Console(width=140 if not sys.stdout.isatty() else None)


class Engine:
    """A process that answers; started when it is first asked, and anew after a failure."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name, self._command = name, command
        self._errors = folder / "errors.log"
        self._process: subprocess.Popen[str] | None = None
        folder.mkdir(parents=True)

    def run(self, query: str, topic: str) -> dict[str, float]:
        """Seconds and processor seconds."""
        process = self._process or self._started()
        assert process.stdin is not None
        process.stdin.write(json.dumps({"query": query, "warm": f"{topic}-first", "topic": topic}) + "\n")
        process.stdin.flush()
        found = self._answer(process)
        if "failed" in found:
            raise RuntimeError(found["failed"])
        return found

    def end(self) -> None:
        """Close its input, and wait a little."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _started(self) -> subprocess.Popen[str]:
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
                preexec_fn=die_with_parent,
            )
        self._answer(self._process)
        return self._process

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        patience = threading.Timer(PATIENCE_S, process.kill)
        patience.start()
        try:
            for line in process.stdout:
                if line.startswith(MARK):
                    found: dict[str, Any] = json.loads(line.removeprefix(MARK))
                    return found
        finally:
            patience.cancel()
        self.end()
        raise RuntimeError(f"{self.name} has ended:\n{self._errors.read_text(errors='replace')[-3000:]}")


def commands(node: Headrace, folder: Path) -> dict[str, list[str]]:
    module, python = "benchmarks.nexmark", sys.executable
    return {
        "headrace": [python, "-m", f"{module}.headrace_apps", node.bootstrap, str(node.data), str(folder / "headrace")],
        "flink": [str(FLINK), "-m", f"{module}.flink", node.bootstrap, str(folder / "flink")],
        "spark": [python, "-m", f"{module}.spark_plain", node.bootstrap, str(folder / "spark")],
    }


ENGINES = ("headrace", "flink", "spark")


@contextmanager
def filled(folder: Path, events: dict[str, int]) -> Iterator[Headrace]:
    """A node with topics of so many events, and for each another with a tenth of them."""
    node = Headrace(folder / "node")
    try:
        for topic, count in events.items():
            for name, part in ((f"{topic}-first", count // 10), (topic, count)):
                create_topic(node.bootstrap, name, PARTITIONS)
                fill(node.bootstrap, name, Stream(Settings()), range(part), PARTITIONS)
        yield node
    finally:
        node.kill9()


def can_say(engine: str, query: str) -> bool:
    from benchmarks.nexmark.apps import APPS

    if engine == "headrace":
        return any(one.name == query for app in APPS for one in app.queries)
    return query not in IMPOSSIBLE[engine]


def measured(engines: list[str], queries: list[str], rounds: int, events: int) -> dict[str, dict[str, list[Figures]]]:
    """Of each query and engine the figures of all rounds."""
    found: dict[str, dict[str, list[Figures]]] = {}
    folder = Path(tempfile.mkdtemp(prefix="nexmark-"))
    topics = {topic_of(query): PATTERN_EVENTS if topic_of(query) == "patterns" else events for query in queries}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        console.print(f"filling a topic with {events:,} events")
        node = stack.enter_context(filled(folder, topics))
        running = {name: Engine(name, command, folder / name) for name, command in commands(node, folder).items()}
        for engine in running.values():
            stack.callback(engine.end)
        for number in range(rounds):
            for query in queries:
                for name in engines[:: 1 if number % 2 == 0 else -1]:
                    if can_say(name, query):
                        one = _figures(running[name], query, topics[topic_of(query)])
                        if one is not None:
                            found.setdefault(query, {}).setdefault(name, []).append(one)
                            shown = ", ".join(f"{key} {value:,.0f}" for key, value in one.items())
                            console.print(f"round {number + 1}: {query}, {name}: {shown}")
    return found


def topic_of(query: str) -> str:
    return "patterns" if query.startswith("c") else "events"


def _figures(engine: Engine, query: str, events: int) -> Figures | None:
    os.sync()
    try:
        found = engine.run(query, topic_of(query))
    except (RuntimeError, BrokenPipeError) as problem:
        console.print(f"{query}, {engine.name}: failed: {problem}", markup=False)
        return None
    return {"events_per_s": events / found["seconds"], "events_per_cpu_s": events / found["cpu"]}


def medians(found: dict[str, dict[str, list[Figures]]], key: str) -> dict[str, dict[str, float]]:
    return {
        query: {name: statistics.median(one[key] for one in rounds) for name, rounds in engines.items()}
        for query, engines in found.items()
    }


def ratios(per_cpu: dict[str, dict[str, float]], other: str) -> dict[str, float]:
    """Headrace's events per processor second to another's."""
    return {
        query: engines["headrace"] / engines[other]
        for query, engines in per_cpu.items()
        if "headrace" in engines and other in engines
    }


def show(found: dict[str, dict[str, list[Figures]]]) -> dict[str, Any]:
    """The table; and the goals."""
    speed, per_cpu = medians(found, "events_per_s"), medians(found, "events_per_cpu_s")
    to = {other: ratios(per_cpu, other) for other in ("flink", "spark")}
    table = Table(
        "query", *(f"{name}\nk/s" for name in ENGINES), *(f"{name}\nk/CPU-s" for name in ENGINES), "/flink", "/spark"
    )
    for query in found:
        figures = [per[query].get(name) for per in (speed, per_cpu) for name in ENGINES]
        shown = [f"{value / 1000:,.0f}" if value is not None else "-" for value in figures]
        table.add_row(query, *shown, *(f"{to[one][query]:.2f}" if query in to[one] else "-" for one in to))
    console.print(table)
    reached = goals(to["flink"], to["spark"])
    for goal, value in reached.items():
        console.print(f"{goal}: {value}")
    return {"events_per_s": speed, "events_per_cpu_s": per_cpu, "ratios": to, "goals": reached}


def goals(flink: dict[str, float], spark: dict[str, float]) -> dict[str, str]:
    """What is to be reached, per processor second, and whether it is."""
    found = {}
    stateless = [ratio for query, ratio in flink.items() if query in STATELESS]
    if spark:
        found["ahead of plain Spark everywhere"] = _goal(min(spark.values()), 1.0)
        found["1.5 times plain Spark in the median"] = _goal(statistics.median(spark.values()), 1.5)
    if stateless:
        found["1.3 times Flink on stateless queries"] = _goal(min(stateless), 1.3)
    if flink:
        found["at least Flink in the median"] = _goal(statistics.median(flink.values()), 1.0)
        found["nowhere under a third of Flink"] = _goal(min(flink.values()), 1 / 3)
    return found


def _goal(value: float, wanted: float) -> str:
    return f"{value:.2f} {'yes' if value >= wanted else 'NO'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="these queries: q5,q8")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--quick", action="store_true", help="one round of 2 million events")
    given = parser.parse_args()
    rounds, events = (1, 2_000_000) if given.quick else (given.rounds, given.events)
    queries = [name for name in NAMES if not given.only or name in given.only.split(",")]
    found = measured(given.engines.split(","), queries, rounds, events)
    summary = show(found)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"nexmark-{time.strftime('%Y%m%d-%H%M%S')}.json"
    told = {"events": events, "rounds": rounds, "load": os.getloadavg(), "measured": found, **summary}
    path.write_text(json.dumps(told, indent=1))
    console.print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
