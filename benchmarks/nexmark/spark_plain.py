"""NEXMark in plain Spark: its own Kafka source, ``from_json``, RocksDB with a changelog, a sink that drops all rows.

    python -m benchmarks.nexmark.spark_plain BOOTSTRAP FOLDER

Batches of 500,000 records. The session has the settings of Headrace's own.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from benchmarks.nexmark.answers import serve
from benchmarks.nexmark.events import LATENESS, SCHEMA
from benchmarks.nexmark.spark_queries import QUERIES
from benchmarks.pipeline_engines import session
from headrace.pipelines.building import Building, building

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH = 500_000
APPENDED = frozenset({"q3", "q5", "q11", "q20", "q23"})
"""Stateful queries whose rows come once."""
UPDATED = frozenset({"q8", "q12", "q15", "q16", "q17", "q18", "q19"})


def write(frame: DataFrame, query: str, mode: str, folder: Path) -> None:
    """All there is, to no sink; q10 to files."""
    place = folder / f"{query}-{uuid4().hex[:8]}"
    writer = frame.writeStream.outputMode(mode).option("checkpointLocation", str(place / "checkpoint"))
    if query == "q10":
        writer = writer.format("csv").partitionBy("dt", "hm").option("path", str(place / "files"))
    else:
        writer = writer.format("noop")
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        shutil.rmtree(place, ignore_errors=True)


class PlainSpark:
    """Runs a query in one session."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap, self.folder = bootstrap, folder
        self.spark = session(folder)

    def run(self, query: str, topic: str) -> None:
        """All of a topic."""
        with building(Building(query, event_times=("dateTime",))):
            frame = QUERIES[query](self._events(topic))
        write(frame, query, "update" if query in UPDATED else "append", self.folder)

    def _events(self, topic: str) -> DataFrame:
        from pyspark.sql import functions as F

        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        raw = reader.option("maxOffsetsPerTrigger", BATCH).load()
        rows = raw.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
        return rows.withWatermark("dateTime", LATENESS)


def main() -> None:
    bootstrap, folder = sys.argv[1:]
    serve(PlainSpark(bootstrap, Path(folder)).run)


if __name__ == "__main__":
    main()
