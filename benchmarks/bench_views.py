"""How fast views are taken in: a changelog into SQLite and into PostgreSQL, the same records in the same run.

    python -m benchmarks.bench_views                 a million changes of 100,000 rows, and a million new rows
    python -m benchmarks.bench_views --rows 200000   fewer

Prints changes per second, and per second of processor time of all who take part (our process, PostgreSQL's); the
ratio is that of processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from contextlib import closing
from pathlib import Path

import confluent_kafka as ck
from rich.console import Console
from rich.table import Table
from tests.capture.databases import Postgres
from tests.servers import Headrace
from tests.views.memory_feed import view_entry

from benchmarks.meter import Others, cpu_seconds
from headrace.clock import SystemClock
from headrace.feed import open_feed
from headrace.views.catalog import CATALOG_TOPIC
from headrace.views.materialiser import Materialiser
from headrace.views.places import stores_at

COLUMNS = {"id": "long", "region": "string", "revenue": "double", "at": "timestamp"}
CASES = {"changes of few rows": 10, "new rows": 1}
"""How many changes each row gets."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    table = Table("case", "SQLite", "PostgreSQL", "PostgreSQL to SQLite")
    with Others() as others, tempfile.TemporaryDirectory() as folder, closing(Postgres()) as server:
        server.create("views")
        for number, (case, changes) in enumerate(CASES.items()):
            place = Path(folder) / str(number)
            log = Headrace(place)
            try:
                write(log.bootstrap, rows, rows // changes)
                sqlite = taken_in(log, None, place, rows)
                postgres = taken_in(log, server.dsn("views"), place, rows)
            finally:
                log.stop()
            server.execute("drop schema shop cascade", "views")
            table.add_row(case, shown(*sqlite), shown(*postgres), f"{postgres[1] / sqlite[1]:.2f}")
    Console().print(table)
    print(f"{rows:,} changes each; per CPU-second, in brackets per second. Others used {others.percent:.0f} %.")


def write(bootstrap: str, changes: int, keys: int) -> None:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    entry = view_entry("shop", "sales", ["id"], COLUMNS)
    producer.produce(CATALOG_TOPIC, key="view/shop/sales", value=json.dumps(entry))
    for number in range(changes):
        key = number % keys
        row = f'{{"id":{key},"region":"region {key % 50}","revenue":{number}.5,"at":"2026-01-01T12:00:00.123456Z"}}'
        producer.produce("shop.sales", key=f'{{"id":{key}}}', value=row)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def taken_in(log: Headrace, views: str | None, place: Path, rows: int) -> tuple[float, float]:
    """Changes per second and per CPU-second, until the view is where its changelog ends. The node, which does nothing
    meanwhile, and PostgreSQL are our children."""
    with (
        closing(open_feed(log.bootstrap, log.data)) as feed,
        closing(stores_at(views, place)) as stores,
        closing(Materialiser(feed, stores, SystemClock())) as materialiser,
    ):
        before, began = cpu_seconds(os.getpid()), time.monotonic()
        while not any(state.caught_up for state in materialiser.states.values()):
            if not materialiser.step():
                time.sleep(0.01)
        return rows / (time.monotonic() - began), rows / (cpu_seconds(os.getpid()) - before)


def shown(by_clock: float, by_cpu: float) -> str:
    return f"{by_cpu:,.0f} ({by_clock:,.0f})"


if __name__ == "__main__":
    main()
