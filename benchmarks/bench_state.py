"""The keyed operator beside Spark's ``transformWithState`` in Python and its built-in aggregation: count and last value
per key, rows made by Spark itself, RocksDB state with changelog checkpoints, results dropped.

    python -m benchmarks.bench_state                            1,000, 100,000 and 5,000,000 keys
    python -m benchmarks.bench_state --keys 1000 --batches 6    one size, fewer batches

``transformWithState`` gets batches of a hundredth of the rows where keys are many: it would not finish otherwise.
Prints a table of rows per second (the second half of the batches: in the first, Java still compiles what it runs, which
is a good part of all processor time, and a stream runs for longer) and per second of processor time (of all processes,
over the same batches), and ratios of the latter, which other work on the machine disturbs less; and writes
benchmarks/results/state-TIME.json.
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
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType
from rich.console import Console
from rich.table import Table

from benchmarks.meter import cpu_seconds
from headrace.pipelines.spark import start_spark
from headrace.pipelines.state import Changes, Step, TableType
from headrace.pipelines.state.frames import Keyed, keyed
from headrace.pipelines.state.operator import ID

ROOT = Path(__file__).parent.parent
ENGINES = ("headrace", "built-in", "transformWithState")
OUTPUT = "key long, n long, last long"
Rates = dict[str, float]
"""Rows per second, and per second of processor time."""


@dataclass(frozen=True)
class CountAndLast:
    """What all three do."""

    tables = {"keys": TableType({"key": pl.Int64(), "n": pl.Int64(), "last": pl.Int64()}, ("key",))}

    def step(self, state: Any, delta: Any, watermark_us: int | None) -> Step:
        new = delta["rows"].group_by("key").agg(n=pl.len().cast(pl.Int64), last=pl.col("value").last())
        old = state["keys"].lookup(new)
        both = new.join(old.select("key", was="n"), on="key", how="left")
        counted = both.select("key", n=pl.col("n") + pl.col("was").fill_null(0), last="last")
        return Step(counted, {"keys": Changes(counted, old[ID])})


class PerKey(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self._kept = handle.getValueState("kept", "n long, last long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n, last = self._kept.get() if self._kept.exists() else (0, 0)
        for row in rows:
            n, last = n + 1, row["value"]
        self._kept.update((n, last))
        yield Row(key=key[0], n=n, last=last)

    def close(self) -> None:
        pass


def result(engine: str, rows: DataFrame) -> DataFrame:
    if engine == "headrace":
        return keyed({"rows": Keyed(rows, ["key"])}, CountAndLast(), StructType.fromDDL(OUTPUT))
    if engine == "built-in":
        return rows.groupBy("key").agg(F.count("*").alias("n"), F.last("value").alias("last"))
    return rows.groupBy("key").transformWithState(PerKey(), OUTPUT, "Update", "none")


def measure(engine: str, keys: int, rows: int, batches: int) -> Rates:
    """Of the second half of the batches."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    spark: SparkSession = start_spark("bench", folder, "local[2]", {"spark.driver.memory": "4g"})
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2).load()
    keyed_rows = source.select(F.pmod(F.xxhash64("value"), F.lit(keys)).alias("key"), "value")
    took: list[float] = []
    cpu: list[float] = []

    def drop(batch: DataFrame, number: int) -> None:
        started = time.perf_counter()
        batch.write.format("noop").mode("overwrite").save()
        cpu.append(cpu_seconds(os.getpid()))
        took.append(time.perf_counter() - started)

    mode = "append" if engine == "headrace" else "update"
    query = result(engine, keyed_rows).writeStream.outputMode(mode).foreachBatch(drop)
    running = query.option("checkpointLocation", str(folder / "checkpoint")).start()
    while len(took) < batches and running.isActive:
        time.sleep(0.1)
    failed = running.exception()
    running.stop()
    spark.stop()
    shutil.rmtree(folder, ignore_errors=True)
    if failed is not None:
        raise failed
    warm = batches // 2
    used = cpu[batches - 1] - cpu[warm - 1]
    return {"per_s": rows / statistics.median(took[warm:batches]), "per_cpu_s": rows * (batches - warm) / used}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000, 100_000, 5_000_000])
    parser.add_argument("--rows", type=int, default=500_000, help="rows per batch")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--only", nargs="+", default=ENGINES, choices=ENGINES)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        engine, *numbers = chosen.one
        print(json.dumps(measure(engine, *map(int, numbers))))
        return
    found: dict[int, dict[str, Rates]] = {}
    for keys in chosen.keys:
        for engine in chosen.only:
            slow = engine == "transformWithState" and keys > 10_000
            rows = chosen.rows // 100 if slow else chosen.rows
            words = [
                sys.executable,
                "-m",
                "benchmarks.bench_state",
                "--one",
                engine,
                str(keys),
                str(rows),
                str(chosen.batches),
            ]
            answer = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
            found.setdefault(keys, {})[engine] = json.loads(answer.stdout.splitlines()[-1])
            shown = " ".join(f"{value:>12,.0f} rows {name}" for name, value in found[keys][engine].items())
            print(f"{keys:>9,} keys  {engine:20} {shown}", flush=True)
    show(found)


def show(found: dict[int, dict[str, Rates]]) -> None:
    rates_of = [f"{engine}\nrows/s, per CPU-s" for engine in ENGINES]
    table = Table("keys", *rates_of, "to transformWithState\n(>= 10)", "to built-in\n(>= 0.5)")
    for keys, rates in found.items():
        cells = [
            f"{rates[engine]['per_s']:,.0f}\n{rates[engine]['per_cpu_s']:,.0f}" if engine in rates else "-"
            for engine in ENGINES
        ]
        table.add_row(f"{keys:,}", *cells, *(_ratio(rates, other) for other in (ENGINES[2], ENGINES[1])))
    Console(width=140).print(table)
    results = ROOT / "benchmarks" / "results"
    results.mkdir(exist_ok=True)
    path = results / f"state-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps({str(keys): rates for keys, rates in found.items()}, indent=1))


def _ratio(rates: dict[str, Rates], other: str) -> str:
    if "headrace" not in rates or other not in rates:
        return "-"
    return f"{rates['headrace']['per_cpu_s'] / rates[other]['per_cpu_s']:.2f}"


if __name__ == "__main__":
    main()
