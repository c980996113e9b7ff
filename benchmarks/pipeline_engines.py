"""One run of one engine in a process of its own, for ``bench_pipelines``: plain PySpark, or Headrace's source in Spark.

    python -m benchmarks.pipeline_engines decode headrace|spark BOOTSTRAP DATA TOPIC FOLDER
    python -m benchmarks.pipeline_engines view   spark          BOOTSTRAP DATA TOPIC FOLDER

``decode`` reads what is there into no sink and prints its figures as JSON. ``view`` runs until it is killed: windows of
a minute by region, upserted into FOLDER/view.sqlite. Plain PySpark gets the settings of Headrace's sessions (which
help it too: quick checkpoint files, as many shuffle partitions as there are processors), but Spark's own state store,
which keeps small state in memory, and batches that begin as soon as the one before is done.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers import ROOT

from benchmarks.meter import cpu_seconds
from headrace.pipelines.source import SourceOptions, read_stream
from headrace.pipelines.spark import start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "order_id string, customer_id long, amount double, region string, ordered_at timestamp, note string"
LATENESS = "10 seconds"
BATCH = 500_000
"""Records per batch: what ``headrace run`` takes if nobody says otherwise."""
WARM_ROWS = 2_000_000
"""Rows before the figures of ``decode`` begin: Java compiles what it runs often, for some seconds."""
JARS = ROOT / ".tools" / "spark-kafka"


STATE = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def session(folder: Path) -> SparkSession:
    jars = ",".join(str(jar) for jar in sorted(JARS.glob("*.jar")))
    settings = {"spark.jars": jars, "spark.driver.memory": "2g"}
    settings["spark.sql.streaming.stateStore.providerClass"] = STATE
    settings["spark.sql.streaming.numRecentProgressUpdates"] = "1000"
    return start_spark("bench", folder / "spark", "local[2]", settings)


def plain_stream(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    from pyspark.sql import functions as F

    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH)
        .load()
    )
    return raw.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")


def headrace_stream(spark: SparkSession, bootstrap: str, data: str, topic: str) -> DataFrame:
    options = SourceOptions(bootstrap, topic, "bench.decode", SCHEMA, data=data or None, max_records_per_trigger=BATCH)
    return read_stream(spark, options)


def decode(engine: str, bootstrap: str, data: str, topic: str, folder: Path) -> dict[str, float]:
    """Rows per second and per second of processor time, once Java is warm."""
    spark = session(folder)
    if engine == "spark":
        frame = plain_stream(spark, bootstrap, topic)
    else:
        frame = headrace_stream(spark, bootstrap, data, topic)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    done: list[tuple[float, float]] = []
    threading.Thread(target=_watch, args=(folder / "checkpoint" / "commits", done), daemon=True).start()
    query.awaitTermination()
    _note(folder / "checkpoint" / "commits", done)
    rows = [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]
    spark.stop()
    warm = next(n for n in range(1, len(rows) + 1) if n == len(rows) or sum(rows[:n]) >= WARM_ROWS)
    if len(done) < warm + 2:
        raise SystemExit(f"too few batches of {BATCH:,} records after {WARM_ROWS:,}: say more records")
    (start, start_cpu), (end, end_cpu) = done[warm - 1], done[len(rows) - 1]
    counted = sum(rows[warm:])
    return {"rows_per_s": counted / (end - start), "rows_per_cpu_s": counted / (end_cpu - start_cpu)}


def _watch(commits: Path, done: list[tuple[float, float]]) -> None:
    """Note when batches end. The files of the checkpoint say so; asking Spark would cost it time."""
    while True:
        _note(commits, done)
        time.sleep(0.02)


def _note(commits: Path, done: list[tuple[float, float]]) -> None:
    if (commits / str(len(done))).exists():
        done.append((time.perf_counter(), cpu_seconds(os.getpid())))


def plain_view(bootstrap: str, topic: str, folder: Path) -> None:
    """What one would write without Headrace: foreachBatch, upserts into SQLite."""
    from pyspark.sql import functions as F

    spark = session(folder)
    frame = plain_stream(spark, bootstrap, topic).withWatermark("ordered_at", LATENESS)
    counted = frame.groupBy(F.window("ordered_at", "1 minute").alias("minute"), "region").agg(
        F.count("*").alias("n"), F.sum("amount").alias("revenue")
    )
    store = folder / "view.sqlite"
    with sqlite3.connect(store) as made:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute(
            "CREATE TABLE IF NOT EXISTS revenue "
            "(minute TEXT, region TEXT, n INTEGER, revenue REAL, PRIMARY KEY (minute, region))"
        )

    def upsert(rows: DataFrame, _: int) -> None:
        found: list[Any] = rows.collect()
        values = [(str(one.minute.start), one.region, one.n, one.revenue) for one in found]
        with sqlite3.connect(store) as connection:
            connection.executemany("INSERT OR REPLACE INTO revenue VALUES (?, ?, ?, ?)", values)

    writer = counted.writeStream.foreachBatch(upsert).outputMode("update")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(processingTime="0 seconds").start()
    query.awaitTermination()


def main() -> None:
    case, engine, bootstrap, data, topic, folder = sys.argv[1:]
    if case == "decode":
        print(json.dumps(decode(engine, bootstrap, data, topic, Path(folder))), flush=True)
    else:
        plain_view(bootstrap, topic, Path(folder))


if __name__ == "__main__":
    main()
