"""NEXMark's apps in Headrace: segment files beside a running node, the apps' own plans, a sink that drops all rows.

    python -m benchmarks.nexmark.headrace_apps BOOTSTRAP DATA FOLDER

What Headrace runs for an app but for the sink: the same plan over the same source, with the columns that the query
needs, in batches of 500,000 records. So reading, decoding, late rows, the query and its state are measured, and what
others do not do either (writing the result to a topic, the view's store) is not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.nexmark.answers import serve
from benchmarks.nexmark.apps import APPS
from benchmarks.nexmark.spark_plain import BATCH, write
from headrace.pipelines.building import Building
from headrace.pipelines.plan import Input, built, empty, planned, sources, with_event_time
from headrace.pipelines.pruning import unneeded_columns
from headrace.pipelines.source import SourceOptions, needed_columns, read_stream, with_all_columns
from headrace.pipelines.spark import start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class HeadraceApps:
    """Runs a query of the apps in one session."""

    def __init__(self, bootstrap: str, data: str, folder: Path) -> None:
        self.bootstrap, self.data, self.folder = bootstrap, data, folder
        self.spark = start_spark("nexmark", folder / "spark", "local[2]", {"spark.driver.memory": "2g"})
        self.planned = {name: (app, plan) for app in APPS for name, plan in planned(self.spark, app).items()}
        self.runs = 0

    def run(self, query: str, topic: str) -> None:
        """All of a topic."""
        self.runs += 1
        app, plan = self.planned[query]
        inputs = {name: replace(one, topic=topic) for name, one in sources(app, {}, {}).items()}

        def bounded(known: Building) -> DataFrame:
            return built(self.spark, plan.query, inputs, lambda one: empty(self.spark, one), known).frame

        unneeded = unneeded_columns(bounded)

        def result(read: Callable[[Input], DataFrame]) -> DataFrame:
            known = Building(plan.query.id, bootstrap=self.bootstrap, unneeded=unneeded)
            return built(self.spark, plan.query, inputs, read, known).frame

        columns = needed_columns(
            self.spark, lambda frame: result(lambda one: with_event_time(frame, one)), inputs["events"].schema
        )
        write(result(lambda one: self._read(one, columns)), query, plan.output_mode, self.folder)

    def _read(self, one: Input, columns: tuple[str, ...]) -> DataFrame:
        times = one.event_time
        assert times is not None
        frame = read_stream(
            self.spark,
            SourceOptions(
                bootstrap=self.bootstrap,
                topic=one.topic,
                query=f"bench.{self.runs}",
                schema=one.schema,
                data=self.data,
                columns=columns,
                event_time=times.column,
                lateness_ms=times.lateness_ms,
                max_records_per_trigger=BATCH,
            ),
        )
        return with_all_columns(frame, one.schema)


def main() -> None:
    bootstrap, data, folder = sys.argv[1:]
    serve(HeadraceApps(bootstrap, data, Path(folder)).run)


if __name__ == "__main__":
    main()
