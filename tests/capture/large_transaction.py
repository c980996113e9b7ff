"""One transaction of very many rows, captured whole: ``python -m tests.capture.large_transaction --rows 1000000``.

Prints how long it took, what the worker's memory came to, and whether the topic is the table.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import zlib
from pathlib import Path

from confluent_kafka import TopicPartition

from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from headrace.feed.cluster import Cluster
from tests.capture.databases import Postgres
from tests.capture.running import Running
from tests.servers import Headrace


def peak_mb(pid: int) -> float:
    """The most memory that a process ever had resident."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def read_rows(bootstrap: str, topic: str, count: int, patience_s: float) -> dict[bytes, int]:
    """The checksum of the latest value of each key, once so many keys are there. Each key must come once."""
    found: dict[bytes, int] = {}
    consumer = Cluster(bootstrap, {}).consumer()
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + patience_s
    try:
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(10_000, 0.5):
                key, value = message.key(), message.value()
                if message.error() is None and isinstance(key, bytes) and isinstance(value, bytes):
                    if key in found:
                        raise SystemExit(f"{key!r} came twice")
                    found[key] = zlib.crc32(value[value.index(b'"after":{') : value.index(b',"source":')])
    finally:
        consumer.close()
    return found


def wanted(postgres: Postgres, database: str = "postgres") -> dict[bytes, int]:
    """What the topic should say."""
    rows = postgres.execute("select id, v from large", database)
    return {b'{"id":%d}' % key: zlib.crc32(b'"after":{"id":%d,"v":"%b"}' % (key, v.encode())) for key, v in rows}


def main() -> None:
    """Run it."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rows", type=int, default=1_000_000)
    asked.add_argument("--patience", type=float, default=1800.0, metavar="S")
    options = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-large-") as folder:
        postgres, log = Postgres(), Headrace(Path(folder) / "log")
        postgres.execute("create table large (id bigint primary key, v text)")
        table = Captured("large", Source(postgres.dsn(), table="large"))
        running = Running("large", [table], log.bootstrap, Path(folder))
        try:
            running.until(lambda: running.state("large") == "streaming")
            began = time.monotonic()
            postgres.execute(f"insert into large select g, md5(g::text) from generate_series(1, {options.rows}) g")
            committed_s = time.monotonic() - began
            found = read_rows(log.bootstrap, "large", options.rows, options.patience)
            took_s = time.monotonic() - began
            print(f"{options.rows} rows in one transaction, committed after {committed_s:.1f} s")
            peak = peak_mb(running.worker_pid)
            print(f"they are in the topic after {took_s:.1f} s; the worker had {peak:.0f} MB at most")
            if found != wanted(postgres):
                raise SystemExit(f"the topic is not the table: it has {len(found)} keys; told: {running.told}")
            print("the topic is the table, each row once")
        finally:
            running.stop()
            log.stop()
            postgres.close()


if __name__ == "__main__":
    main()
