"""A kill between the records of one change, which are polled one by one: they are written together all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from tests.capture.databases import Postgres
from tests.capture.kill_rounds import broken_sequences
from tests.capture.running import Running
from tests.capture.topics import Reader
from tests.servers import Headrace

KILLS, ROWS = 2, 8


@pytest.mark.timeout(900)
def test_changes_of_keys_are_whole_and_exact_though_the_worker_is_killed_as_they_come(
    postgres: Postgres, log: Headrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Connector.config

    def one_by_one(self: Connector, *arguments: object) -> dict[str, str]:
        return {**whole(self, *arguments), "max.batch.size": "1", "max.queue.size": "2"}  # type: ignore[arg-type]

    monkeypatch.setattr(Connector, "config", one_by_one)
    dsn = postgres.create("torn")
    postgres.execute("create table t (id bigint primary key, v int)", "torn")
    postgres.execute(f"insert into t select g, 1 from generate_series(1, {KILLS * ROWS}) g", "torn")
    running = Running("torn", [Captured("torn", Source(dsn, table="t"))], log.bootstrap, tmp_path)
    reader = Reader(log.bootstrap, "torn")
    try:
        reader.until(lambda: len(reader.changes) == KILLS * ROWS)
        running.until(lambda: running.state("torn") == "streaming")
        for number in range(KILLS):
            reader.read()
            before = len(reader.changes)
            low = number * ROWS
            postgres.execute(f"update t set id = id + 1000 where id > {low} and id <= {low + ROWS}", "torn")
            reader.until(lambda: len(reader.changes) > before + 4)  # noqa: B023
            running.kill_worker()
            rows = {
                json.dumps({"id": key}): {"id": key, "v": 1} for (key,) in postgres.execute("select id from t", "torn")
            }
            reader.until(lambda: reader.table() == rows)  # noqa: B023
        assert broken_sequences(reader.changes) == []
        changes = [(change.op, change.key["id"]) for change in reader.changes[KILLS * ROWS :]]
        moves = [[("d", key), ("tombstone", key), ("c", key + 1000)] for key in range(1, KILLS * ROWS + 1)]
        assert changes == [one for move in moves for one in move]
    finally:
        running.stop()
        reader.close()
