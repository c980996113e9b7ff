"""A kill between rows that were copied in one go, which share one place in the database's log: each comes once."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from tests.capture.databases import Postgres
from tests.capture.kill_rounds import broken_sequences
from tests.capture.running import Running
from tests.capture.topics import Reader
from tests.servers import Headrace

KILLS, ROWS = 3, 60


def update_and_copy(dsn: str, number: int) -> None:
    """Two transactions on the heels of each other: the rows of the second begin where the first's commit ends."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update t set v = v + 1 where id = 0")
        with connection.cursor() as cursor, cursor.copy("copy t from stdin") as copy:
            for row in range(ROWS):
                copy.write_row((1 + number * ROWS + row, 1))


@pytest.mark.timeout(900)
def test_rows_copied_in_one_go_as_the_worker_is_killed_come_once(
    postgres: Postgres, log: Headrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Connector.config

    def one_by_one(self: Connector, *arguments: object) -> dict[str, str]:
        return {**whole(self, *arguments), "max.batch.size": "1", "max.queue.size": "2"}  # type: ignore[arg-type]

    monkeypatch.setattr(Connector, "config", one_by_one)
    dsn = postgres.create("copies")
    postgres.execute("create table t (id bigint primary key, v int); insert into t values (0, 1)", "copies")
    running = Running("copies", [Captured("copies", Source(dsn, table="t"))], log.bootstrap, tmp_path)
    reader = Reader(log.bootstrap, "copies")
    try:
        running.until(lambda: running.state("copies") == "streaming")
        for number in range(KILLS):
            before = len(reader.changes)
            update_and_copy(dsn, number)
            reader.until(lambda: len(reader.changes) > before + 5)  # noqa: B023
            running.kill_worker()
            found = postgres.execute("select id, v from t", "copies")
            rows = {json.dumps({"id": key}): {"id": key, "v": version} for key, version in found}
            reader.until(lambda: reader.table() == rows)  # noqa: B023
        reader.read(2.0)
        assert broken_sequences(reader.changes) == []
    finally:
        running.stop()
        reader.close()
