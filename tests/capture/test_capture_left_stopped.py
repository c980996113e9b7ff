"""A connector that a kill left stopped halfway goes on; one that somebody has paused does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from tests.capture.databases import Postgres
from tests.capture.running import Running
from tests.capture.topics import Reader
from tests.servers import Headrace


def rows(postgres: Postgres) -> dict[str, dict[str, int]]:
    return {json.dumps({"id": key}): {"id": key} for (key,) in postgres.execute("select id from t", "halfway")}


def stop_behind_its_back(running: Running) -> None:
    """As the supervisor does before it sweeps, or gives a connector another configuration."""
    supervisor = running.run.supervisor
    assert supervisor is not None
    assert supervisor.worker is not None
    for name in supervisor.worker.rest.connectors():
        supervisor.worker.rest.stop(name)


@pytest.mark.timeout(900)
def test_a_connector_left_stopped_goes_on_and_a_paused_one_does_not(
    postgres: Postgres, log: Headrace, tmp_path: Path
) -> None:
    dsn = postgres.create("halfway")
    postgres.execute("create table t (id int primary key); insert into t values (1)", "halfway")
    running = Running("halfway", [Captured("halfway", Source(dsn, table="t"))], log.bootstrap, tmp_path)
    reader = Reader(log.bootstrap, "halfway")
    try:
        running.until(lambda: running.state("halfway") == "streaming")
        stop_behind_its_back(running)
        running.kill_worker()
        postgres.execute("insert into t values (2)", "halfway")
        reader.until(lambda: reader.table() == rows(postgres))

        stop_behind_its_back(running)
        postgres.execute("insert into t values (3)", "halfway")
        reader.until(lambda: reader.table() == rows(postgres))
        running.until(lambda: running.state("halfway") == "streaming")  # or "paused" would be the stop of before

        running.run.ask("halfway", "pause")
        running.until(lambda: running.state("halfway") == "paused")
        killed = running.worker_pid
        running.kill_worker()
        running.until(lambda: running.state("halfway") == "starting")
        postgres.execute("insert into t values (4)", "halfway")
        running.until(lambda: running.state("halfway") == "paused")
        assert running.worker_pid != killed
        reader.read()
        assert json.dumps({"id": 4}) not in reader.table()
        running.run.ask("halfway", "resume")
        reader.until(lambda: reader.table() == rows(postgres))
        assert sorted(change.key["id"] for change in reader.changes) == [1, 2, 3, 4]
    finally:
        running.stop()
        reader.close()
